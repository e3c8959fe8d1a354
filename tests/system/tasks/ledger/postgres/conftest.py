"""Tests that ask for a ledger's place get one in a PostgreSQL database; the others ran as unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tasks.builders import Place
from support.tasks.ledger.postgres import Server


@pytest.fixture
def place(server: Server, database: str, tmp_path: Path) -> Place:
    """An empty ledger's place in a database of its own."""
    return Place(server.url(database), tmp_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    items[:] = [item for item in items if item.path.parent != here or "place" in getattr(item, "fixturenames", ())]
