"""Each landing rule passes good data and fails on a bad example of just that rule."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.records.schema import MISSING, UNKNOWN, IntervalColumn, Kind, NominalColumn, RecordSchema
from expectations.landing import ENCODED_NORM, cell_suite, landing_dtypes, structure_suite
from expectations.verdicts import SuiteRunner, Verdict, validate

SCHEMA = RecordSchema(
    (
        IntervalColumn(name="age", kind=Kind.NUMERIC, lower=0, upper=120),
        IntervalColumn(name="visits", kind=Kind.INTEGER, lower=0, upper=50, missing_level=True),
        IntervalColumn(name="born", kind=Kind.DATE, lower=-20000, upper=20000, impute=0),
        IntervalColumn(name="seen", kind=Kind.TIMESTAMP, lower=0, upper=2e15),
        NominalColumn(name="smoker", kind=Kind.BOOLEAN, levels=(False, True)),
        NominalColumn(name="sex", kind=Kind.CATEGORICAL, levels=("f", "m", "x"), impute=2),
        NominalColumn(name="grade", kind=Kind.CATEGORICAL, levels=(1, 2, 3), missing_level=True),
    )
)

GOOD_DTYPES = {
    "age": "float64",
    "visits": "int64",
    "born": "datetime64[us]",
    "seen": "datetime64[us]",
    "smoker": "bool",
    "sex": "str",
    "grade": "int64",
    "patient_id": "object",
}

GOOD_CELLS = {
    "age": [0.0, 120.0],
    "visits": [np.nan, 50.0],
    "born": [np.nan, -20000.0],
    "seen": [0.0, 2e15],
    "smoker": [0, 1],
    "sex": [MISSING, 2],
    "grade": [MISSING, 0],
    ENCODED_NORM: [0.0, 1.0 + 1e-12],
}


def failed(verdicts: tuple[Verdict, ...]) -> set[tuple[str | None, str]]:
    return {(verdict.column, verdict.rule) for verdict in verdicts if not verdict.ok}


def empty_frame(dtypes: dict[str, str]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series([], dtype=dtype) for name, dtype in dtypes.items()})


def without(name: str) -> dict[str, str]:
    return {other: dtype for other, dtype in GOOD_DTYPES.items() if other != name}


@pytest.fixture(scope="module")
def structure() -> SuiteRunner:
    suite = structure_suite(SCHEMA, extra_columns=["address", "patient_name"], required=["patient_id"], typed=True)
    return SuiteRunner(suite)


@pytest.fixture(scope="module")
def cells() -> SuiteRunner:
    return SuiteRunner(cell_suite(SCHEMA))


GOOD_STRUCTURES = {
    "as declared": GOOD_DTYPES,
    "in another order": dict(reversed(GOOD_DTYPES.items())),
    "with a dropped column": GOOD_DTYPES | {"address": "str"},
    "integers with missing cells": GOOD_DTYPES | {"visits": "float64", "grade": "float64"},
    "a numeric column of integers": GOOD_DTYPES | {"age": "int64"},
    "categories as integers": GOOD_DTYPES | {"sex": "int64"},
    "categories as booleans": GOOD_DTYPES | {"sex": "bool"},
    "a person's id of any type": GOOD_DTYPES | {"patient_id": "int64"},
}

BAD_STRUCTURES = {
    "a declared column is missing": (without("age"), {("age", "column-missing")}),
    "the person's id is missing": (without("patient_id"), {("patient_id", "column-missing")}),
    "a column nobody declared": (GOOD_DTYPES | {"income": "float64"}, {(None, "column-undeclared")}),
    "a declared name in another case": (GOOD_DTYPES | {"Age": "float64"}, {(None, "column-undeclared")}),
    "numeric as text": (GOOD_DTYPES | {"age": "str"}, {("age", "column-type")}),
    "numeric as objects": (GOOD_DTYPES | {"age": "object"}, {("age", "column-type")}),
    "numeric as booleans": (GOOD_DTYPES | {"age": "bool"}, {("age", "column-type")}),
    "integer as dates": (GOOD_DTYPES | {"visits": "datetime64[us]"}, {("visits", "column-type")}),
    "date as integers": (GOOD_DTYPES | {"born": "int64"}, {("born", "column-type")}),
    "timestamp as text": (GOOD_DTYPES | {"seen": "str"}, {("seen", "column-type")}),
    "boolean as integers": (GOOD_DTYPES | {"smoker": "int64"}, {("smoker", "column-type")}),
    "categories as objects": (GOOD_DTYPES | {"sex": "object"}, {("sex", "column-type")}),
    "text categories as floats": (GOOD_DTYPES | {"sex": "float64"}, {("sex", "column-type")}),
}


@pytest.mark.parametrize("dtypes", GOOD_STRUCTURES.values(), ids=GOOD_STRUCTURES.keys())
def test_a_good_structure_passes_every_rule(dtypes, structure):
    assert failed(structure.validate(empty_frame(dtypes))) == set()


@pytest.mark.parametrize(("dtypes", "expected"), BAD_STRUCTURES.values(), ids=BAD_STRUCTURES.keys())
def test_a_bad_structure_fails_just_its_rule(dtypes, expected, structure):
    assert failed(structure.validate(empty_frame(dtypes))) == expected


def test_a_column_that_comes_twice_is_undeclared(structure):
    frame = empty_frame(GOOD_DTYPES)
    twice = pd.concat([frame, frame[["age"]]], axis=1)
    assert failed(structure.validate(twice)) == {(None, "column-undeclared")}


def test_an_untyped_file_has_no_type_rules():
    suite = structure_suite(SCHEMA, required=["patient_id"], typed=False)
    verdicts = validate(empty_frame(dict.fromkeys(GOOD_DTYPES, "str")), suite)
    assert failed(verdicts) == set()
    assert {verdict.rule for verdict in verdicts} == {"column-missing", "column-undeclared"}


def test_an_all_missing_column_has_a_dtype_to_be_given(structure):
    dtypes = {column.name: landing_dtypes(column)[0] for column in SCHEMA.columns}
    assert failed(structure.validate(empty_frame(dtypes | {"patient_id": "object"}))) == set()


BAD_CELLS = {
    "below the lower bound": ("age", -0.001, {("age", "in-bounds")}),
    "above the upper bound": ("visits", 50.001, {("visits", "in-bounds")}),
    "infinite": ("age", np.inf, {("age", "in-bounds")}),
    "minus infinite": ("born", -np.inf, {("born", "in-bounds")}),
    "a late instant": ("seen", 2e15 + 1, {("seen", "in-bounds")}),
    "missing without a policy": ("age", np.nan, {("age", "not-missing")}),
    "missing nominal without a policy": ("smoker", MISSING, {("smoker", "not-missing")}),
    "unknown boolean": ("smoker", UNKNOWN, {("smoker", "known-category")}),
    "unknown category with a policy for missing ones": ("sex", UNKNOWN, {("sex", "known-category")}),
    "unknown category with a missing level": ("grade", UNKNOWN, {("grade", "known-category")}),
    "a code beyond the levels": ("sex", 3, {("sex", "known-category")}),
    "a record outside the unit ball": (ENCODED_NORM, 1 + 1e-6, {(None, "unit-ball")}),
    "a record of infinite norm": (ENCODED_NORM, np.inf, {(None, "unit-ball")}),
    "a record without a norm": (ENCODED_NORM, np.nan, {(None, "unit-ball")}),
}


def test_good_cells_pass_every_rule(cells):
    verdicts = cells.validate(pd.DataFrame(GOOD_CELLS))
    assert failed(verdicts) == set()
    assert [(verdict.column, verdict.rule) for verdict in verdicts] == [
        ("age", "in-bounds"),
        ("age", "not-missing"),
        ("visits", "in-bounds"),
        ("born", "in-bounds"),
        ("seen", "in-bounds"),
        ("seen", "not-missing"),
        ("smoker", "known-category"),
        ("smoker", "not-missing"),
        ("sex", "known-category"),
        ("grade", "known-category"),
        (None, "unit-ball"),
    ]


@pytest.mark.parametrize(("column", "value", "expected"), BAD_CELLS.values(), ids=BAD_CELLS.keys())
def test_a_bad_cell_fails_just_its_rule(column, value, expected, cells):
    frame = pd.DataFrame(GOOD_CELLS | {column: [GOOD_CELLS[column][0], value]})
    assert failed(cells.validate(frame)) == expected


def test_an_empty_batch_passes_every_rule(cells):
    assert failed(cells.validate(pd.DataFrame(GOOD_CELLS).iloc[:0])) == set()


def test_a_column_of_missing_cells_is_in_bounds(cells):
    assert failed(cells.validate(pd.DataFrame(GOOD_CELLS | {"visits": [np.nan, np.nan]}))) == set()


@settings(database=None, derandomize=True)
@given(values=st.lists(st.floats(width=64) | st.floats(0, 120), min_size=1, max_size=5))
def test_bounds_agree_with_plain_comparison(values):
    schema = RecordSchema((IntervalColumn(name="age", kind=Kind.NUMERIC, lower=0, upper=120, missing_level=True),))
    frame = pd.DataFrame({"age": np.array(values), ENCODED_NORM: 0.0})
    inside = all(np.isnan(value) or 0 <= value <= 120 for value in values)
    assert validate(frame, cell_suite(schema))[0] == Verdict("age", "in-bounds", ok=inside)


def test_odd_column_names_are_taken_literally():
    names = ["$HOME", "a b", "from", "`tick`", "ünï", "{x}", "%s"]
    schema = RecordSchema(tuple(IntervalColumn(name=n, kind=Kind.NUMERIC, lower=0, upper=1) for n in names))
    frame = pd.DataFrame(dict.fromkeys([*names, ENCODED_NORM], 0.5), index=[0])
    verdicts = validate(frame, cell_suite(schema))
    assert failed(verdicts) == set()
    assert {verdict.column for verdict in verdicts} == {*names, None}


def test_no_column_may_take_the_name_of_the_norm():
    schema = RecordSchema((IntervalColumn(name=ENCODED_NORM, kind=Kind.NUMERIC, lower=0, upper=1),))
    with pytest.raises(ValueError, match=ENCODED_NORM):
        cell_suite(schema)
