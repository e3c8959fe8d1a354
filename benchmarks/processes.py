"""What processes take: the memory of one and of all that it started."""

from __future__ import annotations

import threading

import psutil


class Peak:
    """The largest memory of a process and all that it started, looked at twenty times a second."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._process, self._over = psutil.Process(pid), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self.bytes = max(self.bytes, sum(map(_resident, tree(self._process))))

    def end(self) -> int:
        """Stop looking; megabytes at the most."""
        self._over.set()
        self._thread.join()
        return self.bytes >> 20


def tree(process: psutil.Process) -> list[psutil.Process]:
    """A process and all that it started, as far as they still run."""
    try:
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
