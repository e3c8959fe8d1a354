"""What the tests of the whole system share, and an empty ledger's place in each of the databases."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fixtures import database, ledger, published, server, story, workspace  # noqa: F401
from support.tasks.builders import Place


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The place for a test that asks for both."""
    if request.param == "sqlite":
        return Place(tmp_path / "ledger.db", tmp_path)
    address = request.getfixturevalue("server").url(request.getfixturevalue("database"))
    return Place(address, tmp_path)
