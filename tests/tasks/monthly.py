"""Workspaces with many months, made by the real stages with a clock that goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import staged

from dpcore.errors import BudgetExceededError
from tasks.stores.ledger import Ledger
from tasks.stores.ledgers import ledger_address
from tasks.stores.signing import signing_key
from tasks.stores.spec import ReleaseSpec
from tasks.stores.workspace import Workspace


@contextmanager
def clock_at(moment: datetime) -> Iterator[None]:
    """Let every ledger that a run opens write from this moment on, three seconds an entry."""
    ticks = (moment + timedelta(seconds=3 * i) for i in range(10_000))

    def opened(workspace: Workspace, spec: ReleaseSpec) -> Ledger:
        return Ledger.open(ledger_address(workspace, spec), signing_key(workspace.keys), clock=lambda: next(ticks))

    with mock.patch("tasks.stores.run.writable_ledger", opened):
        yield


def months(first: str, count: int) -> list[str]:
    """So many periods from the first."""
    year, month = map(int, first.split("-"))
    return [f"{year + (month - 1 + i) // 12}-{(month - 1 + i) % 12 + 1:02d}" for i in range(count)]


def morning_after(period: str) -> datetime:
    """Six in the morning of the first day after a month, when the schedule fires."""
    year, month = map(int, months(period, 2)[1].split("-"))
    return datetime(year, month, 1, 6, 0, 12, tzinfo=UTC)


def release_months(workspace: Workspace, periods: Sequence[str], *, land: bool = True) -> list[str]:
    """Release each month on the morning after it; returns the months that the budget refused."""
    refused = []
    for period in periods:
        if land:
            staged.land_rows(workspace.root, period)
        try:
            with clock_at(morning_after(period)):
                staged.release(workspace, period)
        except BudgetExceededError:
            refused.append(period)
    return refused


def fresh(root: Path, spec: str = staged.SPEC) -> Workspace:
    """An empty workspace with a specification."""
    workspace = Workspace(root)
    workspace.create()
    workspace.spec_path.write_text(spec)
    return workspace
