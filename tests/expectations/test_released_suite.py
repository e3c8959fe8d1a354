"""Each rule on a released table passes good data and fails on a bad example of just that rule."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpcore.schema import IntervalColumn, Kind, NominalColumn, RecordSchema
from expectations.released import released_suite
from expectations.verdicts import SuiteRunner, Verdict

DAYS_2030 = (date(2030, 1, 1) - date(1970, 1, 1)).days
MICROSECONDS_2030 = DAYS_2030 * 86_400_000_000

SCHEMA = RecordSchema(
    (
        IntervalColumn(name="age", kind=Kind.NUMERIC, lower=0, upper=120),
        IntervalColumn(name="visits", kind=Kind.INTEGER, lower=0, upper=50),
        IntervalColumn(name="stays", kind=Kind.INTEGER, lower=0, upper=9, missing_level=True),
        IntervalColumn(name="born", kind=Kind.DATE, lower=0, upper=DAYS_2030),
        IntervalColumn(name="seen", kind=Kind.TIMESTAMP, lower=0, upper=MICROSECONDS_2030, timezone="Europe/Berlin"),
        NominalColumn(name="smoker", kind=Kind.BOOLEAN, levels=(False, True)),
        NominalColumn(name="insured", kind=Kind.BOOLEAN, levels=(False, True), missing_level=True),
        NominalColumn(name="sex", kind=Kind.CATEGORICAL, levels=("f", "m", "x"), missing_level=True),
        NominalColumn(name="grade", kind=Kind.CATEGORICAL, levels=(1, 2, 3)),
    )
)

TABLE = pa.table(
    {
        "age": [0.0, 120.0],
        "visits": [0, 50],
        "stays": [None, 9],
        "born": [date(1970, 1, 1), date(2030, 1, 1)],
        "seen": pa.array(
            [datetime(1970, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)], pa.timestamp("us", "Europe/Berlin")
        ),
        "smoker": [False, True],
        "insured": [None, True],
        "sex": [None, "x"],
        "grade": [1, 3],
    }
)

Change = Callable[[pd.DataFrame], pd.DataFrame]


def good_frame() -> pd.DataFrame:
    return TABLE.to_pandas(date_as_object=False)


def with_last(column: str, value: object) -> Change:
    """Replaces the last cell of a column."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        values = [frame[column].iloc[0], value]
        return frame.assign(**{column: pd.Series(values, dtype=frame[column].dtype)})

    return change


def as_type(column: str, dtype: str) -> Change:
    return lambda frame: frame.astype({column: dtype})


GOOD = {
    "as pyarrow gives it": lambda frame: frame,
    "nullable dtypes": lambda frame: frame.astype(
        {"visits": "Int64", "stays": "Int64", "smoker": "boolean", "insured": "boolean", "grade": "Int64"}
    ),
    "timestamps in UTC": lambda frame: frame.assign(seen=frame["seen"].dt.tz_convert("UTC")),
}

BAD = {
    "columns in another order": (lambda frame: frame[frame.columns[::-1]], {(None, "columns")}),
    "an additional column": (lambda frame: frame.assign(income=1.0), {(None, "columns")}),
    "a row too few": (lambda frame: frame.iloc[:1], {(None, "row-count")}),
    "a number out of bounds": (with_last("age", 120.5), {("age", "in-bounds")}),
    "an infinite number": (with_last("age", np.inf), {("age", "in-bounds")}),
    "an integer out of bounds": (with_last("visits", 51), {("visits", "in-bounds")}),
    "a nullable integer out of bounds": (with_last("stays", 10), {("stays", "in-bounds")}),
    "a late date": (with_last("born", pd.Timestamp("2030-01-02")), {("born", "in-bounds")}),
    "a late instant": (
        with_last("seen", pd.Timestamp("2030-01-01T00:00:00.000001", tz="UTC")),
        {("seen", "in-bounds")},
    ),
    "an unknown category": (with_last("sex", "y"), {("sex", "known-category")}),
    "an unknown integer category": (with_last("grade", 4), {("grade", "known-category")}),
    "a null number": (with_last("age", np.nan), {("age", "not-null")}),
    "a null date": (with_last("born", pd.NaT), {("born", "not-null")}),
    "a number as text": (as_type("age", "str"), {("age", "column-type"), ("age", "in-bounds")}),
    "an integer as floats": (as_type("visits", "float64"), {("visits", "column-type")}),
    "a date as objects": (as_type("born", "object"), {("born", "column-type")}),
    "an instant in a foreign zone": (
        lambda frame: frame.assign(seen=frame["seen"].dt.tz_convert("Asia/Tokyo")),
        {("seen", "column-type")},
    ),
    "a boolean as objects": (as_type("smoker", "object"), {("smoker", "column-type")}),
    "categories as objects": (as_type("sex", "object"), {("sex", "column-type")}),
    "integer categories as floats": (as_type("grade", "float64"), {("grade", "column-type")}),
}


@pytest.fixture(scope="module")
def released() -> SuiteRunner:
    return SuiteRunner(released_suite(SCHEMA, rows=2))


def failed(verdicts: tuple[Verdict, ...]) -> set[tuple[str | None, str]]:
    return {(verdict.column, verdict.rule) for verdict in verdicts if not verdict.ok}


@pytest.mark.parametrize("change", GOOD.values(), ids=GOOD.keys())
def test_a_good_table_passes_every_rule(change, released):
    assert failed(released.validate(change(good_frame()))) == set()


@pytest.mark.parametrize(("change", "expected"), BAD.values(), ids=BAD.keys())
def test_a_bad_table_fails_just_its_rule(change, expected, released):
    assert failed(released.validate(change(good_frame()))) == expected


def test_an_absent_column_fails_its_rules(released):
    verdicts = released.validate(good_frame().drop(columns="age"))
    assert failed(verdicts) == {(None, "columns"), ("age", "in-bounds"), ("age", "not-null")}


def test_an_empty_table_of_no_rows_passes():
    runner = SuiteRunner(released_suite(SCHEMA, rows=0))
    assert failed(runner.validate(good_frame().iloc[:0])) == set()
