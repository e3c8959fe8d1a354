"""How long a file must not change to be complete: one setting for the watcher and for every run that waits."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.workspace.files import private_file
from tasks.workspace.reading import read_text

if TYPE_CHECKING:
    from tasks.workspace.folders import Workspace

SETTLE_SECONDS = 5.0
"""A file that did not change for so long is complete, unless `serve` was started with another --settle."""
SETTING = "settle"
"""A file in the workspace's Prefect home: there, the workers of a pool find the setting too."""


def keep_settle(workspace: Workspace, seconds: float) -> AbstractContextManager[Path]:
    """Set after how many seconds a file is complete, for all processes that work on the workspace during the block."""
    return private_file(workspace.prefect_home / SETTING, f"{seconds:g}")


def settle_seconds(workspace: Workspace) -> float:
    """Return after how many seconds without a change a file is complete."""
    try:
        return float(read_text(workspace.prefect_home / SETTING))
    except (OSError, ValueError):
        return SETTLE_SECONDS
