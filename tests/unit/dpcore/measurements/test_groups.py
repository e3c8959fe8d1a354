"""Groups: each cell is in one group, groups hold enough units, atoms stay separate, coordinates suffice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.dpcore.samplers import generator

from dpcore.accounting import Rho
from dpcore.measure import ReleasedVector, measure_vector
from dpcore.measurements.groups import (
    FEW_CELLS,
    GROUPING,
    GROUPINGS,
    ColumnGroups,
    Grouping,
    Histogram,
    _group_column,
    _group_count,
    group_columns,
    histograms_of,
    least_group_size,
)
from dpcore.measurements.histograms import count_cells, histograms_query
from dpcore.mechanisms.gaussian import GAUSSIAN
from dpcore.mechanisms.queries import query_from_json
from dpcore.mechanisms.vectors import HISTOGRAM_GAUSSIAN, PrivateVector
from dpcore.noise.sources import SeededNoise
from dpcore.records.binning import UNCOUNTED, ColumnCells
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import MISSING, UNKNOWN, Cells, Column, IntervalColumn, Kind, Neighbours, NominalColumn

NUMBER = IntervalColumn(name="number", kind=Kind.NUMERIC, lower=0.0, upper=1000.0)
MAYBE = IntervalColumn(name="maybe", kind=Kind.INTEGER, lower=0.0, upper=50.0, missing_level=True)
LEVELS = NominalColumn(name="level", kind=Kind.CATEGORICAL, levels=tuple("abcdefgh"))
RULE = GROUPINGS[GROUPING]
EXACT, LOUD = Rho(Fraction(10**6)), Rho(Fraction(1, 100))
"""Noise of a thousandth of a unit, and of tens of units."""


def released(columns: Sequence[Column], cells: Cells, rho: Rho = EXACT, seed: int = 1) -> ReleasedVector:
    query = histograms_query(columns)
    exact = count_cells([(cells, None)], [ColumnCells(column) for column in columns], query)
    event = HISTOGRAM_GAUSSIAN.calibrate(query, Neighbours.REPLACE_ONE, rho)
    return measure_vector(PrivateVector(query, exact), event, SeededNoise(seed))


def grouped(
    column: Column, values: np.ndarray, *, least: float = 100.0, rho: Rho = EXACT, seed: int = 1
) -> ColumnGroups:
    marginals = released([column], {column.name: values}, rho, seed)
    return group_columns(marginals, [ColumnCells(column)], least=least, coordinates=1000)[0]


def held(groups: ColumnGroups, values: np.ndarray) -> np.ndarray:
    """Return the true number of units in each group."""
    return np.bincount(groups.codes({groups.cells.column.name: values}), minlength=groups.size)


def skewed(rows: int, seed: int = 3) -> np.ndarray:
    return np.minimum(generator(seed).exponential(60.0, rows), 1000.0)


# ---- what a group is -------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [EXACT, LOUD])
@pytest.mark.parametrize("least", [1.0, 150.0, 10**7])
def test_every_cell_has_one_group_and_shares_of_it_that_sum_to_one(rho: Rho, least: float) -> None:
    rng = generator(2)
    cells = {
        "number": skewed(4000),
        "maybe": np.where(rng.random(4000) < 0.1, np.nan, rng.integers(0, 51, 4000)),
        "level": rng.choice(8, 4000, p=np.arange(8, 0, -1) / 36),
    }
    columns = [NUMBER, MAYBE, LEVELS]
    marginals = released(columns, cells, rho)
    for column in group_columns(marginals, [ColumnCells(c) for c in columns], least=least, coordinates=1000):
        assert sorted(set(column.group.tolist())) == list(range(column.size))
        assert len(column.group) == len(column.within) == column.cells.count
        assert column.within.min() >= 0
        assert np.bincount(column.group, weights=column.within) == pytest.approx(np.ones(column.size), abs=1e-9)
        assert column.portions.sum() == pytest.approx(1)
        assert column.portions.min() >= 0


def test_counts_and_variances_are_those_of_the_cells_together() -> None:
    values = skewed(3000)
    groups = grouped(NUMBER, values, rho=LOUD)
    marginals = released([NUMBER], {"number": values}, LOUD)
    assert groups.counts.sum() == pytest.approx(marginals.numbers().sum())
    members = np.bincount(groups.group)
    assert groups.variances == pytest.approx(members * marginals.deviation() ** 2)


def test_a_column_of_small_weight_knows_that_its_noise_is_larger() -> None:
    """Eight levels have weight 1, two levels 1/4: equal noise on the numbers is four times as large on the counts."""
    two = NominalColumn(name="two", kind=Kind.BOOLEAN, levels=(False, True))
    rng = generator(4)
    cells = {"level": rng.integers(0, 8, 8000), "two": rng.integers(0, 2, 8000)}
    marginals = released([LEVELS, two], cells, LOUD)
    wide, narrow = group_columns(marginals, [ColumnCells(LEVELS), ColumnCells(two)], least=100.0, coordinates=100)
    assert narrow.variances == pytest.approx(16 * np.full(2, wide.variances[0]))
    assert narrow.counts == pytest.approx(np.bincount(cells["two"]), abs=6 * math.sqrt(narrow.variances[0]))


# ---- how many units a group holds --------------------------------------------------------------------


@pytest.mark.parametrize("least", [50.0, 200.0, 1000.0])
def test_ranges_hold_at_least_so_many_units_each(least: float) -> None:
    values = skewed(20_000)
    groups = grouped(NUMBER, values, least=least)
    assert held(groups, values).min() >= least - 1
    assert 2 <= groups.size <= RULE.most_groups(np.full(200, 100.0), least) + 2


def test_ranges_are_neighbours_in_the_order_of_their_values() -> None:
    groups = grouped(NUMBER, skewed(20_000))
    assert (np.diff(groups.group) >= 0).all()
    assert groups.size >= RULE.most_groups(np.full(200, 100.0), 100.0) - 1


@pytest.mark.parametrize("seed", range(5))
def test_under_loud_noise_groups_still_hold_most_of_what_they_must(seed: int) -> None:
    """A range closes when its noisy count is two deviations above the threshold: only its own noise may lower it."""
    values, least = skewed(20_000), 400.0
    groups = grouped(NUMBER, values, least=least, rho=LOUD, seed=seed)
    assert (held(groups, values) >= least - 4 * np.sqrt(groups.variances)).all()
    assert groups.size > 3


@pytest.mark.parametrize("noise", [5.0, 50.0])
@pytest.mark.parametrize("units", [2_000.0, 40_000.0, 10**6])
def test_the_number_of_groups_has_the_least_expected_error(units: float, noise: float) -> None:
    """What happens inside groups costs a multiple of 1 / groups, and the noise costs groups² noise / units."""
    best = RULE.most_groups(np.full(100, units / 100), 3.0 * noise)

    def error(groups: float) -> float:
        return 1.25**3 * 2 / groups + groups**2 * noise / units  # the multiple at which 1.25 cube roots are best

    assert best == 2 or error(best) <= min(error(best - 1), error(best + 1)) * (1 + 1e-3)


def test_a_column_with_few_cells_may_keep_every_one() -> None:
    few = IntervalColumn(name="few", kind=Kind.INTEGER, lower=1.0, upper=float(FEW_CELLS))
    values = np.repeat(np.arange(1.0, FEW_CELLS + 1), 300)
    assert grouped(few, values, least=250.0).size == FEW_CELLS


def test_the_first_rule_stays_as_it_published() -> None:
    assert GROUPINGS[1] == Grouping(room=1.0, constant=10, round_edges=False, gradual=False)
    now = released([NUMBER], {"number": skewed(20_000)})
    first = replace(now, event=replace(now.event, query=replace(histograms_of(now), grouping=1)))
    assert now.event.query.as_json()["grouping"] == GROUPING
    assert "grouping" not in first.event.query.as_json()
    assert query_from_json(first.event.query.as_json()) == first.event.query
    assert query_from_json(now.event.query.as_json()) == now.event.query
    old, new = (group_columns(m, [ColumnCells(NUMBER)], least=20.0, coordinates=1000)[0].size for m in (first, now))
    assert old <= 11
    assert new > old, "the number that loses least is larger for so many units"


def test_groups_end_at_public_breaks() -> None:
    cut = replace(NUMBER, breaks=(123.4, 700.5))
    values = np.concatenate([skewed(20_000), np.linspace(120.0, 126.0, 500), np.linspace(690.0, 720.0, 2000)])
    groups = grouped(cut, values, least=100.0)
    for point in cut.breaks:
        below, above = groups.codes({"number": np.array([np.nextafter(point, 0.0), point])})
        assert below + 1 == above


def test_a_break_with_too_few_units_beyond_it_parts_nothing() -> None:
    cut = replace(NUMBER, breaks=(5.0, 900.0))
    values = np.concatenate([generator(8).uniform(10.0, 890.0, 5000), [950.0, 960.0, 1.0]])
    groups = grouped(cut, values, least=100.0)
    assert held(groups, values).min() >= 99
    assert groups.codes({"number": np.array([880.0, 950.0])}).tolist() == [groups.size - 1] * 2


def test_a_level_with_enough_units_stands_alone_and_the_rest_together() -> None:
    values = np.repeat(np.arange(8), [4000, 2000, 1000, 300, 90, 60, 20, 0])
    groups = grouped(LEVELS, values, least=100.0)
    assert groups.group[:4].tolist() == [0, 1, 2, 3]
    assert set(groups.group[4:].tolist()) == {4}
    assert groups.within[4:] == pytest.approx(np.array([90, 60, 20, 0]) / 170, abs=1e-3)


def test_a_rest_of_too_few_takes_the_smallest_level_with_it() -> None:
    values = np.repeat(np.arange(8), [4000, 2000, 1000, 300, 20, 10, 5, 0])
    groups = grouped(LEVELS, values, least=100.0)
    assert groups.group[:3].tolist() == [0, 1, 2]
    assert set(groups.group[3:].tolist()) == {3}


def test_no_more_groups_than_fit_into_the_coordinates() -> None:
    rng = generator(5)
    columns = [NUMBER, MAYBE, LEVELS]
    cells = {
        "number": skewed(9000),
        "maybe": rng.integers(0, 51, 9000).astype(float),
        "level": rng.integers(0, 8, 9000),
    }
    marginals, places = released(columns, cells), [ColumnCells(c) for c in columns]
    for coordinates in (100, 20, 12, 5, 1, 0):
        groups = group_columns(marginals, places, least=10.0, coordinates=coordinates)
        assert sum(column.size - 1 for column in groups) <= coordinates
    assert [column.size for column in groups] == [1, 1, 1]


@given(data=st.data(), column=st.sampled_from([NUMBER, MAYBE, LEVELS]), least=st.floats(0.5, 3000.0))
def test_groups_are_counted_as_they_are_made(data: st.DataObject, column: Column, least: float) -> None:
    """`_group_count` predicts the number of groups while there are too many for the coordinates."""
    cells = ColumnCells(column)
    counts = data.draw(hnp.arrays(np.float64, cells.count, elements=st.floats(-50.0, 2000.0)))
    histogram = Histogram(counts, data.draw(st.floats(0.001, 40.0)), data.draw(st.none() | st.floats(1.0, 400.0)))
    for rule in GROUPINGS.values():
        assert _group_count(cells, histogram, rule, least) == _group_column(cells, histogram, rule, least).size


def test_the_least_group_is_three_deviations_of_the_noise_on_a_pair() -> None:
    """Off-diagonal noise is sigma / sqrt 2 per squared record; records have a squared length of 0.6 per column."""
    event = GAUSSIAN.calibrate(GramLayout(9, 2, Fraction(1, 2)), Neighbours.REPLACE_ONE, Rho(Fraction(1, 2)))
    sigma = math.sqrt(2) * 1.25  # sensitivity sqrt 2 (1 + s²) at rho 1/2
    assert least_group_size(event, 4) == pytest.approx(3 * sigma / math.sqrt(2) * 0.6 * 4, rel=1e-6)


# ---- atoms, missing cells, unknown cells ---------------------------------------------------------------


@pytest.mark.parametrize("rho", [EXACT, LOUD])
def test_a_pile_at_zero_is_a_group_of_its_own(rho: Rho) -> None:
    values = np.where(generator(6).random(20_000) < 0.4, 0.0, skewed(20_000) + 1)
    groups = grouped(NUMBER, values, rho=rho, least=400.0)
    zero = groups.cells.codes(np.array([0.0]))[0]
    alone = groups.group == groups.group[zero]
    assert np.count_nonzero(alone) == 1
    assert groups.counts[groups.group[zero]] == pytest.approx(np.count_nonzero(values == 0), rel=0.05)
    drawn = groups.values(np.full(100, groups.group[zero]), generator(7))
    assert (drawn == 0).all()


def test_piles_inside_a_column_are_groups_of_their_own() -> None:
    """Hours worked: many 40s among others."""
    hours = np.where(generator(8).random(20_000) < 0.5, 40, generator(9).integers(0, 51, 20_000)).astype(float)
    groups = grouped(MAYBE, hours)
    forty = groups.group[groups.cells.codes(np.array([40.0]))[0]]
    assert np.count_nonzero(groups.group == forty) == 1
    assert groups.group[39] != groups.group[41]


def test_enough_missing_cells_are_a_group_and_few_are_a_part_of_the_last_one() -> None:
    rng = generator(10)
    for share, apart in ((0.2, True), (0.002, False)):
        values = np.where(rng.random(20_000) < share, np.nan, rng.integers(0, 51, 20_000))
        groups = grouped(MAYBE, values, least=100.0)
        assert bool(np.count_nonzero(groups.group == groups.group[-1]) == 1) is apart
        drawn = groups.values(np.full(40_000, groups.group[-1]), generator(11))
        missing = np.isnan(values).sum() / held(groups, values)[groups.group[-1]]
        assert np.isnan(drawn).mean() == pytest.approx(missing, abs=0.01)


def test_a_cell_of_which_nothing_is_known_has_no_group() -> None:
    groups = grouped(LEVELS, np.repeat(np.arange(8), 500))
    assert groups.codes({"level": np.array([0, MISSING, UNKNOWN, 99])})[1:].tolist() == [UNCOUNTED] * 3


def test_an_empty_table_has_one_group_a_column() -> None:
    for seed in range(5):
        assert grouped(NUMBER, np.array([]), rho=LOUD, seed=seed, least=400.0).size == 1
        assert grouped(LEVELS, np.array([], dtype=np.int64), rho=LOUD, seed=seed, least=400.0).size == 1


# ---- distributions inside a group ------------------------------------------------------------------------


def test_values_drawn_from_the_groups_have_the_table_s_quantiles() -> None:
    values = skewed(50_000)
    groups = grouped(NUMBER, values)
    rng = generator(12)
    drawn = groups.values(rng.choice(groups.size, 50_000, p=groups.portions), rng)
    at = np.array([0.05, 0.25, 0.5, 0.75, 0.95, 0.99])
    assert np.quantile(drawn, at) == pytest.approx(np.quantile(values, at), rel=0.08)
    assert np.array_equal(groups.codes({"number": groups.values(np.arange(groups.size), rng)}), np.arange(groups.size))


def test_under_loud_noise_the_tail_of_a_range_is_not_spread_to_the_bound() -> None:
    """No value is above 200; cells of the upper range that hold only noise get no share."""
    values = np.minimum(skewed(20_000), 200.0)
    for seed in range(5):
        groups = grouped(NUMBER, values, rho=LOUD, seed=seed, least=400.0)
        drawn = groups.values(np.full(4000, groups.size - 1), generator(13))
        assert np.mean(drawn > 300) < 0.05


def test_groups_are_a_function_of_what_is_released() -> None:
    marginals = released([NUMBER], {"number": skewed(5000)}, LOUD)
    again = ReleasedVector.from_json(marginals.as_json())
    one, two = (group_columns(m, [ColumnCells(NUMBER)], least=300.0, coordinates=9)[0] for m in (marginals, again))
    assert np.array_equal(one.group, two.group)
    assert np.array_equal(one.within, two.within)
