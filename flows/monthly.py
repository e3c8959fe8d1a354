"""The scheduled release: every month that is due, in order, each as a release run of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.runtime import deployment, flow_run

from dpcore.errors import CheckFailedError, PrivacyError
from flows.release import ReleaseRequest, release
from flows.served import served
from tasks.artifacts import Board
from tasks.boundary import redacted, tell, tell_operator
from tasks.stores.arrivals import wait_until_settled
from tasks.stores.due import Due, due_periods
from tasks.stores.ledger import utc_now
from tasks.stores.ledgers import ledger_state
from tasks.stores.spec import ReleaseSpec, load_spec
from tasks.stores.workspace import Workspace

SETTLE_SECONDS = 120.0


@flow(name="monthly", retries=0, persist_result=False, log_prints=False)
def monthly(workspace: str) -> None:
    """Release every month that the schedule owes; what fails is tried again at the next firing."""
    with served(workspace) as place:
        release_due(place, since=_registered_at(), now=utc_now())


@redacted("monthly")
def release_due(place: Workspace, *, since: datetime, now: datetime) -> None:
    """Release the months whose firing lies between two moments and that nobody has released.

    A month that fails does not hold up the next one; the run itself fails then, so that it is seen.
    Raises: CheckFailedError naming the months that were not released.
    """
    spec = load_spec(place.spec_path)
    due = due_periods(spec, ledger_state(place), since=since, now=now)
    label_run(f"{spec.name} due: {', '.join(due.periods) or 'nothing'}", [spec.name, *due.periods])
    _tell_undone(due)
    if not due.periods:
        tell("no month is due: nothing was read or spent")
        return
    settle(place, spec)
    failed = [period for period in due.periods if not _released(place, period)]
    if failed:
        raise CheckFailedError(f"not released: {', '.join(failed)}; `dprelease history` says why")


def settle(place: Workspace, spec: ReleaseSpec) -> None:
    """Wait until nothing is being written to the landing data; bad files are put apart, which the operator is told.

    Raises: LandingError if that takes too long.
    """
    for refusal in wait_until_settled(place, spec, seconds=SETTLE_SECONDS):
        tell_operator(f"a file was put into quarantine ({refusal.rule})")


def _released(place: Workspace, period: str) -> bool:
    """Whether a month's release came to its end; its own run tells how."""
    try:
        release(ReleaseRequest(workspace=str(place.root), period=period))
    except PrivacyError as error:
        tell_operator(f"{period} was not released: {error}")
        return False
    return True


def label_run(title: str, words: Sequence[str]) -> None:
    """Name the present run, and tag it besides."""
    board, kept = Board(str(flow_run.id)), list(dict.fromkeys([*(flow_run.tags or []), *words]))
    board.attempt("the run's name", lambda: board.label(name=title, tags=kept))


def _tell_undone(due: Due) -> None:
    for period in due.refused:
        tell(f"{period} was refused for the budget; `dprelease run --period {period}` tries it again")
    for period in due.untold:
        tell(f"{period} was missed, but without source.period its data cannot be told from a later month's")


def _registered_at() -> datetime:
    """When the schedule began: months before it were never promised."""
    if deployment.id is None:
        return utc_now()
    with get_client(sync_client=True) as client:
        created = client.read_deployment(UUID(deployment.id)).created
    return plain_utc(created) if created else utc_now()


def plain_utc(moment: datetime) -> datetime:
    """A moment of Prefect's own type as the standard library's."""
    return datetime.fromtimestamp(moment.timestamp(), UTC)
