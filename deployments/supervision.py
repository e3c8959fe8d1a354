"""The child processes of `serve`: they are restarted if they end by themselves, and ended together in bounded time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from dpcore.errors import PrivacyError
from flows.server.embedded import end_with_parent

GRACE_SECONDS = 5.0
"""Seconds that a process has to end by itself before it is killed."""
QUICK_ENDS = 5
QUICK_SECONDS = 60.0
LATER, LATER_SECONDS = 4, 10.0
"""The exit code of a process that must wait, for example for a database, and the seconds before its restart."""


class ChildFailedError(PrivacyError):
    """A child process has ended too often."""


@dataclass(slots=True)
class Child:
    """One child process in its own session, so that Ctrl-C reaches `serve` only."""

    name: str
    command: Sequence[str]
    environment: dict[str, str]
    folder: Path
    """The current folder of the process; nobody else can write to it."""
    output: IO[bytes] | None = None
    descriptors: Sequence[int] = ()
    """The file descriptors that it inherits besides its standard streams."""
    process: subprocess.Popen[bytes] | None = None
    ends: list[float] = field(default_factory=list)

    def start(self) -> None:
        """Start the process, or restart it."""
        self.process = subprocess.Popen(  # noqa: S603  our own interpreter
            list(self.command),
            env=self.environment,
            cwd=self.folder,
            pass_fds=self.descriptors,
            stdin=subprocess.DEVNULL,
            stdout=self.output or sys.stderr,
            stderr=self.output or sys.stderr,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self.process is not None and self.process.poll() is not None

    @property
    def is_done(self) -> bool:
        """Whether the process ended successfully, with nothing left to do."""
        return self.process is not None and self.process.poll() == 0

    def restart(self) -> None:
        """Restart the process after it ended by itself.

        Raises: ChildFailedError if that happens too often.
        """
        if self.process is not None and self.process.returncode == LATER:
            time.sleep(LATER_SECONDS)
            self.start()
            return
        now = time.monotonic()
        self.ends = [moment for moment in self.ends if now - moment < QUICK_SECONDS] + [now]
        code = self.process.returncode if self.process else None
        if len(self.ends) >= QUICK_ENDS or code == 2:
            raise ChildFailedError(f"the {self.name} ended with code {code} and is not restarted")
        self.start()

    def family(self) -> list[psutil.Process]:
        """The process and all of its descendants."""
        if self.process is None:
            return []
        try:
            parent = psutil.Process(self.process.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def end(children: Sequence[Child], *, grace: float = GRACE_SECONDS) -> None:
    """End the children and their descendants: they are asked to end, and killed after a grace period."""
    families = [process for child in children for process in child.family()]
    for process in families:
        _signal(process, psutil.Process.terminate)
    _, alive = psutil.wait_procs(families, timeout=grace)
    late = [process for child in children for process in child.family()]
    for process in {*alive, *late}:
        _signal(process, psutil.Process.kill)
    psutil.wait_procs([*alive, *late], timeout=1.0)
    for child in children:
        if child.process is not None:
            child.process.poll()


def _signal(process: psutil.Process, send: object) -> None:
    try:
        send(process)  # type: ignore[operator]
    except psutil.NoSuchProcess:
        return
