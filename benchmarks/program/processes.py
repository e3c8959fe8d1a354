"""The memory of a process and of its descendants."""

from __future__ import annotations

import threading

import psutil


class Peak:
    """The peak memory of a process and its descendants, sampled twenty times a second."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._process, self._over = psutil.Process(pid), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self.bytes = max(self.bytes, sum(map(_resident, tree(self._process))))

    def end(self) -> int:
        """Stop sampling and return the peak in megabytes."""
        self._over.set()
        self._thread.join()
        return self.bytes >> 20


def tree(process: psutil.Process) -> list[psutil.Process]:
    """Return a process and its descendants that still run."""
    try:
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
