"""A workspace with two published releases, made once by the real stages without the orchestrator."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from staged import PERIODS, SPEC, land_rows, release

from tasks.stores.workspace import Workspace


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace as it was released; not to be changed."""
    root = tmp_path_factory.mktemp("published")
    Workspace(root).create()
    (root / "release.yaml").write_text(SPEC)
    for period in PERIODS:
        land_rows(root, period)
        release(Workspace(root), period)
    return root


@pytest.fixture
def workspace(published: Path, tmp_path: Path) -> Workspace:
    """A copy of the published workspace, to be changed."""
    return Workspace(Path(shutil.copytree(published, tmp_path / "workspace")))
