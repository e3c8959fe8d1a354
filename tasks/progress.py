"""Progress messages of long stages, written to the terminal only and stored nowhere."""

from __future__ import annotations

import time
from collections.abc import Callable

from tasks.boundary import PROGRESS

FIRST_AFTER, THEN_EVERY = 2.0, 10.0
"""Seconds of work before the first message, and between two messages."""


class ThrottledLogger:
    """Log at most one progress message every `THEN_EVERY` seconds, the first after `FIRST_AFTER` seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._due = clock, clock() + FIRST_AFTER

    def log(self, message: str) -> None:
        """Log the message, or drop it if the previous one is too recent."""
        if self._clock() >= self._due:
            self._due = self._clock() + THEN_EVERY
            PROGRESS.info(message)


class RowsDone:
    """Count the synthetic rows that a stage has processed and log progress from time to time.

    The number of synthetic rows is public.
    """

    def __init__(self, verb: str, rows: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._verb, self._rows, self._done, self._logger = verb, rows, 0, ThrottledLogger(clock)

    def add(self, rows: int) -> None:
        """Count this many more rows as done."""
        self._done += rows
        if self._done < self._rows:
            self._logger.log(f"{self._verb} {self._done:,} of {self._rows:,} rows")


class DataRead:
    """Log from time to time which share of the landing data a pass has read.

    Only the terminal shows the share; it is stored nowhere.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._purpose, self._logger = clock, "", ThrottledLogger(clock)

    def __call__(self, purpose: str, share: float) -> None:
        """Report that the pass for this purpose has read this share of the data."""
        if purpose != self._purpose:
            self._purpose, self._logger = purpose, ThrottledLogger(self._clock)
        if share < 1:
            self._logger.log(f"read {share:.0%} of the landing data for {purpose}")
