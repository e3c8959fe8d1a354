"""What holds for every test: a busy machine makes none of them fail, and the account's own cache stays as it is."""

from __future__ import annotations

import os
import tempfile

from hypothesis import HealthCheck, settings

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

_CACHES = tempfile.TemporaryDirectory(prefix="dprelease-cache-")
os.environ["XDG_CACHE_HOME"] = _CACHES.name
