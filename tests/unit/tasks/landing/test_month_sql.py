"""The month of a database's rows: that of the value as the database holds it, declared or not."""

from __future__ import annotations

import sqlite3
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tasks.landing.months import first_day, month_of_value
from support.tasks.landing.queries import SPEC, refusal, run

from tasks.landing.datasets import Landing
from tasks.landing.months import NOWHERE, OUTSIDE, WITHIN, Month
from tasks.landing.readings import Readings
from tasks.landing.sql_cells import column_types, spooled_column
from tasks.landing.structure import require_sound
from tasks.spec import ReleaseSpec, parse_spec

ZONE = "America/Asuncion"
"""Its clocks skipped the first hour of October 2017."""


def specified(column: str, *, sql: str = "SELECT * FROM visits", unit: str = "{person: patient}") -> ReleaseSpec:
    text = SPEC.format(url="sqlite:///clinic.db", sql=sql, rows="table").replace("Europe/Berlin", ZONE)
    text = text.replace("drop: [note]", f"drop: [note]\n  period_column: {column}")
    return parse_spec(text.replace("{person: patient}", unit))


def places(values: list[Any], column: str, period: str) -> list[int]:
    """Where a database's values belong, by way of the file that they are spooled into."""
    spec = specified(column)
    assert spec.month_rule is not None
    spooled = spooled_column(values, column, spec)
    assert spooled.type == column_types(spec).field(column).type
    return Month(spec.month_rule, period).places(spooled).tolist()


ODD = [None, 7, 20171001, 1506816000.0, Decimal(1), True, b"\xff", "soon", "", "2017-10", float("nan")]

COLUMNS = {"seen": ZONE, "born": None, "arrival": "UTC"}
"""A declared time, a declared date and an undeclared column, each with the time zone of its months."""


@pytest.mark.parametrize("column", COLUMNS)
def test_what_is_no_date_has_no_month(column: str):
    assert places(ODD, column, "2017-10") == [NOWHERE] * len(ODD)
    assert places(["2017-10-01", b"2017-10-01", date(2017, 10, 1)], column, "2017-10") == [WITHIN] * 3


@pytest.mark.parametrize("column", COLUMNS)
@given(shifts=st.lists(st.integers(-3 * 86_400, 3 * 86_400), max_size=8), offset=st.integers(-14, 14))
def test_a_value_belongs_to_the_month_that_python_says(column: str, shifts: list[int], offset: int):
    zone, period = COLUMNS[column], "2017-10"
    start = datetime.combine(first_day(period), datetime.min.time(), UTC)
    aware = [(start + timedelta(seconds=s)).astimezone(timezone(timedelta(hours=offset))) for s in shifts]
    values: list[Any] = [*aware, *(m.replace(tzinfo=None) for m in aware), *(m.date() for m in aware)]
    # a column of dates holds the day of a time with an offset in UTC
    read = [v.astimezone(UTC) if zone is None and isinstance(v, datetime) and v.tzinfo else v for v in values]
    wanted = [WITHIN if month_of_value(value, zone) == period else OUTSIDE for value in read]
    assert places(values, column, period) == wanted


def test_a_time_that_clocks_skipped_is_read_like_its_text():
    skipped = datetime(2017, 10, 1, 0, 30)
    spec = specified("seen")
    as_time, as_text = (spooled_column([value], "seen", spec) for value in (skipped, str(skipped)))
    assert as_time.to_pylist() == as_text.to_pylist() == [datetime(2017, 10, 1, 4, 30, tzinfo=UTC)]
    assert spooled_column([date(2017, 10, 1)], "seen", spec).to_pylist() == [datetime(2017, 10, 1, 4, tzinfo=UTC)]


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)))
def test_a_time_without_a_zone_is_the_columns_as_far_as_its_clocks_are_known(moment: datetime):
    """Also in far years, for which time zones have rules and no list of changes."""
    (spooled,) = spooled_column([moment], "seen", specified("seen")).to_pylist()
    assert spooled == moment.replace(tzinfo=ZoneInfo(ZONE)).astimezone(UTC)


def test_times_beyond_every_bound_are_exact_where_only_the_month_is_read():
    last = datetime(8999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert places([last, last + timedelta(microseconds=1)], "arrival", "8999-12") == [WITHIN, OUTSIDE]


@pytest.mark.parametrize("unit", ["{person: patient}", "{person: patient, rows: at-most 2}"])
def test_rows_of_a_query_are_chosen_by_their_month(tmp_path: Path, unit: str):
    days = [f"2026-{month:02}-{day:02} 10:00:00" for month in (8, 9, 10) for day in (1, 15, 30)]
    with sqlite3.connect(tmp_path / "clinic.db") as connection:
        connection.execute("CREATE TABLE visits (patient, weight, visits, born, seen, smoker, sex, ward, arrival)")
        row = (7, 70.5, 3, "1980-02-29", "2026-01-01", 1, "f", 2)
        connection.executemany("INSERT INTO visits VALUES (?,?,?,?,?,?,?,?,?)", [(*row, day) for day in [*days, None]])
    spec = specified("arrival", unit=unit)
    answer = run(spec, tmp_path)
    assert sorted(filter(None, answer["arrival"].to_pylist())) == days
    path = tmp_path / "spooled.parquet"
    pq.write_table(answer, path)
    require_sound(Landing((path,), spec, "source.query"))
    found = Readings(Landing((path,), spec, "source.query"), spec.unit, key=bytes, scratch=tmp_path, period="2026-09")
    (chunk,) = found.chunks(spec.schema)
    shares = None if "at-most" in unit else [1 / 3] * 3
    assert len(chunk[0]["weight"]) == (2 if "at-most" in unit else 3)
    assert (None if chunk[1] is None else chunk[1].tolist()) == shares
    assert found.month_counts() == {"month": 3, "other_months": 6, "no_month": 1}


def test_a_query_without_the_column_is_refused_by_its_name(tmp_path: Path):
    with sqlite3.connect(tmp_path / "clinic.db") as connection:
        connection.execute("CREATE TABLE visits (patient, weight, visits, born, seen, smoker, sex, ward)")
    refused = refusal(specified("arrival"), tmp_path)
    assert (refused.rule, refused.where) == ("column-missing", "columns.arrival")
