"""What a published calibration really costs: the epsilon that an explicit pair of neighbours shows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.papers import epsilon as true_epsilon
from dpcore.auditing import refuted
from dpcore.auditing.lower_bounds import entrywise_lower_bound

RNG = np.random.default_rng


def _pairs(dimension: int, draws: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = RNG(dimension)
    found = rng.normal(size=(draws, 2, dimension))
    return list(found / np.linalg.norm(found, axis=2, keepdims=True))


@pytest.mark.parametrize("dimension", [2, 4, 8, 32])
def test_lemma_4_loses_the_root_of_half_the_dimension(dimension: int) -> None:
    covariance = (true_epsilon.ron_gauss(dimension, 1.0) - 0.3) / 0.7
    assert covariance == pytest.approx(math.sqrt(dimension / 2))


def test_the_audit_measures_nearly_what_is_said_of_lemma_4() -> None:
    claimed, dimension = 8.0, 8
    x, y = true_epsilon.steep_pair(dimension, 2.0)
    tables = [refuted.ron_gauss(row[None], epsilon=claimed, draws=50_000, rng=RNG(5)) for row in (x, y)]
    measured = entrywise_lower_bound(np.outer(x, x), np.outer(y, y), *tables)
    truth = (true_epsilon.ron_gauss(dimension, claimed) - 0.3 * claimed) / 0.7
    assert claimed < measured <= truth


@pytest.mark.parametrize("dimension", [2, 4, 8, 32])
def test_the_noise_of_eigenvalues_loses_the_root_of_two_along_given_components(dimension: int) -> None:
    assert true_epsilon.pca_gauss_along(dimension, 1.0) == pytest.approx(math.sqrt(2))
    assert true_epsilon.pca_gauss(dimension, 1.0) <= 1.0


@pytest.mark.parametrize("dimension", [2, 3, 6])
def test_no_random_pair_moves_points_and_targets_further_than_the_search_found(dimension: int) -> None:
    claimed = dimension**2 + 4 * dimension + 1
    found = true_epsilon.pca_gauss_supervised(dimension, 1.0) * claimed
    moved = []
    for x, y in _pairs(dimension, 5_000):
        for target in (1.0, -1.0):
            one, two = np.append(x, 1.0), np.append(y, target)
            moved.append(np.abs(np.outer(one, one) - np.outer(two, two)).sum())
    assert max(moved) <= found * 1.001
    assert found <= math.sqrt(2) * (dimension + 1) * 2


def test_lip_needs_less_noise_than_it_adds_and_analyze_gauss_more() -> None:
    assert 0.3 < true_epsilon.lip(54, 1.0) < 0.5
    assert true_epsilon.analyze_gauss(1.0, 1e-5) > 1.0
    assert true_epsilon.jiang_categorical(5, 5, 1.0) > 1.0
    assert true_epsilon.jiang_categorical(5, 0, 1.0) == pytest.approx(1.0)
