"""Inside a group: clear counts are followed, the rest is spread by width, and far bounds stay empty."""

from __future__ import annotations

import numpy as np
import pytest
from support.dpcore.samplers import generator

from dpcore.measurements.within_group import shares_within
from dpcore.records.binning import ColumnCells
from dpcore.records.schema import IntervalColumn, Kind

EDGES = ColumnCells(IntervalColumn(name="c", kind=Kind.NUMERIC, lower=-1000.0, upper=1000.0)).edges
CELLS = len(EDGES) - 1
QUIET, LOUD = 0.01, 40.0


def cell(value: float) -> int:
    return int(np.searchsorted(EDGES, value, side="right") - 1)


def counted(values: np.ndarray) -> np.ndarray:
    return np.histogram(values, EDGES)[0].astype(float)


def mean_of(shares: np.ndarray, start: int, stop: int) -> float:
    return float(shares @ ((EDGES[start:stop] + EDGES[start + 1 : stop + 1]) / 2))


@pytest.mark.parametrize("deviation", [QUIET, LOUD])
@pytest.mark.parametrize("span", [(-1000, 1000), (-1000, -500), (-100, 50), (50, 300), (300, 1000), (300, 301)])
def test_shares_are_a_distribution_whatever_the_counts(span: tuple[float, float], deviation: float) -> None:
    start, stop = cell(span[0]), cell(span[1]) if span[1] < 1000 else CELLS
    stop = max(stop, start + 1)
    for seed in range(5):
        noise = generator(seed).normal(0, deviation, CELLS)
        shares = shares_within(noise, EDGES, start, stop, deviation)
        assert len(shares) == stop - start
        assert shares.min() >= 0
        assert shares.sum() == pytest.approx(1)


def test_without_noise_shares_are_the_counts_own() -> None:
    counts = counted(generator(1).laplace(0, 200, 50_000).clip(-999, 999))
    for start, stop in ((0, CELLS), (0, cell(-100)), (cell(-100), cell(60)), (cell(200), CELLS)):
        shares = shares_within(counts, EDGES, start, stop, QUIET)
        assert shares == pytest.approx(counts[start:stop] / counts[start:stop].sum(), abs=2e-3)


def test_around_zero_what_is_not_told_is_spread_by_width_and_not_by_cells() -> None:
    """Cells are narrow near 0: half of the cells between -100 and 50 cover a hundredth of the width."""
    start, stop = cell(-100), cell(50)
    true = counted(generator(2).uniform(-100, 50, 1000))
    for seed in range(5):
        shares = shares_within(true + generator(seed).normal(0, LOUD, CELLS), EDGES, start, stop, LOUD)
        near = EDGES[start + 1 : stop + 1] <= 1
        near &= EDGES[start:stop] >= -1
        assert shares[near].sum() < 0.05
        assert mean_of(shares, start, stop) == pytest.approx(-25, abs=12)


def test_a_pile_inside_a_range_is_found() -> None:
    start, stop = cell(-100), cell(50)
    counts = counted(np.concatenate([np.zeros(3000), generator(3).uniform(-100, 50, 3000)]))
    noisy = counts + generator(4).normal(0, LOUD, CELLS)
    assert shares_within(noisy, EDGES, start, stop, LOUD)[cell(0.0) - start] == pytest.approx(0.5, abs=0.15)


def test_a_range_half_of_which_is_empty_is_seen_to_be() -> None:
    start, stop = cell(101), cell(300)
    counts = counted(generator(5).uniform(220, 290, 3000)) + generator(6).normal(0, LOUD, CELLS)
    shares = shares_within(counts, EDGES, start, stop, LOUD)
    assert shares[: cell(190) - start].sum() < 0.1


@pytest.mark.parametrize("side", [1, -1])
def test_towards_a_far_bound_noise_is_not_taken_for_units(side: int) -> None:
    """Units lie between 200 and 260; noise beyond them, on either side, must not become units."""
    counts = counted(side * generator(7).uniform(200, 260, 3000))
    start, stop = (cell(200), CELLS) if side > 0 else (0, cell(-200))
    for seed in range(5):
        shares = shares_within(counts + generator(seed).normal(0, LOUD, CELLS), EDGES, start, stop, LOUD)
        assert abs(mean_of(shares, start, stop)) < 300


def test_a_bound_at_zero_is_no_tail() -> None:
    """Amounts from 0 on: units are uniform between 0 and 10, although most cells there are below 1."""
    edges = ColumnCells(IntervalColumn(name="c", kind=Kind.NUMERIC, lower=0.0, upper=1e5)).edges
    stop = int(np.searchsorted(edges, 100.0))
    counts = np.histogram(generator(8).uniform(0, 100, 800), edges)[0] + generator(9).normal(0, LOUD, len(edges) - 1)
    shares = shares_within(counts, edges, 0, stop, LOUD)
    assert shares[: int(np.searchsorted(edges, 20.0))].sum() < 0.45
    assert shares @ ((edges[:stop] + edges[1 : stop + 1]) / 2) == pytest.approx(50, abs=15)


def test_round_numbers_in_a_tail_keep_their_piles() -> None:
    """Hours above 40: many values are 45, 50 or 60, and few lie between."""
    edges = ColumnCells(IntervalColumn(name="hours", kind=Kind.INTEGER, lower=1, upper=99)).edges
    piles = {45: 1800, 50: 2800, 60: 1500, 70: 400}
    hours = np.concatenate([np.repeat(list(piles), list(piles.values())), generator(10).integers(41, 80, 1500)])
    true = np.histogram(hours, edges)[0]
    noisy = true + generator(11).normal(0, LOUD, len(true))
    shares = shares_within(noisy, edges, 40, len(true), LOUD)
    for at, many in piles.items():
        assert shares[at - 41] == pytest.approx(many / len(hours), abs=0.03)
    assert np.abs(shares - true[40:] / len(hours)).sum() < 0.2


@pytest.mark.parametrize(("deviation", "gap", "off"), [(10.0, 0.06, 0.2), (40.0, 0.15, 0.4)])
def test_a_heavy_tail_keeps_its_place_and_its_mean(deviation: float, gap: float, off: float) -> None:
    """The largest fifth of the amounts spans two orders of magnitude; most of its hundred cells are empty."""
    edges = ColumnCells(IntervalColumn(name="amount", kind=Kind.NUMERIC, lower=0.0, upper=1e6)).edges
    for seed in range(5):
        rng = generator(20 + seed)
        amounts = np.minimum(np.exp(rng.normal(8.5, 1.5, 20_000)), 1e6)
        counts = np.histogram(amounts, edges)[0]
        start = int(np.searchsorted(edges, np.quantile(amounts, 0.8)))
        true = counts[start:] / counts[start:].sum()
        found = shares_within(counts + rng.normal(0, deviation, len(counts)), edges, start, len(counts), deviation)
        middles = (edges[start:-1] + edges[start + 1 :]) / 2
        assert np.abs(np.cumsum(found - true)).max() < gap
        spread = np.sqrt(true @ (middles - true @ middles) ** 2)
        assert abs(found @ middles - true @ middles) < off * spread


def test_counts_that_end_far_below_their_bound_are_not_stretched_to_it() -> None:
    edges = ColumnCells(IntervalColumn(name="visits", kind=Kind.INTEGER, lower=0, upper=10_000)).edges
    for seed in range(5):
        rng = generator(30 + seed)
        visits = rng.geometric(0.03, 20_000) - 1
        counts = np.histogram(visits, edges)[0]
        start = int(np.searchsorted(edges, np.quantile(visits, 0.8)))
        found = shares_within(counts + rng.normal(0, LOUD, len(counts)), edges, start, len(counts), LOUD)
        assert found @ edges[start:-1] == pytest.approx(visits[visits >= edges[start]].mean(), rel=0.4)
