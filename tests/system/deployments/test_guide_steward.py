"""The steward's guide, every command of it; in a file of its own, so that another process may read another guide."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.deployments.guides import GUIDES, Reader, steps_of


@pytest.mark.slow  # minutes of releases by themselves; `make verify` types it
@pytest.mark.timeout(900)
def test_the_steward_s_guide_runs(tmp_path: Path):
    Reader(tmp_path / "folder", tmp_path / "home").follow(steps_of((GUIDES / "steward.md").read_text()))
