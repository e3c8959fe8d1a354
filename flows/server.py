"""Settings of the embedded Prefect server: quiet, offline, and with its home in the workspace."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
import threading

from flows.connection import known_server
from tasks.stores.workspace import Workspace

PR_SET_PDEATHSIG = 1
"""From Linux's prctl.h."""
LOOPBACK = "127.0.0.1"


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
        os.environ.setdefault(name, value)
    server = known_server(workspace)
    if server is None or not server.answers():
        return False
    os.environ.update(server.settings())
    return True


def start_embedded_server() -> None:
    """Start the embedded server, unless one is configured, so that it outlives neither Ctrl-C's first stroke nor us.

    It gets a session of its own: an interrupt reaches the flow alone, which then can still
    tell the server how it ended. Where the system can, it is told to end when we do.
    """
    from prefect.server.api.server import SubprocessASGIServer
    from prefect.settings import PREFECT_API_URL

    if PREFECT_API_URL.value() is None:
        server = SubprocessASGIServer()
        server._run_uvicorn_command = lambda: _server_process(str(server.port))  # type: ignore[method-assign]
        server.start()


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
        import ctypes

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


def preload_validation() -> None:
    """Load the validation library beside the server's start, which takes longer."""
    threading.Thread(target=_load_suites, daemon=True).start()


def _load_suites() -> None:
    from expectations.quiet import quietly

    with quietly():
        return
