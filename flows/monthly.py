"""The scheduled release: release every due month in order, each in its own release run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.runtime import deployment, flow_run

from dpcore.errors import CheckFailedError, PrivacyError, RefusedError
from flows.release import ReleaseRequest, release
from flows.server.worker_process import enter_workspace
from flows.settling import await_landing
from tasks.artifacts import Board
from tasks.boundary import log_operator, log_public, redacted
from tasks.ledger.opening import ledger_state
from tasks.ledger.store import utc_now
from tasks.schedule.due import Due, due_periods, schedule_began
from tasks.spec import ReleaseSpec, load_spec
from tasks.workspace.clock import plain_utc
from tasks.workspace.folders import Workspace

SCHEDULED = "auto-scheduled"
"""How Prefect tags a run that a schedule started."""
NO_DATA = "landing-missing"


@flow(name="monthly", retries=0, persist_result=False, log_prints=False)
def monthly(workspace: str) -> None:
    """Release every month that is due by the schedule; failed months are tried again at the next firing."""
    with enter_workspace(workspace) as place:
        began = schedule_began(place, _registered_at())
        release_due(place, since=began, now=utc_now(), fired=_fired_at())


@redacted("monthly")
def release_due(place: Workspace, *, since: datetime, now: datetime, fired: datetime | None = None) -> None:
    """Release the unreleased months whose firing lies between two moments.

    A month that fails does not stop the next one, but the run then fails, so that the failure is seen.
    Earlier months that still have no data do not fail the run: their own runs show it.
    Raises: CheckFailedError naming the months that were not released.
    """
    spec = load_spec(place.spec_path)
    due = due_periods(spec, ledger_state(place), since=since, now=now, fired=fired)
    label_run(f"{spec.name} due: {', '.join(due.periods) or 'nothing'}", [spec.name, *due.periods])
    _log_undone(due)
    if not due.periods:
        log_public("no month is due: nothing was read or spent")
        return
    outcomes = {period: _fault(place, spec, period) for period in due.periods}
    earlier = due.periods[:-1]
    failed = [p for p, rule in outcomes.items() if rule and not (p in earlier and rule == NO_DATA)]
    if failed:
        raise CheckFailedError(f"these months were not released: {', '.join(failed)}; `dprelease history` shows why")


def _fault(place: Workspace, spec: ReleaseSpec, period: str) -> str | None:
    """Release a month and return None, or the rule or kind of its failure; its own run shows the details."""
    try:
        await_landing(place, spec, period)
        release(ReleaseRequest(workspace=str(place.root), period=period))
    except PrivacyError as error:
        log_operator(f"{period} was not released: {error}")
        return error.rule if isinstance(error, RefusedError) else type(error).__name__
    return None


def label_run(title: str, words: Sequence[str]) -> None:
    """Name the present run, and tag it besides."""
    board, kept = Board(str(flow_run.id)), list(dict.fromkeys([*(flow_run.tags or []), *words]))
    board.attempt("the run's name", lambda: board.label(name=title, tags=kept))


def _log_undone(due: Due) -> None:
    for period in due.refused:
        log_public(f"{period} was refused because of the budget; `dprelease run --period {period}` tries it again")
    for period in due.untold:
        without = "without source.period or source.period_column"
        log_public(f"{period} was missed; {without} its data cannot be distinguished from a later month's")


def _fired_at() -> datetime | None:
    """The moment for which a schedule started this run; None for a run by hand."""
    moment = flow_run.scheduled_start_time
    return plain_utc(moment) if moment and SCHEDULED in (flow_run.tags or []) else None


def _registered_at() -> datetime:
    """When the deployment was registered: months before it were never promised."""
    if deployment.id is None:
        return utc_now()
    with get_client(sync_client=True) as client:
        created = client.read_deployment(UUID(deployment.id)).created
    return plain_utc(created) if created else utc_now()
