"""What holds for every test: how many examples a property gets, and a cache that is not the account's own."""

from __future__ import annotations

import os
import tempfile

from hypothesis import HealthCheck, Phase, settings

for name, examples in {"check": 20, "test": 40, "verify": 500}.items():  # one for each target of the Makefile
    settings.register_profile(name, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("mutants", settings.get_profile("test"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("test")

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share the cache of the run that started them
    _CACHE = tempfile.TemporaryDirectory(prefix="dprelease-cache-")
    os.environ["XDG_CACHE_HOME"] = _CACHE.name
