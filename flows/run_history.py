"""The orchestrator's history, read without starting or importing it.

From the server that the workspace uses, where one answers, and from the embedded
server's database: its runs are there whether or not it is up.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from flows.server.connection import Server, ServerUnreachableError, known_server
from tasks.workspace.folders import Workspace

Runs = Mapping[str, Mapping[str, Any]]

DATABASE = "prefect.db"
FLOW = "release"
QUERY = """
    select run.id, run.name, run.tags, run.state_type, run.state_name, coalesce(run.start_time, run.created)
    from flow_run run join flow on flow.id = run.flow_id where flow.name = ?
"""
LOCK_SECONDS, ANSWER_SECONDS = 2.0, 5.0
"""How long a database that somebody writes to, and a server, may take."""

PAGE, MOST_PAGES = 200, 500
"""Runs that the server gives at once, and how often it is asked: a hundred thousand are enough."""


def recorded_runs(workspace: Workspace) -> Runs | None:
    """All release runs that are at hand, by id: name, tags, state and start; None where there is no history.

    `own` are those of this workspace, as a server may serve several; `served` those that a
    server has now, and shows on a page. A server that does not answer is left out.
    """
    found = _from_server(workspace, known_server(workspace))
    runs = (_from_file(workspace) or {}) | (found or {})
    return runs or None


def complete_runs(workspace: Workspace) -> Runs | None:
    """The same for an audit, which takes what is missing for lost: None if a part of it cannot be read now."""
    server = known_server(workspace)
    found = _from_server(workspace, server)
    if found is None and server is not None and os.environ.get("PREFECT_API_URL"):
        return None  # another server's history; that of `dprelease serve` is in the file too
    here = _from_file(workspace)
    if here is None and found is None:
        return None
    return (here or {}) | (found or {}) or None


# -- from the file -----------------------------------------------------------------


def _from_file(workspace: Workspace) -> dict[str, dict[str, Any]] | None:
    """The runs of the embedded server's database; None where there is none, or it cannot be read."""
    path = workspace.prefect_home / DATABASE
    if not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=LOCK_SECONDS)) as connection:
            rows = connection.execute(QUERY, (FLOW,)).fetchall()
    except sqlite3.Error:
        return None  # another version's tables, or somebody else's lock
    return {str(row[0]): _file_run(row) for row in rows}


def _file_run(row: tuple[Any, ...]) -> dict[str, Any]:
    """A run as the table has it; the file lies in the workspace, so the run is its own wherever that was moved."""
    _, name, tags, state, state_name, start = row
    return _run(name, json.loads(tags or "[]"), state, state_name, start) | {"own": True, "served": False}


# -- from the server ---------------------------------------------------------------


def _from_server(workspace: Workspace, server: Server | None) -> dict[str, dict[str, Any]] | None:
    """The runs that the server knows; None where there is none, or it does not answer."""
    if server is None:
        return None
    try:
        return {str(body["id"]): _server_run(body, workspace.root) for body in _pages(server)}
    except (ServerUnreachableError, KeyError, TypeError, AttributeError):
        return None  # down, or it answers in a way that we do not know


def _pages(server: Server) -> Iterator[dict[str, Any]]:
    for page in range(MOST_PAGES):
        wanted = {"flows": {"name": {"any_": [FLOW]}}, "sort": "ID_DESC", "limit": PAGE, "offset": page * PAGE}
        bodies = server.ask("POST", "/flow_runs/filter", wanted, seconds=ANSWER_SECONDS)
        yield from bodies
        if len(bodies) < PAGE:
            return


def _server_run(body: dict[str, Any], root: Path) -> dict[str, Any]:
    start = body.get("start_time") or body.get("created")
    asked = (body.get("parameters") or {}).get("request") or {}
    run = _run(body["name"], body.get("tags") or [], body["state_type"], body.get("state_name"), start)
    return run | {"own": asked.get("workspace") == str(root), "served": True}


def _run(name: str, tags: list[str], state: str, state_name: str | None, start: Any) -> dict[str, Any]:
    moment = str(start).replace(" ", "T")[:19]
    return {"name": name, "tags": tags, "state": state, "state_name": state_name, "start": moment}
