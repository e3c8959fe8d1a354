"""The papers' experiments remade: what a published calibration really costs, and who is better at that price."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import papers_epsilon, papers_methods
from benchmarks.common import Summary, summary
from benchmarks.papers_table import Pair, compared, verdict
from dpcore.auditing import refuted
from dpcore.auditing.lower_bounds import entrywise_lower_bound

RNG = np.random.default_rng
POINTS = RNG(1).normal(size=(4_000, 5)) * [0.5, 0.3, 0.2, 0.1, 0.05]
ROWS = POINTS / np.maximum(1.0, np.linalg.norm(POINTS, axis=1, keepdims=True))


def _pairs(dimension: int, draws: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = RNG(dimension)
    found = rng.normal(size=(draws, 2, dimension))
    return list(found / np.linalg.norm(found, axis=2, keepdims=True))


@pytest.mark.parametrize("dimension", [2, 4, 8, 32])
def test_lemma_4_loses_the_root_of_half_the_dimension(dimension: int) -> None:
    covariance = (papers_epsilon.ron_gauss(dimension, 1.0) - 0.3) / 0.7
    assert covariance == pytest.approx(math.sqrt(dimension / 2))


def test_the_audit_measures_nearly_what_is_said_of_lemma_4() -> None:
    claimed, dimension = 8.0, 8
    x, y = papers_epsilon.steep_pair(dimension, 2.0)
    tables = [refuted.ron_gauss(row[None], epsilon=claimed, draws=50_000, rng=RNG(5)) for row in (x, y)]
    measured = entrywise_lower_bound(np.outer(x, x), np.outer(y, y), *tables)
    truth = (papers_epsilon.ron_gauss(dimension, claimed) - 0.3 * claimed) / 0.7
    assert claimed < measured <= truth


@pytest.mark.parametrize("dimension", [2, 3, 6])
def test_no_random_pair_moves_points_and_targets_further_than_the_search_found(dimension: int) -> None:
    claimed = dimension**2 + 4 * dimension + 1
    found = papers_epsilon.pca_gauss_supervised(dimension, 1.0) * claimed
    moved = []
    for x, y in _pairs(dimension, 5_000):
        for target in (1.0, -1.0):
            one, two = np.append(x, 1.0), np.append(y, target)
            moved.append(np.abs(np.outer(one, one) - np.outer(two, two)).sum())
    assert max(moved) <= found * 1.001
    assert found <= math.sqrt(2) * (dimension + 1) * 2


def test_lip_needs_less_noise_than_it_adds_and_analyze_gauss_more() -> None:
    assert 0.3 < papers_epsilon.lip(54, 1.0) < 0.5
    assert papers_epsilon.analyze_gauss(1.0, 1e-5) > 1.0
    assert papers_epsilon.jiang_categorical(5, 5, 1.0) > 1.0
    assert papers_epsilon.jiang_categorical(5, 0, 1.0) == pytest.approx(1.0)


def test_both_kinds_of_ron_gauss_find_the_covariance_when_epsilon_is_large() -> None:
    for run in (
        papers_methods.ron_unsupervised(ROWS, 3, 300.0, 700.0, RNG(2)),
        papers_methods.published_ron_unsupervised(ROWS, 3, 1000.0, RNG(2)),
    ):
        space, model = run
        points = space(ROWS)
        assert np.allclose(model.covariances[0], points.T @ points / len(points), atol=0.01)


def test_both_kinds_of_pca_gauss_find_the_regression_when_epsilon_is_large() -> None:
    targets = np.clip(ROWS @ [0.8, -0.5, 0.0, 0.0, 0.0], -1, 1)
    for space, model in (
        papers_methods.pca_supervised(ROWS, targets, 2, 500.0, 2000.0),
        papers_methods.published_pca_supervised(ROWS, targets, 2, 5000.0, RNG(2)),
    ):
        both = np.column_stack([space(ROWS), targets])
        wanted = np.linalg.lstsq(both[:, :-1], targets, rcond=None)[0]
        second = model.covariances[0] + np.outer(model.means[0], model.means[0])
        assert np.allclose(np.linalg.solve(second[:2, :2], second[:2, 2]), wanted, atol=0.1)


def test_class_blocks_find_shares_and_means() -> None:
    classes = (ROWS[:, 0] > 0.1).astype(np.int64)
    model = papers_methods.class_gaussians(ROWS, classes, 3, 500.0)
    assert np.allclose(model.weights, np.bincount(classes, minlength=3) / len(classes), atol=0.01)
    assert np.allclose(model.means[1], ROWS[classes == 1].mean(axis=0), atol=0.01)


def test_a_repaired_covariance_is_even_where_only_noise_is_known() -> None:
    fixed = papers_methods.repaired(np.diag([1.0, 0.02, -0.01, 0.002]), 0.1)
    assert np.allclose(np.linalg.eigvalsh(fixed), [0.004, 0.004, 0.004, 1.0])


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([2.0, 2.1, 2.2], [1.0, 1.1, 1.1], "better"),
        ([1.0, 1.1, 1.1], [2.0, 2.1, 2.2], "worse"),
        ([1.0, 2.0, 3.0], [3.0, 1.0, 2.0], "no difference shown"),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], "equal"),
    ],
)
def test_the_verdict_follows_the_interval(ours: list[float], theirs: list[float], said: str) -> None:
    found = {"a": {"score": ours}, "b": {"score": theirs}}
    assert compared(found, [Pair("a", "b")])[0][3] == said
    turned = {"better": "worse", "worse": "better"}.get(said, said)
    assert compared(found, [Pair("a", "b")], less_is_better=True)[0][3] == turned


def test_one_run_has_no_verdict() -> None:
    assert verdict(summary([1.0])) == "one run says nothing"
    assert verdict(Summary(0.1, 0.0, 0.2, 10)) == "better"
