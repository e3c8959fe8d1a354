"""A workspace with two published releases, made once by the real stages; both databases of a ledger."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import Place
from postgres import NOT_THERE, Server, running_server, wheel
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


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server for all tests."""
    if wheel() is None:
        pytest.skip(NOT_THERE)
    pytest.importorskip("psycopg")
    with running_server() as server:
        yield server


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """A fresh PostgreSQL database; its name."""
    name = server.fresh()
    yield name
    server.drop(name)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty ledger's place in each of the databases."""
    if request.param == "sqlite":
        return Place(tmp_path / "ledger.db", tmp_path)
    database = request.getfixturevalue("database")
    return Place(request.getfixturevalue("server").url(database), tmp_path)
