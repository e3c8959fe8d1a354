"""`dprelease serve` as its users run it, and what they see of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import psutil
from support.processes import blas_settings
from support.tasks.staged import SPEC as SMALL

from flows.server.connection import Server, ServerUnreachableError
from tasks.ledger.opening import ledger_state
from tasks.ledger.state import LedgerState
from tasks.workspace.folders import Workspace

T = TypeVar("T")
DPRELEASE = (sys.executable, "-P", "-m", "flows")

SPEC = SMALL + 'schedule: {cron: "* * * * *", timezone: Europe/Berlin, on_landing: true}\n'


def last_month(now: datetime | None = None, *, before: int = 0) -> str:
    """The last complete month, or one so many months before it; far from a month's turn in any time zone."""
    day = (now or datetime.now(UTC)).replace(day=1)
    for _ in range(before + 1):
        day = (day - timedelta(days=1)).replace(day=1)
    return f"{day:%Y-%m}"


def make_workspace(root: Path, spec: str = SPEC) -> Workspace:
    """An empty workspace with that specification."""
    workspace = Workspace(root)
    workspace.create()
    workspace.spec_path.write_text(spec)
    return workspace


PROMPT = {
    "PREFECT_RUNNER_POLL_FREQUENCY": "1",
    "PREFECT_WORKER_QUERY_SECONDS": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "0.5",
}
"""Prefect looks for runs every ten seconds by default and writes events after five: tests need not wait for that."""


def environment(home: Path, **more: str) -> dict[str, str]:
    """What a command gets to see: a home of its own, the run's cache, nobody's server, and a Prefect without delays."""
    names = ("PATH", "LANG", "OMP_NUM_THREADS", "XDG_CACHE_HOME")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, **blas_settings(), "HOME": str(home), "OMP_NUM_THREADS": "1", **PROMPT, **more}


def until(found: Callable[[], T], *, seconds: float, what: str | Callable[[], str]) -> T:
    """What a look finds, as soon as it finds something; `what` says what was looked for, when it is not found."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := found():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")


def ask_again(server: Server, *request: Any) -> Any:
    """Ask a server whose database may be locked for a moment, by what it writes itself."""
    for _ in range(9):
        try:
            return server.ask(*request)
        except ServerUnreachableError:
            time.sleep(1)
    return server.ask(*request)


@dataclass
class Served:
    """A running `dprelease serve`."""

    workspace: Workspace
    home: Path
    options: tuple[str, ...] = ("--port", "0", "--settle", "1")
    more: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None
    process: subprocess.Popen[bytes] | None = None
    log: Path = Path()
    first_up: datetime | None = None
    server: Server = field(default_factory=lambda: Server(""))

    def start(self, seconds: float = 200) -> None:
        """Start it and wait until it says where the server answers."""
        out, self.log = self.home / "serve.out", self.home / f"serve-{time.monotonic_ns()}.log"
        command = [*DPRELEASE, "serve", "-w", str(self.workspace.root), "--json", *self.options]
        with out.open("wb") as standard, self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                stdout=standard,
                stderr=errors,
                env=environment(self.home, **self.more),
                cwd=self.folder,
                start_new_session=True,
            )
        until(lambda: out.stat().st_size or self._ended(), seconds=seconds, what=lambda: f"serve is up\n{self.said()}")
        told = json.loads(out.read_text())
        password = told["password_file"]
        self.server = Server(told["api"], Path(password).read_text().strip() if password else None)
        until(lambda: "registered" in self.said(), seconds=120, what=lambda: f"registered\n{self.said()}")
        self.first_up = self.first_up or datetime.now(UTC)

    def _ended(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"serve ended: {self.said()}"
        return False

    def said(self) -> str:
        """What it said on standard error."""
        return self.log.read_text(errors="replace") if self.log.is_file() else ""

    def family(self) -> list[psutil.Process]:
        """Every process that it started."""
        assert self.process is not None
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, word: str) -> psutil.Process:
        """The child whose command line has that word."""
        return next(process for process in self.family() if word in " ".join(process.cmdline()))

    def interrupt(self) -> float:
        """Ctrl-C; returns the seconds until it and everything it started was gone."""
        assert self.process is not None
        family, start = self.family(), time.monotonic()
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(30) == 0, self.said()
        _, alive = psutil.wait_procs(family, timeout=5)
        assert not alive, alive
        return time.monotonic() - start

    def kill(self) -> None:
        """End it as a power cut would: nobody is told."""
        assert self.process is not None
        family = self.family()
        for process in [psutil.Process(self.process.pid), *family]:
            process.kill()
        self.process.wait(10)
        psutil.wait_procs(family, timeout=10)

    def runs(self, **filters: Any) -> list[dict[str, Any]]:
        """The flow runs that the server knows."""
        asked = {"flow_runs": filters, "sort": "EXPECTED_START_TIME_ASC", "limit": 200}
        found: list[dict[str, Any]] = ask_again(self.server, "POST", "/flow_runs/filter", asked)
        return found

    def started_by_somebody(self) -> set[str]:
        """The ids of the flow runs that no schedule started."""
        return {run["id"] for run in self.runs() if not run["auto_scheduled"]}


@contextmanager
def serving(
    workspace: Workspace, home: Path, *options: str, folder: Path | None = None, **more: str
) -> Iterator[Served]:
    """A `serve` that is gone in the end, whatever happens."""
    served = Served(workspace, home, folder=folder, more=more)
    if options:
        served.options = options
    try:
        served.start()
        yield served
    finally:
        if served.process is not None and served.process.poll() is None:
            served.kill()


def released(workspace: Workspace) -> dict[str, str]:
    """The status of every release that the ledger knows."""
    return {release_id: release.status for release_id, release in state(workspace).releases.items()}


def state(workspace: Workspace) -> LedgerState:
    """What the ledger says."""
    return ledger_state(workspace)
