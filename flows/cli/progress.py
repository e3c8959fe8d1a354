"""The progress of a release in the terminal: one line per message, and a spinner with the time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status
from rich.text import Text

from flows.cli.output import stderr

WAITING = "waiting for the first stage"
STILL_SECONDS = 5.0
"""Seconds between two lines while the first stage has not reported anything."""


class _ProgressLines(logging.Handler):
    """Shows the messages of the stages as they come."""

    def __init__(self, out: Console, status: Status) -> None:
        super().__init__(logging.INFO)
        self._out, self._status, self._start = out, status, time.monotonic()
        self.heard = threading.Event()

    def wait(self, first: str) -> None:
        """Report from time to time that the first stage has not reported yet."""
        while not self.heard.wait(STILL_SECONDS):
            words = f"{first}: still waiting, {time.monotonic() - self._start:.0f} s"
            self._status.update(words)
            if not self._out.is_terminal or self._out.is_dumb_terminal:
                self._out.print(words, soft_wrap=True)

    def emit(self, record: logging.LogRecord) -> None:
        seconds = time.monotonic() - self._start
        mark = ("! ", "yellow") if record.levelno >= logging.WARNING else ("✓ ", "green")
        line = Text.assemble(mark, (f"{seconds:5.1f} s  ", "dim"), record.getMessage())
        self.heard.set()
        self._out.print(line, soft_wrap=True)  # in one call: a live spinner clears what is left open
        self._status.update("releasing")


@contextmanager
def show_progress(first: str) -> Iterator[None]:
    """Show progress on standard error until the block ends."""
    out = stderr()
    logger = logging.getLogger("dprelease.progress")
    if not out.is_terminal or out.is_dumb_terminal:
        out.print(f"{first} ...")
    with out.status(first) as status:
        handler = _ProgressLines(out, status)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(handler)
        waiting = threading.Thread(target=handler.wait, args=(first,), name=WAITING, daemon=True)
        waiting.start()
        try:
            yield
        finally:
            handler.heard.set()
            waiting.join()
            logger.removeHandler(handler)


SOON_SECONDS, OFTEN_SECONDS = 2.0, 10.0
"""Seconds before the first line, and between two lines, if standard error is not a terminal."""


@contextmanager
def show_activity(first: str) -> Iterator[Callable[[str], None]]:
    """Show the current activity on standard error: at once on a terminal, elsewhere only if it takes long."""
    out, due = stderr(), time.monotonic() + SOON_SECONDS
    with out.status(first) as status:

        def on_progress(what: str) -> None:
            nonlocal due
            status.update(what)
            if not out.is_terminal and time.monotonic() >= due:
                due = time.monotonic() + OFTEN_SECONDS
                out.print(what, soft_wrap=True)

        yield on_progress
