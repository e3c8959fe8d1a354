"""Grouped points are a function of one record, always inside the unit ball, and short for common records."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.dpcore.samplers import generator
from support.dpcore.strategies import as_cells, rows_of, schema_with

from dpcore.accounting import Rho
from dpcore.measure import ReleasedVector, measure_vector
from dpcore.measurements.group_encoding import GroupedEncoding, contrasts
from dpcore.measurements.groups import cells_of_columns, group_columns
from dpcore.measurements.histograms import count_cells, histograms_query
from dpcore.mechanisms.base import UNIT
from dpcore.mechanisms.sensitivity import gram_frobenius, gram_nuclear
from dpcore.mechanisms.vectors import HISTOGRAM_GAUSSIAN, PrivateVector
from dpcore.noise.sources import SeededNoise
from dpcore.records.binning import UNCOUNTED
from dpcore.records.exact_sums import GramLayout, GramSum, integer_records
from dpcore.records.schema import MISSING, Cells, IntervalColumn, Kind, Neighbours, NominalColumn, RecordSchema, Role

SCHEMA = schema_with(target=True, label=True)
WIDTH, ROOM = 40, 1.0
Blocks = NDArray[np.object_]


def marginals_of(schema: RecordSchema, cells: Cells, rho: Fraction, seed: int) -> ReleasedVector:
    query = histograms_query(schema.encoded_columns)
    counts = count_cells([(cells, None)], cells_of_columns(schema.encoded_columns), query)
    event = HISTOGRAM_GAUSSIAN.calibrate(query, Neighbours.REPLACE_ONE, Rho(rho))
    return measure_vector(PrivateVector(query, counts), event, SeededNoise(seed))


def encoding_of(
    schema: RecordSchema,
    cells: Cells,
    *,
    rho: Fraction = Fraction(10**6),
    least: float = 50.0,
    width: int = WIDTH,
    seed: int = 1,
) -> GroupedEncoding:
    marginals = marginals_of(schema, cells, rho, seed)
    groups = group_columns(marginals, cells_of_columns(schema.encoded_columns), least=least, coordinates=width)
    return GroupedEncoding(schema, groups, width, room=ROOM)


def people(rows: int, seed: int) -> Cells:
    """Draw invented rows of every column of the schema."""
    rng = generator(seed)
    return {
        "weight": rng.normal(3, 2, rows),
        "visits": np.where(rng.random(rows) < 0.2, np.nan, rng.poisson(4, rows)),
        "born": rng.integers(-10_000, 20_000, rows).astype(float),
        "seen": rng.uniform(1.5e15, 1.9e15, rows),
        "smoker": rng.integers(0, 2, rows),
        "insured": rng.integers(-1, 2, rows),
        "sex": rng.choice(3, rows, p=[0.5, 0.45, 0.05]),
        "ward": rng.integers(0, 4, rows),
        "cost": np.where(rng.random(rows) < 0.5, 0.0, rng.exponential(1e4, rows)),
        "outcome": rng.integers(0, 3, rows),
    }


def alike(rows: int) -> Cells:
    """A table of equal rows."""
    return {name: np.repeat(values[:1], rows) for name, values in people(1, 1).items()}


ENCODINGS = {
    "clear": encoding_of(SCHEMA, people(5000, 1)),
    "noisy": encoding_of(SCHEMA, people(5000, 1), rho=Fraction(1, 1000), least=400.0, seed=3),
    "empty": encoding_of(SCHEMA, {name: values[:0] for name, values in people(1, 1).items()}, rho=Fraction(1, 1000)),
    "same": encoding_of(SCHEMA, alike(5000)),
    "rare": encoding_of(SCHEMA, alike(5000) | {"smoker": (np.arange(5000) < 60).astype(np.int64)}),
}
"""Encodings of different marginals: the bounds must hold for each."""


# ---- one record, one point ---------------------------------------------------------------------------
@given(data=st.data(), name=st.sampled_from(sorted(ENCODINGS)))
def test_the_point_of_a_hostile_record_is_a_function_of_that_record(data: st.DataObject, name: str) -> None:
    encoding = ENCODINGS[name]
    rows = data.draw(rows_of(SCHEMA, most=6))
    together = encoding.encode(as_cells(SCHEMA, rows))
    alone = np.vstack([encoding.encode(as_cells(SCHEMA, [row])) for row in rows])
    assert np.array_equal(together, alone), "to the last bit, wherever the record stands"
    assert np.array_equal(encoding.encode(as_cells(SCHEMA, rows[::-1]))[::-1], together)
    assert together.shape == (len(rows), WIDTH)
    assert np.abs(together).max() <= 1


@given(data=st.data(), name=st.sampled_from(sorted(ENCODINGS)), rule=st.sampled_from(["row", "weight", "at-most"]))
def test_no_hostile_unit_moves_the_gram_of_groups_beyond_the_bounds(data: st.DataObject, name: str, rule: str) -> None:
    encoding, most = ENCODINGS[name], 3
    layout = GramLayout(1 + WIDTH, SCHEMA.class_count, Fraction(5, 16), most if rule == "at-most" else 1)
    blocks = []
    for _ in range(2):
        rows = data.draw(rows_of(SCHEMA, most=1 if rule == "row" else most))
        shares = np.full(len(rows), 1 / len(rows)) if rule == "weight" else None
        blocks.append(gram(encoding, as_cells(SCHEMA, rows), layout, shares))
    within_bounds(blocks[0], Neighbours.ADD_REMOVE, layout)
    within_bounds(blocks[0] - blocks[1], Neighbours.REPLACE_ONE, layout)


def gram(encoding: GroupedEncoding, cells: Cells, layout: GramLayout, shares: Any = None) -> Blocks:
    total = GramSum(layout)
    total.add(integer_records(encoding.encode(cells), None, layout, shares), encoding.classes(cells))
    return total.blocks


def within_bounds(change: Blocks, neighbours: Neighbours, layout: GramLayout) -> None:
    r = layout.squared_norm
    nuclear = sum(float(np.abs(np.linalg.eigvalsh(b.astype(float) / UNIT)).sum()) for b in change)
    assert nuclear <= float(gram_nuclear(neighbours, squared_norm=r)) * (1 + 1e-12)
    assert sum(int(x) ** 2 for x in change.ravel()) <= (gram_frobenius(neighbours, squared_norm=r) * UNIT) ** 2


def test_the_bounds_are_nearly_attained_by_rare_records() -> None:
    """A record in the rarest group of every column is longer than 1 and is clipped to the unit sphere."""
    encoding = ENCODINGS["clear"]
    longest = {
        column.cells.column.name: column.cells.values(rare_cell(column), generator(1)) for column in encoding.groups
    }
    layout = GramLayout(1 + WIDTH, SCHEMA.class_count, Fraction(5, 16))
    blocks = [gram(encoding, longest | {"outcome": np.array([k])}, layout) for k in (0, 1)]
    change = blocks[0] - blocks[1]
    assert sum(int(b[i, i]) for b in blocks[0] for i in range(1 + WIDTH)) > 0.999 * layout.squared_norm * UNIT
    bound = gram_frobenius(Neighbours.REPLACE_ONE, squared_norm=layout.squared_norm) * UNIT
    assert sum(int(x) ** 2 for x in change.ravel()) > 0.998 * float(bound) ** 2


def rare_cell(column: Any) -> np.ndarray:
    group = int(np.argmin(column.portions))
    return np.array([int(np.argmax(np.where(column.group == group, column.within, -1)))])


# ---- where points lie --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_contrasts_are_orthonormal_and_orthogonal_to_the_constant(size: int) -> None:
    rows = contrasts(size)
    assert rows.shape == (size - 1, size)
    assert rows @ rows.T == pytest.approx(np.eye(size - 1))
    assert rows @ np.ones(size) == pytest.approx(np.zeros(size - 1))


def test_points_are_indicators_less_the_released_shares() -> None:
    """The distance between two groups' points is that of indicators, sqrt 2, over the radius."""
    encoding = ENCODINGS["clear"]
    for corners, portions in zip(encoding.corners, encoding.portions, strict=True):
        if len(portions) < 2:
            continue
        apart = np.linalg.norm(corners[:, None] - corners[None], axis=2)
        assert apart[~np.eye(len(portions), dtype=bool)] == pytest.approx(np.sqrt(2))
        assert portions @ corners == pytest.approx(np.zeros(corners.shape[1]), abs=1e-12), "their mean is 0"


def test_records_are_as_long_on_average_as_the_histograms_say() -> None:
    encoding, cells = ENCODINGS["clear"], people(5000, 1)
    points = np.zeros((5000, WIDTH))
    for column, corners, place in zip(encoding.groups, encoding.corners, encoding.slices, strict=True):
        points[:, place] = corners[column.codes(cells)]
    squared = (points**2).sum(axis=1)
    assert squared.mean() == pytest.approx(encoding.typical, rel=1e-3), "the marginals are this very table's"
    assert encoding.radius**2 == pytest.approx(ROOM * encoding.typical)
    whole = np.abs(points).max(axis=1) <= encoding.radius
    assert encoding.encode(cells)[whole] == pytest.approx(points[whole] / encoding.radius)


def test_common_values_lie_near_the_centre() -> None:
    column = NominalColumn(name="c", kind=Kind.CATEGORICAL, levels=("often", "seldom"))
    cells: Cells = {"c": np.repeat([0, 1], [9000, 1000])}
    encoding = encoding_of(RecordSchema((column,)), cells, width=1)
    often, seldom = (np.linalg.norm(encoding.corners[0][level]) for level in (0, 1))
    assert (often, seldom) == pytest.approx((0.1 * np.sqrt(2), 0.9 * np.sqrt(2)), abs=1e-3)
    assert encoding.typical == pytest.approx(1 - 0.81 - 0.01, abs=1e-3)


def test_what_the_cut_leaves_of_records_is_known_on_average() -> None:
    """Eight independent columns, each with a rare level: the mean clipping factors are predicted."""
    rng, names = generator(6), "abcdefgh"
    schema = RecordSchema(tuple(NominalColumn(name=n, kind=Kind.CATEGORICAL, levels=("x", "y", "z")) for n in names))
    cells: Cells = {name: rng.choice(3, 40_000, p=[0.6, 0.3, 0.1]) for name in names}
    encoding = encoding_of(schema, cells, width=16)
    points = np.hstack([corners[cells[name]] for corners, name in zip(encoding.corners, names, strict=True)])
    records = integer_records(encoding.encode(cells), None, GramLayout(17, 1, Fraction(1, 2)))[:, 1:] / (1 << 16)
    left = np.linalg.norm(records, axis=1) * encoding.radius / np.linalg.norm(points, axis=1)
    assert left.min() < 0.9
    assert left.max() == pytest.approx(1, abs=1e-3)
    for one, other in (("a", "b"), ("h", "c")):
        columns = names.index(one), names.index(other)
        (single, squared), (_, pair) = encoding.clipping_factors(columns[0]), encoding.clipping_factors(*columns)
        for level in range(3):
            mine = cells[one] == level
            assert single[level] == pytest.approx(left[mine].mean(), abs=0.01)
            assert squared[level] == pytest.approx((left[mine] ** 2).mean(), abs=0.015)
            for second in range(3):
                both = mine & (cells[other] == second)
                assert pair[level, second] == pytest.approx((left[both] ** 2).mean(), abs=0.02)


def test_a_rare_level_far_beyond_the_ball_keeps_its_direction() -> None:
    encoding = ENCODINGS["rare"]
    cells = alike(2) | {"smoker": np.array([0, 1])}
    often, seldom = encoding.encode(cells)[:, 0]
    assert abs(seldom) == 1
    assert np.sign(often) == -np.sign(seldom)
    assert 0 < abs(often) < 0.2


def test_a_record_beyond_the_ball_does_not_shorten_the_others() -> None:
    encoding = ENCODINGS["rare"]
    cells = alike(2) | {"smoker": np.array([0, 1])}
    alone = encoding.encode({name: values[:1] for name, values in cells.items()})
    assert np.array_equal(encoding.encode(cells)[:1], alone)


def test_nothing_known_is_the_centre_of_a_column_and_unused_coordinates_are_zero() -> None:
    encoding, cells = ENCODINGS["clear"], people(50, 2)
    cells["smoker"] = np.full(50, MISSING)
    smoker = next(i for i, column in enumerate(encoding.groups) if column.cells.column.name == "smoker")
    points = encoding.encode(cells)
    assert (encoding.groups[smoker].codes(cells) == UNCOUNTED).all()
    assert not points[:, encoding.slices[smoker]].any()
    assert not points[:, encoding.slices[-1].stop :].any()
    assert points.any()


def test_columns_of_one_group_take_no_coordinate() -> None:
    encoding = ENCODINGS["same"]
    assert [column.size for column in encoding.groups] == [1] * len(encoding.groups)
    assert not encoding.encode(people(20, 3)).any()


def test_groups_that_need_more_coordinates_than_were_planned_are_refused() -> None:
    groups = ENCODINGS["clear"].groups
    needed = sum(column.size - 1 for column in groups)
    GroupedEncoding(SCHEMA, groups, needed, room=ROOM)
    with pytest.raises(ValueError, match=f"{needed} coordinates"):
        GroupedEncoding(SCHEMA, groups, needed - 1, room=ROOM)


def test_classes_are_those_of_the_label() -> None:
    cells = people(9, 4) | {"outcome": np.array([0, 1, 2, MISSING, 0, 1, 2, 99, -2])}
    found = ENCODINGS["clear"].classes(cells).tolist()
    assert found[:4] == [0, 1, 2, 3]
    assert all(0 <= k < SCHEMA.class_count for k in found)
    alone = RecordSchema((IntervalColumn(name="x", kind=Kind.NUMERIC, lower=0, upper=1),))
    unlabelled = encoding_of(alone, {"x": generator(5).random(500)})
    assert unlabelled.classes({"x": np.zeros(4)}).tolist() == [0] * 4


def test_the_target_is_the_last_column() -> None:
    assert ENCODINGS["clear"].groups[-1].cells.column.role is Role.TARGET
