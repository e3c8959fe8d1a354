"""How far a long stage is, told to whoever watches the terminal; not stored anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable

from tasks.boundary import PROGRESS

FIRST_AFTER, THEN_EVERY = 2.0, 10.0
"""Seconds of work before anything is said, and between one message and the next."""


class RowsDone:
    """Counts public rows and says now and then how many of them are done."""

    def __init__(self, verb: str, rows: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._verb, self._rows, self._clock = verb, rows, clock
        self._done, self._due = 0, clock() + FIRST_AFTER

    def add(self, rows: int) -> None:
        """So many more are done."""
        self._done += rows
        if self._done < self._rows and self._clock() >= self._due:
            self._due = self._clock() + THEN_EVERY
            PROGRESS.info(f"{self._verb} {self._done:,} of {self._rows:,} rows")
