"""Signs of life from work that has no steps to count."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

REPORT_EVERY = 10.0
"""Seconds between two reports."""


@contextmanager
def long_work(what: str, *, report: Callable[[str], None], every: float = REPORT_EVERY) -> Iterator[None]:
    """Report every so many seconds that work without steps of its own goes on, until the block ends."""
    ended, start = threading.Event(), time.monotonic()

    def keep_reporting() -> None:
        while not ended.wait(every):
            report(f"{what}: still at work after {time.monotonic() - start:.0f} s")

    reporter = threading.Thread(target=keep_reporting, name=what, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        ended.set()
        reporter.join()
