"""Which tests share a process: those of one file, and all that look at the one story of releases."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group tests for `--dist loadgroup`, so that what a group shares is made once."""
    for item in items:
        told = "story" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("story" if told else item.path.stem))
