"""The month of a value by Python's datetime alone: the oracle of `tasks.landing.months`."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def month_of_value(value: Any, zone: str | None) -> str | None:
    """The month of a date, a time or a text of one; without a zone, in a column of dates, that which it names."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if value is None:
        return None
    if isinstance(value, datetime) and value.tzinfo is not None and zone is not None:
        try:
            value = value.astimezone(ZoneInfo(zone))
        except (OverflowError, ValueError):
            return None
    return f"{value.year:04}-{value.month:02}"


def moment_of_ticks(ticks: int, unit: str) -> datetime:
    """The instant that so many units after 1970 are; what Python cannot hold of it is cut off downwards."""
    per_micro = {"s": 10**6, "ms": 10**3, "us": 1}
    return EPOCH + timedelta(microseconds=ticks // 1000 if unit == "ns" else ticks * per_micro[unit])


def first_day(period: str) -> date:
    """The first day of a month."""
    return date.fromisoformat(f"{period}-01")


def next_period(period: str) -> str:
    """The month after a month."""
    return f"{first_day(period) + timedelta(days=31):%Y-%m}".zfill(7)
