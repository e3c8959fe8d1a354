"""Histograms: the sensitivity of S7 holds and is attained, and the noise has the promised scale."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dpcore.histograms import AR, MECHANISMS, ONE, R1
from support.dpcore.samplers import generator
from support.dpcore.strategies import FEATURES, LABEL, as_cells, rows_of, schema_with

from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.measure import ReleasedVector, measure_vector, measurement_from_json
from dpcore.measurements.groups import cells_of_columns
from dpcore.measurements.histograms import count_cells, exact_histograms, histograms_query
from dpcore.mechanisms.queries import GRID, HistogramsQuery
from dpcore.mechanisms.registry import cost_of
from dpcore.mechanisms.vectors import HISTOGRAM_GAUSSIAN, HISTOGRAM_LAPLACE, PrivateVector, VectorEvent
from dpcore.noise.sources import SeededNoise
from dpcore.records.schema import MISSING, UNKNOWN, Cells, IntervalColumn, Kind, Neighbours, NominalColumn, RecordSchema

SCHEMA = schema_with(target=True, label=True)
COLUMNS = cells_of_columns(SCHEMA.encoded_columns)


def query_of(most_rows: int = 1) -> HistogramsQuery:
    return histograms_query(SCHEMA.encoded_columns, most_rows)


def counts(cells: Cells, query: HistogramsQuery, shares: np.ndarray | None = None) -> list[int]:
    return count_cells([(cells, shares)], COLUMNS, query)


@st.composite
def units(draw: st.DrawFn, most_rows: int, weighted: bool) -> tuple[Cells, np.ndarray | None]:
    """Draw the kept hostile rows of one unit, with their shares."""
    cells = as_cells(SCHEMA, draw(rows_of(SCHEMA, most=7 if weighted else most_rows)))
    rows = len(cells["weight"])
    return cells, np.full(rows, 1 / rows) if weighted else None


def within(change: list[int], query: HistogramsQuery, neighbours: Neighbours) -> bool:
    l1, squares = sum(map(abs, change)), sum(x**2 for x in change)
    return l1 <= query.l1_sensitivity(neighbours) and squares <= query.squared_l2_sensitivity(neighbours)


# ---- the bounds (GUARANTEE.md, S7) -----------------------------------------------------------------
@given(data=st.data(), most=st.integers(1, 4), weighted=st.booleans())
def test_no_hostile_unit_moves_the_counts_beyond_the_bounds(data: st.DataObject, most: int, weighted: bool) -> None:
    query = query_of(1 if weighted else most)
    one, two = (counts(cells, query, shares) for cells, shares in (data.draw(units(most, weighted)) for _ in range(2)))
    assert all(isinstance(number, int) and number >= 0 for number in one)
    assert within(one, query, AR)
    assert within([a - b for a, b in zip(one, two, strict=True)], query, R1)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 7, 10, 49, 1000, 65_535, 65_537])
def test_a_person_with_many_equal_rows_counts_no_more_than_once(rows: int) -> None:
    """Shares are floats 1/k, some above the exact value: each row's contribution is truncated toward zero."""
    query = query_of()
    cells = {name: np.repeat(values, rows) for name, values in as_cells(SCHEMA, [row_at("upper")]).items()}
    whole = counts(cells, query, np.full(rows, 1 / rows))
    for part, weight in zip(split(whole, query), query.weights, strict=True):
        assert sum(part) <= weight * GRID
        assert sum(part) > weight * GRID - rows


def row_at(bound: str, level: int = 0) -> dict[str, float | int]:
    return {c.name: level if isinstance(c, NominalColumn) else getattr(c, bound) for c in SCHEMA.columns}


def split(numbers: list[int], query: HistogramsQuery) -> list[list[int]]:
    starts = np.cumsum([0, *query.cells])
    return [numbers[a:b] for a, b in itertools.pairwise(starts)]


@pytest.mark.parametrize("most_rows", [1, 3])
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_the_bounds_are_attained_by_rows_in_the_same_cells(most_rows: int, neighbours: Neighbours) -> None:
    query = query_of(most_rows)
    one = counts(as_cells(SCHEMA, [row_at("lower", 0)] * most_rows), query)
    two = counts(as_cells(SCHEMA, [row_at("upper", 1)] * most_rows), query)
    change = one if neighbours is AR else [a - b for a, b in zip(one, two, strict=True)]
    assert sum(map(abs, change)) == query.l1_sensitivity(neighbours)
    assert sum(x**2 for x in change) == query.squared_l2_sensitivity(neighbours)


def test_the_bounds_written_down_anew() -> None:
    query = HistogramsQuery((4, 7, 2), (ONE, ONE, ONE / 4), 3)
    assert query.l1_sensitivity(AR) == 3 * Fraction(9, 4) * GRID
    assert query.l1_sensitivity(R1) == 6 * Fraction(9, 4) * GRID
    assert query.squared_l2_sensitivity(AR) == 9 * Fraction(33, 16) * GRID**2
    assert query.squared_l2_sensitivity(R1) == 18 * Fraction(33, 16) * GRID**2


# ---- exact counts ---------------------------------------------------------------------------------


def test_every_record_is_counted_once_in_every_column_but_where_nothing_is_known() -> None:
    query, rng = query_of(), generator(1)
    rows = 300
    cells = as_cells(SCHEMA, [row_at("middle", 0)] * rows)
    cells["weight"] = rng.choice([np.nan, np.inf, -np.inf, 0.0, 1e308], rows)
    cells["smoker"] = rng.choice([0, 1, MISSING, UNKNOWN, 77], rows)
    cells["sex"] = rng.choice([0, 1, 2, MISSING, UNKNOWN, 77], rows)
    parts = split(counts(cells, query), query)
    totals = [sum(part) / weight / GRID for part, weight in zip(parts, query.weights, strict=True)]
    named = dict(zip((c.name for c in SCHEMA.encoded_columns), totals, strict=True))
    assert named.pop("smoker") == np.count_nonzero(np.isin(cells["smoker"], [0, 1])), "no level takes the others"
    assert set(named.values()) == {rows}, "of all other columns some cell takes whatever comes"


def test_chunks_and_order_do_not_change_one_count() -> None:
    query, rng = query_of(), generator(2)
    cells = {c.name: rng.choice([0, 1], 100) for c in SCHEMA.columns}
    order = rng.permutation(100)
    chunks = [({name: values[order[a : a + 7]] for name, values in cells.items()}, None) for a in range(0, 100, 7)]
    assert count_cells(chunks, COLUMNS, query) == counts(cells, query)


def test_a_column_of_few_cells_weighs_less_and_its_counts_come_back_whole() -> None:
    query = query_of()
    weights = dict(zip((c.name for c in SCHEMA.encoded_columns), query.weights, strict=True))
    assert (weights["smoker"], weights["weight"]) == (ONE / 4, ONE)
    released = ReleasedVector(
        HISTOGRAM_GAUSSIAN.calibrate(query, R1, Rho(ONE)),
        tuple(counts(as_cells(SCHEMA, [row_at("lower", 0)] * 5), query)),
        True,
    )
    assert [part.sum() for part in query.split(released.numbers())] == [5.0] * len(COLUMNS)


# ---- calibration, cost and noise ---------------------------------------------------------------------
@given(
    neighbours=st.sampled_from(list(Neighbours)),
    rows=st.integers(1, 3),
    value=st.fractions(Fraction(1, 1000), 50, max_denominator=10**6),
)
def test_a_calibrated_event_costs_its_budget_and_never_more(neighbours: Neighbours, rows: int, value: Fraction) -> None:
    query = query_of(rows)
    pure = HISTOGRAM_LAPLACE.calibrate(query, neighbours, Epsilon(value))
    normal = HISTOGRAM_GAUSSIAN.calibrate(query, neighbours, Rho(value))
    for event, name in ((pure, "epsilon"), (normal, "rho")):
        stored = VectorEvent.from_json(json.loads(json.dumps(event.as_json())))
        assert stored == event
        assert value * (1 - Fraction(1, 10**9)) <= getattr(cost_of(stored), name) <= value
    assert pure.noise >= query.l1_sensitivity(neighbours) / value
    assert normal.noise**2 >= query.squared_l2_sensitivity(neighbours) / (2 * value)
    assert cost_of(normal).delta_num == 0
    assert 0 < cost_of(pure).delta_num < Fraction(1, 10**100)


@pytest.mark.parametrize(("mechanism", "budget"), MECHANISMS, ids=lambda x: getattr(x, "name", ""))
def test_the_stated_deviation_is_that_of_the_noise(mechanism: Any, budget: Budget) -> None:
    query = HistogramsQuery((10_000,), (ONE,))
    event = mechanism.calibrate(query, R1, budget)
    released = measure_vector(PrivateVector(query, [5 * GRID] * query.size), event, SeededNoise(4))
    centred = released.numbers() - 5
    assert released.deviation() == pytest.approx(mechanism.deviation(event) / GRID)
    assert np.sqrt(np.mean(centred**2)) == pytest.approx(released.deviation(), rel=0.06)
    assert abs(centred.mean()) < 6 * released.deviation() / 100


@pytest.mark.parametrize(("mechanism", "budget"), MECHANISMS, ids=lambda x: getattr(x, "name", ""))
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_neighbours_under_frozen_noise_differ_by_what_their_counts_differ(
    mechanism: Any, budget: Budget, neighbours: Neighbours
) -> None:
    query = query_of()
    rows = [row_at("middle", 1)] * 3
    hostile = row_at("lower", 0) | {"weight": math.nan, "visits": math.inf, "ward": UNKNOWN, "insured": MISSING}
    tables = [*rows, row_at("upper", 1)], rows if neighbours is AR else [*rows, hostile]
    event = mechanism.calibrate(query, neighbours, budget)
    exact = [exact_histograms([(as_cells(SCHEMA, table), None)], COLUMNS, query) for table in tables]
    one, two = (measure_vector(vector, event, SeededNoise(5)).values for vector in exact)
    moved = [a - b for a, b in zip(one, two, strict=True)]
    true = [a - b for a, b in zip(*(counts(as_cells(SCHEMA, table), query) for table in tables), strict=True)]
    assert moved == true
    assert any(moved)
    assert within(moved, query, neighbours)


def test_a_measurement_survives_its_json_and_is_told_from_a_gram() -> None:
    query = query_of(2)
    event = HISTOGRAM_GAUSSIAN.calibrate(query, AR, Rho(ONE))
    released = measure_vector(PrivateVector(query, [7] * query.size), event, SeededNoise(6))
    again = measurement_from_json(json.loads(json.dumps(released.as_json())))
    assert again == released
    assert again.digest() == released.digest()
    other = measure_vector(PrivateVector(query, [7] * query.size), event, SeededNoise(7))
    assert other.digest() != released.digest()


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda: HistogramsQuery((), ()), "column"),
        (lambda: HistogramsQuery((0,), (ONE,)), "cell"),
        (lambda: HistogramsQuery((2,), (ONE,), 0), "one row"),
        (lambda: HistogramsQuery((2, 2), (ONE,)), "weight"),
        (lambda: HistogramsQuery((2,), (Fraction(0),)), "weight"),
        (lambda: HistogramsQuery((2,), (Fraction(3, 2),)), "weight"),
        (lambda: HistogramsQuery((2,), (Fraction(1, 3),)), "weight"),
        (lambda: HISTOGRAM_GAUSSIAN.calibrate(query_of(), R1, Epsilon(ONE)), "spends Rho"),
        (lambda: HISTOGRAM_LAPLACE.calibrate(query_of(), R1, Rho(ONE)), "spends Epsilon"),
        (lambda: HISTOGRAM_LAPLACE.calibrate(query_of(), R1, Epsilon(Fraction(1, 10**30))), "too small"),
        (lambda: PrivateVector(query_of(), [0]), "shape"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_its_rule(attempt: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        attempt()


def test_one_column_of_one_cell_can_be_counted() -> None:
    """Integers between 0.2 and 1.9: the only one is 1."""
    column = IntervalColumn(name="one", kind=Kind.INTEGER, lower=0.2, upper=1.9)
    schema = RecordSchema((column,))
    columns, query = cells_of_columns(schema.encoded_columns), histograms_query(schema.encoded_columns)
    assert count_cells([({"one": np.array([1.0, np.nan, 7.0])}, None)], columns, query) == [3 * GRID * query.weights[0]]


def test_features_and_label_are_what_these_tests_think_they_are() -> None:
    assert [c.column.name for c in COLUMNS] == [*(c.name for c in FEATURES), "cost"]
    assert LABEL.name not in {c.column.name for c in COLUMNS}, "the label is counted by the class blocks"
