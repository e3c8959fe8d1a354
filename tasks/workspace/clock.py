"""A monotonic clock that all processes of a machine share, and times in the form in which they are published."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


MINUTE_FORMAT = "%Y-%m-%dT%H:%M:00Z"
"""UTC times to the minute, as documents state them: the duration of stages depends on the size of the data."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock with a unique name: times of different clocks must not be compared."""

    name: str
    seconds: Callable[[], float] = time.monotonic


def steady_clock() -> Clock:
    """The time since this machine started; every boot of every machine is a different clock."""
    return Clock(BOOT_ID.read_text().strip() if BOOT_ID.exists() else platform.node())


def to_the_minute(moment: datetime) -> datetime:
    """A time rounded down to the minute, for the same reason."""
    return moment.replace(second=0, microsecond=0)


def plain_utc(moment: datetime) -> datetime:
    """A time of a library's own type, such as Prefect's, as a standard `datetime` in UTC."""
    return datetime.fromtimestamp(moment.timestamp(), UTC)
