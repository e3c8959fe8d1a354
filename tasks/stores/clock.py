"""A clock for waiting: it never steps, and processes of one machine read the same."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock, by a name that no other one has: times of different clocks must not be compared."""

    name: str
    seconds: Callable[[], float] = time.monotonic


def steady_clock() -> Clock:
    """The time since this machine started; after another start, or on another machine, it is another clock."""
    return Clock(BOOT_ID.read_text().strip() if BOOT_ID.exists() else platform.node())
