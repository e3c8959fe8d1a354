"""Cells: each a function of its own text or value and the schema, and back into the schema's types."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.records.schema import MISSING, UNKNOWN, Column, IntervalColumn, Kind, NominalColumn, RecordSchema
from tasks.landing.cells import arrow_schema, cells_of, table_of

NAN, INF = math.nan, math.inf
DAY = 86_400_000_000


def interval(kind: Kind, *, timezone: str = "UTC", missing_level: bool = False) -> IntervalColumn:
    return IntervalColumn(name="x", kind=kind, lower=-1e6, upper=1e6, timezone=timezone, missing_level=missing_level)


def nominal(*levels: Any, kind: Kind = Kind.CATEGORICAL, missing_level: bool = False) -> NominalColumn:
    return NominalColumn(name="x", kind=kind, levels=levels, missing_level=missing_level)


NUMERIC, INTEGER = interval(Kind.NUMERIC), interval(Kind.INTEGER)
DATE, TIMESTAMP = interval(Kind.DATE), interval(Kind.TIMESTAMP)
BERLIN = interval(Kind.TIMESTAMP, timezone="Europe/Berlin")
BOOLEAN = nominal(False, True, kind=Kind.BOOLEAN)
WORDS, NUMBERS, TRUTHS = nominal("f", "m", "x"), nominal(3, 5), nominal(True, False)
COLUMNS = {
    "numeric": NUMERIC,
    "integer": INTEGER,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamp-berlin": BERLIN,
    "boolean": BOOLEAN,
    "words": WORDS,
    "numbers": NUMBERS,
    "truths": TRUTHS,
}


def cells(values: pa.Array, column: Column, *, decimal: str = ".") -> list[float]:
    """The cells of one column."""
    return cells_of(pa.record_batch({"x": values}), RecordSchema((column,)), decimal=decimal)["x"].tolist()


def same(left: Sequence[float], right: Sequence[float]) -> bool:
    return np.array_equal(np.asarray(left, dtype=float), np.asarray(right, dtype=float), equal_nan=True)


def micros(text: str) -> float:
    distance = datetime.fromisoformat(text).astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return float((distance.days * 86_400 + distance.seconds) * 1_000_000 + distance.microseconds)


# ---------------------------------------------------------------- numbers

NUMBER_TYPES: dict[str, tuple[pa.Array, list[float]]] = {
    **{
        str(kind): (pa.array([0, 7, None], type=kind), [0, 7, NAN])
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    },
    "negative": (pa.array([-7, None, -128], type=pa.int8()), [-7, NAN, -128]),
    "int64-beyond-floats": (pa.array([2**53 + 1]), [2.0**53]),
    "uint64-largest": (pa.array([2**64 - 1], type=pa.uint64()), [2.0**64]),
    "float16": (pa.array(np.array([0.5, NAN], dtype=np.float16)), [0.5, NAN]),
    "float32": (pa.array([0.1, None], type=pa.float32()), [float(np.float32(0.1)), NAN]),
    "float64": (pa.array([0.1, None, NAN, INF, -INF, 1e308, 5e-324]), [0.1, NAN, NAN, INF, -INF, 1e308, 5e-324]),
    "decimal128": (pa.array([Decimal("1.25"), None], type=pa.decimal128(9, 2)), [1.25, NAN]),
    "decimal256": (pa.array([Decimal("-0.5"), None], type=pa.decimal256(40, 1)), [-0.5, NAN]),
    "dictionary": (pa.array([1.5, None, 1.5]).dictionary_encode(), [1.5, NAN, 1.5]),
    "bool": (pa.array([True, False, None]), [1, 0, NAN]),
    "null": (pa.nulls(2), [NAN, NAN]),
    "sliced": (pa.array([1.0, 2.0, None, 4.0])[1:3], [2, NAN]),
}


@pytest.mark.parametrize("case", NUMBER_TYPES)
@pytest.mark.parametrize("column", [NUMERIC, INTEGER], ids=["numeric", "integer"])
def test_numbers_are_read_from_every_number_type(case: str, column: Column):
    values, expected = NUMBER_TYPES[case]
    assert same(cells(values, column), expected)


NUMBER_TEXTS: dict[str, tuple[str | None, str, float]] = {
    "whole": ("7", ".", 7),
    "negative": ("-7.25", ".", -7.25),
    "spaces": ("  7 ", ".", 7),
    "scientific": ("1e-3", ".", 0.001),
    "decimal-comma": ("7,5", ",", 7.5),
    "decimal-comma-negative": (" -0,25 ", ",", -0.25),
    "comma-without-decimal-comma": ("7,5", ".", NAN),
    "two-commas": ("1,234,5", ",", NAN),
    "thousands-and-comma": ("1.234,5", ",", NAN),
    "inf": ("inf", ".", INF),
    "minus-inf": ("-Infinity", ".", -INF),
    "nan": ("nan", ".", NAN),
    "huge": ("1e400", ".", INF),
    "tiny": ("1e-400", ".", 0),
    "many-digits": ("9" * 400, ".", INF),
    "word": ("seven", ".", NAN),
    "hexadecimal": ("0x10", ".", NAN),
    "unit": ("7 kg", ".", NAN),
    "empty": ("", ".", NAN),
    "blank": ("   ", ".", NAN),
    "null": (None, ".", NAN),
}


@pytest.mark.parametrize("case", NUMBER_TEXTS)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_numbers_are_read_from_text(case: str, kind: pa.DataType):
    text, decimal, expected = NUMBER_TEXTS[case]
    assert same(cells(pa.array([text], type=kind), NUMERIC, decimal=decimal), [expected])


# ---------------------------------------------------------------- dates and times

MOMENT = "2026-07-01T12:34:56"


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize(
    ("landed_zone", "column", "expected"),
    [
        (None, TIMESTAMP, micros(f"{MOMENT}+00:00")),
        (None, BERLIN, micros(f"{MOMENT}+02:00")),
        ("UTC", BERLIN, micros(f"{MOMENT}+00:00")),
        ("Asia/Kolkata", TIMESTAMP, micros(f"{MOMENT}+00:00")),
        ("Asia/Kolkata", BERLIN, micros(f"{MOMENT}+00:00")),
    ],
    ids=["naive-utc", "naive-berlin", "utc-berlin", "kolkata-utc", "kolkata-berlin"],
)
def test_times_are_microseconds_since_1970(unit: str, landed_zone: str | None, column: Column, expected: float):
    values = pa.array([datetime.fromisoformat(MOMENT), None], type=pa.timestamp(unit, tz=landed_zone))
    assert same(cells(values, column), [expected, NAN])


@pytest.mark.parametrize(
    ("moment", "offset"),
    [("2026-01-15T12:00:00", "+01:00"), ("2026-10-25T02:30:00", "+02:00"), ("1890-01-01T00:00:00", "+00:53:28")],
    ids=["winter", "ambiguous-is-the-earlier", "local-mean-time"],
)
def test_a_naive_time_is_in_the_columns_zone_from_parquet_and_from_text(moment: str, offset: str):
    expected = [micros(moment + offset)]
    assert cells(pa.array([datetime.fromisoformat(moment)], type=pa.timestamp("us")), BERLIN) == expected
    assert cells(pa.array([moment]), BERLIN) == expected


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()], ids=str)
def test_a_date_is_a_day_or_its_midnight_in_the_columns_zone(kind: pa.DataType):
    values = pa.array([date(1970, 1, 11), None, date(1969, 12, 31)], type=kind)
    assert same(cells(values, DATE), [10, NAN, -1])
    assert same(cells(values, TIMESTAMP), [10 * DAY, NAN, -DAY])
    assert same(cells(values, BERLIN), [10 * DAY - DAY / 24, NAN, -DAY - DAY / 24])
    assert same(cells(pa.array(["1970-01-11", None, "1969-12-31"]), BERLIN), cells(values, BERLIN))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_time_in_a_column_of_dates_is_its_day_rounded_down(unit: str):
    moments = [datetime(1970, 1, 2, 23, 59, 59), datetime(1969, 12, 31, 0, 0, 1), None]
    assert same(cells(pa.array(moments, type=pa.timestamp(unit)), DATE), [1, -1, NAN])


@pytest.mark.parametrize("column", ["date", "timestamp", "timestamp-berlin"])
def test_a_column_of_nulls_is_missing(column: str):
    assert same(cells(pa.nulls(3), COLUMNS[column]), [NAN] * 3)


DATE_TEXTS: dict[str, tuple[str | None, float]] = {
    "plain": ("1970-01-11", 10),
    "spaces": (" 1970-01-11 ", 10),
    "with-time": ("1970-01-11T23:59:59", 10),
    "with-time-and-space": ("1970-01-11 23:59:59", 10),
    "first-day": ("0001-01-01", -719162),
    "no-such-day": ("2026-02-30", NAN),
    "german": ("11.01.1970", NAN),
    "american": ("01/11/1970", NAN),
    "year": ("1970", NAN),
    "word": ("today", NAN),
    "number": ("10", NAN),
    "empty": ("", NAN),
    "null": (None, NAN),
}


@pytest.mark.parametrize("case", DATE_TEXTS)
def test_dates_are_read_from_text(case: str):
    text, expected = DATE_TEXTS[case]
    assert same(cells(pa.array([text], type=pa.string()), DATE), [expected])


TIME_TEXTS: dict[str, tuple[str | None, float]] = {
    "naive": ("2026-07-01T12:00:00", micros("2026-07-01T12:00:00+02:00")),
    "naive-with-space": (" 2026-07-01 12:00 ", micros("2026-07-01T12:00:00+02:00")),
    "date": ("2026-07-01", micros("2026-07-01T00:00:00+02:00")),
    "zulu": ("2026-07-01T12:00:00Z", micros("2026-07-01T12:00:00+00:00")),
    "offset": ("2026-07-01T12:00:00-05:30", micros("2026-07-01T12:00:00-05:30")),
    "microseconds": ("2026-07-01T12:00:00.000001", micros("2026-07-01T12:00:00+02:00") + 1),
    "before-1970": ("1969-12-31T23:59:59.999999Z", -1),
    "first": ("0001-01-01T00:00:00+00:00", -62135596800e6),
    "last": ("9999-12-31T23:59:59+00:00", 253402300799e6),
    "no-such-hour": ("2026-07-01T25:00:00", NAN),
    "no-such-offset": ("2026-07-01T12:00:00+99:00", NAN),
    "zone-name": ("2026-07-01T12:00:00 Europe/Berlin", NAN),
    "seconds-since-1970": ("1782900000", NAN),
    "word": ("now", NAN),
    "inf": ("inf", NAN),
    "empty": ("", NAN),
    "null": (None, NAN),
}


@pytest.mark.parametrize("case", TIME_TEXTS)
def test_times_are_read_from_text(case: str):
    text, expected = TIME_TEXTS[case]
    assert same(cells(pa.array([text], type=pa.string()), BERLIN), [expected])


# ---------------------------------------------------------------- categories

CODES: dict[str, tuple[Column, pa.Array, list[int]]] = {
    "words": (WORDS, pa.array(["f", "x", "m", "d", None, ""]), [0, 2, 1, UNKNOWN, MISSING, UNKNOWN]),
    "words-with-spaces": (WORDS, pa.array([" f", "m ", "F"]), [0, 1, UNKNOWN]),
    "words-large": (WORDS, pa.array(["m", None], type=pa.large_string()), [1, MISSING]),
    "words-dictionary": (WORDS, pa.array(["m", None, "q", "m"]).dictionary_encode(), [1, MISSING, UNKNOWN, 1]),
    "words-from-numbers": (nominal("1", "2"), pa.array([1, 3, None]), [0, UNKNOWN, MISSING]),
    "words-from-truths": (nominal("true", "false"), pa.array([True, None]), [0, MISSING]),
    "words-all-null": (WORDS, pa.nulls(2), [MISSING, MISSING]),
    "numbers": (NUMBERS, pa.array([3, 5, 4, None]), [0, 1, UNKNOWN, MISSING]),
    "numbers-unsigned": (NUMBERS, pa.array([5, None], type=pa.uint8()), [1, MISSING]),
    "numbers-as-floats": (NUMBERS, pa.array([3.0, 3.5, None, NAN, INF]), [0, UNKNOWN, MISSING, MISSING, UNKNOWN]),
    "numbers-as-text": (
        NUMBERS,
        pa.array(["3", " 5 ", "3.0", "03", "3.5", "", None]),
        [0, 1, 0, *[UNKNOWN] * 3, MISSING],
    ),
    "numbers-beyond-floats": (nominal(2**53, 2**53 + 1), pa.array([2**53 + 1, 2**53, 2**53 + 2]), [1, 0, UNKNOWN]),
    "numbers-dictionary": (NUMBERS, pa.array([5, None, 9]).dictionary_encode(), [1, MISSING, UNKNOWN]),
    "boolean": (BOOLEAN, pa.array([True, False, None]), [1, 0, MISSING]),
    "boolean-all-null": (BOOLEAN, pa.nulls(1), [MISSING]),
    "boolean-words": (
        BOOLEAN,
        pa.array(["true", "T", " Yes", "y", "1", "FALSE", "f", "No", "n", "0"]),
        [1] * 5 + [0] * 5,
    ),
    "boolean-other-words": (BOOLEAN, pa.array(["on", "2", "", "ja", None]), [*[UNKNOWN] * 4, MISSING]),
    "truths": (TRUTHS, pa.array([True, False, None]), [0, 1, MISSING]),
    "truths-as-text": (TRUTHS, pa.array(["true", "false", "maybe"]), [0, 1, UNKNOWN]),
}


@pytest.mark.parametrize("case", CODES)
def test_categories_become_codes(case: str):
    column, values, expected = CODES[case]
    got = cells_of(pa.record_batch({"x": values}), RecordSchema((column,)))["x"]
    assert got.dtype == np.int64
    assert got.tolist() == expected


# ---------------------------------------------------------------- purity

texts = st.one_of(
    st.none(),
    st.text(max_size=12),
    st.sampled_from(["1", "1,5", " 2 ", "inf", "nan", "1e999", "f", "m", "true", "NO", "3", "5"]),
    st.floats().map(repr),
    st.datetimes().map(datetime.isoformat),
    st.dates().map(date.isoformat),
)


@pytest.mark.parametrize("column", COLUMNS)
@given(batch=st.lists(texts, min_size=1, max_size=12), decimal=st.sampled_from(".,"))
def test_a_text_cell_is_read_alone_as_in_any_batch(column: str, batch: list[str | None], decimal: str):
    together = cells(pa.array(batch, type=pa.string()), COLUMNS[column], decimal=decimal)
    apart = [cells(pa.array([text], type=pa.string()), COLUMNS[column], decimal=decimal)[0] for text in batch]
    assert same(together, apart)
    assert same(together[::-1], cells(pa.array(batch[::-1], type=pa.string()), COLUMNS[column], decimal=decimal))


moments = st.integers(-(2**62), 2**62)
TYPED = {
    "float64": (NUMERIC, pa.float64(), st.floats()),
    "int64": (INTEGER, pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "decimal": (NUMERIC, pa.decimal128(20, 4), st.decimals(-(10**9), 10**9, places=4)),
    "naive-ns": (BERLIN, pa.timestamp("ns"), moments),
    "naive-s": (BERLIN, pa.timestamp("s"), st.integers(-(2**40), 2**40)),
    "zoned-us": (BERLIN, pa.timestamp("us", tz="Asia/Kolkata"), moments),
    "days": (DATE, pa.timestamp("ms"), st.integers(-(2**50), 2**50)),
    "levels": (NUMBERS, pa.int64(), st.sampled_from([3, 4, 5, 2**62])),
    "truths": (BOOLEAN, pa.bool_(), st.booleans()),
}


@pytest.mark.parametrize("case", TYPED)
@given(data=st.data())
def test_a_typed_cell_is_read_alone_as_in_any_batch(case: str, data: st.DataObject):
    column, kind, values = TYPED[case]
    batch = data.draw(st.lists(st.none() | values, min_size=1, max_size=12))
    together = cells(pa.array(batch, type=kind), column)
    assert same(together, [cells(pa.array([value], type=kind), column)[0] for value in batch])
    encoded = pa.array(batch, type=kind).dictionary_encode()
    assert same(together, cells(encoded, column))


# ---------------------------------------------------------------- back to a table


def several(missing_level: bool) -> RecordSchema:
    common = {"missing_level": missing_level}
    return RecordSchema(
        (
            IntervalColumn(name="numeric", kind=Kind.NUMERIC, lower=-1, upper=1, **common),
            IntervalColumn(name="integer", kind=Kind.INTEGER, lower=0, upper=9, **common),
            IntervalColumn(name="date", kind=Kind.DATE, lower=0, upper=9, **common),
            IntervalColumn(name="time", kind=Kind.TIMESTAMP, lower=0, upper=9, timezone="Europe/Berlin", **common),
            NominalColumn(name="boolean", kind=Kind.BOOLEAN, levels=(False, True), **common),
            NominalColumn(name="words", kind=Kind.CATEGORICAL, levels=("f", "m"), **common),
            NominalColumn(name="numbers", kind=Kind.CATEGORICAL, levels=(3, 5), **common),
        )
    )


TYPES = [
    pa.float64(),
    pa.int64(),
    pa.date32(),
    pa.timestamp("us", tz="Europe/Berlin"),
    pa.bool_(),
    pa.string(),
    pa.int64(),
]


@pytest.mark.parametrize("missing_level", [False, True])
def test_types_and_nullability_follow_from_the_schema(missing_level: bool):
    schema = arrow_schema(several(missing_level))
    assert schema.names == [column.name for column in several(missing_level).columns]
    assert schema.types == TYPES
    assert [field.nullable for field in schema] == [missing_level] * len(TYPES)


def filled(rows: int, missing: bool) -> dict[str, np.ndarray]:
    value, code = (NAN, MISSING) if missing else (1.0, 1)
    return {
        column.name: np.full(rows, code, dtype=np.int64) if isinstance(column, NominalColumn) else np.full(rows, value)
        for column in several(True).columns
    }


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("missing", [False, True], ids=["present", "missing"])
def test_the_types_of_a_table_do_not_depend_on_its_cells(rows: int, missing: bool):
    table = table_of(filled(rows, missing), several(True))
    assert table.schema == arrow_schema(several(True))
    assert table.num_rows == rows
    table.validate(full=True)
    assert sum(column.null_count for column in table.columns) == (rows * len(TYPES) if missing else 0)


def test_cells_become_what_they_stand_for():
    table = table_of(filled(1, missing=False), several(False))
    assert table.to_pylist() == [
        {
            "numeric": 1.0,
            "integer": 1,
            "date": date(1970, 1, 2),
            "time": datetime(1970, 1, 1, microsecond=1, tzinfo=UTC),
            "boolean": True,
            "words": "m",
            "numbers": 5,
        }
    ]


rows = st.fixed_dictionaries(
    {
        "numeric": st.floats(allow_nan=False),
        "integer": st.integers(-(2**53), 2**53),
        "date": st.dates(),
        "time": st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC)),
        "boolean": st.booleans(),
        "words": st.sampled_from(["f", "m"]),
        "numbers": st.sampled_from([3, 5]),
    }
).flatmap(lambda row: st.fixed_dictionaries({name: st.sampled_from([value, None]) for name, value in row.items()}))


@given(st.lists(rows, max_size=8))
def test_a_table_survives_the_way_to_cells_and_back(content: list[dict[str, Any]]):
    schema = several(True)
    table = pa.Table.from_pylist(content, schema=arrow_schema(schema))
    (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    assert table_of(cells_of(batch, schema), schema).to_pylist() == content


@given(st.lists(rows, min_size=1, max_size=8))
def test_cells_survive_the_way_to_a_table_and_back(content: list[dict[str, Any]]):
    schema = several(True)
    batch = pa.RecordBatch.from_pylist(content, schema=arrow_schema(schema))
    before = cells_of(batch, schema)
    (again,) = table_of(before, schema).combine_chunks().to_batches()
    for name, values in cells_of(again, schema).items():
        assert same(values, before[name])


def parsed(text: str | None, decimal: str) -> float:
    """What a number's text means, text by text."""
    try:
        return NAN if text is None else float(text.strip().replace(decimal, "."))
    except ValueError:
        return NAN


NUMBER_LIKE = st.one_of(
    st.none(),
    st.floats().map(repr),
    st.integers().map(str),
    st.from_regex(r"[ +-]?[0-9]{0,20}[.,]?[0-9]{0,20}([eE][+-]?[0-9]{0,4})?[ \n]?", fullmatch=True),
    st.text(max_size=6),
)


@given(st.lists(NUMBER_LIKE, max_size=12), st.sampled_from([".", ","]))
def test_a_number_means_the_same_alone_and_among_any_others(texts: list[str | None], decimal: str) -> None:
    column = IntervalColumn(name="x", kind=Kind.NUMERIC, lower=0, upper=1)
    found = np.array(cells(pa.array(texts, pa.string()), column, decimal=decimal))
    assert np.array_equal(found, np.array([parsed(text, decimal) for text in texts], dtype=float), equal_nan=True)
