"""No pair of neighbours moves the exact Gram matrix by more than the declared bound, and some pair nearly does."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.dpcore.strategies import Pipeline, pipeline, pipelines, units

from dpcore.mechanisms.base import UNIT
from dpcore.mechanisms.sensitivity import best_l1_weight, gram_frobenius, gram_nuclear, gram_weighted_l1, root_above
from dpcore.records.exact_sums import GramLayout, GramSum, integer_records
from dpcore.records.schema import Cells, IntervalColumn, Kind, Neighbours, NominalColumn, RecordSchema, Role

Blocks = NDArray[np.object_]


def nuclear(blocks: Blocks) -> float:
    """Sum of the absolute eigenvalues of all blocks, in records."""
    return sum(float(np.abs(np.linalg.eigvalsh(b.astype(float) / UNIT)).sum()) for b in blocks)


def squared_frobenius(blocks: Blocks) -> int:
    return sum(int(x) ** 2 for x in blocks.ravel())


def weighted_l1(blocks: Blocks, weight: Fraction) -> Fraction:
    """Each diagonal entry once, each pair of equal off-diagonal entries once with its weight."""
    p = blocks.shape[1]
    total = Fraction(0)
    for block in blocks:
        for i in range(p):
            total += abs(int(block[i, i])) + weight * sum(abs(int(block[i, j])) for j in range(i + 1, p))
    return total


def trace(blocks: Blocks) -> int:
    return sum(int(block[i, i]) for block in blocks for i in range(block.shape[0]))


def l1_bound(neighbours: Neighbours, layout: GramLayout) -> Fraction:
    return gram_weighted_l1(
        neighbours,
        squared_norm=layout.squared_norm,
        dimension=layout.dimension,
        blocks=layout.blocks,
        weight=best_l1_weight(neighbours),
    )


def assert_within_every_bound(difference: Blocks, neighbours: Neighbours, layout: GramLayout) -> None:
    r = layout.squared_norm
    assert nuclear(difference) <= float(gram_nuclear(neighbours, squared_norm=r)) * (1 + 1e-12)
    assert squared_frobenius(difference) <= (gram_frobenius(neighbours, squared_norm=r) * UNIT) ** 2
    assert weighted_l1(difference, best_l1_weight(neighbours)) <= l1_bound(neighbours, layout) * UNIT
    assert abs(trace(difference)) <= r * UNIT


@given(data=st.data(), pipe=pipelines())
def test_the_rows_of_one_unit_have_at_most_the_declared_squared_norm_in_exact_integers(
    data: st.DataObject, pipe: Pipeline
) -> None:
    cells = data.draw(units(pipe))
    records = pipe.records(cells)
    assert len(records) == len(next(iter(cells.values()))), "no record is dropped"
    squared = sum(int(x) ** 2 for x in records.ravel())
    assert squared <= pipe.layout.squared_norm * UNIT
    each = 1 + pipe.layout.count_weight**2
    for record in records:
        assert sum(int(x) ** 2 for x in record) <= each * UNIT


@given(data=st.data(), pipe=pipelines())
def test_adding_a_unit_moves_the_gram_by_at_most_every_bound(data: st.DataObject, pipe: Pipeline) -> None:
    assert_within_every_bound(pipe.gram(data.draw(units(pipe))), Neighbours.ADD_REMOVE, pipe.layout)


@given(data=st.data(), pipe=pipelines())
def test_replacing_a_unit_moves_the_gram_by_at_most_every_bound(data: st.DataObject, pipe: Pipeline) -> None:
    difference = pipe.gram(data.draw(units(pipe))) - pipe.gram(data.draw(units(pipe)))
    assert_within_every_bound(difference, Neighbours.REPLACE_ONE, pipe.layout)


@given(data=st.data(), pipe=pipelines())
def test_the_trace_variants_loss_stays_below_twice_the_larger_trace(data: st.DataObject, pipe: Pipeline) -> None:
    """M2 needs c |D|_* + c |tr D| <= 2 c r, for hostile pairs and over all blocks together."""
    difference = pipe.gram(data.draw(units(pipe))) - pipe.gram(data.draw(units(pipe)))
    loss = nuclear(difference) + abs(trace(difference)) / UNIT
    assert loss <= 2 * float(pipe.layout.squared_norm) * (1 + 1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 10, 49, 1000, 2**20 - 1])
def test_a_persons_equal_rows_never_add_up_to_more_than_one_record(count: int) -> None:
    """The worst k rows, each scaled by the root of the float 1/k, stay below r in exact integers."""
    layout = GramLayout(3, 1, Fraction(1))
    angles = np.linspace(0, 2 * math.pi, 257)
    points = np.column_stack([np.cos(angles), np.sin(angles)])
    records = integer_records(points, None, layout, np.full(len(points), 1 / count))
    for record in records:
        assert count * sum(int(x) ** 2 for x in record) <= layout.squared_norm * UNIT


# ---- pairs that attain the bounds, through the real pipeline ------------------------

ALMOST = 0.999


def five_levels(*, label: bool = False) -> RecordSchema:
    """With s = 1/2 two levels are orthogonal records: <x, x'> = -1/4 = -s²."""
    levels = NominalColumn(name="level", kind=Kind.CATEGORICAL, levels=("a", "b", "c", "d", "e"))
    classes = NominalColumn(name="class", kind=Kind.CATEGORICAL, levels=("u", "v"), role=Role.LABEL)
    return RecordSchema((levels, classes) if label else (levels,))


def four_numbers(*, label: bool = False) -> RecordSchema:
    """With s = 1/2 a record at the bounds has five coordinates of equal size 1/2."""
    columns = [IntervalColumn(name=f"n{i}", kind=Kind.NUMERIC, lower=-1, upper=1) for i in range(4)]
    classes = NominalColumn(name="class", kind=Kind.CATEGORICAL, levels=("u", "v"), role=Role.LABEL)
    return RecordSchema((*columns, classes) if label else tuple(columns))


def levels(*codes: int, label: int | None = None) -> Cells:
    cells: Cells = {"level": np.array(codes, dtype=np.int64)}
    return cells if label is None else cells | {"class": np.full(len(codes), label, dtype=np.int64)}


def corner(label: int | None = None) -> Cells:
    cells: Cells = {f"n{i}": np.array([1.0]) for i in range(4)}
    return cells if label is None else cells | {"class": np.array([label], dtype=np.int64)}


HALF = Fraction(1, 2)


@pytest.mark.parametrize("dimension", [None, 5], ids=["unprojected", "rotated"])
def test_a_record_of_full_length_attains_the_add_remove_bounds(dimension: int | None) -> None:
    pipe = pipeline(five_levels(), dimension=dimension, s=HALF)
    moved, r = pipe.gram(levels(0)), pipe.layout.squared_norm
    assert_within_every_bound(moved, Neighbours.ADD_REMOVE, pipe.layout)
    assert nuclear(moved) >= ALMOST * float(gram_nuclear(Neighbours.ADD_REMOVE, squared_norm=r))
    assert (
        squared_frobenius(moved)
        >= (Fraction(ALMOST) * gram_frobenius(Neighbours.ADD_REMOVE, squared_norm=r) * UNIT) ** 2
    )


@pytest.mark.parametrize("dimension", [None, 5], ids=["unprojected", "rotated"])
def test_two_orthogonal_records_attain_the_replace_one_bounds(dimension: int | None) -> None:
    pipe = pipeline(five_levels(), dimension=dimension, s=HALF)
    moved, r = pipe.gram(levels(0)) - pipe.gram(levels(1)), pipe.layout.squared_norm
    assert_within_every_bound(moved, Neighbours.REPLACE_ONE, pipe.layout)
    assert nuclear(moved) >= ALMOST * float(gram_nuclear(Neighbours.REPLACE_ONE, squared_norm=r))
    assert math.sqrt(squared_frobenius(moved)) >= ALMOST * UNIT * float(
        gram_frobenius(Neighbours.REPLACE_ONE, squared_norm=r)
    )


def test_a_record_that_changes_its_class_attains_the_replace_one_bounds() -> None:
    pipe = pipeline(five_levels(label=True), dimension=None, s=HALF)
    moved, r = pipe.gram(levels(0, label=0)) - pipe.gram(levels(0, label=1)), pipe.layout.squared_norm
    assert_within_every_bound(moved, Neighbours.REPLACE_ONE, pipe.layout)
    assert nuclear(moved) >= ALMOST * float(gram_nuclear(Neighbours.REPLACE_ONE, squared_norm=r))
    assert math.sqrt(squared_frobenius(moved)) >= ALMOST * UNIT * float(
        gram_frobenius(Neighbours.REPLACE_ONE, squared_norm=r)
    )


def test_a_record_with_equal_coordinates_attains_the_weighted_l1_bound_under_add_remove() -> None:
    pipe = pipeline(four_numbers(), dimension=None, s=HALF)
    moved = weighted_l1(pipe.gram(corner()), best_l1_weight(Neighbours.ADD_REMOVE))
    assert_within_every_bound(pipe.gram(corner()), Neighbours.ADD_REMOVE, pipe.layout)
    assert moved >= Fraction(ALMOST) * l1_bound(Neighbours.ADD_REMOVE, pipe.layout) * UNIT


def test_such_a_record_attains_the_weighted_l1_bound_of_class_blocks_by_changing_its_class() -> None:
    pipe = pipeline(four_numbers(label=True), dimension=None, s=HALF)
    difference = pipe.gram(corner(label=0)) - pipe.gram(corner(label=1))
    assert_within_every_bound(difference, Neighbours.REPLACE_ONE, pipe.layout)
    moved = weighted_l1(difference, best_l1_weight(Neighbours.REPLACE_ONE))
    assert moved >= Fraction(ALMOST) * l1_bound(Neighbours.REPLACE_ONE, pipe.layout) * UNIT


def plane_pair(ratio: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Orthogonal unit records of the plane whose difference has off-diagonal / diagonal = ratio."""
    half = math.atan(ratio) / 2
    return np.array([math.cos(half), math.sin(half)]), np.array([-math.sin(half), math.cos(half)])


def l1_of_pair(x: NDArray[np.float64], y: NDArray[np.float64], weight: float) -> float:
    d = np.abs(np.outer(x, x) - np.outer(y, y))
    return float(np.trace(d) + weight * np.triu(d, 1).sum())


@pytest.mark.parametrize("weight", [Fraction(17, 12), Fraction(1), Fraction(2)])
def test_the_weighted_l1_bound_under_replace_one_is_attained_in_the_plane(weight: Fraction) -> None:
    """The fixed s of a record z = (s, y) fixes the first diagonal entry, so this pair consists of free records."""
    x, y = plane_pair(float(weight) / 2)
    bound = gram_weighted_l1(Neighbours.REPLACE_ONE, squared_norm=Fraction(1), dimension=2, blocks=1, weight=weight)
    assert ALMOST * float(bound) <= l1_of_pair(x, y, float(weight)) <= float(bound) * (1 + 1e-12)


def test_the_full_matrix_l1_bound_is_attained_at_dimension_four() -> None:
    """Every entry of the difference has the same size: 16 times sqrt(2)/4 is sqrt(2) p."""
    a, b = math.sqrt(2 - math.sqrt(2)) / math.sqrt(8), math.sqrt(2 + math.sqrt(2)) / math.sqrt(8)
    x, y = np.array([a, b, -a, b]), np.array([b, -a, -b, -a])
    bound = gram_weighted_l1(
        Neighbours.REPLACE_ONE, squared_norm=Fraction(1), dimension=4, blocks=1, weight=Fraction(2)
    )
    assert float(bound) == pytest.approx(4 * math.sqrt(2), rel=1e-12)
    assert l1_of_pair(x, y, 2.0) == pytest.approx(float(bound), rel=1e-12)


@given(data=st.data(), p=st.integers(1, 6), weight=st.sampled_from([Fraction(17, 12), Fraction(5, 4), Fraction(2)]))
def test_no_free_pair_of_unit_records_exceeds_the_l1_bound(data: st.DataObject, p: int, weight: Fraction) -> None:
    coordinates = st.lists(st.floats(-1, 1), min_size=p, max_size=p)
    pair = [np.array(data.draw(coordinates)) for _ in range(2)]
    x, y = (v / max(1.0, float(np.linalg.norm(v))) for v in pair)
    bound = gram_weighted_l1(Neighbours.REPLACE_ONE, squared_norm=Fraction(1), dimension=p, blocks=1, weight=weight)
    assert l1_of_pair(x, y, float(weight)) <= float(bound) * (1 + 1e-12)


@given(data=st.data(), p=st.integers(1, 4), n=st.integers(2, 20))
def test_centring_by_the_exact_mean_multiplies_the_l1_bound_by_at_most_four(
    data: st.DataObject, p: int, n: int
) -> None:
    """RON-Gauss's Lemma 6 has a factor of order n instead."""
    records = st.lists(st.floats(-1, 1), min_size=p, max_size=p)
    drawn = np.array(data.draw(st.lists(records, min_size=n + 1, max_size=n + 1)))
    rows = drawn / np.maximum(1.0, np.linalg.norm(drawn, axis=1, keepdims=True))
    moved = np.abs(centred_scatter(rows[:-1]) - centred_scatter(rows[1:])).sum()  # the first for the last
    assert moved <= 4 * math.sqrt(2) * p * (n - 1) / n + 1e-9


def test_a_record_that_joins_all_others_from_the_opposite_corner_moves_farther_than_a_fixed_centre_allows() -> None:
    corner = np.full(4, 0.5)
    others = np.tile(-corner, (99, 1))
    before, after = np.vstack([others, corner]), np.vstack([others, -corner])
    moved = np.abs(centred_scatter(before) - centred_scatter(after)).sum()
    assert math.sqrt(2) * 4 < moved == pytest.approx(4 * 4 * 99 / 100)


def centred_scatter(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = rows - rows.mean(axis=0)
    scatter: NDArray[np.float64] = centred.T @ centred
    return scatter


@pytest.mark.parametrize("rows", [2, 3, 9])
def test_a_person_with_equal_rows_attains_the_bounds_when_rows_are_weighted(rows: int) -> None:
    pipe = pipeline(five_levels(), dimension=None, s=HALF, weighted=True)
    moved = pipe.gram(levels(*[0] * rows)) - pipe.gram(levels(*[1] * rows))
    assert_within_every_bound(moved, Neighbours.REPLACE_ONE, pipe.layout)
    assert nuclear(moved) >= ALMOST * float(gram_nuclear(Neighbours.REPLACE_ONE, squared_norm=pipe.layout.squared_norm))


def test_a_person_with_the_most_rows_attains_the_bounds_of_at_most() -> None:
    pipe = pipeline(five_levels(), dimension=None, s=HALF, most_rows=3)
    moved = pipe.gram(levels(0, 0, 0)) - pipe.gram(levels(1, 1, 1))
    assert_within_every_bound(moved, Neighbours.REPLACE_ONE, pipe.layout)
    r = pipe.layout.squared_norm
    assert r == 3 * Fraction(5, 4)
    assert nuclear(moved) >= ALMOST * float(gram_nuclear(Neighbours.REPLACE_ONE, squared_norm=r))


def test_an_unweighted_person_would_exceed_the_row_bound() -> None:
    """The test has power: without the rule for persons the same rows violate the bound."""
    pipe = pipeline(five_levels(), dimension=None, s=HALF)
    total = GramSum(pipe.layout)
    for code in (0, 0):
        total.blocks = total.blocks + pipe.gram(levels(code))
    assert nuclear(total.blocks) > 1.9 * float(
        gram_nuclear(Neighbours.ADD_REMOVE, squared_norm=pipe.layout.squared_norm)
    )


# ---- the constants themselves --------------------------------------------------------


@given(st.fractions(min_value=0, max_value=10**9))
def test_a_root_is_rounded_up_and_by_less_than_two_to_the_minus_64(value: Fraction) -> None:
    root = root_above(value)
    assert root**2 >= value
    step = Fraction(1, 1 << 64)
    assert root == 0 or (root - step) ** 2 < value


def test_the_bounds_are_those_of_the_table_of_privacy_section_2() -> None:
    one = Fraction(1)
    add, replace = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
    assert (gram_nuclear(add, squared_norm=one), gram_nuclear(replace, squared_norm=one)) == (1, 2)
    assert gram_frobenius(add, squared_norm=one) == 1
    assert float(gram_frobenius(replace, squared_norm=one)) == pytest.approx(math.sqrt(2), rel=1e-15)
    for p in range(2, 12):
        upper = {n: gram_weighted_l1(n, squared_norm=one, dimension=p, blocks=1, weight=one) for n in (add, replace)}
        full = {n: gram_weighted_l1(n, squared_norm=one, dimension=p, blocks=1, weight=2 * one) for n in (add, replace)}
        assert upper[add] == Fraction(p + 1, 2)
        assert full[add] == p
        assert float(upper[replace]) == pytest.approx(math.sqrt(p * (p + 3) / 2), rel=1e-15)
        assert float(full[replace]) == pytest.approx(math.sqrt(2) * p, rel=1e-15)


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_the_chosen_l1_weight_is_near_the_one_that_minimises_the_noise(neighbours: Neighbours) -> None:
    """Mean square noise at dimension 40 is bound² (p + p(p-1)/w²); a search over w is the oracle."""

    def noise(weight: Fraction) -> float:
        p = 40
        bound = gram_weighted_l1(neighbours, squared_norm=Fraction(1), dimension=p, blocks=1, weight=weight)
        return float(bound) ** 2 * (p + p * (p - 1) / float(weight) ** 2)

    best = min(noise(Fraction(k, 100)) for k in range(20, 400))
    assert noise(best_l1_weight(neighbours)) <= 1.02 * best


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("dimension", [2, 8, 40])
def test_the_off_diagonal_weight_makes_laplace_noise_smallest(neighbours: Neighbours, dimension: int) -> None:
    """Mean squared Frobenius norm of the noise: sensitivity² times (p + p(p-1)/w²), up to a factor."""

    def noise(weight: Fraction) -> Fraction:
        bound = gram_weighted_l1(neighbours, squared_norm=Fraction(1), dimension=dimension, blocks=1, weight=weight)
        return bound**2 * (dimension + dimension * (dimension - 1) / weight**2)

    chosen = best_l1_weight(neighbours)
    assert noise(chosen) < min(noise(chosen * Fraction(19, 20)), noise(chosen * Fraction(21, 20)))
