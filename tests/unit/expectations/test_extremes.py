"""A few extreme cells give the verdicts of all cells, however the rows are cut into batches."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.records.schema import MISSING, UNKNOWN, IntervalColumn, Kind, NominalColumn, RecordSchema
from expectations.extremes import Extremes
from expectations.landing import ENCODED_NORM, cell_suite
from expectations.verdicts import SuiteRunner

LEVELS = ("a", "b", "c")
SCHEMA = RecordSchema(
    (
        IntervalColumn(name="required", kind=Kind.NUMERIC, lower=-1, upper=1),
        IntervalColumn(name="optional", kind=Kind.INTEGER, lower=0, upper=3, missing_level=True),
        NominalColumn(name="required code", kind=Kind.CATEGORICAL, levels=LEVELS),
        NominalColumn(name="optional code", kind=Kind.CATEGORICAL, levels=LEVELS, impute=0),
    )
)
NUMBERS = st.sampled_from([np.nan, -np.inf, np.inf, -1.0, np.nextafter(-1.0, -2), -0.0, 0.0, 1.0, 1.5, 3.0, 1e308])
GOOD_NUMBERS = st.sampled_from([0.0, 0.5, 1.0])
CODES = st.sampled_from([UNKNOWN, MISSING, 0, 2, len(LEVELS), -7])
GOOD_CODES = st.sampled_from([0, 1, 2])


@st.composite
def tables(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Columns that break any subset of the rules, or none."""
    rows = draw(st.integers(1, 6))

    def column(bad: st.SearchStrategy, good: st.SearchStrategy, dtype: type) -> np.ndarray:
        source = bad if draw(st.booleans()) else good
        return np.array(draw(st.lists(source, min_size=rows, max_size=rows)), dtype=dtype)

    return {
        "required": column(NUMBERS, GOOD_NUMBERS, float),
        "optional": column(NUMBERS, GOOD_NUMBERS, float),
        "required code": column(CODES, GOOD_CODES, np.int64),
        "optional code": column(CODES, GOOD_CODES, np.int64),
        ENCODED_NORM: column(NUMBERS, GOOD_NUMBERS, float),
    }


def of_batches(cells: dict[str, np.ndarray], *cuts: int) -> list[Extremes]:
    parts = []
    for start, end in zip((0, *cuts), (*cuts, None), strict=True):
        part = Extremes()
        part.add({name: column[start:end] for name, column in cells.items()})
        parts.append(part)
    return parts


@pytest.fixture(scope="module")
def runner() -> SuiteRunner:
    return SuiteRunner(cell_suite(SCHEMA))


@given(cells=tables(), data=st.data())
def test_extremes_give_the_verdicts_of_all_cells(cells, data, runner):
    rows = len(cells["required"])
    cuts = sorted(data.draw(st.lists(st.integers(0, rows), min_size=2, max_size=2)))
    first, second, third = of_batches(cells, *cuts)
    third.merge(first)
    third.merge(pickle.loads(pickle.dumps(second)))  # noqa: S301  our own bytes

    assert runner.validate(third.frame()) == runner.validate(pd.DataFrame(cells))
    assert len(third.frame()) <= 3


@pytest.mark.parametrize(
    ("column", "rule"),
    [("required", "not-missing"), ("required code", "not-missing"), ("required code", "known-category")],
)
def test_a_bad_cell_between_good_ones_is_not_lost(column, rule, runner):
    """MISSING hides behind UNKNOWN, NaN behind every number."""
    good = {"required": 0.0, "optional": 0.0, "required code": 1, "optional code": 1, ENCODED_NORM: 0.5}
    cells = {name: np.full(5, value) for name, value in good.items()}
    cells[column][1:3] = [np.nan, 0.0] if column == "required" else [MISSING, UNKNOWN]
    extremes = Extremes()
    extremes.add(cells)
    broken = {(v.column, v.rule) for v in runner.validate(extremes.frame()) if not v.ok}
    assert (column, rule) in broken


def test_columns_keep_their_dtypes_with_and_without_rows():
    for rows in (0, 4):
        extremes = Extremes()
        extremes.add({"number": np.full(rows, np.nan), "code": np.zeros(rows, dtype=np.int64)})
        frame = extremes.frame()
        assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == {"number": "float64", "code": "int64"}
        assert extremes.is_empty == (rows == 0) == frame.empty


def test_extremes_without_batches_are_empty_and_merge_into_others():
    extremes, other = Extremes(), Extremes()
    assert extremes.is_empty
    other.add({"number": np.array([2.0, 1.0])})
    other.merge(extremes)
    extremes.merge(other)
    assert extremes.frame().equals(other.frame())
    assert sorted(set(extremes.frame()["number"])) == [1.0, 2.0]


def test_batches_of_other_columns_or_types_are_refused():
    extremes = Extremes()
    extremes.add({"a": np.zeros(2)})
    with pytest.raises(ValueError, match="same columns"):
        extremes.add({"b": np.zeros(2)})
    with pytest.raises(TypeError, match="in every batch"):
        extremes.add({"a": np.zeros(2, dtype=np.int64)})
    with pytest.raises(TypeError, match="numbers or codes"):
        Extremes().add({"a": np.array(["text"])})
