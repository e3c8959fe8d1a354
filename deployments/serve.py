"""The implementation of `dprelease serve`: a server if none is configured, the deployments, and the landing watcher.

1. A lock, which ends with its process, allows one `serve` per workspace.
2. The server requires a secret; the workspace's commands can read its address and secret.
3. The runner registers the deployments, recovers interrupted runs and executes new ones.
4. The watcher announces landed data.
5. A process that ends by itself is restarted; Ctrl-C ends all processes within ten seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from deployments.environment import REGISTERED
from deployments.supervision import Child, ChildFailedError, end
from dpcore.errors import PrivacyError, RefusedError, WorkspaceError
from flows.server.connection import (
    PASSWORD,
    Server,
    ServerUnreachableError,
    announce_server,
    known_server,
    serving_alone,
)
from flows.server.embedded import LOOPBACK, embedded_settings, listen, own_server, protection_of, server_command
from flows.server.isolation import isolation_of
from flows.server.keeping import end_kept_server, kept_here
from flows.server.worker_process import SERVED
from tasks.intake.settling import SETTLE_SECONDS, keep_settle
from tasks.spec import ReleaseSpec, load_spec
from tasks.spec.plan import plan_run
from tasks.workspace.folders import Workspace
from tasks.workspace.redaction import ErrorBoundary

START_SECONDS = 180.0
REGISTER_SECONDS = 120.0
SERVER_LOG = "server.log"
SERVER, RUNNER = "server", "runner"
PYTHON = (sys.executable, "-P", "-m")


class Stopped(BaseException):
    """A signal asked `serve` to end."""


def serve(
    workspace: Workspace,
    *,
    port: int,
    auditor_port: int | None,
    poll: bool,
    settle: float,
    pool: str | None,
    accept_open_server: str | None,
    as_json: bool,
) -> None:
    """Serve a workspace until a signal ends it."""
    spec = load_spec(workspace.spec_path)
    plan_run(spec)
    workspace.require_writable()
    with _alone(workspace), workspace.scratch() as scratch, ExitStack() as ends:
        served = {SERVED: str(workspace.root)}
        environment = {**embedded_settings(workspace), **os.environ, **isolation_of(scratch), **served}
        children: list[Child] = []
        ends.enter_context(keep_settle(workspace, settle))
        ends.callback(lambda: end(children, grace=2.0))  # the server, or all processes after an early error
        configured = known_server(workspace) if os.environ.get("PREFECT_API_URL") else None
        server = configured or _own_server(workspace, environment, ends.enter_context(_listen(port)), children)
        _await_answer(server, children)
        if configured:
            require_password(configured, accepted=accept_open_server)
        ends.callback(lambda: _end_workers(children, server))
        environment |= server.settings()
        if configured is None:
            ends.enter_context(announce_server(workspace, server))
        auditor: dict[str, str] = {}
        if auditor_port is not None:
            auditor, door = ends.enter_context(_auditor_door(workspace, environment, auditor_port))
            children.append(door)
        for child in _workers(workspace, spec, environment, poll=poll, pool=pool):
            children.append(child)  # immediately, so that it is ended with the others in any case
        _say_where(server, spec, None if configured else workspace.prefect_home / PASSWORD, auditor, as_json)
        _supervise(server, children, register_only=pool is not None)


def _workers(
    workspace: Workspace, spec: ReleaseSpec, environment: dict[str, str], *, poll: bool, pool: str | None
) -> Iterator[Child]:
    """The runner, or the registration for a pool's workers; and the watcher, if landing triggers releases.

    The watcher starts after the registration, because an event before its trigger would have no effect.
    """
    root, mark = str(workspace.root), workspace.prefect_home / REGISTERED
    mark.unlink(missing_ok=True)
    runner = [*PYTHON, "deployments.process", "deployments.runner", root, *(["--pool", pool] if pool else [])]
    registering = _start(Child(RUNNER, runner, environment, workspace.prefect_home))
    yield registering
    if spec.schedule.on_landing:
        _await_mark(mark, registering)
        watcher = [*PYTHON, "flows.watcher", root, *(["--poll"] if poll else [])]
        yield _start(Child("watcher", watcher, environment, workspace.prefect_home))


def _await_mark(mark: Path, registering: Child) -> None:
    """Wait until the deployments are registered, or until the runner has ended, which the supervisor handles."""
    limit = time.monotonic() + REGISTER_SECONDS
    while time.monotonic() < limit and not mark.exists() and not registering.has_ended:
        time.sleep(0.2)


def _start(child: Child) -> Child:
    child.start()
    return child


def _own_server(
    workspace: Workspace, environment: dict[str, str], listener: socket.socket, children: list[Child]
) -> Server:
    """A server on loopback, with its pages; its database is the workspace's unless another is configured."""
    server, home = own_server(listener), workspace.prefect_home
    command, settings = server_command(listener), environment | protection_of(server)
    log = (home / SERVER_LOG).open("wb")
    children.append(_start(Child(SERVER, command, settings, home, log, [listener.fileno()])))
    return server


@contextmanager
def _auditor_door(
    workspace: Workspace, environment: dict[str, str], port: int
) -> Iterator[tuple[dict[str, str], Child]]:
    """A read-only proxy for the server's pages, and its login.

    Raises: RefusedError if the port is in use.
    """
    from deployments.auditor_door import USER, new_password  # imported here, because it loads a web server

    with _listen(port, "--auditor-port") as listener, new_password(workspace) as path:
        url, inherited = f"http://{LOOPBACK}:{listener.getsockname()[1]}", listener.fileno()
        command = [*PYTHON, "deployments.auditor_door", str(workspace.root), str(inherited)]
        door = Child("auditor's door", command, environment, workspace.prefect_home, descriptors=[inherited])
        yield {"url": url, "user": USER, "password_file": str(path)}, _start(door)


def _listen(port: int, option: str = "--port") -> socket.socket:
    """The socket of a server that we start; it stays open across restarts, so that no other program takes the port.

    Raises: RefusedError if the port is in use.
    """
    taken = RefusedError(
        f"port {port} is already in use",
        rule="port-taken",
        where=option,
        hint=f"choose another port, or {option} 0 for any free one; to use a running server, set PREFECT_API_URL",
    )
    with ErrorBoundary(OSError, refusal=lambda _: taken):
        return listen(port)


def require_password(server: Server, *, accepted: str | None) -> None:
    """Refuse a server without a password, unless the operator accepts it by its address.

    Raises: RefusedError.
    """
    if server.api_url != accepted and server.is_open():
        raise RefusedError(
            "the configured server asks for no password: whoever reaches it can start, change and delete runs",
            rule="server-open",
            where="PREFECT_API_URL",
            hint="set PREFECT_SERVER_API_AUTH_STRING on the server and PREFECT_API_AUTH_STRING here; "
            "or accept it by name: --accept-open-server with its address",
        )


def _await_answer(server: Server, children: list[Child]) -> None:
    """Wait until the server answers.

    Raises: RefusedError if it does not.
    """
    own = [child for child in children if child.name == SERVER]
    if own:
        _say("waiting for the orchestration server (a first start takes about a minute)")
    limit = time.monotonic() + (START_SECONDS if own else 10.0)
    while time.monotonic() < limit and not any(child.has_ended for child in own):
        try:
            server.ask("GET", "/health", seconds=2.0)
            server.ask("POST", "/flows/count", {}, seconds=5.0)  # the health page needs no password
        except ServerUnreachableError:
            time.sleep(0.5)
        else:
            return
    raise RefusedError(
        "the orchestration server does not answer",
        rule="server-unreachable",
        where=f"prefect/{SERVER_LOG}" if own else "PREFECT_API_URL",
        hint="its log says why" if own else "check its address and PREFECT_API_AUTH_STRING",
    )


@contextmanager
def _alone(workspace: Workspace) -> Iterator[None]:
    """Ensure that no other process serves this workspace; an idle server of an earlier run is ended."""
    if kept_here(workspace):
        end_kept_server(workspace)
    with serving_alone(workspace) as alone:
        if not alone:
            raise WorkspaceError(
                "another `dprelease serve` already serves this workspace",
                rule="already-served",
                where="--workspace",
                hint="one `dprelease serve` is enough; `dprelease history` shows what it does. A server that a run "
                "with --keep-server left gives way once that run has ended",
            )
        yield


def _supervise(server: Server, children: list[Child], *, register_only: bool) -> None:
    """Restart processes that end by themselves, until a signal ends `serve`.

    If the server ends, its runs end too: the runner is restarted with the next server and
    recovers the interrupted runs.
    Raises: ChildFailedError, RefusedError.
    """
    while True:
        ended = [child for child in children if child.has_ended and not (register_only and child.is_done)]
        for child in ended:
            _say(f"the {child.name} ended and is restarted")
            child.restart()
        if any(child.name == SERVER for child in ended):
            _await_answer(server, children)
            runners = [child for child in children if child.name == RUNNER and child not in ended]
            end(runners)
            for child in runners:
                child.start()
        time.sleep(0.5)


def _end_workers(children: list[Child], server: Server) -> None:
    """End the processes that run flows, and record the end of their runs on our own server, which still answers."""
    end([child for child in children if child.name != SERVER])
    if any(child.name == SERVER for child in children):
        with suppress(ServerUnreachableError):
            _close_runs(server)


def _close_runs(server: Server) -> None:
    """Record in the history that our runs were interrupted; runs that were started by hand continue."""
    alive = {"flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING"]}}}, "limit": 50}
    state = {
        "type": "CRASHED",
        "name": "Crashed",
        "message": "`dprelease serve` was stopped; the release resumes when it starts again",
    }
    for run in server.ask("POST", "/flow_runs/filter", alive, seconds=1.0):
        if run["deployment_id"] or run["parent_task_run_id"]:
            server.ask("POST", f"/flow_runs/{run['id']}/set_state", {"state": state, "force": True}, seconds=0.5)


def _say_where(
    server: Server, spec: ReleaseSpec, password: Path | None, auditor: dict[str, str], as_json: bool
) -> None:
    if as_json:
        named = [f"{flow}/{spec.name}" for flow in ("monthly", "landing", "nightly-audit")]
        content: dict[str, Any] = {"ui": server.ui_url, "api": server.api_url, "deployments": named}
        content["password_file"] = str(password) if password else None
        content |= {"auditor": auditor} if auditor else {}
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
        sys.stdout.flush()
    else:
        _say(f"serving {spec.name}; flow runs: {server.ui_url}/runs (Ctrl-C stops it)")
        if password:
            _say(f"log in at {server.ui_url}/login with the password in {password}")
        if auditor:
            login = f"user {auditor['user']}, password in {auditor['password_file']}"
            _say(f"for auditors, read only: {auditor['url']}/runs ({login})")


def _say(line: str) -> None:
    if line:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _stop(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped


def main() -> None:
    """Serve a workspace; the entry point of the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--port", type=int, default=4200)
    parser.add_argument("--auditor-port", type=int)
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS)
    parser.add_argument("--pool")
    parser.add_argument("--accept-open-server")
    parser.add_argument("--poll", action="store_true")
    parser.add_argument("--json", action="store_true", dest="as_json")
    asked = vars(parser.parse_args())
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    try:
        serve(Workspace(asked.pop("workspace").resolve()), **asked)
    except Stopped:
        _say("stopped")
    except RefusedError as error:
        _refuse(error.as_json(), asked["as_json"], 2)
    except PrivacyError as error:
        hint = "see prefect/server.log in the workspace; no measurement is lost"
        rule = "child-failed" if isinstance(error, ChildFailedError) else "internal-error"
        _refuse({"error": str(error), "rule": rule, "where": "serve", "hint": hint}, asked["as_json"], 3)


def _refuse(refusal: dict[str, str], as_json: bool, code: int) -> None:
    if as_json:
        sys.stdout.write(json.dumps(refusal, indent=2) + "\n")
    else:
        facts = [f"  {name:<6} {refusal[name]}" for name in ("error", "where", "hint")]
        _say("\n".join([f"refused ({refusal['rule']})", *facts]))
    raise SystemExit(code)


if __name__ == "__main__":
    main()
