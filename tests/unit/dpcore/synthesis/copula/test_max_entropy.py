"""The maximum-entropy law: reproduces exact pair tables, distinguishes classes, and ignores pure noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from support.dpcore.samplers import generator

from dpcore.synthesis.copula.max_entropy import PILOT_ROWS, TableLaw, fit_table_law, largest_in_rows
from dpcore.synthesis.copula.pair_tables import PairTables

ROWS = 200_000
CLOSE = 0.012
"""Pair tables are matched on pilot rows: a few standard errors of a share in 16,384 rows, and in the sample."""


def tables_of(
    groups: np.ndarray, classes: np.ndarray, sizes: Sequence[int], *, count: int, deviation: float = 0.0
) -> PairTables:
    """Count the exact tables of a population; `deviation` is their stated noise, in units."""
    every = np.hstack([np.eye(size)[groups[:, i]] for i, size in enumerate(sizes)])
    member = np.eye(count)[classes]
    portions = [(member.T @ np.eye(size)[groups[:, i]]) / member.sum(axis=0)[:, None] for i, size in enumerate(sizes)]
    own = np.repeat(np.arange(len(sizes)), sizes)
    excess = []
    for k in range(count):
        mine = every[classes == k]
        table = mine.T @ mine - np.outer(mine.mean(axis=0), mine.sum(axis=0))
        excess.append(np.where(own[:, None] == own[None], 0.0, table / len(groups)))
    noise = np.full(len(sizes), deviation**2)
    return PairTables(
        member.sum(axis=0), portions, noise, count * noise, np.array(excess), deviation**2 / len(groups) ** 2
    )


def joint(groups: np.ndarray, classes: np.ndarray, sizes: Sequence[int], count: int) -> np.ndarray:
    """Return the shares of all rows in every pair of groups, per class."""
    every = np.hstack([np.eye(size)[groups[:, i]] for i, size in enumerate(sizes)])
    return np.array([every[classes == k].T @ every[classes == k] for k in range(count)]) / len(groups)


def drawn(tables: PairTables, seed: int = 1, rows: int = ROWS) -> tuple[TableLaw, np.ndarray, np.ndarray]:
    law = fit_table_law(tables, generator(seed))
    return law, *law.draw(rows, generator(seed + 100))


def chain(rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Three correlated binary columns, one of them rare."""
    a = (rng.random(rows) < 0.3).astype(np.int64)
    b = np.where(rng.random(rows) < 0.7, a, rng.integers(0, 2, rows))
    c = np.where(rng.random(rows) < 0.5, b, (rng.random(rows) < 0.1).astype(np.int64))
    return np.column_stack([a, b, c]), np.zeros(rows, dtype=np.int64)


def turned(rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A pair that agrees in one class and disagrees in the other: pooled, it is independent."""
    classes, a = rng.integers(0, 2, rows), rng.integers(0, 2, rows)
    b = np.where(rng.random(rows) < 0.8, a ^ classes, rng.integers(0, 2, rows))
    return np.column_stack([a, b]), classes


def ladder(rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Three classes, one of them small; columns of five and three groups that depend on the class and each other."""
    classes = rng.choice(3, rows, p=[0.6, 0.35, 0.05])
    a = np.clip(classes + rng.integers(0, 3, rows), 0, 4)
    b = np.clip((a + rng.integers(0, 4, rows)) // 2, 0, 2)
    return np.column_stack([a, b]), classes


SCENES = [
    pytest.param(chain, (2, 2, 2), 1, id="three correlated binaries"),
    pytest.param(turned, (2, 2), 2, id="a pair that turns with the class"),
    pytest.param(ladder, (5, 3), 3, id="three classes and many groups"),
]
Scene = Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]


@pytest.mark.parametrize("deviation", [0.0, 1.0, 10.0])
@pytest.mark.parametrize(("scene", "sizes", "count"), SCENES)
def test_exact_tables_come_back(scene: Scene, sizes: tuple[int, ...], count: int, deviation: float) -> None:
    """Includes empty pairs of groups: their weights must not diverge and distort the others."""
    groups, classes = scene(50_000, generator(2))
    law, again, labels = drawn(tables_of(groups, classes, sizes, count=count, deviation=deviation))
    assert law.sizes == sizes
    assert all(np.abs(column.common.slopes).max(initial=0) < 100 for column in law.columns)
    assert np.bincount(labels, minlength=count) / ROWS == pytest.approx(law.weights, abs=0.005)
    assert joint(again, labels, sizes, count) == pytest.approx(joint(groups, classes, sizes, count), abs=CLOSE)


def test_a_third_column_that_follows_the_second_alone_is_independent_of_the_first_given_it() -> None:
    """Of all laws with these pairs, the one of maximum entropy is the Markov chain."""
    groups, classes = chain(50_000, generator(3))
    _, again, _ = drawn(tables_of(groups, classes, (2, 2, 2), count=1))
    for b in (0, 1):
        mine = again[again[:, 1] == b]
        share = [mine[mine[:, 0] == a][:, 2].mean() for a in (0, 1)]
        assert share[0] == pytest.approx(share[1], abs=0.03)


def test_one_class_s_own_pair_is_not_lent_to_the_others() -> None:
    groups, classes = turned(50_000, generator(4))
    law, again, labels = drawn(tables_of(groups, classes, (2, 2), count=2, deviation=3.0))
    agree = [np.mean(again[labels == k][:, 0] == again[labels == k][:, 1]) for k in (0, 1)]
    assert agree == pytest.approx([0.9, 0.1], abs=0.02)
    assert all(weights is not None for weights in law.columns[1].by_class)


# ---- noise -------------------------------------------------------------------------------------------


def test_a_class_s_own_pair_does_not_bring_back_shares_that_were_taken_for_noise() -> None:
    # The pair reverses with the class, far above its noise; the classes' shares differ by less than their noise.
    groups, classes = turned(ROWS, generator(7))
    tables = tables_of(groups, classes, (2, 2), count=2, deviation=100.0)
    apart = [np.array([[0.5, 0.5], [0.5, 0.5]]), np.array([[0.53, 0.47], [0.47, 0.53]])]
    law, drawn_groups, drawn_classes = drawn(replace(tables, shares=apart, variances=np.full(2, 1e8)))
    assert law.columns[1].by_class[0] is not None
    portions = [float((drawn_groups[drawn_classes == k, 1] == 0).mean()) for k in (0, 1)]
    assert abs(portions[0] - portions[1]) < 0.03, "half of what was measured; as drawn it wavers by .01"


def noise_only(sizes: Sequence[int], count: int, deviation: float, seed: int) -> PairTables:
    """Uniform columns and classes, and excesses that are pure noise of the stated variance."""
    rng, total, width = generator(seed), 20_000.0, sum(sizes)
    edges = np.cumsum([0, *sizes])
    excess = np.zeros((count, width, width))
    for k in range(count):
        for a in range(len(sizes)):
            for b in range(a):
                noise = rng.standard_normal((sizes[a], sizes[b])) * deviation / total
                noise -= noise.mean(axis=0)
                noise -= noise.mean(axis=1, keepdims=True)
                excess[k, edges[a] : edges[a + 1], edges[b] : edges[b + 1]] = noise
                excess[k, edges[b] : edges[b + 1], edges[a] : edges[a + 1]] = noise.T
    shares = [np.full((count, size), 1 / size) for size in sizes]
    variances = np.full(len(sizes), deviation**2)
    return PairTables(
        np.full(count, total / count), shares, variances, count * variances, excess, (deviation / total) ** 2
    )


def pairs_believed(law: TableLaw) -> tuple[int, int]:
    """Return how many pairs of columns got weights, of how many: common ones, and per class."""
    believed = asked = 0
    for index, column in enumerate(law.columns):
        starts = np.cumsum([len(law.weights), *law.sizes[:index]])
        for start, size in zip(starts, law.sizes[:index], strict=False):
            believed += bool(column.common.slopes[start : start + size].any())
            asked += 1
            for weights in column.by_class:
                at = start - len(law.weights)
                believed += weights is not None and bool(weights.slopes[at : at + size].any())
                asked += 1
    return believed, asked


@pytest.mark.parametrize("deviation", [5.0, 100.0, 2000.0])
def test_out_of_nothing_but_noise_independent_columns_are_drawn(deviation: float) -> None:
    """The threshold is two standard deviations: about one pair in thirty gets weights by chance."""
    sizes = (4, 3, 5, 2)
    laws = [fit_table_law(noise_only(sizes, 2, deviation, seed), generator(seed)) for seed in range(6)]
    believed, asked = np.sum([pairs_believed(law) for law in laws], axis=0)
    assert asked == 6 * 18
    assert believed <= 0.15 * asked


def test_with_no_pair_believed_columns_are_as_their_shares_say() -> None:
    quiet = noise_only((3, 2), 2, 50.0, 1)
    quiet = PairTables(
        np.array([15_000.0, 5000.0]),
        [np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]), np.array([[0.9, 0.1], [0.9, 0.1]])],
        quiet.variances,
        quiet.pooled_variances,
        0 * quiet.excess,
        quiet.excess_variance,
    )
    law, groups, classes = drawn(quiet)
    assert pairs_believed(law)[0] == 0
    assert not law.columns[1].common.slopes.any()
    found = joint(groups, classes, (3, 2), 2)
    for k, weight in enumerate((0.75, 0.25)):
        shares = np.concatenate([share[k] for share in quiet.shares])
        assert np.diag(found[k]) == pytest.approx(weight * shares, abs=CLOSE)
        assert found[k][:3, 3:] == pytest.approx(weight * np.outer(shares[:3], shares[3:]), abs=CLOSE)


@pytest.mark.parametrize(("deviation", "least", "most"), [(1.0, 0.95, 1.05), (250.0, 0.5, 1.02), (10**5, -0.05, 0.05)])
def test_the_louder_the_noise_the_less_of_a_pair_is_drawn(deviation: float, least: float, most: float) -> None:
    """With noise of one unit, of a tenth of the counts, or far more, all, most, or none of the pair is drawn."""
    groups, classes = chain(20_000, generator(5))
    strong = groups[:, :2]
    _, again, _ = drawn(tables_of(strong, classes, (2, 2), count=1, deviation=deviation))
    assert np.cov(again.T)[0, 1] / np.cov(strong.T)[0, 1] == pytest.approx((least + most) / 2, abs=(most - least) / 2)


# ---- edges -------------------------------------------------------------------------------------------


def test_one_column_and_one_class_are_drawn_by_their_shares() -> None:
    lone = PairTables(
        np.array([900.0]), [np.array([[0.2, 0.5, 0.3]])], np.array([4.0]), np.array([4.0]), np.zeros((1, 3, 3)), 1e-9
    )
    law, groups, classes = drawn(lone)
    assert not classes.any()
    assert np.bincount(groups[:, 0]) / ROWS == pytest.approx([0.2, 0.5, 0.3], abs=0.005)
    assert law.columns[0].by_class == (None,)


def test_a_column_of_one_group_is_always_that_group() -> None:
    groups, classes = chain(20_000, generator(6))
    groups = np.column_stack([groups[:, 0], np.zeros(20_000, dtype=np.int64), groups[:, 1]])
    _, again, _ = drawn(tables_of(groups, classes, (2, 1, 2), count=1, deviation=2.0))
    assert not again[:, 1].any()
    assert np.cov(again[:, ::2].T)[0, 1] == pytest.approx(np.cov(groups[:, ::2].T)[0, 1], abs=0.01)


def test_a_class_of_a_single_unit_does_no_harm() -> None:
    """A class rarer than one pilot row has no weights of its own, and is drawn about as rarely as it occurs."""
    groups, classes = chain(50_000, generator(7))
    tables = tables_of(groups, classes, (2, 2, 2), count=1, deviation=3.0)
    shares = [np.vstack([share, np.full(2, 0.5)]) for share in tables.shares]
    excess = np.concatenate([tables.excess, np.zeros((1, 6, 6))])
    small = PairTables(
        np.array([50_000.0, 1.0]), shares, tables.variances, tables.pooled_variances, excess, tables.excess_variance
    )
    law, again, labels = drawn(small)
    assert law.weights[1] < 1 / PILOT_ROWS
    assert all(column.by_class[1] is None for column in law.columns)
    assert np.count_nonzero(labels) < 40
    assert joint(again, 0 * labels, (2, 2, 2), 1) == pytest.approx(joint(groups, classes, (2, 2, 2), 1), abs=CLOSE)


def test_a_group_that_nobody_is_in_is_hardly_drawn() -> None:
    groups, classes = chain(20_000, generator(8))
    _, again, _ = drawn(tables_of(groups, classes, (2, 3, 2), count=1))
    assert np.mean(again[:, 1] == 2) < 1e-3


@pytest.mark.parametrize(("scene", "sizes", "count"), SCENES)
def test_a_seed_gives_the_same_rows_again_and_another_seed_others(
    scene: Scene, sizes: tuple[int, ...], count: int
) -> None:
    groups, classes = scene(5000, generator(9))
    tables = tables_of(groups, classes, sizes, count=count, deviation=5.0)
    one, two, other = (drawn(tables, seed, rows=2000)[1:] for seed in (1, 1, 2))
    assert np.array_equal(one[0], two[0])
    assert np.array_equal(one[1], two[1])
    assert not np.array_equal(one[0], other[0])


def test_weights_of_a_strong_pair_stay_finite() -> None:
    """Two equal columns: conditional probabilities are 0 and 1."""
    a = generator(10).integers(0, 2, 20_000)
    tables = tables_of(np.column_stack([a, a]), 0 * a, (2, 2), count=1, deviation=1.0)
    law, again, _ = drawn(tables)
    assert np.isfinite(law.columns[1].common.slopes).all()
    assert np.mean(again[:, 0] == again[:, 1]) > 0.99
    assert math.isclose(again[:, 0].mean(), 0.5, abs_tol=0.02)


@pytest.mark.parametrize("columns", [1, 2, 7, 40])
def test_the_largest_score_of_a_row_is_its_maximum_to_the_bit(columns: int) -> None:
    scores = generator(5).normal(size=(1000, columns)).astype(np.float32)
    scores[::7] = np.round(scores[::7])  # ties
    scores[3, 0] = np.inf
    assert largest_in_rows(scores).tobytes() == scores.max(axis=1, keepdims=True).tobytes()
