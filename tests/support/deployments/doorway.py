"""A Prefect server with a history and secrets, the auditor's door before it, and requests of every shape."""

from __future__ import annotations

import http.client
import json
import re
import socket
import sqlite3
import subprocess
import sys
import uuid
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from support.deployments.serving import ask_again, environment, until

from deployments.auditor_door import USER, new_password
from flows.server.connection import Server
from flows.server.embedded import LOOPBACK, embedded_settings, listen, own_server, protection_of, server_command
from tasks.workspace.folders import Workspace

AUTH = "steward:the-server-s-own-password"
SECRET = "nobody-may-read-this"  # noqa: S105  it is what must not be shown
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
SERVICES = "SCHEDULER LATE_RUNS FOREMAN PAUSE_EXPIRATIONS CANCELLATION_CLEANUP REPOSSESSOR TRIGGERS TASK_RUN_RECORDER"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Doorway:
    """A server, the door before it, and what is known of both."""

    server: Server
    database: Path
    port: int
    password: str
    ids: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, content: Any = None, **headers: str) -> Answer:
        """Send one request to the door as a logged-in auditor, its path as it stands."""
        body = content if isinstance(content, bytes) else None if content is None else json.dumps(content).encode()
        sent = {"Authorization": basic(f"{USER}:{self.password}")} | {
            k.replace("_", "-"): v for k, v in headers.items()
        }
        with closing(http.client.HTTPConnection(LOOPBACK, self.port, timeout=60)) as connection:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

    def send(self, *lines: str, body: bytes = b"") -> bytes:
        """Send bytes that no client would; returns the status line."""
        head = "\r\n".join([*lines, f"Authorization: {basic(f'{USER}:{self.password}')}", "", ""])
        with closing(socket.create_connection((LOOPBACK, self.port), timeout=60)) as connection:
            connection.sendall(head.encode() + body)
            return connection.makefile("rb").readline()

    def rows(self) -> dict[str, list[str]]:
        """Everything in the server's database."""
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as base:
            names = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {name: sorted(map(repr, base.execute(f'SELECT * FROM "{name}"'))) for name in names}

    def concrete(self, template: str) -> str:
        """An address of that template, of something that is there where something is."""
        kind = next((part for part in template.split("/") if f"{part}.id" in self.ids), "")
        return re.sub(r"\{(\w+)}", lambda found: self.ids.get(f"{kind}.{found[1]}", "unknown"), template)


def basic(login: str) -> str:
    """The header of a login."""
    return f"Basic {b64encode(login.encode()).decode()}"


@contextmanager
def running(command: list[str], more: dict[str, str], log: Path, listener: socket.socket) -> Iterator[None]:
    """A process that inherits a socket and is gone in the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=more, stdout=output, stderr=output, pass_fds=[listener.fileno()])
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def prefect_server(home: Path) -> Iterator[Server]:
    """A server with a password whose services, which change things by themselves, rest."""
    resting = {f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in SERVICES.split()}
    more = {**environment(home), **embedded_settings(Workspace(home)), **resting}
    more["PREFECT_API_BLOCKS_REGISTER_ON_START"] = (
        "false"  # it writes for a while, and the database is locked meanwhile
    )
    with listen(0) as listener:
        server = replace(own_server(listener), auth=AUTH)
        with running(server_command(listener), more | protection_of(server), home / "server.log", listener):
            until(server.answers, seconds=200, what=lambda: (home / "server.log").read_text())
            yield server


@contextmanager
def auditor_door(workspace: Workspace, server: Server) -> Iterator[tuple[int, str]]:
    """The door as `serve` starts it; yields its port and the password."""
    log, variables = workspace.root / "door.log", environment(workspace.root) | server.settings()
    with listen(0) as listener, new_password(workspace) as path:
        port = int(listener.getsockname()[1])
        command = [sys.executable, "-P", "-m", "deployments.auditor_door", str(workspace.root), str(listener.fileno())]
        with running(command, variables, log, listener):
            yield port, path.read_text().strip()


def make_history(server: Server) -> dict[str, str]:
    """Runs, logs, artifacts and events, and secrets that nobody may see; returns the ids of all."""
    ask, now = partial(ask_again, server), datetime.now(UTC).isoformat()
    flow = ask("POST", "/flows/", {"name": "release"})["id"]
    done = {"type": "COMPLETED", "name": "Completed"}
    deployment = ask("POST", "/deployments/", {"name": "monthly", "flow_id": flow, "parameters": {"n": 3}})["id"]
    finished = ask("POST", "/flow_runs/", {"flow_id": flow, "name": "small-2026-10-1", "state": done})
    going = {"flow_id": flow, "name": "small-2026-11-1", "state": {"type": "RUNNING", "name": "Running"}}
    run = ask("POST", "/flow_runs/", {**going, "deployment_id": deployment})["id"]
    step = {"flow_run_id": run, "task_key": "estimate", "dynamic_key": "0", "name": "estimate", "state": done}
    task = ask("POST", "/task_runs/", step)
    line = {"name": "prefect.flow_runs", "level": 20, "message": "reserved epsilon 1", "timestamp": now}
    ask("POST", "/logs/", [line | {"flow_run_id": run}])
    card = {"key": "release-card", "type": "markdown", "data": "# The card\n![x](data:,)", "flow_run_id": run}
    artifact = ask("POST", "/artifacts/", card)["id"]
    event = {"event": "test.happened", "occurred": now, "resource": {"prefect.resource.id": "test.it"}}
    ask("POST", "/events", [{**event, "id": str(uuid.uuid4())} for _ in range(60)])
    ask("POST", "/block_types/install_system_block_types")
    kind = ask("GET", "/block_types/slug/secret")["id"]
    schema = ask("POST", "/block_schemas/filter", {"block_schemas": {"block_type_id": {"any_": [kind]}}})[0]["id"]
    block = {"name": "key", "data": {"value": SECRET}, "block_type_id": kind, "block_schema_id": schema}
    template = {
        "job_configuration": {"env": "{{ env }}"},
        "variables": {"properties": {"env": {"default": {"KEY": SECRET}}}},
    }
    pool = ask("POST", "/work_pools/", {"name": "pool", "type": "process", "base_job_template": template})
    action = {"type": "do-nothing"}
    trigger = {"type": "event", "posture": "Reactive", "threshold": 1, "within": 0}
    automation = ask("POST", "/automations/", {"name": "a", "trigger": trigger, "actions": [action]})["id"]
    ids = {
        "flows.id": flow,
        "flows.name": "release",
        "flow_runs.id": run,
        "finished.id": finished["id"],
        "flow_run_states.id": finished["state_id"],
        "task_runs.id": task["id"],
        "task_run_states.id": task["state_id"],
        "deployments.id": deployment,
        "deployments.flow_name": "release",
        "deployments.deployment_name": "monthly",
        "artifacts.id": artifact,
        "artifacts.key": "release-card",
        "automations.id": automation,
        "automations.resource_id": "prefect.deployment.x",
        "events.id": "unused",
        "events.countable": "day",
        "saved_searches.id": ask("PUT", "/saved_searches/", {"name": "mine", "filters": []})["id"],
        "concurrency_limits.id": ask("POST", "/concurrency_limits/", {"tag": "t", "concurrency_limit": 1})["id"],
        "concurrency_limits.tag": "t",
        "concurrency_limits.id_or_name": ask("POST", "/v2/concurrency_limits/", {"name": "l", "limit": 1})["name"],
        "variables.id": ask("POST", "/variables/", {"name": "v", "value": SECRET})["id"],
        "variables.name": "v",
        "block_types.id": kind,
        "block_types.slug": "secret",
        "block_types.block_document_name": "key",
        "block_schemas.id": schema,
        "block_documents.id": ask("POST", "/block_documents/", block)["id"],
        "work_pools.id": pool["id"],
        "work_pools.name": "pool",
        "work_pools.work_pool_name": "pool",
        "work_queues.id": pool["default_queue_id"],
        "work_queues.name": "default",
    }
    ask("POST", "/events", [{**event, "event": "test.last", "id": str(uuid.uuid4())}])
    return ids


@contextmanager
def doorway(base: Path) -> Iterator[Doorway]:
    """A server with a history, and the door before it."""
    workspace = Workspace(base / "workspace")
    workspace.create()
    (base / "server").mkdir()
    with prefect_server(base / "server") as server, auditor_door(workspace, server) as (port, password):
        database = Workspace(base / "server").prefect_home / "prefect.db"
        ids = make_history(server)
        until(lambda: _has_written_events(server), seconds=60, what="the server wrote the last event")
        yield Doorway(server, database, port, password, ids)


def _has_written_events(server: Server) -> bool:
    """Whether the server, which writes events some time after they happened, is done."""
    last = {"filter": {"event": {"name": ["test.last"]}}}
    return bool(ask_again(server, "POST", "/events/filter", last)["total"])
