"""Counts and sums measured separately: the bound is attained, the noise has its scale, the moments are recovered."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.dpcore.strategies import Pipeline, pipelines, units

from dpcore.accounting import Epsilon, Rho
from dpcore.measure import PrivateGram, Released, measure_gram
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.mechanisms.base import UNIT
from dpcore.mechanisms.laplace_sums import LAPLACE_SUMS
from dpcore.mechanisms.registry import gram_mechanism, mechanism_of
from dpcore.mechanisms.sensitivity import record_sums_l1
from dpcore.noise.sources import SeededNoise
from dpcore.records.exact_sums import GramLayout, GramSum, integer_records
from dpcore.records.schema import Neighbours

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
LAYOUT = GramLayout(5, 1, Fraction(1, 4))


def bound(neighbours: Neighbours, layout: GramLayout) -> Fraction:
    return UNIT * record_sums_l1(
        neighbours,
        count_weight=layout.count_weight,
        points=layout.dimension - 1,
        rows=layout.rows_per_unit,
        blocks=layout.blocks,
    )


def l1_of_first_rows(blocks: NDArray[np.object_]) -> int:
    return sum(abs(int(cell)) for block in blocks for cell in block[0])


@given(data=st.data(), pipe=pipelines())
def test_no_unit_moves_counts_and_sums_by_more_than_the_bound(data: st.DataObject, pipe: Pipeline) -> None:
    one, two = (pipe.gram(data.draw(units(pipe))) for _ in range(2))
    assert l1_of_first_rows(one) <= bound(ADD, pipe.layout)
    assert l1_of_first_rows(one - two) <= bound(REPLACE, pipe.layout)


def gram_of(points: NDArray[np.float64], layout: GramLayout, classes: list[int] | None = None) -> GramSum:
    total = GramSum(layout)
    labels = np.array(classes or [0] * len(points))
    total.add(integer_records(points, None, layout), labels)
    return total


def test_the_bound_is_attained_by_a_corner_against_nothing_and_nearly_by_two_opposite_ones() -> None:
    corner = np.full((1, 4), 0.5)
    here, there = gram_of(corner, LAYOUT).blocks, gram_of(-corner, LAYOUT).blocks
    assert l1_of_first_rows(here) == bound(ADD, LAYOUT)
    moved = l1_of_first_rows(here - there)
    assert bound(REPLACE, LAYOUT) - moved == UNIT * LAYOUT.count_weight**2, "all but the count, which cancels"


def test_with_classes_the_bound_is_attained_by_a_record_that_changes_class() -> None:
    layout, corner = GramLayout(5, 2, Fraction(1, 4)), np.full((1, 4), 0.5)
    moved = l1_of_first_rows(gram_of(corner, layout, [0]).blocks - gram_of(-corner, layout, [1]).blocks)
    assert moved == bound(REPLACE, layout)


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_an_event_costs_its_budget_and_never_more(neighbours: Neighbours) -> None:
    event = LAPLACE_SUMS.calibrate(LAYOUT, neighbours, Epsilon(Fraction(3, 10)))
    cost = LAPLACE_SUMS.cost(event)
    assert isinstance(cost, Epsilon)
    assert Fraction(3, 10) * (1 - Fraction(1, 10**9)) <= cost.value <= Fraction(3, 10)
    assert event.noise >= bound(neighbours, LAYOUT) / Fraction(3, 10)


@pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (0.9, False), (1.1, False)])
def test_noise_has_the_promised_scale(factor: float, fits: bool) -> None:
    layout = GramLayout(40, 600, Fraction(1, 4))
    event = LAPLACE_SUMS.calibrate(layout, ADD, Epsilon(Fraction(1)))
    released = measure_gram(PrivateGram(GramSum(layout)), event, SeededNoise(5))
    sizes = np.abs(np.array(released.values, dtype=np.float64)) / (float(event.noise) * factor)
    error = sizes.std() / math.sqrt(sizes.size)
    assert bool(abs(sizes.mean() - 1) < 6 * error) is fits


def test_the_same_noise_on_two_tables_differs_by_exactly_their_first_rows() -> None:
    points = np.array([[0.5, 0.5, -0.5, 0.25], [0.1, 0.2, 0.3, 0.4]])
    event = LAPLACE_SUMS.calibrate(LAYOUT, REPLACE, Epsilon(Fraction(1)))
    grams = [gram_of(points[:rows], LAYOUT) for rows in (1, 2)]
    one, two = (measure_gram(PrivateGram(gram), event, SeededNoise(9)).values[0] for gram in grams)
    exact = (grams[1].blocks - grams[0].blocks)[0][0]
    assert [b - a for a, b in zip(one, two, strict=True)] == [int(cell) for cell in exact]


def test_moments_measured_apart_are_those_of_the_table_when_the_budget_is_huge() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    points = rng.uniform(-0.4, 0.4, (3000, 3)) + np.array([0.1, 0.0, -0.1])
    plenty = Epsilon(Fraction(10**6))
    released: list[Released] = []
    for name, weight in (("laplace-sums", Fraction(1, 4)), ("laplace", Fraction(1, 1 << 16))):
        layout = GramLayout(4, 1, weight)
        event = mechanism_of(name).calibrate(layout, REPLACE, plenty)  # type: ignore[attr-defined]
        released.append(measure_gram(PrivateGram(gram_of(points, layout)), event, SeededNoise(2)))
    sums, gram = released
    (moments,) = NoisyMoments.from_released(gram, sums=sums).classes
    assert moments.count == pytest.approx(3000, abs=1)
    assert moments.mean == pytest.approx(points.mean(axis=0), abs=1e-3)
    assert moments.covariance == pytest.approx(np.cov(points.T, bias=True), abs=1e-3)


@pytest.mark.parametrize(
    ("layout", "budget", "match"),
    [
        (GramLayout(5, 1, Fraction(1, 4), 1, 2), Epsilon(Fraction(1)), "by blocks"),
        (LAYOUT, Rho(Fraction(1)), "spends Epsilon"),
        (LAYOUT, Epsilon(Fraction(1, 10**20)), "too small"),
    ],
)
def test_what_it_cannot_do_is_refused(layout: GramLayout, budget: Epsilon | Rho, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        LAPLACE_SUMS.calibrate(layout, REPLACE, budget)


def test_it_is_no_mechanism_for_whole_gram_blocks() -> None:
    with pytest.raises(KeyError):
        gram_mechanism("laplace-sums")
