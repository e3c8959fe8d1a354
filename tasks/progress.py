"""How far a long stage is, told to whoever watches the terminal; not stored anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable

from tasks.boundary import PROGRESS

FIRST_AFTER, THEN_EVERY = 2.0, 10.0
"""Seconds of work before anything is said, and between one message and the next."""


class NowAndThen:
    """Says something when it is time for it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._due = clock, clock() + FIRST_AFTER

    def say(self, message: str) -> None:
        """Say it, unless something was said just before."""
        if self._clock() >= self._due:
            self._due = self._clock() + THEN_EVERY
            PROGRESS.info(message)


class RowsDone:
    """Counts public rows and says now and then how many of them are done."""

    def __init__(self, verb: str, rows: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._verb, self._rows, self._done, self._voice = verb, rows, 0, NowAndThen(clock)

    def add(self, rows: int) -> None:
        """So many more are done."""
        self._done += rows
        if self._done < self._rows:
            self._voice.say(f"{self._verb} {self._done:,} of {self._rows:,} rows")


class DataRead:
    """Says now and then how much of the landing data a reading is through: a share, which only the terminal sees."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._purpose, self._voice = clock, "", NowAndThen(clock)

    def __call__(self, purpose: str, share: float) -> None:
        """A reading for that purpose is so far."""
        if purpose != self._purpose:
            self._purpose, self._voice = purpose, NowAndThen(self._clock)
        if share < 1:
            self._voice.say(f"{share:.0%} of the landing data are read for {purpose}")
