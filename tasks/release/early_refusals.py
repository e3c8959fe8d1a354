"""Faults that refuse a run before it starts a server."""

from __future__ import annotations

from contextlib import closing

from tasks.landing.column_faults import column_faults, require_none
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.opening import has_ledger, readable_ledger
from tasks.ledger.refusals import require_not_retracted
from tasks.ledger.releases import ReleaseState
from tasks.release.context import PreparedRelease
from tasks.workspace.folders import Workspace

SETTLED = (ReleaseStatus.PUBLISHED, ReleaseStatus.AWAITING_APPROVAL)
"""A period in one of these states is not released by a run, whatever its landing files are by now."""


def require_releasable(planned: PreparedRelease, workspace: Workspace) -> None:
    """Refuse landing files with other columns or types than the specification declares, and a retracted period.

    Data that a query brings are not there yet, and those of a period that is released already are not looked at.
    Raises: LandingError with every fault; LedgerError.
    """
    known = _releases_of_period(planned, workspace)
    require_not_retracted(known[-1] if known else None)
    if not planned.arrival.is_queried and not any(release.status in SETTLED for release in known):
        require_none(column_faults(planned.arrival.landing))


def _releases_of_period(planned: PreparedRelease, workspace: Workspace) -> list[ReleaseState]:
    """The period's releases; none for a run that supersedes one of them."""
    if planned.request.supersedes or not has_ledger(workspace):
        return []
    with closing(readable_ledger(workspace)) as ledger:
        return ledger.state().of_period(planned.spec.name, planned.period)
