"""A published workspace, and a ledger's place in a SQLite file."""

from __future__ import annotations

from pathlib import Path

import matplotlib.font_manager  # noqa: F401  its first import asks a process for fonts, which no unit test may
import pytest
from support.fixtures import ledger, published, workspace  # noqa: F401
from support.tasks.builders import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty ledger's place in a SQLite file; tests/system has the same tests on PostgreSQL."""
    return Place(tmp_path / "ledger.db", tmp_path)
