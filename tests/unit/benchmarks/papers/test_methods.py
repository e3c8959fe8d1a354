"""RON-Gauss, published and corrected: at a large epsilon it finds what it estimates."""

from __future__ import annotations

import numpy as np

from benchmarks.papers.methods import (
    class_gaussians,
    published_ron_unsupervised,
    repaired,
    ron_unsupervised,
)

RNG = np.random.default_rng
POINTS = RNG(1).normal(size=(4_000, 5)) * [0.5, 0.3, 0.2, 0.1, 0.05]
ROWS = POINTS / np.maximum(1.0, np.linalg.norm(POINTS, axis=1, keepdims=True))


def test_both_kinds_of_ron_gauss_find_the_covariance_when_epsilon_is_large() -> None:
    for run in (
        ron_unsupervised(ROWS, 3, 300.0, 700.0, RNG(2)),
        published_ron_unsupervised(ROWS, 3, 1000.0, RNG(2)),
    ):
        space, model = run
        points = space(ROWS)
        assert np.allclose(model.covariances[0], points.T @ points / len(points), atol=0.01)


def test_class_blocks_find_shares_and_means() -> None:
    classes = (ROWS[:, 0] > 0.1).astype(np.int64)
    model = class_gaussians(ROWS, classes, 3, 500.0)
    assert np.allclose(model.weights, np.bincount(classes, minlength=3) / len(classes), atol=0.01)
    assert np.allclose(model.means[1], ROWS[classes == 1].mean(axis=0), atol=0.01)


def test_a_repaired_covariance_is_even_where_only_noise_is_known() -> None:
    fixed = repaired(np.diag([1.0, 0.02, -0.01, 0.002]), 0.1)
    assert np.allclose(np.linalg.eigvalsh(fixed), [0.004, 0.004, 0.004, 1.0])
