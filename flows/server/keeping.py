"""A server that a run leaves for the next one in the same workspace: `dprelease run --keep-server`.

It holds the same lock as `dprelease serve`, and other commands find it through the same files. Every run holds a
shared lock on another file; the server ends when no run has held that lock for some time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dpcore.errors import StageFailedError
from flows.server.connection import SERVING, is_served, known_server
from flows.server.embedded import (
    EPHEMERAL,
    STARTUP_SECONDS,
    listen,
    own_server,
    protection_of,
    start_waiting,
    use_in_prefect,
)
from tasks.workspace.folders import Workspace
from tasks.workspace.locks import hold_lock, lock, open_lock, try_lock, unlock
from tasks.workspace.reading import parse_json, read_text

USERS = "users.lock"
END_SECONDS = 5.0
NEEDED = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TZ", "XDG_CACHE_HOME")
NEEDED_PREFIXES = ("LC_", "PREFECT", "PYTHON")
"""Prefixes of the variables that the server inherits from the run; passwords of sources and ledgers are excluded."""


class KeptServer:
    """A server that outlives this process. If two runs start one at the same time, both use the first."""

    def __init__(self, workspace: Workspace, idle_seconds: float) -> None:
        self._workspace = workspace
        with listen(0) as listener:
            self._process = subprocess.Popen(  # noqa: S603  our own interpreter
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "flows.server.kept_server",
                    str(workspace.root),
                    str(listener.fileno()),
                    f"{idle_seconds:g}",
                ],
                env={**_lasting_environment(), **EPHEMERAL, **protection_of(own_server(listener))},
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start(self) -> None:
        """Tell the server to serve."""
        start_waiting(self._process)

    def use(self) -> None:
        """Wait until the workspace's server answers; from then on, Prefect in this process uses it.

        Raises: StageFailedError if it does not answer in time.
        """
        limit = time.monotonic() + STARTUP_SECONDS
        while time.monotonic() < limit:
            server = known_server(self._workspace)
            if server is not None and server.answers():
                return use_in_prefect(server)
            if self._process.poll() is not None and not is_served(self._workspace):
                break
            time.sleep(0.1)
        raise StageFailedError("orchestration", "no answer", "the kept server")

    def close(self) -> None:
        """End the server if it does not serve yet."""
        self._process.terminate()
        self._process.wait()


def _lasting_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in NEEDED or name.startswith(NEEDED_PREFIXES)}


# -- who uses it -------------------------------------------------------------------


@contextmanager
def in_use(workspace: Workspace) -> Iterator[None]:
    """Keep the server of an earlier run alive during the block; if it is ending, wait for its end first."""
    with hold_lock(workspace.prefect_home / USERS, shared=True) as descriptor:
        os.utime(descriptor)
        try:
            yield
        finally:
            os.utime(descriptor)


def await_idleness(workspace: Workspace, idle_seconds: float) -> int:
    """Return the descriptor of the held lock after no run has used the server for `idle_seconds`.

    The lock is held until the process ends, so that new runs wait for the end of the server.
    """
    descriptor = open_lock(workspace.prefect_home / USERS)
    while True:
        lock(descriptor)  # waits for the last user
        rest = os.fstat(descriptor).st_mtime + idle_seconds - time.time()
        if rest <= 0:
            return descriptor
        unlock(descriptor)
        time.sleep(min(rest, idle_seconds))


# -- one that cannot be used -------------------------------------------------------


def kept_facts() -> dict[str, Any]:
    """The facts by which a run recognises a kept server of the same program, and the process to end."""
    import importlib.metadata

    from tasks.workspace.build_identity import code_digest

    return {
        "build": code_digest(),
        "prefect": importlib.metadata.version("prefect"),
        "process": os.getpid(),
        "began": _beginning_of(os.getpid()),
    }


def retire_stale_server(workspace: Workspace) -> None:
    """End a kept server that is of another build or version or does not answer, unless a run is using it."""
    kept = kept_here(workspace)
    if kept is None:
        return
    own, server = kept_facts(), known_server(workspace)
    same = all(kept.get(name) == own[name] for name in ("build", "prefect"))
    if not same or server is None or not server.answers():
        end_kept_server(workspace)


def kept_here(workspace: Workspace) -> dict[str, Any] | None:
    """The facts of the running kept server; None if there is none or if `dprelease serve` is running instead."""
    if not is_served(workspace):
        return None
    with suppress(OSError, ValueError, KeyError, TypeError):
        return dict(parse_json(read_text(workspace.prefect_home / SERVING))["kept"])
    return None


def end_kept_server(workspace: Workspace) -> bool:
    """End the kept server if no run is using it; return whether its lock is free afterwards."""
    with os.fdopen(open_lock(workspace.prefect_home / USERS)) as users:
        if not try_lock(users):
            return False
        for number in (signal.SIGTERM, signal.SIGKILL):
            kept = kept_here(workspace)
            if kept is not None and kept["began"] is not None and kept["began"] == _beginning_of(kept["process"]):
                os.kill(kept["process"], number)
            if _is_free(workspace):
                return True
    return False


def _is_free(workspace: Workspace) -> bool:
    limit = time.monotonic() + END_SECONDS
    while is_served(workspace):
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True


def _beginning_of(process: int) -> str | None:
    """The kernel's start time of a process, which no other process with that id shares; None if it is unknown."""
    try:
        stat = Path(f"/proc/{int(process)}/stat").read_text()
    except (OSError, ValueError):
        return None
    return stat.rpartition(")")[2].split()[19]  # field 22; the process name before it may contain any character
