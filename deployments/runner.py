"""Registers a workspace's deployments and runs what they start: `python -P -m deployments.runner WORKSPACE`.

With `--pool NAME` it only registers, and workers of that pool run the flows.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound

from deployments.definitions import deployments_of
from deployments.environment import REGISTERED
from deployments.execution import ReleaseRunner, ReleaseWorker
from deployments.recovery import catch_up, close_dead_runs, drop_late_firings, resume_arrivals
from deployments.supervision import LATER
from dpcore.errors import LedgerError, PrivacyError, RefusedError
from flows.retries import needs_a_person
from tasks.spec import ReleaseSpec, load_spec
from tasks.workspace.folders import Workspace

AT_ONCE = 2
"""The number of concurrent runs; releases of one name wait for each other anyway."""


async def run_deployments(workspace: Workspace, spec: ReleaseSpec, wanted: Sequence[RunnerDeployment]) -> None:
    """Register the deployments, recover interrupted and missed runs, and execute new runs."""
    runner = ReleaseRunner(workspace, name=spec.name, limit=AT_ONCE, pause_on_shutdown=False)
    async with get_client() as client:
        await _require_own(client, wanted, workspace)
        known = {str(deployment.flow_name): await runner.aadd_deployment(deployment) for deployment in wanted}
        closed = await close_dead_runs(client, list(known.values()))
        await drop_late_firings(client, known["monthly"], datetime.now(UTC))
        due = await catch_up(client, known["monthly"], workspace, spec)
        if spec.schedule.on_landing:
            await resume_arrivals(client, known["landing"], workspace)
    _tell(workspace, spec, closed, due.periods)
    await runner.start()


async def register(workspace: Workspace, spec: ReleaseSpec, wanted: Sequence[RunnerDeployment]) -> None:
    """Register the deployments for the workers of a pool, which then also run the missed months."""
    async with get_client() as client:
        await _require_own(client, wanted, workspace)
        await _require_pool(client, str(wanted[0].work_pool_name))
        known = {str(deployment.flow_name): await deployment.aapply() for deployment in wanted}
        due = await catch_up(client, known["monthly"], workspace, spec)
    _tell(workspace, spec, 0, due.periods)


async def _require_own(client: PrefectClient, wanted: Sequence[RunnerDeployment], workspace: Workspace) -> None:
    """Refuse to replace deployments that another workspace registered on this server under the same name.

    Raises: RefusedError.
    """
    for deployment in wanted:
        full = f"{deployment.flow_name}/{deployment.name}"
        try:
            there = await client.read_deployment_by_name(full)
        except ObjectNotFound:
            continue
        owner = str(there.parameters.get("workspace"))
        if owner != str(workspace.root) and Path(owner).is_dir():  # a workspace that was moved may replace its own
            raise RefusedError(
                f"this server already has the deployment {full} of another workspace",
                rule="deployment-taken",
                where="name",
                hint="give the specification another name, or use another server",
            )


async def _require_pool(client: PrefectClient, name: str) -> None:
    """Create the pool if it does not exist.

    Raises: RefusedError for a pool whose workers would run whatever steps are stored on the server.
    """
    try:
        kind = (await client.read_work_pool(name)).type
    except ObjectNotFound:
        template = ReleaseWorker.get_default_base_job_template()
        made = WorkPoolCreate(name=name, type=ReleaseWorker.type, base_job_template=template)
        kind = (await client.create_work_pool(made)).type
    if kind != ReleaseWorker.type:
        raise RefusedError(
            f"the pool is for workers of type {kind}, which run whatever steps are stored on the server",
            rule="pool-type",
            where="--pool",
            hint="name a pool that does not exist yet; it is then created for `dprelease worker`",
        )


def _tell(workspace: Workspace, spec: ReleaseSpec, closed: int, periods: Sequence[str]) -> None:
    lines = [f"registered monthly, landing and nightly-audit for {spec.name}"]
    if closed:
        lines.append("marked runs whose process had ended as crashed; their releases resume")
    if periods:
        lines.append(f"releasing missed months: {', '.join(periods)}")
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()
    (workspace.prefect_home / REGISTERED).touch()


def main() -> None:
    """Serve, or register for a pool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--pool")
    asked = parser.parse_args()
    workspace = Workspace(asked.workspace.resolve())
    try:
        spec = load_spec(workspace.spec_path)
        wanted = list(deployments_of(workspace, spec, pool=asked.pool))
        asyncio.run((register if asked.pool else run_deployments)(workspace, spec, wanted))
    except PrivacyError as error:
        hint = f" ({error.hint})" if isinstance(error, RefusedError) else ""
        sys.stderr.write(f"{error}{hint}\n")
        raise SystemExit(_code(error)) from None


def _code(error: PrivacyError) -> int:
    """The exit code: refusals end `serve`, and temporary faults lead to another attempt."""
    if isinstance(error, LedgerError) and not needs_a_person(error):
        return LATER
    return 2 if isinstance(error, RefusedError) else 3


if __name__ == "__main__":
    main()
