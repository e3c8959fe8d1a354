"""The records of a release's month: the cell of the period column decides, by itself and before any bound.

Months are computed with whole numbers and Python's time zones, so that text, dates and times of every unit agree to
the last nanosecond, on every machine. How many records belong to other months is private.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpcore.records.schema import Cells
from tasks.landing.cells import EPOCH, as_bytes, by_distinct, is_text_type, of_dictionary
from tasks.spec import MonthRule

NOWHERE, OUTSIDE, WITHIN = range(3)
"""Where a record belongs: to no month, to another month, to the release's month."""

PLACE = "place"
"""The name under which a pass over the period column alone yields where records belong."""

DAY, QUARTER = 86_400, 900
"""Seconds. A time zone's clock is less than a day off, and stays as it is for longer than a quarter of an hour."""

_PLAIN_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?"
"""Texts of a time without an offset: their first ten characters decide about the month."""

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FAR_BACK = -DAY * 719_000
"""A second of the year 1 that every time zone can represent."""

Wholes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Month:
    """The month of a release, and the rule by which records belong to months."""

    rule: MonthRule
    period: str

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that belong to the month, in their order."""
        within = self.places(batch.column(self.rule.column)) == WITHIN
        return batch if within.all() else batch.filter(pa.array(within))

    def places(self, cells: pa.Array) -> NDArray[np.int8]:
        """Where each record belongs; a cell that cannot be read belongs nowhere."""
        if is_text_type(cells.type):
            return by_distinct(self._days_of_plain_times(cells), self._place_of).astype(np.int8)
        if pa.types.is_dictionary(cells.type) and is_text_type(cells.type.value_type):
            return of_dictionary(cells, self._place_of).astype(np.int8)
        plain = cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
        if pa.types.is_null(plain.type):
            return np.full(len(plain), NOWHERE, dtype=np.int8)
        missing = plain.is_null().to_numpy(zero_copy_only=False)
        places = np.where(missing, NOWHERE, np.where(self._within(plain), WITHIN, OUTSIDE))
        return places.astype(np.int8)

    def _days_of_plain_times(self, texts: pa.Array) -> pa.Array:
        """Texts with their days in place of plain times, which takes a tenth of the time: many rows share a day."""
        raw, ending = as_bytes(texts), "Z?$" if self.rule.timezone in (None, "UTC") else "$"
        is_plain = pc.fill_null(pc.match_substring_regex(raw, _PLAIN_TIME + ending), False)
        return pc.if_else(is_plain, pc.binary_slice(raw, 0, 10), raw)

    def _place_of(self, text: str | None) -> int:
        """Where a record belongs whose cell is text."""
        if text is None:
            return NOWHERE
        try:
            moment = datetime.fromisoformat(text.strip())
            if moment.tzinfo is not None and self.rule.timezone is not None:
                moment = moment.astimezone(ZoneInfo(self.rule.timezone))
        except (ValueError, OverflowError):
            return NOWHERE
        return WITHIN if f"{moment.year:04}-{moment.month:02}" == self.period else OUTSIDE

    def _within(self, cells: pa.Array) -> NDArray[np.bool_]:
        """Whether dates or times are of the month; a cell that is null may be either."""
        kind, has_offset = cells.type, False
        if pa.types.is_date32(kind):
            ticks, per_second = DAY * _wholes(pc.cast(cells, pa.int32())), 1
        elif pa.types.is_date64(kind):
            ticks, per_second = _wholes(cells), _PER_SECOND["ms"]
        else:
            ticks, per_second, has_offset = _wholes(cells), _PER_SECOND[kind.unit], kind.tz is not None
        spans = _spans(self.period, self.rule.timezone if has_offset else None)
        within = np.zeros(len(ticks), dtype=np.bool_)
        for first, end in spans:
            within |= (ticks >= first * per_second) & (ticks < end * per_second)
        return within


def month_of(rule: MonthRule | None, period: str | None) -> Month | None:
    """The month whose records count; None if the specification does not tell records of different months apart.

    Raises: ValueError if it does, and no month is given: then every record would count.
    """
    if rule is None:
        return None
    if period is None:
        raise ValueError("records are told apart by their months, so a reading needs a month")
    return Month(rule, period)


def says_months(kind: pa.DataType) -> bool:
    """Whether cells of a type may be dates or times."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_date, pa.types.is_timestamp, pa.types.is_null, is_text_type)
    return any(matches(plain) for matches in tests)


def count_places(chunks: Iterable[tuple[Cells, object]]) -> Wholes:
    """How many records belong nowhere, to other months and to the month: private."""
    total = np.zeros(3, dtype=np.int64)
    for cells, _ in chunks:
        total += np.bincount(np.asarray(cells[PLACE], dtype=np.int64), minlength=3)
    return total


def months_days(period: str) -> tuple[date, date]:
    """The first day of a month, and the first day after it."""
    year, month = map(int, period.split("-"))
    return date(year, month, 1), date(year + month // 12, month % 12 + 1, 1)


def _wholes(values: pa.Array) -> Wholes:
    """Whole numbers; 0 in place of a null."""
    numbers: Wholes = pc.fill_null(pc.cast(values, pa.int64()), 0).to_numpy(zero_copy_only=False)
    return numbers


@lru_cache(maxsize=64)
def _spans(period: str, timezone: str | None) -> tuple[tuple[int, int], ...]:
    """The seconds since 1970 UTC, from one up to another, at which the clocks of a time zone show the month.

    They need not be one interval: where clocks are set back just after midnight, the last hour of the month before
    comes twice, with the beginning of the month in between. Without a time zone, the seconds of a clock that is never
    changed.
    """
    first, end = ((day - EPOCH.date()).days * DAY for day in months_days(period))
    if timezone is None:
        return ((first, end),)
    zone = ZoneInfo(timezone)
    marks = range(first - DAY, end + DAY + 1, QUARTER)
    shown = [_offset(zone, mark) for mark in marks]
    changes = [_change(zone, mark) for mark, (one, other) in zip(marks, pairwise(shown), strict=False) if one != other]
    pieces = [(start, stop, _offset(zone, start)) for start, stop in pairwise([marks[0], *changes, marks[-1]])]
    spans = [(max(start, first - offset), min(stop, end - offset)) for start, stop, offset in pieces]
    return tuple((start, stop) for start, stop in spans if start < stop)


def _offset(zone: ZoneInfo, second: int) -> int:
    """By how many seconds the clocks of a time zone are ahead of UTC."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=max(second, _FAR_BACK))
    return int((moment.astimezone(zone).utcoffset() or timedelta()).total_seconds())


def _change(zone: ZoneInfo, mark: int) -> int:
    """The first second after a mark with another offset, where the offset changes before the next mark."""
    seconds = range(mark, mark + QUARTER + 1)
    return seconds[bisect_left(seconds, True, key=lambda second: _offset(zone, second) != _offset(zone, mark))]
