"""A clock for waiting, which never steps and is the same to all processes of a machine; and times that others see."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


MINUTE_FORMAT = "%Y-%m-%dT%H:%M:00Z"
"""A time in UTC as documents state it: how long stages take depends on the size of the data."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock, by a name that no other one has: times of different clocks must not be compared."""

    name: str
    seconds: Callable[[], float] = time.monotonic


def steady_clock() -> Clock:
    """The time since this machine started; after another start, or on another machine, it is another clock."""
    return Clock(BOOT_ID.read_text().strip() if BOOT_ID.exists() else platform.node())


def to_the_minute(moment: datetime) -> datetime:
    """A moment as others are told of it, for the same reason."""
    return moment.replace(second=0, microsecond=0)


def plain_utc(moment: datetime) -> datetime:
    """A moment of a library's own type, such as Prefect's, as one of the standard library's in UTC."""
    return datetime.fromtimestamp(moment.timestamp(), UTC)
