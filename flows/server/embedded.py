"""The embedded Prefect server and its settings: quiet, offline, and with its home in the workspace."""

from __future__ import annotations

import atexit
import ctypes
import gc
import logging
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from dpcore.errors import StageFailedError
from flows.server.connection import Server, known_server
from flows.server.isolation import SAFE_PATH, isolation_of
from tasks.workspace.folders import Workspace

PR_SET_PDEATHSIG = 1
"""From Linux's prctl.h."""
LOOPBACK = "127.0.0.1"
OPERATOR = "operator"
STARTUP_SECONDS = 120.0
PROFILES = ("PREFECT_PROFILE", "PREFECT_PROFILES_PATH")
EPHEMERAL = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",  # our flows use none
}
"""A server without pages, schedules and block types."""


def embedded_settings(workspace: Workspace) -> dict[str, str]:
    """The environment of a run with an embedded server; a server that is already configured takes precedence."""
    return {
        "PREFECT_HOME": str(workspace.prefect_home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
        "DO_NOT_TRACK": "1",
        "GX_ANALYTICS_ENABLED": "false",
        **SAFE_PATH,
    }


def use_server(workspace: Workspace) -> bool:
    """Set the environment before Prefect is imported, without overriding the user's settings.

    A server that already serves this workspace is used; returns whether there is a server to use.
    """
    for name, value in embedded_settings(workspace).items():
        os.environ[name] = os.environ.get(name) or value  # an empty value would mean the current folder
    server = known_server(workspace)
    if server is None or not server.answers():
        return False
    os.environ.update(server.settings())
    return True


@contextmanager
def end_if_refused(server: WaitingServer | None) -> Iterator[None]:
    """Run a block while a server loads, and end the server if the block refuses the release."""
    try:
        yield
    except BaseException:
        if server is not None:
            server.close()
        raise


class WaitingServer(Protocol):
    """A server that loads its libraries in advance and begins to serve when it is started."""

    def start(self) -> None:
        """Tell the server to serve."""

    def use(self) -> None:
        """Wait until the server answers; from then on, Prefect in this process uses it and starts no other."""

    def close(self) -> None:
        """End it."""


def is_configured() -> bool:
    """Whether Prefect's settings name a server; Prefect, which loads for a second, is imported only if they may."""
    if os.environ.get("PREFECT_API_URL"):
        return True
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    files = (home / "profiles.toml", *map(Path, ("prefect.toml", "pyproject.toml", ".env")))
    in_files = any(name in os.environ for name in PROFILES) or any(path.exists() for path in files)
    if not in_files and "prefect.settings" not in sys.modules:
        return False
    from prefect.settings import PREFECT_API_URL

    return bool(PREFECT_API_URL.value())  # an empty value names no server


class EmbeddedServer:
    """A server on loopback for this process only: it requires a secret that no other process knows.

    It has its own session, so that an interrupt reaches only the flow, which can then still report its
    end to the server. If the system supports it, the server ends when this process ends. It loads its
    libraries at once, but opens its database and answers only after `start`.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._ends = ExitStack()
        scratch = self._ends.enter_context(workspace.scratch())
        with listen(0) as listener:
            self._server = own_server(listener)
            self._process = subprocess.Popen(  # noqa: S603  our own interpreter
                [*server_command(listener), "--wait"],
                env={**os.environ, **EPHEMERAL, **protection_of(self._server), **isolation_of(scratch)},
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        self._ends.callback(self._stop)
        atexit.register(self.close)

    def start(self) -> None:
        """Let it serve."""
        start_waiting(self._process)

    def use(self) -> None:
        """Wait until the server answers; from then on, Prefect in this process uses it and starts no other.

        Raises: StageFailedError if it does not answer in time.
        """
        limit = time.monotonic() + STARTUP_SECONDS
        while not self._server.answers():
            if self._process.poll() is not None or time.monotonic() > limit:
                raise StageFailedError("orchestration", "no answer", "the embedded server")
            time.sleep(0.1)
        use_in_prefect(self._server)

    def close(self) -> None:
        """End the server and remove its temporary files."""
        self._ends.close()

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def use_in_prefect(server: Server) -> None:
    """Put a server into Prefect's settings; the environment, which shows a configured server, is not changed."""
    from prefect.context import refresh_global_settings_context

    before = os.environ.copy()
    os.environ.update(server.settings())
    try:
        refresh_global_settings_context()
    finally:
        os.environ.clear()
        os.environ.update(before)


def listen(port: int) -> socket.socket:
    """A listening socket on loopback for a server that is started afterwards; port 0 means any free port.

    Raises: OSError if the port is in use.
    """
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def own_server(listener: socket.socket) -> Server:
    """The server that will answer on a socket, with a new secret unless the user configured one."""
    auth = os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or f"{OPERATOR}:{secrets.token_urlsafe(32)}"
    return Server(f"http://{LOOPBACK}:{listener.getsockname()[1]}/api", auth)


def protection_of(server: Server) -> dict[str, str]:
    """Settings of a server that we start: it requires its secret, and pages of other origins cannot use it."""
    port = urlsplit(server.api_url).port
    return server.settings() | {
        "PREFECT_SERVER_API_AUTH_STRING": server.auth or "",
        "PREFECT_SERVER_UI_API_URL": server.api_url,
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://{LOOPBACK}:{port},http://localhost:{port}",
        "PREFECT__SERVER_FINAL": "1",
    }


def server_command(listener: socket.socket) -> list[str]:
    """The command that starts a server on a socket; the child process must inherit the descriptor."""
    return [sys.executable, "-P", "-m", "flows.server.prefect_server", str(listener.fileno())]


def start_waiting(process: subprocess.Popen[bytes]) -> None:
    """Tell a server that was started with `--wait` to serve; if it has ended, the wait for its answer detects that."""
    if process.stdin is not None:
        with suppress(OSError), process.stdin as pipe:
            pipe.write(b"\n")


def end_with_parent() -> None:
    """Ask the kernel, on Linux, to terminate this process when its parent ends for any reason."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def forbid_core_dumps() -> None:
    """Forbid core dumps, which would write the process's memory, and so raw rows, to a file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def quiet_libraries() -> None:
    """Keep messages of libraries off the terminal; Prefect's own log still reaches its database."""
    for name in ("prefect", "httpx", "sqlalchemy", "asyncio", "uvicorn"):
        logger = logging.getLogger(name)
        for handler in [h for h in logger.handlers if isinstance(h, logging.StreamHandler)]:
            logger.removeHandler(handler)


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Disable garbage collection in a block that loads libraries, and exempt what it loaded from later collections."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
