"""A column's values as ticks: plain numbers, days or microseconds since 1970-01-01 UTC; and the month of a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from dpcore.records.schema import Kind
from tasks.spec.refusals import refuse, shown
from tasks.spec.values import MOST_WHOLE, exact_decimal

_FIRST_DAY = date(1970, 1, 1)
_FIRST_INSTANT = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class MonthRule:
    """Which month a record belongs to: that of its cell in one column, so a function of that record alone.

    A date, and a time without an offset, belong to the month that they name. A time with an offset belongs to the
    month that it falls into in `timezone`; a column of dates has none. The column's bounds do not matter.
    """

    column: str
    timezone: str | None

    @classmethod
    def of_public(cls, public: Mapping[str, Any]) -> MonthRule | None:
        """The rule of a specification, from its public description; None if all data are of the release's month."""
        name = public.get("period_column")
        if name is None:
            return None
        undeclared = {"kind": Kind.TIMESTAMP, "timezone": "UTC"}
        column = next((column for column in public["columns"] if column["name"] == name), undeclared)
        return cls(name, column["timezone"] if column["kind"] == Kind.TIMESTAMP else None)

    @property
    def words(self) -> str:
        """The rule as people and the basis of a budget state it, such as `month of arrival (Europe/Berlin)`."""
        return f"month of {self.column}" + (f" ({self.timezone})" if self.timezone else "")


def as_ticks(value: object, kind: Kind, timezone: str) -> float:
    """A value of an interval column in its unit; refused if a float cannot hold it."""
    if kind is Kind.NUMERIC:
        return float(exact_decimal(value))
    whole = _whole_ticks(value, kind, timezone)
    if abs(whole) > MOST_WHOLE:
        hint = "whole numbers and microseconds since 1970 must stay below 2**53; use nearer bounds or another kind"
        refuse("bounds-range", f"{shown(value)} is too far from 0 to be exact", hint)
    return float(whole)


def from_ticks(ticks: float, kind: Kind) -> float | int | str:
    """The value that ticks stand for: a number, or an ISO 8601 date or instant in UTC."""
    if kind is Kind.NUMERIC:
        return ticks
    if kind is Kind.INTEGER:
        return int(ticks)
    if kind is Kind.DATE:
        return (_FIRST_DAY + timedelta(days=int(ticks))).isoformat()
    return (_FIRST_INSTANT + timedelta(microseconds=int(ticks))).isoformat()


def _whole_ticks(value: object, kind: Kind, timezone: str) -> int:
    if kind is Kind.DATE:
        return (_as_date(value) - _FIRST_DAY).days
    if kind is Kind.TIMESTAMP:
        return (_as_instant(value, timezone) - _FIRST_INSTANT) // _MICROSECOND
    return _as_whole(exact_decimal(value))


def _as_whole(number: Fraction) -> int:
    if number.denominator != 1:
        refuse("not-whole", f"an integer column needs whole numbers, got {float(number):g}", "or use `kind: numeric`")
    return int(number)


def _as_date(value: object) -> date:
    try:
        return date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        refuse("not-a-date", f"this must be a date, got {shown(value)}", "write it as 2020-01-31, without a time")


def _as_instant(value: object, timezone: str) -> datetime:
    """An instant; one without an offset is in the column's time zone."""
    try:
        instant = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        hint = "write it as 2020-01-31 or 2020-01-31T06:00:00"
        refuse("not-a-timestamp", f"this must be a date or a time, got {shown(value)}", hint)
    return instant if instant.tzinfo else instant.replace(tzinfo=ZoneInfo(timezone))
