"""The operator's guide, every command of it; what needs PostgreSQL where there is one."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.deployments.guides import GUIDES, Reader, steps_of
from support.tasks.ledger.postgres import complete_binaries, running_server, wheel


@contextmanager
def with_databases(reader: Reader) -> Iterator[Reader]:
    """Give the reader databases for the ledger and for Prefect's server, as far as this machine has them."""
    complete = complete_binaries()
    if complete is None and wheel() is None:
        yield reader
        return
    with running_server(complete) if complete else running_server() as server:
        ledger, prefect = server.fresh(), server.fresh()
        reader.more = {
            "LEDGER": server.url(ledger, "releaser"),
            "OWNER": server.url(ledger),
            "SERVER_DATABASE": f"postgresql+asyncpg://postgres@/{prefect}?host={server.socket}",
        }
        reader.runs_sql = lambda text: _execute(server, text)
        whole = complete is not None and importlib.util.find_spec("asyncpg") is not None
        reader.has = frozenset({"postgres", "prefect-postgres"} if whole else {"postgres"})
        yield reader


def _execute(server: object, text: str) -> None:
    statements = [statement for statement in text.split(";") if statement.strip()]
    server.execute(*statements)  # type: ignore[attr-defined]


@pytest.mark.slow  # minutes of releases by themselves; `make verify` types it
@pytest.mark.timeout(900)
def test_the_operator_s_guide_runs(tmp_path: Path):
    with with_databases(Reader(tmp_path / "folder", tmp_path / "home")) as reader:
        reader.follow(steps_of((GUIDES / "operator.md").read_text()))
    missing = {"postgres", "prefect-postgres"} - reader.has
    if missing:
        pytest.skip(f"all but the commands about PostgreSQL ran: not installed here is {', '.join(sorted(missing))}")
