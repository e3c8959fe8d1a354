"""The deployments of a workspace as code: monthly release, release on landing, nightly audit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from prefect import Flow
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.events import DeploymentEventTrigger
from prefect.types.entrypoint import EntrypointType

from deployments.environment import NIGHTLY
from flows.announce import EVENT, resource_of
from flows.landing import landing
from flows.monthly import monthly
from flows.nightly import nightly_audit
from tasks.spec import ReleaseSpec
from tasks.workspace.folders import Workspace

FLOWS: dict[str, Flow[..., Any]] = {flow.name: flow for flow in (monthly, landing, nightly_audit)}
"""The flows that our deployments may run, by name."""
ARRIVAL = re.compile(r"[0-9a-f]{1,64}")
DESCRIPTIONS = {
    "monthly": "Releases every due month in order, including missed ones.",
    "landing": "Releases a month for which data landed; a month is released once, even if the schedule fires too.",
    "nightly-audit": "Verifies ledger, bundles, records and lineage; a fault fails the run.",
}


def deployments_of(workspace: Workspace, spec: ReleaseSpec, *, pool: str | None = None) -> Iterator[RunnerDeployment]:
    """The three deployments with the specification's schedule, for the workers of a pool if one is given.

    A deployment that the schedule does not ask for is registered without schedule or trigger, so that it
    can be run by hand and an earlier schedule ends.
    """
    schedule, zone = spec.schedule, spec.schedule.timezone
    cron = [CronSchedule(cron=schedule.cron, timezone=zone)] if schedule.cron else []
    yield _deployment(monthly, workspace, spec, pool, schedules=cron)
    yield _deployment(landing, workspace, spec, pool, triggers=[landing_trigger(spec)] if schedule.on_landing else [])
    yield _deployment(nightly_audit, workspace, spec, pool, schedules=[CronSchedule(cron=NIGHTLY, timezone=zone)])


def landing_trigger(spec: ReleaseSpec) -> DeploymentEventTrigger:
    """The trigger that starts a run for every landing event of the dataset, with the arrival's token only."""
    return DeploymentEventTrigger(
        name=f"{spec.name} landed",
        expect={EVENT},
        match={"prefect.resource.id": resource_of(spec)},
        parameters={"arrival": "{{ event.payload.arrival }}"},
        within=timedelta(0),
        threshold=1,
    )


def changes(stored: DeploymentResponse, run: FlowRun, registered: RunnerDeployment) -> list[str]:
    """The settings of a stored deployment, or of a run, that were not registered: their names, never their values.

    Anybody who can write to the server could plant steps, another entry point or other parameters there.
    """
    expected = {
        "entrypoint": stored.entrypoint == registered.entrypoint,
        "pull_steps": not stored.pull_steps,
        "storage_document_id": stored.storage_document_id is None,
        "infrastructure_document_id": stored.infrastructure_document_id is None,
        "job_variables": not stored.job_variables and not run.job_variables,
        "parameters": stored.parameters == registered.parameters and _are_ours(run, registered),
    }
    return [name for name, holds in expected.items() if not holds]


def _are_ours(run: FlowRun, registered: RunnerDeployment) -> bool:
    """Whether a run's parameters are the registered ones; a landing run also has the token of its arrival."""
    parameters = dict(run.parameters)
    if registered.flow_name == landing.name and not ARRIVAL.fullmatch(str(parameters.pop("arrival", ""))):
        return False
    return parameters == registered.parameters


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
        **when,
    )
