"""Each rule on a released table passes good data and fails on a bad example of just that rule."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.records.schema import IntervalColumn, Kind, NominalColumn, RecordSchema
from expectations.released import DecidingCells, released_suite, released_verdicts
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


# ---- a few cells decide ----------------------------------------------------------------------------------


def decided(table: pa.Table, *, rows: int, batch_rows: int = 2) -> tuple[Verdict, ...]:
    """The verdicts on a table that is seen batch by batch."""
    cells = DecidingCells(SCHEMA, table.schema)
    for batch in table.to_batches(max_chunksize=batch_rows):
        cells.add(batch)
    return released_verdicts(cells, SCHEMA, rows=rows)


CELLS = {
    "age": (pa.float64(), [0.0, 60.0, 120.0], [None, np.nan, np.inf, -np.inf, -0.5, 120.5]),
    "visits": (pa.int64(), [0, 7, 50], [None, -1, 51]),
    "stays": (pa.int64(), [None, 0, 9], [-1, 10]),
    "born": (pa.date32(), [date(1970, 1, 1), date(2030, 1, 1)], [None, date(1969, 12, 31), date(2030, 1, 2)]),
    "seen": (
        pa.timestamp("us", "Europe/Berlin"),
        [datetime(1970, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)],
        [None, datetime(2030, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
    ),
    "smoker": (pa.bool_(), [False, True], [None]),
    "insured": (pa.bool_(), [None, False, True], []),
    "sex": (pa.string(), [None, "f", "m", "x"], ["y", "", "z"]),
    "grade": (pa.int64(), [1, 2, 3], [None, 0, 4, 5]),
}
"""Type, good cells and bad ones of each column."""


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Tables of which any columns hold bad cells, at any place."""
    rows, bad = draw(st.integers(1, 9)), draw(st.sets(st.sampled_from(sorted(CELLS)), max_size=4))
    columns = {}
    for name, (kind, good_cells, bad_cells) in CELLS.items():
        cells = st.sampled_from([*good_cells, *bad_cells] if name in bad else good_cells)
        columns[name] = pa.array(draw(st.lists(cells, min_size=rows, max_size=rows)), kind)
    return pa.table(columns)


@given(table=tables(), claimed=st.integers(1, 9))
def test_deciding_cells_give_the_verdicts_of_the_whole_table(table, claimed):
    whole = SuiteRunner(released_suite(SCHEMA, rows=claimed)).validate(table.to_pandas(date_as_object=False))
    assert decided(table, rows=claimed) == whole


def test_deciding_cells_of_other_columns_and_types_give_the_same_verdicts():
    for table in (
        TABLE.drop_columns(["age"]),
        TABLE.append_column("income", pa.array([[1], None], pa.list_(pa.int64()))),
        TABLE.set_column(0, "age", pa.array(["0", "120"])),
        TABLE.set_column(8, "grade", pa.array([1.0, None])),
        TABLE.set_column(5, "smoker", pa.array([0, 1])),
        TABLE.slice(0, 0),
    ):
        whole = SuiteRunner(released_suite(SCHEMA, rows=2)).validate(table.to_pandas(date_as_object=False))
        assert decided(table, rows=2, batch_rows=1) == whole


def test_deciding_cells_stay_few_however_many_different_values_there_are():
    values = pa.array([f"value {i}" for i in range(1000)])
    cells = DecidingCells(SCHEMA, pa.schema([("sex", pa.string())]))
    for start in range(0, 1000, 100):
        cells.add(pa.record_batch({"sex": values.slice(start, 100)}))
    assert cells.rows == 1000
    assert len(cells.frame()) == len("fmx") + 1


def test_columns_whose_names_differ_by_case_alone_are_judged_apart() -> None:
    """Great Expectations looks names up without regard to case, and judged one column by the cells of the other."""
    columns = (
        IntervalColumn(name="age", kind=Kind.NUMERIC, lower=0.0, upper=1.0),
        NominalColumn(name="AGE", kind=Kind.BOOLEAN, levels=(False, True)),
    )
    schema = RecordSchema(columns)
    for flags, rules in (([True, False], set()), ([None, False], {("AGE", "not-null")})):
        table = pa.table({"age": pa.array([0.2, 0.4]), "AGE": pa.array(flags, pa.bool_())})
        cells = DecidingCells(schema, table.schema)
        cells.add(table.to_batches()[0])
        verdicts = released_verdicts(cells, schema, rows=2)
        broken = {(verdict.column, verdict.rule) for verdict in verdicts if not verdict.ok}
        assert rules <= broken
        assert bool(broken) == bool(rules)
