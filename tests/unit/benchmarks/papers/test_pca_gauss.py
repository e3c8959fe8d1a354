"""PCA-Gauss, published and corrected: where its components come from, and what it finds at a large epsilon."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from benchmarks.papers.methods import Gaussians, joint_gaussian
from benchmarks.papers.pca_gauss import (
    ASIDE_SHARE,
    PCA_SHARE,
    PUBLIC_SHARE,
    Model,
    Source,
    components_set_aside,
    gaussian_components,
    one_gaussian,
    pca_gauss,
    pca_unsupervised,
    private_components,
    public_components,
    published_ag_pca,
    published_classes,
    published_joint,
    published_lap_pca,
    published_pca_unsupervised,
)

RNG = np.random.default_rng
ROWS = np.clip(RNG(1).normal(size=(4_000, 5)) * [0.5, 0.3, 0.1, 0.05, 0.05], -1, 1)
TARGETS = np.clip(ROWS @ [0.8, -0.5, 0.0, 0.0, 0.0], -1, 1)
LARGE = 5_000.0

SOURCES = [
    private_components,
    gaussian_components,
    public_components,
    components_set_aside,
    partial(published_lap_pca, generator=RNG(2)),
    partial(published_ag_pca, generator=RNG(2)),
]


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_finds_the_two_long_axes_when_epsilon_is_large(source: Source) -> None:
    basis = source(ROWS, 2, LARGE).space.basis
    assert np.linalg.norm(basis[:2], ord="fro") ** 2 == pytest.approx(2.0, abs=0.02)


def test_a_source_leaves_the_rows_and_the_epsilon_that_it_has_not_used() -> None:
    for source, used, share in (
        (private_components, 0.0, PCA_SHARE),
        (gaussian_components, 0.0, PCA_SHARE),
        (public_components, PUBLIC_SHARE, 0.0),
        (components_set_aside, ASIDE_SHARE, 0.0),
    ):
        found = source(ROWS, 2, 1.0)
        assert len(ROWS[found.rest]) == round((1 - used) * len(ROWS))
        assert found.epsilon == pytest.approx(1 - share)


def test_rows_that_are_not_public_decide_nothing_about_public_components() -> None:
    other = ROWS.copy()
    other[-1] = [1, -1, 1, -1, 1]
    assert np.array_equal(*(public_components(rows, 2, 1.0).space.basis for rows in (ROWS, other)))


def test_the_parts_of_rows_set_aside_are_disjoint() -> None:
    seen: list[np.ndarray] = []

    def model(points: np.ndarray, outcomes: np.ndarray, epsilon: float) -> Gaussians:
        seen.append(outcomes)
        return one_gaussian(points, outcomes, epsilon)

    pca_gauss(components_set_aside, model, ROWS, np.arange(len(ROWS)), 2, 1.0)
    assert np.array_equal(seen[0], np.arange(round(ASIDE_SHARE * len(ROWS)), len(ROWS)))


@pytest.mark.parametrize("model", [joint_gaussian, partial(published_joint, generator=RNG(2))])
@pytest.mark.parametrize("source", SOURCES)
def test_both_kinds_of_pca_gauss_find_the_regression_when_epsilon_is_large(source: Source, model: Model) -> None:
    space, found = pca_gauss(source, model, ROWS, TARGETS, 2, LARGE)
    wanted = np.linalg.lstsq(space(ROWS), TARGETS, rcond=None)[0]
    second = found.covariances[0] + np.outer(found.means[0], found.means[0])
    assert np.allclose(np.linalg.solve(second[:2, :2], second[:2, 2]), wanted, atol=0.1)


def test_published_mixtures_disclose_exact_class_sizes() -> None:
    classes = (ROWS[:, 0] > 0.1).astype(np.int64)
    model = published_classes(ROWS[:, :2], classes, 3, 0.01, RNG(2))
    assert np.array_equal(model.weights, np.bincount(classes, minlength=3) / len(classes))


def test_both_kinds_find_the_covariance_around_the_public_mean() -> None:
    moved = np.clip(ROWS + 0.3, -1, 1)
    for space, model in (pca_unsupervised(moved, 2, LARGE), published_pca_unsupervised(moved, 2, LARGE, RNG(2))):
        points = space(moved)
        assert np.allclose(model.means[0], points.mean(axis=0), atol=0.05)
        assert np.allclose(model.covariances[0], np.cov(points, rowvar=False), atol=0.01)
