"""Executes one flow run of our deployments, and no other: `python -P -m deployments.engine WORKSPACE...`.

Prefect's own engine executes what is stored on the server: it runs pull steps and imports an entry point that anybody
who can write to the server may have planted. The runner of `serve` and our worker start this engine instead:
1. It reads the run and its deployment from the server.
2. It compares them with what these workspaces register, and refuses any difference; the run's state states the reason.
3. It runs the installed program's flow with the compared parameters, and loads no stored result, because a state on
   the server could name a file of somebody else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import Flow
from prefect._internal.control_listener import configure_from_env
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.engine import handle_engine_signals
from prefect.flow_engine import run_flow
from prefect.states import Failed

from deployments.definitions import FLOWS, changes, deployments_of
from dpcore.errors import RefusedError
from flows.server.isolation import forbid_stored_results
from flows.server.worker_process import SERVED
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace


def registered_flow(client: SyncPrefectClient, run: FlowRun, workspaces: Sequence[Workspace]) -> Flow[..., Any]:
    """The flow of a run, if the run and its deployment are those that one of the workspaces registers.

    Raises: RefusedError, which names the settings that differ.
    """
    if run.deployment_id is None:
        raise _unregistered("no deployment")
    stored = client.read_deployment(run.deployment_id)
    full = (client.read_flow(run.flow_id).name, stored.name)
    for workspace in workspaces:
        for registered in deployments_of(workspace, load_spec(workspace.spec_path)):
            if (registered.flow_name, registered.name) == full:
                if changed := changes(stored, run, registered):
                    raise _unregistered(", ".join(changed))
                return FLOWS[full[0]]
    raise _unregistered("name")


def _unregistered(what: str) -> RefusedError:
    return RefusedError(
        f"the deployment on the server differs from the registered one: {what}",
        rule="deployment-changed",
        where="the orchestration server",
        hint="find out who wrote to the server; `dprelease serve` registers the deployments again when it starts",
    )


def main() -> None:
    """Check the run that the environment names, and execute it."""
    forbid_stored_results()
    os.environ[SERVED] = os.pathsep.join(sys.argv[1:])  # the flow checks its parameters again
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(os.environ["PREFECT__FLOW_RUN_ID"]))
        try:
            flow = registered_flow(client, run, [Workspace(Path(root)) for root in sys.argv[1:]])
        except RefusedError as error:
            sys.stderr.write(f"refused ({error.rule}): {error}\n  hint   {error.hint}\n")
            client.set_flow_run_state(run.id, Failed(name="Refused", message=f"{error}; {error.hint}"), force=True)
            return
    configure_from_env()  # so that the runner can send the reason when it ends this process
    with handle_engine_signals(run.id):
        run_flow(flow, flow_run=run)


if __name__ == "__main__":
    main()
