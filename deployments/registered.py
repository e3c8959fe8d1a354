"""The deployments of a workspace as code: monthly release, release on landing, nightly audit."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from prefect import Flow
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.events import DeploymentEventTrigger
from prefect.types.entrypoint import EntrypointType

from deployments.environment import NIGHTLY
from flows.announce import EVENT, resource_of
from flows.landing import landing
from flows.monthly import monthly
from flows.nightly import nightly_audit
from tasks.stores.spec import ReleaseSpec
from tasks.stores.workspace import Workspace

DESCRIPTIONS = {
    "monthly": "Releases every month that the schedule owes, in order; missed ones are caught up.",
    "landing": "Releases the month of a file that landed; the schedule may fire for the same month, it happens once.",
    "nightly-audit": "Verifies ledger, bundles, records and lineage; a fault fails the run.",
}


def deployments_of(workspace: Workspace, spec: ReleaseSpec, *, pool: str | None = None) -> Iterator[RunnerDeployment]:
    """The three deployments, as the specification's schedule says; with a work pool, for its workers.

    What the schedule does not ask for is registered without schedule or trigger: it can be run
    by hand, and a schedule that was taken back ends.
    """
    schedule, zone = spec.schedule, spec.schedule.timezone
    cron = [CronSchedule(cron=schedule.cron, timezone=zone)] if schedule.cron else []
    yield _deployment(monthly, workspace, spec, pool, schedules=cron)
    yield _deployment(landing, workspace, spec, pool, triggers=[landing_trigger(spec)] if schedule.on_landing else [])
    yield _deployment(nightly_audit, workspace, spec, pool, schedules=[CronSchedule(cron=NIGHTLY, timezone=zone)])


def landing_trigger(spec: ReleaseSpec) -> DeploymentEventTrigger:
    """A run for every landing event of the dataset; the arrival's token is all that it is told."""
    return DeploymentEventTrigger(
        name=f"{spec.name} landed",
        expect={EVENT},
        match={"prefect.resource.id": resource_of(spec)},
        parameters={"arrival": "{{ event.payload.arrival }}"},
        within=timedelta(0),
        threshold=1,
    )


def _deployment(
    flow: Flow[..., Any], workspace: Workspace, spec: ReleaseSpec, pool: str | None, **when: Any
) -> RunnerDeployment:
    return RunnerDeployment.from_flow(
        flow,
        name=spec.name,
        description=DESCRIPTIONS[flow.name],
        tags=["dprelease", spec.name],
        parameters={"workspace": str(workspace.root)},
        entrypoint_type=EntrypointType.MODULE_PATH,
        enforce_parameter_schema=False,
        work_pool_name=pool,
        job_variables={"working_dir": str(Path(workspace.root))} if pool else None,
        **when,
    )
