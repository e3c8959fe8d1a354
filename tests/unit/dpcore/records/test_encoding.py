"""The encoding is pure, invertible where it can be, always inside the unit ball, and drops no record."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dpcore.strategies import LABEL, Row, as_cells, hostile_cell, rows_of, schema_with

from dpcore.records.decoding import ClassRules, LevelRule
from dpcore.records.encoding import ColumnCode, Encoding, level_corners, level_of
from dpcore.records.schema import (
    MISSING,
    UNKNOWN,
    Cells,
    IntervalColumn,
    Kind,
    NominalColumn,
    PrivacyUnit,
    RecordSchema,
    Role,
    RowRule,
)

SCHEMA = schema_with(target=True, label=True)
ENCODING = Encoding(SCHEMA)


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def test_lengths_without_clamping_are_above_one_only_where_a_cell_is_outside_its_bounds() -> None:
    numbers = tuple(IntervalColumn(name=name, kind=Kind.NUMERIC, lower=-2.0, upper=2.0) for name in "ab")
    cells: Cells = {"a": np.array([2.0, 0.0, 6.0, np.nan, 1e308]), "b": np.array([2.0, 1.0, -8.0, 2.0, -1e308])}
    positions = np.array([[1, 1], [0, 0.5], [3, -4], [0, 1]]) / math.sqrt(2)  # missing cells count as the middle
    lengths = Encoding(RecordSchema(numbers)).unclipped_lengths(cells)
    assert lengths[:4] == pytest.approx(np.linalg.norm(positions, axis=1))
    assert lengths[4] == math.inf


@given(rows=rows_of(SCHEMA, most=12), order=st.randoms())
def test_a_record_encodes_to_the_same_bits_alone_and_in_any_company(rows: list[Row], order: object) -> None:
    together = ENCODING.encode(as_cells(SCHEMA, rows))
    classes = ENCODING.classes(as_cells(SCHEMA, rows))
    for row, point, block in zip(rows, together, classes, strict=True):
        alone = as_cells(SCHEMA, [row])
        assert bits(ENCODING.encode(alone)[0]) == bits(point)
        assert ENCODING.classes(alone)[0] == block
    shuffled = list(range(len(rows)))
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    again = ENCODING.encode(as_cells(SCHEMA, [rows[i] for i in shuffled]))
    assert bits(again) == bits(together[shuffled])


@given(row=rows_of(SCHEMA, most=1), size=st.integers(1, 70))
def test_a_record_encodes_to_the_same_bits_at_every_place_of_a_vector_register(row: list[Row], size: int) -> None:
    filler = {c.name: 0 for c in SCHEMA.columns}
    rows = [dict(filler) for _ in range(size)]
    alone = bits(ENCODING.encode(as_cells(SCHEMA, row))[0])
    for place in {0, size // 2, size - 1}:
        rows[place] = row[0]
        assert bits(ENCODING.encode(as_cells(SCHEMA, rows))[place]) == alone
        rows[place] = dict(filler)


@given(rows=rows_of(SCHEMA, most=12))
def test_every_record_becomes_a_point_of_the_unit_ball_and_none_is_dropped(rows: list[Row]) -> None:
    cells = as_cells(SCHEMA, rows)
    points, classes = ENCODING.encode(cells), ENCODING.classes(cells)
    assert points.shape == (len(rows), ENCODING.width)
    assert np.all(np.isfinite(points))
    assert np.all(np.linalg.norm(points, axis=1) <= 1 + 1e-12)
    assert np.all((classes >= 0) & (classes < SCHEMA.class_count))


@pytest.mark.parametrize("column", SCHEMA.encoded_columns, ids=lambda c: c.name)
@given(data=st.data())
def test_each_column_becomes_a_vector_of_length_at_most_one(
    column: IntervalColumn | NominalColumn, data: st.DataObject
) -> None:
    code = next(c for c in ENCODING.codes if c.column is column)
    (vector,) = code.encode(np.array([data.draw(hostile_cell(column))]))
    assert len(vector) == code.stop - code.start
    assert np.linalg.norm(vector) <= 1 + 1e-12


def plain_rules(encoding: Encoding, class_index: int = 0) -> ClassRules:
    """Rules that choose the nearest level, without offsets or restored positions."""
    offsets = {}
    for code in encoding.codes:
        if isinstance(code.column, NominalColumn):
            offsets[code.column.name] = LevelRule((0.0,) * code.column.level_count)
        elif code.column.missing_level:
            offsets[code.column.name] = LevelRule((0.0, 0.0))
    return ClassRules(class_index, offsets, {})


@given(rows=rows_of(SCHEMA, most=6, tame=True))
def test_decoding_gives_back_what_was_encoded(rows: list[Row]) -> None:
    cells = as_cells(SCHEMA, rows)
    points, classes = ENCODING.encode(cells), ENCODING.classes(cells)
    for i, row in enumerate(rows):
        back = ENCODING.decode(points[i : i + 1], plain_rules(ENCODING, int(classes[i])))
        assert list(back) == [c.name for c in SCHEMA.columns]
        for column in SCHEMA.columns:
            value, expected = back[column.name][0], row[column.name]
            if isinstance(column, NominalColumn) or column.is_whole:
                assert value == expected or (math.isnan(value) and math.isnan(expected)), column.name
            else:
                assert value == pytest.approx(expected, abs=1e-12 * (column.upper - column.lower))


@given(
    points=st.lists(
        st.lists(st.floats(-1e6, 1e6), min_size=ENCODING.width, max_size=ENCODING.width), min_size=1, max_size=5
    )
)
def test_whatever_is_decoded_is_a_legal_record(points: list[list[float]]) -> None:
    cells = ENCODING.decode(np.array(points), plain_rules(ENCODING))
    for column in SCHEMA.columns:
        values = cells[column.name]
        if isinstance(column, NominalColumn):
            assert np.all((values >= (MISSING if column.missing_level else 0)) & (values < len(column.levels)))
            continue
        present = values[~np.isnan(values)]
        assert column.missing_level or len(present) == len(values)
        assert np.all((present >= column.lower) & (present <= column.upper))
        assert not column.is_whole or np.all(present == np.rint(present))


# ---- missing, unknown and unparseable cells ------------------------------------------------


def interval(**options: object) -> ColumnCode:
    column = IntervalColumn(name="n", kind=Kind.NUMERIC, lower=-2, upper=6, **options)  # type: ignore[arg-type]
    return ColumnCode(column, 0, 1 + column.missing_level)


@pytest.mark.parametrize(
    ("cell", "position"),
    [
        (-2, -1),
        (6, 1),
        (2, 0),
        (0, -0.5),
        (7, 1),
        (1e308, 1),
        (math.inf, 1),
        (-math.inf, -1),
        (-1e308, -1),
        (math.nan, 0),
    ],
)
def test_an_interval_cell_is_clamped_to_the_bounds_and_counts_as_the_middle_when_missing(
    cell: float, position: float
) -> None:
    assert interval().encode(np.array([cell])).tolist() == [[position]]


def test_a_missing_interval_cell_takes_the_imputed_value_or_its_own_level() -> None:
    missing = np.array([math.nan])
    assert interval(impute=6.0).encode(missing).tolist() == [[1.0]]
    assert interval(missing_level=True).encode(missing).tolist() == [[0.0, 1.0]]
    assert interval(missing_level=True).encode(np.array([6.0])).tolist() == [[1.0, 0.0]]
    assert interval(missing_level=True, impute=6.0).encode(missing).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize(
    ("options", "missing", "unknown"),
    [
        ({}, -1, -1),
        ({"other": 2}, 2, 2),
        ({"impute": 1}, 1, -1),
        ({"other": 2, "impute": 1}, 1, 2),
        ({"missing_level": True}, 3, -1),
        ({"missing_level": True, "other": 0, "impute": 1}, 3, 0),
    ],
    ids=str,
)
def test_missing_and_unknown_levels_count_as_declared(options: dict[str, object], missing: int, unknown: int) -> None:
    column = NominalColumn(name="c", kind=Kind.CATEGORICAL, levels=("a", "b", "c"), **options)  # type: ignore[arg-type]
    codes = np.array([0, 1, 2, MISSING, UNKNOWN, 3, 10**15, -(2**63)])
    assert level_of(codes, column).tolist() == [0, 1, 2, missing, *[unknown] * 4]
    vectors = ColumnCode(column, 0, column.level_count).encode(codes)
    centre = np.zeros(column.level_count)
    for vector, level in zip(vectors, level_of(codes, column), strict=True):
        assert np.array_equal(vector, centre if level < 0 else level_corners(column)[level])


def test_a_label_that_maps_to_no_level_falls_into_the_first_class() -> None:
    label = NominalColumn(name="l", kind=Kind.CATEGORICAL, levels=("a", "b"), role=Role.LABEL)
    number = IntervalColumn(name="n", kind=Kind.NUMERIC, lower=0, upper=1)
    cells: Cells = {"l": np.array([0, 1, MISSING, UNKNOWN, 77]), "n": np.zeros(5)}
    assert Encoding(RecordSchema((label, number))).classes(cells).tolist() == [0, 1, 0, 0, 0]
    own = as_cells(SCHEMA, [{c.name: MISSING if c is LABEL else 0 for c in SCHEMA.columns}])
    assert ENCODING.classes(own).tolist() == [3], "a label with a missing level has a class for it"


@pytest.mark.parametrize("count", [2, 3, 4, 7, 30])
def test_levels_are_corners_of_a_regular_simplex(count: int) -> None:
    """Unit length, equal inner products -1/(K-1), mean zero."""
    column = NominalColumn(name="c", kind=Kind.CATEGORICAL, levels=tuple(f"l{i}" for i in range(count)))
    corners = level_corners(column)
    gram = corners @ corners.T
    assert np.allclose(np.diag(gram), 1, rtol=1e-12)
    apart = [gram[i, j] for i, j in itertools.permutations(range(count), 2)]
    assert np.allclose(apart, -1 / (count - 1), rtol=1e-12)
    assert np.allclose(corners.sum(axis=0), 0, atol=1e-12)


@given(rows=rows_of(SCHEMA, least=3, most=30, tame=True))
def test_the_mean_point_implies_the_shares_of_the_levels(rows: list[Row]) -> None:
    """Without unknown cells the shares equal those of the table; counting is the oracle."""
    cells = as_cells(SCHEMA, rows)
    shares = ENCODING.level_shares(ENCODING.encode(cells).mean(axis=0))
    for column in SCHEMA.encoded_columns:
        if isinstance(column, NominalColumn):
            levels = level_of(cells[column.name].astype(np.int64), column)
            counted = [float(np.mean(levels == k)) for k in range(column.level_count)]
        elif column.missing_level:
            gone = float(np.mean(np.isnan(cells[column.name])))
            counted = [1 - gone, gone]
        else:
            assert column.name not in shares
            continue
        assert shares[column.name] == pytest.approx(counted, abs=1e-9)


@given(rows=rows_of(SCHEMA, least=3, most=30, tame=True))
def test_the_mean_point_implies_where_the_present_values_lie(rows: list[Row]) -> None:
    visits = np.array([row["visits"] for row in rows], dtype=float)
    present = ENCODING.present_values(ENCODING.encode(as_cells(SCHEMA, rows)).mean(axis=0))["visits"]
    known = visits[~np.isnan(visits)]
    assert present.share == pytest.approx(max(len(known) / len(visits), 1e-9), abs=1e-9)
    if len(known):
        assert present.mean == pytest.approx((known.mean() - 25) / 25, abs=1e-9)


def test_coordinates_have_as_many_names_as_there_are() -> None:
    names = ENCODING.coordinate_names()
    assert len(names) == len(set(names)) == ENCODING.width
    assert names[-1] == "cost", "the target's coordinates are last"
    assert ENCODING.feature_width + ENCODING.target_width == ENCODING.width


@pytest.mark.parametrize(
    ("unit", "whom", "rule"),
    [
        (PrivacyUnit(), "row", ""),
        (PrivacyUnit(person="id"), "person", "weight"),
        (PrivacyUnit(person="id", row_rule=RowRule.AT_MOST, most_rows=3), "person", "at-most 3"),
    ],
)
def test_a_privacy_unit_says_whom_it_protects_and_by_which_rule(unit: PrivacyUnit, whom: str, rule: str) -> None:
    assert str(unit).startswith(whom)
    assert rule in str(unit)


# ---- invalid schemas are refused --------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: IntervalColumn(name="n", kind=Kind.NUMERIC, lower=1, upper=1),
        lambda: IntervalColumn(name="n", kind=Kind.NUMERIC, lower=0, upper=math.inf),
        lambda: IntervalColumn(name="n", kind=Kind.NUMERIC, lower=math.nan, upper=1),
        lambda: IntervalColumn(name="n", kind=Kind.NUMERIC, lower=0, upper=1, impute=2),
        lambda: IntervalColumn(name="n", kind=Kind.NUMERIC, lower=0, upper=1, impute=math.nan),
        lambda: NominalColumn(name="c", kind=Kind.CATEGORICAL, levels=("a",)),
        lambda: NominalColumn(name="c", kind=Kind.CATEGORICAL, levels=("a", "a")),
        lambda: NominalColumn(name="c", kind=Kind.CATEGORICAL, levels=("a", "b"), other=2),
        lambda: NominalColumn(name="c", kind=Kind.CATEGORICAL, levels=("a", "b"), impute=-1),
        lambda: RecordSchema((LABEL,)),
        lambda: RecordSchema((IntervalColumn(name="l", kind=Kind.NUMERIC, lower=0, upper=1, role=Role.LABEL),)),
        lambda: RecordSchema((replace(LABEL, role=Role.TARGET),)),
        lambda: RecordSchema(SCHEMA.columns + SCHEMA.columns[:1]),
        lambda: RecordSchema(
            (*SCHEMA.columns, NominalColumn(name="l2", kind=Kind.BOOLEAN, levels=(False, True), role=Role.LABEL))
        ),
        lambda: RecordSchema(
            (*SCHEMA.columns, IntervalColumn(name="t2", kind=Kind.NUMERIC, lower=0, upper=1, role=Role.TARGET))
        ),
    ],
)
def test_impossible_schemas_are_refused(make: object) -> None:
    with pytest.raises(ValueError, match=r"column|columns"):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(("lower", "upper"), [(-1e308, 1e308), (0.0, 5e-324), (-1.7e308, 1.7e308)])
def test_bounds_whose_distance_is_no_ordinary_float_are_refused(lower: float, upper: float) -> None:
    """Their half width is infinite or 0, and every position between them is NaN."""
    with pytest.raises(ValueError, match="distance between the bounds"):
        IntervalColumn(name="n", kind=Kind.NUMERIC, lower=lower, upper=upper)


@pytest.mark.parametrize(("lower", "upper"), [(-8e307, 8e307), (0.0, 1e-323), (1.0, 1.0 + 2**-52), (-1e308, -9.9e307)])
def test_the_widest_and_the_narrowest_bounds_encode_into_the_ball(lower: float, upper: float) -> None:
    column = IntervalColumn(name="n", kind=Kind.NUMERIC, lower=lower, upper=upper)
    hostile = [lower, upper, column.middle, math.nan, math.inf, -math.inf, 0.0, 1e308, -1e308, 5e-324]
    vectors = ColumnCode(column, 0, 1).encode(np.array(hostile))
    assert np.all(np.abs(vectors) <= 1)
    assert vectors[1, 0] == 1
