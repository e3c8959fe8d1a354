"""Workspaces and their sites, made once for all tests that look at them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.tasks import monthly
from support.tasks.sited import written

from tasks.stores.workspace import Workspace


@pytest.fixture(scope="session")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with twelve months against a cap that allows ten; not to be changed."""
    return monthly.a_year(tmp_path_factory.mktemp("year") / "workspace").root


@pytest.fixture(scope="session")
def year_site(year: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its site."""
    out = tmp_path_factory.mktemp("year-site") / "site"
    written(Workspace(year), out)
    return out


@pytest.fixture(scope="session")
def eventful_site(year: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a workspace in which everything happened that can happen."""
    root = tmp_path_factory.mktemp("eventful")
    workspace = Workspace(Path(shutil.copytree(year, root / "workspace")))
    monthly.eventful(workspace)
    written(workspace, root / "site", prefect_url="http://127.0.0.1:4200/")
    return root / "site"
