"""Settings of the embedded Prefect server: quiet, offline, and with its home in the workspace."""

from __future__ import annotations

import atexit
import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dpcore.errors import StageFailedError
from flows.connection import Server, known_server
from tasks.stores.workspace import Workspace

PR_SET_PDEATHSIG = 1
"""From Linux's prctl.h."""
LOOPBACK = "127.0.0.1"
PORTS = 3
"""Ports that an embedded server is tried on: between finding one free and listening, somebody else may take it."""


def embedded_settings(workspace: Workspace) -> dict[str, str]:
    """Environment of a run with an embedded server; a server that is configured already takes precedence."""
    return {
        "PREFECT_HOME": str(workspace.prefect_home),
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
        "DO_NOT_TRACK": "1",
        "GX_ANALYTICS_ENABLED": "false",
    }


def use_server(workspace: Workspace) -> bool:
    """Set the environment before Prefect is imported; what the user has set stays.

    A server that serves this workspace is used as well; returns whether one is there already.
    """
    for name, value in embedded_settings(workspace).items():
        os.environ[name] = os.environ.get(name) or value  # an empty home would be the current folder
    server = known_server(workspace)
    if server is None or not server.answers():
        return False
    os.environ.update(server.settings())
    return True


def start_embedded_server() -> EmbeddedServer | None:
    """Start a server for this process, so that others can be loaded meanwhile; None where one is configured."""
    from prefect.settings import PREFECT_API_URL

    return EmbeddedServer() if PREFECT_API_URL.value() is None else None


class EmbeddedServer:
    """A server on loopback that outlives neither Ctrl-C's first stroke nor us.

    It gets a session of its own: an interrupt reaches the flow alone, which then can still
    tell the server how it ended. Where the system can, it is told to end when we do.
    """

    def __init__(self) -> None:
        self._ports_left = PORTS
        self._start()
        atexit.register(self._stop)

    def _start(self) -> None:
        port, self._ports_left = _free_port(), self._ports_left - 1
        self._server = Server(f"http://{LOOPBACK}:{port}/api", os.environ.get("PREFECT_SERVER_API_AUTH_STRING"))
        self._process = _server_process(str(port))

    def use(self) -> None:
        """Wait until it answers; from then on Prefect uses it in this process, and starts none itself.

        Raises: StageFailedError if it does not answer in time.
        """
        from prefect.settings import get_current_settings

        limit = time.monotonic() + get_current_settings().server.ephemeral.startup_timeout_seconds
        while not self._server.answers():
            if self._process.poll() is not None and self._ports_left:
                self._start()  # somebody else took the port before it did
            if self._process.poll() is not None or time.monotonic() > limit:
                raise StageFailedError("orchestration", "no answer", "the embedded server")
            time.sleep(0.1)
        _use(self._server)

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _use(server: Server) -> None:
    """Put a server into Prefect's settings; the environment, from which commands know a configured one, stays."""
    from prefect.context import refresh_global_settings_context

    before = os.environ.copy()
    os.environ.update(server.settings())
    try:
        refresh_global_settings_context()
    finally:
        os.environ.clear()
        os.environ.update(before)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _server_process(port: str) -> subprocess.Popen[bytes]:
    from prefect.settings import get_current_settings

    ephemeral = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
    settings = get_current_settings().to_environment_variables(exclude_unset=True)
    return subprocess.Popen(  # noqa: S603  our own interpreter
        server_command(port),
        env={**os.environ, **ephemeral, **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=end_with_parent,
    )


def server_command(port: str) -> list[str]:
    """What starts a server that this machine alone can reach."""
    app = ["--factory", "prefect.server.api.server:create_app"]
    address = ["--host", LOOPBACK, "--port", port, "--log-level", "critical", "--lifespan", "on"]
    return [sys.executable, "-m", "uvicorn", *app, *address]


def end_with_parent() -> None:
    """Ask the kernel to terminate this process when its parent ends, however that happens; where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def forbid_core_dumps() -> None:
    """A crash must not write the process's memory, which holds raw rows, to a file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def quiet_libraries() -> None:
    """Keep library chatter off the terminal; Prefect's own log still reaches its database."""
    for name in ("prefect", "httpx", "sqlalchemy", "asyncio", "uvicorn"):
        logger = logging.getLogger(name)
        for handler in [h for h in logger.handlers if isinstance(h, logging.StreamHandler)]:
            logger.removeHandler(handler)


@contextmanager
def kept_from_collection() -> Iterator[None]:
    """Keep what a block loads out of the search for cycles: libraries stay, and are many objects to look at."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def preload_validation() -> None:
    """Load the validation library beside the server's start, which takes longer."""
    threading.Thread(target=_load_suites, daemon=True).start()


def _load_suites() -> None:
    from expectations.quiet import quietly

    with quietly():
        return
