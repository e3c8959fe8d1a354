"""Histogram cells: every value falls into exactly one, and a value drawn from a cell falls into that cell."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dpcore.samplers import generator
from support.dpcore.strategies import FEATURES, TARGET, hostile_cell

from dpcore.records.binning import (
    CELLS_PER_OCTAVE,
    EQUAL_CELLS,
    MOST_WHOLE_CELLS,
    OCTAVES,
    ROUND_AMOUNTS,
    UNCOUNTED,
    ColumnCells,
)
from dpcore.records.schema import MISSING, UNKNOWN, Column, IntervalColumn, Kind, NominalColumn

BOUNDS = [
    pytest.param(Kind.NUMERIC, -3.7, 11.3, id="around 0"),
    pytest.param(Kind.NUMERIC, 0.0, 1e6, id="amounts"),
    pytest.param(Kind.NUMERIC, -1e6, 0.0, id="debts"),
    pytest.param(Kind.NUMERIC, -9.5, -2.25, id="below 0"),
    pytest.param(Kind.NUMERIC, 1.0, 1.0 + 1e-15, id="five floats"),
    pytest.param(Kind.NUMERIC, -8e307, 8e307, id="huge"),
    pytest.param(Kind.NUMERIC, 0.0, 5e-308, id="tiny"),
    pytest.param(Kind.INTEGER, 0.0, 1.0, id="two whole numbers"),
    pytest.param(Kind.INTEGER, 0.2, 1.9, id="one whole number"),
    pytest.param(Kind.INTEGER, 0.2, 0.8, id="no whole number"),
    pytest.param(Kind.INTEGER, -0.5, 127.5, id="128 whole numbers"),
    pytest.param(Kind.INTEGER, 0.0, 128.0, id="129 whole numbers"),
    pytest.param(Kind.INTEGER, -5_000.5, 99_999.9, id="many whole numbers"),
    pytest.param(Kind.INTEGER, -(2.0**60), 2.0**60, id="whole numbers beyond 2^53"),
    pytest.param(Kind.DATE, -10_000.0, 20_000.0, id="dates"),
    pytest.param(Kind.DATE, 19_000.0, 19_030.0, id="a month of dates"),
    pytest.param(Kind.TIMESTAMP, 1.5e15, 1.9e15, id="timestamps"),
]


def interval(kind: Kind, lower: float, upper: float, **rest: Any) -> IntervalColumn:
    return IntervalColumn(name="c", kind=kind, lower=lower, upper=upper, **rest)


def special_values(column: IntervalColumn) -> np.ndarray:
    cells = ColumnCells(column)
    near = [np.nextafter(cells.edges, -np.inf), cells.edges, np.nextafter(cells.edges, np.inf)]
    edge = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -5e-324, 0.0, -0.0, column.lower, column.upper]
    return np.concatenate([*near, edge])


@pytest.mark.parametrize("missing_level", [False, True])
@pytest.mark.parametrize(("kind", "lower", "upper"), BOUNDS)
def test_every_value_falls_into_exactly_one_cell(kind: Kind, lower: float, upper: float, missing_level: bool) -> None:
    """The cell whose half-open interval contains the clipped value; the last interval is closed."""
    column = interval(kind, lower, upper, missing_level=missing_level)
    cells = ColumnCells(column)
    values = special_values(column)
    codes = cells.codes(values)
    assert codes.min() >= 0
    assert codes.max() < cells.count
    assert (codes[np.isnan(values)] == (cells.count - 1 if missing_level else cells.codes([column.middle])[0])).all()
    present = ~np.isnan(values)
    inside = np.clip(values[present], cells.edges[0], cells.edges[-1])
    low, high = cells.edges[codes[present]], cells.edges[codes[present] + 1]
    last = codes[present] == len(cells.edges) - 2
    assert ((low <= inside) & ((inside < high) | last)).all()
    assert (np.diff(cells.edges) > 0).all() or upper > 2**53


@pytest.mark.parametrize("missing_level", [False, True])
@pytest.mark.parametrize(("kind", "lower", "upper"), BOUNDS)
def test_what_is_drawn_from_a_cell_falls_back_into_it_inside_the_bounds(
    kind: Kind, lower: float, upper: float, missing_level: bool
) -> None:
    column = interval(kind, lower, upper, missing_level=missing_level)
    cells = ColumnCells(column)
    codes = np.repeat(np.arange(cells.count), 40)
    drawn = cells.values(codes, generator(1))
    assert np.array_equal(cells.codes(drawn), codes)
    present = drawn[~np.isnan(drawn)]
    assert (np.isnan(drawn) == (codes == cells.count - 1)).all() if missing_level else len(present) == len(drawn)
    assert present.min() >= lower
    assert present.max() <= upper
    if column.is_whole and math.ceil(lower) <= upper:
        assert (present == np.rint(present)).all()


@given(data=st.data(), column=st.sampled_from([*FEATURES, TARGET]))
def test_the_cell_of_a_hostile_value_does_not_depend_on_its_neighbours(data: st.DataObject, column: Column) -> None:
    kind = np.int64 if isinstance(column, NominalColumn) else np.float64
    values = np.array(data.draw(st.lists(hostile_cell(column), min_size=1, max_size=9)), dtype=kind)
    cells = ColumnCells(column)
    together = cells.codes(values)
    assert together.tolist() == [cells.codes(values[i : i + 1])[0] for i in range(len(values))]
    assert together.tolist() == cells.codes(values[::-1])[::-1].tolist()
    assert ((together >= 0) & (together < cells.count) | (together == UNCOUNTED)).all()


@pytest.mark.parametrize(
    ("lower", "upper", "count"), [(0.0, MOST_WHOLE_CELLS - 1, MOST_WHOLE_CELLS), (-3.2, 3.2, 7), (0.2, 1.9, 1)]
)
def test_few_whole_numbers_have_a_cell_each(lower: float, upper: float, count: int) -> None:
    cells = ColumnCells(interval(Kind.INTEGER, lower, upper))
    assert cells.count == count
    whole = np.arange(math.ceil(lower), math.floor(upper) + 1)
    assert cells.codes(whole).tolist() == list(range(count))


def test_no_cell_is_wider_than_a_64th_of_the_bounds_and_amounts_are_told_to_a_sixth() -> None:
    cells = ColumnCells(interval(Kind.NUMERIC, 0.0, 1e6))
    widths, low = np.diff(cells.edges), cells.edges[:-1]
    assert widths.max() <= 1e6 / EQUAL_CELLS
    amounts = low >= 1e6 * 2.0**-OCTAVES
    assert (widths[amounts][1:] / low[amounts][1:]).max() <= 1 / 6 + 1e-9
    assert cells.count < 5 / 2 * EQUAL_CELLS + len(ROUND_AMOUNTS) * math.ceil(OCTAVES * math.log10(2)) + 4


@pytest.mark.parametrize(("lower", "upper"), [(0.0, 1e6), (-7_300.0, 99_999.0), (0.0, 1.0), (-0.004, 0.03)])
def test_cells_of_amounts_begin_where_people_write_round_numbers(lower: float, upper: float) -> None:
    """Numbers are compared as they are read from text, so no edge lies beside the number that is meant."""
    cells = ColumnCells(interval(Kind.NUMERIC, lower, upper))
    edges, least = set(cells.edges.tolist()), max(-lower, upper) * 2.0**-OCTAVES
    written = [
        float(f"{sign}{digit}e{power}") for sign in ("", "-") for digit in range(1, 10) for power in range(-7, 7)
    ]
    inside = [number for number in written if lower < number < upper and abs(number) >= least]
    assert inside
    assert [number for number in inside if number not in edges] == []
    inner = [edge for edge in cells.edges[1:-1].tolist() if abs(edge) > 1e-300]
    assert inner == [float(f"{edge:.2e}") for edge in inner]


def test_cells_far_from_zero_begin_at_round_numbers_too() -> None:
    assert ColumnCells(interval(Kind.NUMERIC, 1_900.0, 2_030.0)).edges.tolist() == [*range(1_900, 2_031, 2)]


def test_no_cell_was_wider_than_a_64th_of_the_bounds_and_amounts_were_told_to_a_tenth() -> None:
    """The cells of the first releases, which audits need."""
    cells = ColumnCells(interval(Kind.NUMERIC, 0.0, 1e6), round_edges=False)
    widths, low = np.diff(cells.edges), cells.edges[:-1]
    assert widths.max() <= 1e6 / EQUAL_CELLS * (1 + 1e-9)
    amounts = low >= 1e6 * 2.0**-OCTAVES
    assert (widths[amounts] / low[amounts]).max() <= 2 ** (1 / CELLS_PER_OCTAVE) - 1 + 1e-9
    assert cells.count < EQUAL_CELLS + CELLS_PER_OCTAVE * OCTAVES + 4


@pytest.mark.parametrize(("lower", "upper"), [(0.0, 1e6), (-1e6, 1e6), (-2.0, 50.0)])
def test_zero_has_a_cell_of_its_own(lower: float, upper: float) -> None:
    """In many tables half of the amounts are exactly 0, and synthetic ones must be exactly 0 too."""
    cells = ColumnCells(interval(Kind.NUMERIC, lower, upper))
    zero, others = cells.codes(np.array([0.0, -0.0])), cells.codes(np.array([5e-324, 1e-9, -5e-324]))
    assert zero[0] == zero[1]
    assert (others[:2] != zero[0]).all()
    assert others[2] != zero[0] or lower == 0
    assert (cells.values(np.full(50, zero[0]), generator(2)) == 0).all()


@pytest.mark.parametrize("kind", [Kind.DATE, Kind.TIMESTAMP])
def test_dates_are_cut_evenly(kind: Kind) -> None:
    edges = ColumnCells(interval(kind, 0.0, 64_000.0)).edges
    assert edges.tolist() == [*np.arange(0.0, 64_001.0, 1000.0), 64_001.0]


def test_levels_are_cells_and_what_no_level_takes_tells_nothing() -> None:
    plain = ColumnCells(NominalColumn(name="c", kind=Kind.CATEGORICAL, levels=("a", "b", "c")))
    rich = ColumnCells(
        NominalColumn(name="c", kind=Kind.CATEGORICAL, levels=("a", "b", "c"), other=1, missing_level=True)
    )
    codes = np.array([0, 2, MISSING, UNKNOWN, 99])
    assert (plain.count, rich.count) == (3, 4)
    assert plain.codes(codes).tolist() == [0, 2, UNCOUNTED, UNCOUNTED, UNCOUNTED]
    assert rich.codes(codes).tolist() == [0, 2, 3, 1, 1]
    assert rich.values(np.arange(4), generator(3)).tolist() == [0, 1, 2, MISSING]


def test_a_missing_number_takes_its_cell_or_what_is_imputed_or_the_middle() -> None:
    nothing = np.array([np.nan])
    own = ColumnCells(interval(Kind.INTEGER, 0.0, 10.0, missing_level=True))
    imputed = ColumnCells(interval(Kind.INTEGER, 0.0, 10.0, impute=3.0))
    middle = ColumnCells(interval(Kind.INTEGER, 0.0, 10.0))
    assert [cells.codes(nothing)[0] for cells in (own, imputed, middle)] == [11, 3, 5]


@pytest.mark.parametrize(("kind", "lower", "upper"), BOUNDS)
def test_positions_are_the_mean_and_mean_square_of_what_is_drawn(kind: Kind, lower: float, upper: float) -> None:
    column = interval(kind, lower, upper)
    if math.ceil(lower) > math.floor(upper) and column.is_whole:
        pytest.skip("there is no value")
    cells = ColumnCells(column)
    mean, square = cells.positions()
    draws = 2000
    codes = np.repeat(np.arange(cells.count), draws)
    places = ((cells.values(codes, generator(4)) - column.middle) / column.half_width).reshape(-1, draws)
    error = 6 * places.std(axis=1) / math.sqrt(draws)
    float_gap = np.spacing(max(abs(lower), abs(upper))) / column.half_width  # bounds with few floats between them
    assert (np.abs(places.mean(axis=1) - mean) <= error + float_gap + 1e-12).all()
    error = 6 * (places**2).std(axis=1) / math.sqrt(draws)
    assert (np.abs((places**2).mean(axis=1) - square) <= error + 4 * float_gap + 1e-12).all()
