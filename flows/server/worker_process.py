"""The preparation of a flow that `dprelease serve` or a worker runs in its own process."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from dpcore.errors import WorkspaceError
from flows.server.embedded import end_with_parent, forbid_core_dumps
from tasks.boundary import PROGRESS
from tasks.workspace.folders import Workspace

SERVED = "DPRELEASE_SERVED"
"""The variable with the workspaces that a process of `dprelease serve` or of a worker may use."""


@contextmanager
def enter_workspace(workspace: str) -> Iterator[Workspace]:
    """Open the workspace, in a process that writes no core dumps and ends with its parent.

    Raises: WorkspaceError for a workspace that the parent process did not name: a run's parameters come from the
    server, where somebody may have changed them.
    """
    forbid_core_dumps()
    if os.environ.get(SERVED):
        end_with_parent()
        _require_named(workspace, os.environ[SERVED].split(os.pathsep))
    place = Workspace(Path(workspace))
    place.require()
    handler = _Lines(sys.stderr)
    PROGRESS.addHandler(handler)
    PROGRESS.setLevel(logging.INFO)
    try:
        yield place
    finally:
        PROGRESS.removeHandler(handler)


def _require_named(workspace: str, named: list[str]) -> None:
    if workspace not in named:
        raise WorkspaceError(
            "the run is for a workspace that is not served here",
            rule="workspace-not-served",
            where="parameters",
            hint="find out who wrote to the orchestration server",
        )


class _Lines(logging.StreamHandler):  # type: ignore[type-arg]
    """Write each progress message as one line with its time."""

    def format(self, record: logging.LogRecord) -> str:
        mark = "!" if record.levelno >= logging.WARNING else "✓"
        return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%SZ} {mark} {record.getMessage()}"
