"""Which records belong to a month: the same answer as Python's datetime gives, for every type, unit and time zone."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tasks.landing.months import EPOCH, first_day, moment_of_ticks, month_of_value, next_period

from dpcore.records.schema import IntervalColumn, Kind, RecordSchema
from tasks.landing.cells import cells_of
from tasks.landing.months import (
    NOWHERE,
    OUTSIDE,
    PLACE,
    WITHIN,
    Month,
    _spans,
    count_places,
    month_of,
    months_days,
    says_months,
)
from tasks.spec import MonthRule

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",  # set its clocks back a minute after midnight
    "America/Asuncion",  # skipped midnight of the first of October
    "Asia/Kathmandu",
    "Pacific/Kiritimati",  # 14 hours ahead of UTC, and without the last day of 1994
    "Etc/GMT+12",
    "Africa/Monrovia",  # 44 minutes and a half behind until 1972
]
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DAY = 86_400


def places(values: pa.Array, period: str, zone: str | None) -> list[int]:
    return Month(MonthRule("seen", zone), period).places(values).tolist()


def expected(values: Sequence[Any], period: str, zone: str | None) -> list[int]:
    """Where values belong, one by one: the oracle."""
    months = [month_of_value(value, zone) for value in values]
    return [NOWHERE if month is None else WITHIN if month == period else OUTSIDE for month in months]


periods = st.builds("{:04}-{:02}".format, st.integers(1680, 2260), st.integers(1, 12)) | st.sampled_from(
    ["2009-11", "2017-10", "1994-12", "1995-01", "2026-09", "1970-01", "1972-01"]
)
zones = st.sampled_from(ZONES)
near = st.integers(-2 * DAY, 2 * DAY) | st.sampled_from([-1, 0, 1, 59, 60, 3600, -3600])


@st.composite
def seconds_of(draw: st.DrawFn, period: str) -> int:
    """Seconds since 1970: mostly within two days of the month's beginning or end."""
    start = draw(st.sampled_from([period, next_period(period)]))
    return (first_day(start) - EPOCH.date()).days * DAY + draw(near | st.integers(-60 * DAY, 60 * DAY))


def instants(period: str) -> st.SearchStrategy[list[int | None]]:
    """Nanoseconds since 1970, also just before and after whole seconds."""
    shifts = st.sampled_from([0, 0, 1, -1, 999, -1000, 123_456_789])
    one = st.builds(lambda second, shift: second * 10**9 + shift, seconds_of(period), shifts)
    return st.lists(st.none() | one, max_size=12)


# ---------------------------------------------------------------- against the oracle


@given(data=st.data(), period=periods, zone=zones, unit=st.sampled_from(list(UNITS)), landed=zones)
def test_times_with_an_offset_belong_to_the_month_that_the_columns_clock_shows(
    data: st.DataObject, period: str, zone: str, unit: str, landed: str
):
    ticks = [None if n is None else n * UNITS[unit] // 10**9 for n in data.draw(instants(period))]
    values = pa.array(ticks, pa.int64()).cast(pa.timestamp(unit, tz=landed))
    moments = [None if tick is None else moment_of_ticks(tick, unit) for tick in ticks]
    assert places(values, period, zone) == expected(moments, period, zone)
    assert places(values.dictionary_encode(), period, zone) == expected(moments, period, zone)
    assert places(values, period, None) == expected(moments, period, "UTC"), "days of a column of dates are UTC's"


@given(data=st.data(), period=periods, zone=st.none() | zones, unit=st.sampled_from(list(UNITS)))
def test_times_without_an_offset_belong_to_the_month_that_they_name(
    data: st.DataObject, period: str, zone: str | None, unit: str
):
    ticks = [None if n is None else n * UNITS[unit] // 10**9 for n in data.draw(instants(period))]
    values = pa.array(ticks, pa.int64()).cast(pa.timestamp(unit))
    named = [None if tick is None else moment_of_ticks(tick, unit).replace(tzinfo=None) for tick in ticks]
    assert places(values, period, zone) == expected(named, period, zone)


@given(data=st.data(), period=periods, zone=st.none() | zones)
def test_dates_belong_to_the_month_that_they_name(data: st.DataObject, period: str, zone: str | None):
    days = data.draw(st.lists(st.none() | st.dates() | seconds_of(period).map(date_of), max_size=12))
    for kind in (pa.date32(), pa.date64()):
        assert places(pa.array(days, kind), period, zone) == expected(days, period, zone)
    assert places(pa.array([day and day.isoformat() for day in days]), period, zone) == expected(days, period, zone)


def date_of(second: int) -> date:
    return (EPOCH + timedelta(seconds=second)).date()


offsets = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
words = st.sampled_from(
    ["", " ", "today", "2026-02-30", "2026-09", "09/01/2026", "1782900000", "nan", "\0", "２０２６-09-01"]
)


endings = st.sampled_from(["", "Z", "z", "+00:00", ".5", ".123456789", ".1234567890", "Z ", "\n"])
"""What may follow a time, most of which Python reads."""


@given(data=st.data(), period=periods, zone=st.none() | zones)
def test_text_is_read_as_the_cells_are_and_belongs_nowhere_if_it_is_no_date(
    data: st.DataObject, period: str, zone: str | None
):
    aware = st.builds(lambda second, offset: datetime.fromtimestamp(second, offset), seconds_of(period), offsets)
    moments = data.draw(st.lists(aware, max_size=8))
    texts = [m.isoformat() for m in moments] + [f" {m.replace(tzinfo=None)}\t" for m in moments]
    texts += [f"{m.replace(tzinfo=None)}{data.draw(endings)}" for m in moments]
    texts = [*texts, *data.draw(st.lists(st.none() | words | st.text(max_size=12), max_size=8))]
    wanted = expected(texts, period, zone)
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert places(pa.array(texts, kind), period, zone) == wanted
    assert places(pa.array(texts, pa.string()).dictionary_encode(), period, zone) == wanted


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "period", ["2009-11", "2017-10", "1994-12", "1995-01", "1972-01", "2040-03", "0001-01", "9998-12"]
)
def test_the_spans_of_a_month_are_those_of_a_clock_that_is_read_again_and_again(zone: str, period: str):
    """Every quarter of an hour around both ends, and every edge to the second."""
    spans, clock = _spans(period, zone), ZoneInfo(zone)
    ends = [(day - EPOCH.date()).days * DAY for day in months_days(period)]
    read = {second for end in ends for second in range(end - DAY, end + DAY, 900)}
    read |= {edge + step for span in spans for edge in span for step in (-1, 0, 1)}
    for second in read:
        try:
            shown = (EPOCH + timedelta(seconds=second)).astimezone(clock)
        except OverflowError:
            continue
        assert any(start <= second < stop for start, stop in spans) == (f"{shown.year:04}-{shown.month:02}" == period)


def test_any_time_zone_has_spans_for_any_month():
    dice = np.random.default_rng(3)
    for zone in dice.choice(sorted(available_timezones() - {"Factory", "localtime"}), 60, replace=False):
        period = f"{dice.integers(1900, 2100)}-{dice.integers(1, 13):02}"
        spans, (first, end) = _spans(period, str(zone)), months_days(period)
        edges = [edge - step for span in spans for edge in span for step in (0, 1)]
        midnights = [(day - EPOCH.date()).days * DAY for day in (first, end)]
        for second in [*edges, *(midnight + int(dice.integers(-DAY, DAY)) for midnight in midnights)]:
            month = month_of_value(EPOCH + timedelta(seconds=second), zone)
            assert any(start <= second < stop for start, stop in spans) == (month == period), (zone, period)


CLOCKS = [
    *("00:00", "23:59:59", "24:00:00", "23:60", "23:59:60", "7:00", "07", "0700", "07:00:00.", "07:00:00,5"),
    *("07:00Z", "23:30Z", "07:00 Z", "07:00+14:00", "07:00:00-12:00", "07:00:00.000000001Z"),
]


@pytest.mark.parametrize("zone", [None, "UTC", "Pacific/Kiritimati"])
def test_whatever_stands_behind_a_date_is_read_as_python_reads_it(zone: str | None):
    days = ["2026-09-01", "2026-09-30", "2026-09-31", "2026-02-29", "2026-08-31", "0000-09-01", "20260901"]
    texts = [f"{day}{mark}{clock}" for day in days for mark in "T t" for clock in CLOCKS]
    assert places(pa.array(texts), "2026-09", zone) == expected(texts, "2026-09", zone)


# ---------------------------------------------------------------- single cases


def test_an_hour_that_comes_twice_is_in_its_own_month_both_times():
    """In St John's, clocks went from a minute after midnight of 1 November 2009 back to 23:01 of 31 October."""
    local = [datetime(2009, 11, 1, 0, 0, 30), datetime(2009, 10, 31, 23, 30), datetime(2009, 11, 1, 0, 0, 30)]
    folds = [0, 1, 1]
    zone = ZoneInfo("America/St_Johns")
    moments = [clock.replace(tzinfo=zone, fold=fold).astimezone(UTC) for clock, fold in zip(local, folds, strict=True)]
    assert moments == sorted(moments), "November, October and November again"
    values = pa.array(moments, pa.timestamp("us", tz="UTC"))
    assert places(values, "2009-11", "America/St_Johns") == [WITHIN, OUTSIDE, WITHIN]
    assert places(values, "2009-10", "America/St_Johns") == [OUTSIDE, WITHIN, OUTSIDE]


def test_a_day_whose_midnight_was_skipped_is_in_its_month():
    day = date(2017, 10, 1)
    for values in (
        pa.array([day]),
        pa.array([datetime.combine(day, time())], pa.timestamp("us")),
        pa.array([day.isoformat()]),
    ):
        assert places(values, "2017-10", "America/Asuncion") == [WITHIN]


@pytest.mark.parametrize(("zone", "inside"), [("Pacific/Kiritimati", 10), ("Etc/GMT+12", 12), ("Europe/Berlin", 22)])
def test_the_last_hours_of_a_month_belong_to_it_by_the_columns_clock(zone: str, inside: int):
    """The first instant of September: at 10 in the morning of 31 August UTC where clocks are 14 hours ahead."""
    first = datetime(2026, 9, 1, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    assert first.hour == inside
    values = pa.array([first - timedelta(microseconds=1), first], pa.timestamp("us", tz="UTC"))
    assert places(values, "2026-09", zone) == [OUTSIDE, WITHIN]


def test_a_nanosecond_before_a_month_belongs_to_the_month_before():
    first = int(datetime(2026, 9, 1, tzinfo=UTC).timestamp()) * 10**9
    for tz in (None, "UTC"):
        values = pa.array([first - 1, first], pa.int64()).cast(pa.timestamp("ns", tz=tz))
        assert places(values, "2026-09", "UTC") == [OUTSIDE, WITHIN]
        assert places(values, "2026-08", "UTC") == [WITHIN, OUTSIDE]


FAR = {
    **{
        f"seconds, {tz}": pa.array([2**62, -(2**62), 2**63 - 1, -(2**63)]).cast(pa.timestamp("s", tz))
        for tz in (None, "UTC")
    },
    "nanoseconds": pa.array([2**63 - 1, -(2**63)]).cast(pa.timestamp("ns", "UTC")),
    "days": pa.array([2**31 - 1, -(2**31)], pa.int32()).cast(pa.date32()),
    "text": pa.array(["99999-01-01", "0000-01-01", "-0001-01-01"]),
    "text beyond the calendar": pa.array(["0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00"]),
}


@pytest.mark.parametrize("case", FAR)
@pytest.mark.parametrize("zone", [None, *ZONES])
def test_what_is_out_of_range_raises_nothing_and_belongs_to_no_month_of_ours(case: str, zone: str | None):
    for period in ("2026-09", "9998-12"):
        assert WITHIN not in places(FAR[case], period, zone)


@pytest.mark.parametrize("values", [pa.nulls(3), pa.array([None] * 3, pa.date32()), pa.array([None] * 3, pa.string())])
def test_missing_cells_belong_nowhere(values: pa.Array):
    assert places(values, "2026-09", "UTC") == [NOWHERE] * 3
    assert places(values.dictionary_encode(), "2026-09", "UTC") == [NOWHERE] * 3
    assert places(values[:0], "2026-09", "UTC") == []


def test_a_code_without_a_text_belongs_nowhere():
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([None, "2026-09-01"]))
    assert places(coded, "2026-09", "UTC") == [NOWHERE, WITHIN, NOWHERE]


def test_a_slice_is_read_as_the_whole():
    values = pa.array([date(2026, 8, 31), date(2026, 9, 1), None, date(2026, 9, 30)])
    assert places(values[1:], "2026-09", None) == places(values, "2026-09", None)[1:]


def test_rows_of_a_month_are_kept_in_their_order():
    batch = pa.record_batch({"seen": ["2026-09-02", "2026-08-31", None, "2026-09-01"], "x": [1, 2, 3, 4]})
    month = Month(MonthRule("seen", "UTC"), "2026-09")
    assert month.rows(batch).column("x").to_pylist() == [1, 4]
    assert month.rows(batch.slice(3)).equals(batch.slice(3))
    assert month.rows(batch.slice(1, 2)).num_rows == 0


@given(data=st.data(), zone=zones)
def test_the_month_is_that_of_the_measured_cell_before_it_is_clamped(data: st.DataObject, zone: str):
    """Where a clock neither skips nor repeats, as in September of these zones."""
    seconds = data.draw(st.lists(seconds_of("2026-09"), min_size=1, max_size=8))
    column = IntervalColumn(name="seen", kind=Kind.TIMESTAMP, lower=0.0, upper=1.0, timezone=zone)
    values = pa.array([datetime.fromtimestamp(s, UTC).replace(tzinfo=None) for s in seconds], pa.timestamp("us"))
    ticks = cells_of(pa.record_batch({"seen": values}), RecordSchema((column,)))["seen"]
    moments = [EPOCH + timedelta(microseconds=float(tick)) for tick in ticks]
    assert places(values, "2026-09", zone) == expected(moments, "2026-09", zone)


# ---------------------------------------------------------------- the rule


def test_a_reading_without_a_month_is_refused_where_records_are_told_apart():
    assert month_of(None, None) is month_of(None, "2026-09") is None
    with pytest.raises(ValueError, match="needs a month"):
        month_of(MonthRule("seen", "UTC"), None)


def test_a_month_travels_to_workers():
    month = Month(MonthRule("seen", "Europe/Berlin"), "2026-09")
    assert pickle.loads(pickle.dumps(month)) == month  # noqa: S301


SAYING = [
    *(pa.date32(), pa.date64(), pa.timestamp("ns"), pa.timestamp("s", "UTC")),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.null()),
    *(pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.date32())),
]
SILENT = [
    *(pa.int64(), pa.float64(), pa.bool_(), pa.decimal128(9, 2), pa.time64("us"), pa.duration("s")),
    *(pa.binary(), pa.list_(pa.date32()), pa.dictionary(pa.int32(), pa.int64())),
]


@pytest.mark.parametrize("kind", [*SAYING, *SILENT], ids=str)
def test_only_types_of_dates_times_and_text_say_months(kind: pa.DataType):
    assert says_months(kind) is (kind in SAYING)


def test_months_are_counted_wherever_the_batches_end():
    rng = np.random.default_rng(4)
    where = rng.integers(0, 3, 1000)
    parts = np.split(where, sorted(rng.integers(0, 1000, 7)))
    assert count_places([({PLACE: part}, None) for part in parts]).tolist() == np.bincount(where, minlength=3).tolist()
    assert count_places([]).tolist() == [0, 0, 0]
