"""The orchestration server that a workspace uses: the configured one, or the one that `dprelease serve` started."""

from __future__ import annotations

import base64
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TextIO
from urllib.parse import urlsplit

from tasks.workspace.files import private_file
from tasks.workspace.folders import Workspace
from tasks.workspace.locks import try_lock
from tasks.workspace.reading import open_regular, parse_json, read_text
from tasks.workspace.redaction import ErrorBoundary

SERVING = "serving.json"
"""The file in the workspace's Prefect home that holds the server's address while `dprelease serve` runs."""
LOCK = "serving.lock"
LOOKS = (0.0,) + (0.05,) * 20
"""Seconds before each attempt to take the lock; a process that only tests the lock holds it far more briefly."""
PASSWORD = "operator.password"  # noqa: S105  the name of a file
"""The file in the workspace's Prefect home, readable by its owner only, with the secret of a served server."""


class ServerUnreachableError(Exception):
    """The server did not answer, or rejected the request."""


@dataclass(frozen=True, slots=True)
class Server:
    """The address and login of an orchestration server."""

    api_url: str
    auth: str | None = field(default=None, repr=False)

    @property
    def ui_url(self) -> str:
        """The address of its pages."""
        return self.api_url.rstrip("/").removesuffix("/api")

    @property
    def is_beside(self) -> bool:
        """Whether it runs on this machine, so that no proxy is needed."""
        return urlsplit(self.api_url).hostname in ("127.0.0.1", "localhost", "::1")

    def run_url(self, flow_run_id: str) -> str:
        """The page of a flow run."""
        return f"{self.ui_url}/runs/flow-run/{flow_run_id}"

    def settings(self) -> dict[str, str]:
        """The environment of a process that uses it."""
        return {"PREFECT_API_URL": self.api_url} | ({"PREFECT_API_AUTH_STRING": self.auth} if self.auth else {})

    def answers(self) -> bool:
        """Whether the server answers requests."""
        try:
            self.ask("GET", "/health", seconds=2.0)
        except ServerUnreachableError:
            return False
        return True

    def is_open(self) -> bool:
        """Whether it answers without a password."""
        try:
            replace(self, auth=None).ask("POST", "/flows/count", {})
        except ServerUnreachableError:
            return False
        return True

    def ask(self, method: str, path: str, content: Any = None, *, seconds: float = 10.0) -> Any:
        """Send one request and return the JSON of the answer, or None if the answer is empty.

        Raises: ServerUnreachableError, without the address or anything that was sent.
        """
        request = urllib.request.Request(  # noqa: S310  http or https, as configured
            self.api_url.rstrip("/") + path,
            data=None if content is None else json.dumps(content).encode(),
            headers={"Content-Type": "application/json", **self._authorization()},
            method=method,
        )
        with (
            ErrorBoundary(OSError, ValueError, refusal=_unreachable_server),
            self._opener().open(request, timeout=seconds) as answer,
        ):
            text = answer.read()
            return json.loads(text) if text else None

    def _opener(self) -> urllib.request.OpenerDirector:
        """An opener that follows no redirection, which would carry the password, and uses no proxy on this machine."""
        return urllib.request.build_opener(_Stay, *([urllib.request.ProxyHandler({})] if self.is_beside else []))

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Basic {base64.b64encode(self.auth.encode()).decode()}"} if self.auth else {}


def _unreachable_server(error: Exception) -> ServerUnreachableError:
    fault = f"it did not answer ({type(error).__name__})"
    if isinstance(error, urllib.error.HTTPError):
        fault = f"it answered with status {error.code}"
    return ServerUnreachableError(f"the orchestration server cannot be used: {fault}")


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        """Send no further request; the redirection itself is returned as an error."""


def known_server(workspace: Workspace, environment: Mapping[str, str] = os.environ) -> Server | None:
    """The configured server, or else the one that serves this workspace now; it may not answer."""
    auth = environment.get("PREFECT_API_AUTH_STRING") or environment.get("PREFECT_SERVER_API_AUTH_STRING")
    url = environment.get("PREFECT_API_URL")
    if url:
        return Server(url, auth)
    if not is_served(workspace):
        return None  # the file of a killed `serve` may name a port that another program uses now
    try:
        home = workspace.prefect_home
        serving = parse_json(read_text(home / SERVING))
        return Server(str(serving["api_url"]), read_text(home / PASSWORD).strip())
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_served(workspace: Workspace) -> bool:
    """Whether a `dprelease serve` of this workspace is running: it holds a lock while it runs."""
    try:
        with open_regular(workspace.prefect_home / LOCK) as file:
            return not try_lock(file, shared=True)
    except OSError:
        return False


@contextmanager
def serving_alone(workspace: Workspace, *, patiently: bool = False) -> Iterator[bool]:
    """Hold the lock of the workspace's only server during the block; yields False if another process holds it.

    With `patiently`, a process that only tests the lock for a moment is not mistaken for a server.
    """
    with (workspace.prefect_home / LOCK).open("w") as file:
        yield any(_take(file, pause) for pause in (LOOKS if patiently else (0.0,)))


def _take(file: TextIO, pause: float) -> bool:
    time.sleep(pause)
    return try_lock(file)


@contextmanager
def announce_server(workspace: Workspace, server: Server, **facts: Any) -> Iterator[None]:
    """Publish the server's address and secret to the workspace's other commands and its operators during the block."""
    home, where = workspace.prefect_home, json.dumps({"api_url": server.api_url, "pid": os.getpid(), **facts})
    with private_file(home / PASSWORD, f"{server.auth}\n"), private_file(home / SERVING, where):
        yield
