"""A server that a run leaves for the next one in the same workspace: `dprelease run --keep-server`.

It takes the place that `dprelease serve` would take, is announced in the same files, and is asked for in the same
way. Every run holds a shared lock on a file beside them; the server ends once nobody has held it for a while.
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
"""The variables that outlive the run that had them: passwords of sources and ledgers are not among them."""


class KeptServer:
    """A server that outlives this process. Of two that start at the same time, one serves both."""

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
        """Let it serve."""
        start_waiting(self._process)

    def use(self) -> None:
        """Wait until the workspace's server answers; from then on Prefect uses it in this process.

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
        """End it before it serves."""
        self._process.terminate()
        self._process.wait()


def _lasting_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in NEEDED or name.startswith(NEEDED_PREFIXES)}


# -- who uses it -------------------------------------------------------------------


@contextmanager
def in_use(workspace: Workspace) -> Iterator[None]:
    """Keep a server that an earlier run left from ending; one that is ending is gone before the block begins."""
    with hold_lock(workspace.prefect_home / USERS, shared=True) as descriptor:
        os.utime(descriptor)
        try:
            yield
        finally:
            os.utime(descriptor)


def await_idleness(workspace: Workspace, idle_seconds: float) -> int:
    """Return once no run has used the server for so long.

    The lock that it leaves open, and goes with the process, lets runs that come now wait for its end.
    """
    descriptor = open_lock(workspace.prefect_home / USERS)
    while True:
        lock(descriptor)  # comes when the last user goes
        rest = os.fstat(descriptor).st_mtime + idle_seconds - time.time()
        if rest <= 0:
            return descriptor
        unlock(descriptor)
        time.sleep(min(rest, idle_seconds))


# -- one that cannot be used -------------------------------------------------------


def kept_facts() -> dict[str, Any]:
    """What a kept server says about itself, so that only the same program uses it, and only it is ended."""
    import importlib.metadata

    from tasks.workspace.build_identity import code_digest

    return {
        "build": code_digest(),
        "prefect": importlib.metadata.version("prefect"),
        "process": os.getpid(),
        "began": _beginning_of(os.getpid()),
    }


def retire_stale_server(workspace: Workspace) -> None:
    """End a kept server of another build or version, or one that does not answer, unless a run uses it."""
    kept = kept_here(workspace)
    if kept is None:
        return
    own, server = kept_facts(), known_server(workspace)
    same = all(kept.get(name) == own[name] for name in ("build", "prefect"))
    if not same or server is None or not server.answers():
        end_kept_server(workspace)


def kept_here(workspace: Workspace) -> dict[str, Any] | None:
    """The facts of the kept server that is alive, or None: there is none, or `dprelease serve` is in its place."""
    if not is_served(workspace):
        return None
    with suppress(OSError, ValueError, KeyError, TypeError):
        return dict(parse_json(read_text(workspace.prefect_home / SERVING))["kept"])
    return None


def end_kept_server(workspace: Workspace) -> bool:
    """End the kept server if no run uses it; whether its place is free then."""
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
    """When a process began, in the kernel's count: no other process of that id has it. None where it is unknown."""
    try:
        stat = Path(f"/proc/{int(process)}/stat").read_text()
    except (OSError, ValueError):
        return None
    return stat.rpartition(")")[2].split()[19]  # field 22; a name before it may hold anything
