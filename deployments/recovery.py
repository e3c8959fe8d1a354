"""Recovery after downtime: runs whose process has ended, and scheduled runs that were missed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Cancelled, Crashed

from tasks.intake.arrivals import Arrivals
from tasks.ledger.opening import ledger_state
from tasks.schedule.due import Due, due_periods, schedule_began
from tasks.spec import ReleaseSpec
from tasks.workspace.clock import plain_utc
from tasks.workspace.folders import Workspace

ALIVE = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]
LATE = timedelta(seconds=30)
PAGE = 200


async def close_dead_runs(client: PrefectClient, deployments: Sequence[UUID]) -> int:
    """Mark runs in the state Running as crashed: nothing serves this workspace yet, so none of them is running.

    Their releases are not lost: the ledger contains what was drawn, and the month is still due.
    """
    ours = FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=list(deployments)), state=_in(ALIVE))
    dead = await _all(client, ours)
    if dead:
        parents = FlowRunFilterParentFlowRunId(any_=[run.id for run in dead])
        dead += await _all(client, FlowRunFilter(parent_flow_run_id=parents, state=_in(ALIVE)))
    words = "the process of this run had ended before `dprelease serve` started again; another run resumes the release"
    for run in dead:
        await client.set_flow_run_state(run.id, Crashed(message=words), force=True)
    return len(dead)


async def drop_late_firings(client: PrefectClient, deployment: UUID, now: datetime) -> None:
    """Cancel late scheduled runs; a single run releases all months that they would have released."""
    waiting = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=[deployment]), state=_in([StateType.SCHEDULED])
    )
    for run in await _all(client, waiting):
        if run.auto_scheduled and run.expected_start_time and run.expected_start_time < now - LATE:
            words = "missed while `dprelease serve` was not running; a later run releases what is due"
            await client.set_flow_run_state(run.id, Cancelled(message=words), force=True)


async def catch_up(client: PrefectClient, deployment: UUID, workspace: Workspace, spec: ReleaseSpec) -> Due:
    """Start one run for the missed months, if there are any."""
    now = datetime.now(UTC)
    created = (await client.read_deployment(deployment)).created
    since = schedule_began(workspace, plain_utc(created) if created else now)
    due = due_periods(spec, ledger_state(workspace), since=since, now=now)
    if due.periods:
        await client.create_flow_run_from_deployment(deployment, tags=["catch-up"])
    return due


async def resume_arrivals(client: PrefectClient, deployment: UUID, workspace: Workspace) -> int:
    """Start runs for announced months that no run has handled: a server that crashes forgets its events."""
    scheduled = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=[deployment]), state=_in([StateType.SCHEDULED])
    )
    waiting = {run.parameters.get("arrival") for run in await _all(client, scheduled)}
    lost = [arrival.token for arrival in Arrivals(workspace).pending() if arrival.announced_at]
    left = [token for token in lost if token not in waiting]
    for token in left:
        parameters = {"workspace": str(workspace.root), "arrival": token}
        await client.create_flow_run_from_deployment(deployment, parameters=parameters, tags=["resumed"])
    return len(left)


async def _all(client: PrefectClient, wanted: FlowRunFilter) -> list[FlowRun]:
    """All runs that a filter finds, page by page."""
    found: list[FlowRun] = []
    while page := await client.read_flow_runs(flow_run_filter=wanted, limit=PAGE, offset=len(found)):
        found += page
    return found


def _in(types: list[StateType]) -> FlowRunFilterState:
    return FlowRunFilterState(type=FlowRunFilterStateType(any_=types))
