"""Faults that refuse a run before it starts a server."""

from __future__ import annotations

from contextlib import closing

from tasks.landing.column_faults import column_faults, require_none
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.opening import has_ledger, readable_ledger
from tasks.release.context import PreparedRelease
from tasks.workspace.folders import Workspace

SETTLED = (ReleaseStatus.PUBLISHED, ReleaseStatus.AWAITING_APPROVAL)
"""A period in one of these states is not released by a run, whatever its landing files are by now."""


def require_columns(planned: PreparedRelease, workspace: Workspace) -> None:
    """Refuse landing files with other columns or types than the specification declares.

    Data that a query brings are not there yet, and those of a period that is released already are not looked at.
    Raises: LandingError with every fault.
    """
    if not planned.arrival.is_queried and not _is_settled(planned, workspace):
        require_none(column_faults(planned.arrival.landing))


def _is_settled(planned: PreparedRelease, workspace: Workspace) -> bool:
    if planned.request.supersedes or not has_ledger(workspace):
        return False
    with closing(readable_ledger(workspace)) as ledger:
        return any(known.status in SETTLED for known in ledger.state().of_period(planned.spec.name, planned.period))
