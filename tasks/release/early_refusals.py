"""Faults that refuse a run before it starts a server."""

from __future__ import annotations

from contextlib import closing

from tasks.landing.column_faults import column_faults, require_none
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.opening import has_ledger, readable_ledger
from tasks.release.context import ReleaseRun

SETTLED = (ReleaseStatus.PUBLISHED, ReleaseStatus.AWAITING_APPROVAL)
"""A period in one of these states is not released by a run, whatever its landing files are by now."""


def require_columns(run: ReleaseRun) -> None:
    """Refuse landing files with other columns or types than the specification declares.

    Data that a query brings are not there yet, and those of a period that is released already are not looked at.
    Raises: LandingError with every fault.
    """
    if not run.arrival.is_queried and not _is_settled(run):
        require_none(column_faults(run.arrival.landing))


def _is_settled(run: ReleaseRun) -> bool:
    if run.supersedes or not has_ledger(run.workspace):
        return False
    with closing(readable_ledger(run.workspace)) as ledger:
        return any(known.status in SETTLED for known in ledger.state().of_period(run.spec.name, run.period))
