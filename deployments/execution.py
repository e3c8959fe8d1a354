"""Prefect's runner and worker with our own engine, so that neither executes what a stored deployment contains."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import anyio
from prefect import Flow
from prefect.client.schemas.objects import FlowRun
from prefect.runner import Runner
from prefect.runner._control_channel import ControlChannel
from prefect.runner._flow_run_executor import FlowRunExecutorContext
from prefect.runner._starter_engine import EngineCommandStarter
from prefect.utilities.processutils import command_to_string
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker, ProcessWorkerResult

from deployments.definitions import FLOWS
from tasks.workspace.folders import Workspace


def _engine(workspaces: Sequence[Workspace], channel: ControlChannel) -> EngineCommandStarter:
    """The starter of our engine for these workspaces, with this process's environment."""
    roots = [str(workspace.root) for workspace in workspaces]
    command = [sys.executable, "-P", "-m", "deployments.process", "deployments.engine", *roots]
    return EngineCommandStarter(command=command_to_string(command), control_channel=channel)


async def _without_hooks(_run: FlowRun) -> Flow[..., Any]:
    """A flow without hooks for Prefect to inspect; our flows have none, and a stored flow is not loaded."""
    return next(iter(FLOWS.values()))


class ReleaseRunner(Runner):
    """Runs what a workspace's deployments start; when it is told to end, its parent process ends the runs."""

    def __init__(self, workspace: Workspace, **settings: Any) -> None:
        super().__init__(**settings)
        self._workspace = workspace

    async def __aenter__(self) -> ReleaseRunner:
        """Start the runner with our engine instead of Prefect's."""
        await super().__aenter__()
        assert self._hook_runner is not None  # noqa: S101
        self._hook_runner._resolve_flow = _without_hooks
        self._scheduled_run_poller._resolve_starter = lambda _run: _engine([self._workspace], self._control_channel)
        return self

    def handle_sigterm(self, *_args: Any, **_kwargs: Any) -> None:
        """End."""
        raise SystemExit(0)

    async def _run_on_cancellation_hooks(self, *_args: Any, **_kwargs: Any) -> None:
        """None of our flows has hooks."""

    async def _run_on_crashed_hooks(self, *_args: Any, **_kwargs: Any) -> None:
        """None of our flows has hooks."""


class ReleaseWorker(ProcessWorker):
    """A worker of a pool that runs only the flows of given workspaces.

    Its pools have their own type, so that Prefect's workers, which would run stored steps, do not serve them.
    """

    type = "dprelease"
    workspaces: Sequence[Workspace] = ()

    async def run(
        self, flow_run: FlowRun, configuration: ProcessJobConfiguration, task_status: Any = None
    ) -> ProcessWorkerResult:
        """Run our engine; command, environment and folder of the pool, deployment or run are ignored."""
        started = task_status or anyio.TASK_STATUS_IGNORED
        async with FlowRunExecutorContext() as context:
            starter = _engine(self.workspaces, context.control_channel)
            executor = context.create_executor(flow_run, starter, resolve_flow=_without_hooks, propose_submitting=False)
            async with anyio.create_task_group() as group:
                handle = await group.start(executor.submit)
                started.started(handle.pid)
        return ProcessWorkerResult(status_code=handle.returncode or 0, identifier=str(handle.pid))
