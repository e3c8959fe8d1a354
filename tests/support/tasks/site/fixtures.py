"""Workspaces and their sites, made once for all tests that look at them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.once import made_once
from support.tasks import monthly
from support.tasks.site.sited import written

from tasks.workspace.folders import Workspace


@pytest.fixture(scope="session")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with twelve months against a cap that allows ten; not to be changed."""
    return made_once(tmp_path_factory, "year", monthly.a_year)


@pytest.fixture(scope="session")
def year_site(year: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its site."""
    return made_once(tmp_path_factory, "year-site", lambda folder: written(Workspace(year), folder / "site")) / "site"


@pytest.fixture(scope="session")
def eventful_site(year: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a workspace in which everything happened that can happen."""

    def make(folder: Path) -> None:
        workspace = Workspace(Path(shutil.copytree(year, folder / "workspace")))
        monthly.eventful(workspace)
        written(workspace, folder / "site", prefect_url="http://127.0.0.1:4200/")

    return made_once(tmp_path_factory, "eventful", make) / "site"
