"""The orchestrator's history, read from the embedded server's database without starting it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from tasks.stores.workspace import Workspace

DATABASE = "prefect.db"
QUERY = """
    select run.id, run.name, run.tags, run.state_type, coalesce(run.start_time, run.created)
    from flow_run run join flow on flow.id = run.flow_id where flow.name = 'release'
"""


def recorded_runs(workspace: Workspace) -> Mapping[str, Mapping[str, Any]] | None:
    """The release runs by id: name, tags, state and start; None where no history is at hand."""
    path = workspace.prefect_home / DATABASE
    if not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
            rows = connection.execute(QUERY).fetchall()
    except sqlite3.Error:
        return None  # another version's tables, or somebody else's lock
    return {str(row[0]): _run(*row[1:]) for row in rows} or None


def _run(name: str, tags: str, state: str, start: str) -> dict[str, Any]:
    moment = str(start).replace(" ", "T")[:19]
    return {"name": name, "tags": json.loads(tags or "[]"), "state": state, "start": moment}
