"""What tests of several rooms ask for: a published workspace, the story of releases, a PostgreSQL server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.flows.storybook import Story, tell_story
from support.once import made_once
from support.tasks.builders import Place, opened
from support.tasks.ledger.postgres import NOT_THERE, Server, running_server, wheel
from support.tasks.staged import publish_months
from tasks.ledger.store import Ledger
from tasks.workspace.folders import Workspace


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with two releases by the real stages; not to be changed."""
    return made_once(tmp_path_factory, "published", publish_months)


@pytest.fixture
def workspace(published: Path, tmp_path: Path) -> Workspace:
    """A copy of the published workspace, to be changed."""
    return Workspace(Path(shutil.copytree(published, tmp_path / "workspace")))


@pytest.fixture
def ledger(place: Place) -> Iterator[Ledger]:
    """An empty ledger, wherever the tests of a folder keep theirs."""
    with opened(place) as ledger:
        yield ledger


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The whole story, through the command line, the flow and an embedded server; not to be changed."""
    return Story.read(made_once(tmp_path_factory, "story", tell_story))


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server."""
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
