"""PCA-Gauss with two kinds of noise: components from four sources, and moments along them.

Rows are those of the cube [-1, 1]. Everything but the noise is the same in the corrected and in the published
pipelines; `methods` states what. A source of components spends a part of epsilon, or sets rows apart: public
rows, which nobody protects, or rows on which alone the components are measured. Both are the first rows of
a fixed order, so under replace-one no value decides a row's part, and the larger of the parts' costs counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.methods import (
    PURE,
    Codes,
    Floats,
    Gaussians,
    Generator,
    centred_gaussian,
    class_gaussians,
    gaussian,
    laplace_level,
    leading,
    measure_points,
    noisy_second_moment,
    pure,
    repaired,
)
from dpcore.accounting import Budget
from dpcore.auditing import refuted as published
from dpcore.planning.layouts import NO_WEIGHT

PCA_SHARE, PCA_MEAN = 0.3, 0.1
"""The components' share of epsilon, and the class means' share of the rest; the paper tries all tenths."""

DELTA = 1e-5
PUBLIC_SHARE, ASIDE_SHARE = 0.05, 0.2
"""Shares of the rows that are public, or on which alone the components are measured."""


@dataclass(frozen=True, slots=True)
class PcaMap:
    """PCA-Gauss's map of rows of the cube: divide by the root of the number of features, project on the components."""

    basis: Floats

    def __call__(self, rows: Floats) -> Floats:
        """Projected points of the unit ball."""
        return rows @ self.basis / math.sqrt(rows.shape[1])


@dataclass(frozen=True, slots=True)
class Components:
    """Components of one source, the rows that remain for the moments, and the epsilon that remains."""

    space: PcaMap
    rest: slice
    epsilon: float


Source = Callable[[Floats, int, float], Components]
Model = Callable[[Floats, NDArray[Any], float], Gaussians]
"""A model of points and their outcomes at an epsilon."""


def pca_gauss(
    source: Source, model: Model, rows: Floats, outcomes: NDArray[Any], components: int, epsilon: float
) -> tuple[PcaMap, Gaussians]:
    """Run an algorithm of the paper: components of a source, then a model along them."""
    found = source(rows, components, epsilon)
    return found.space, model(found.space(rows[found.rest]), outcomes[found.rest], found.epsilon)


# ---- sources of components ------------------------------------------------------------------------


def public_rows(rows: Floats) -> slice:
    """Return which rows are public: the first of the fixed order."""
    return slice(math.ceil(PUBLIC_SHARE * len(rows)))


def private_components(rows: Floats, components: int, epsilon: float) -> Components:
    """Lap-PCA, corrected: the second moment around the public centre, by the Wishart difference."""
    first = PCA_SHARE * epsilon
    return Components(_measured(rows, components, pure(first)), slice(None), epsilon - first)


def gaussian_components(rows: Floats, components: int, epsilon: float) -> Components:
    """AG-PCA, corrected: Gaussian noise for replace-one on the second moment, with a delta."""
    first = PCA_SHARE * epsilon
    space = _measured(rows, components, gaussian(first, DELTA), "gaussian")
    return Components(space, slice(None), epsilon - first)


def public_components(rows: Floats, components: int, epsilon: float) -> Components:
    """Pub-PCA: components of public rows, which cost nothing; the other rows are private."""
    public = rows[public_rows(rows)]
    return Components(PcaMap(leading(public.T @ public, components)), slice(len(public), None), epsilon)


def components_set_aside(rows: Floats, components: int, epsilon: float) -> Components:
    """Section V-D: components of rows set aside by Lap-PCA, corrected; each part is measured with the whole epsilon."""
    aside = math.ceil(ASIDE_SHARE * len(rows))
    return Components(_measured(rows[:aside], components, pure(epsilon)), slice(aside, None), epsilon)


def published_public(rows: Floats, components: int, epsilon: float, generator: Generator) -> Components:
    """Pub-PCA, which draws no noise, called as the other published sources are."""
    return public_components(rows, components, epsilon)


def published_lap_pca(rows: Floats, components: int, epsilon: float, generator: Generator) -> Components:
    """Lap-PCA: refuted."""
    first = PCA_SHARE * epsilon
    noisy = published.lap_pca(rows, epsilon=first, draws=1, rng=generator)[0]
    return Components(PcaMap(leading(noisy, components)), slice(None), epsilon - first)


def published_ag_pca(rows: Floats, components: int, epsilon: float, generator: Generator) -> Components:
    """AG-PCA: Analyze Gauss with the classical formula and the sensitivity of add-remove."""
    first, features = PCA_SHARE * epsilon, rows.shape[1]
    deviation = math.sqrt(2 * math.log(1.25 / DELTA)) / first
    noise = np.triu(generator.normal(scale=deviation, size=(features, features)))
    noisy = rows.T @ rows / features + noise + np.triu(noise, 1).T
    return Components(PcaMap(leading(noisy, components)), slice(None), epsilon - first)


def _measured(rows: Floats, components: int, budget: Budget, mechanism: str = PURE) -> PcaMap:
    """Measure the second moment of all features, and return its leading directions."""
    points = rows / math.sqrt(rows.shape[1])
    released = measure_points(points, budget, mechanism=mechanism, weight=NO_WEIGHT)
    return PcaMap(leading(released.matrices()[0][1:, 1:], components))


# ---- models along components ------------------------------------------------


def one_gaussian(points: Floats, _: Codes, epsilon: float) -> Gaussians:
    """One Gaussian for all rows, corrected, with its mean in the same measurement."""
    return class_gaussians(points, np.zeros(len(points), dtype=np.int64), 1, epsilon)


def published_joint(points: Floats, targets: Floats, epsilon: float, generator: Generator) -> Gaussians:
    """Algorithm 2 as printed, components given: true, and looser than it claims. Nothing has a mean."""
    both = np.column_stack([points, targets])
    components = points.shape[1]
    scale = (components**2 + 4 * components + 1) / epsilon
    second = both.T @ both + generator.laplace(scale=scale, size=(components + 1, components + 1))
    return centred_gaussian(second / len(points), laplace_level(scale, components + 1) / len(points))


def published_classes(
    points: Floats, classes: Codes, class_count: int, epsilon: float, generator: Generator
) -> Gaussians:
    """Algorithm 3 as printed, components given: own class means, exact class sizes; refuted."""
    components = points.shape[1]
    means, covariances = np.zeros((class_count, components)), np.zeros((class_count, components, components))
    sizes = np.bincount(classes, minlength=class_count)
    for label in np.flatnonzero(sizes):
        mine = points[classes == label]
        scale = 2 * components / (len(mine) * PCA_MEAN * epsilon)
        means[label] = mine.mean(axis=0) + generator.laplace(scale=scale, size=components)
        whole = 2 * (1 - PCA_MEAN) * epsilon  # the sampler halves its epsilon
        one = np.zeros(len(mine), dtype=np.int64)
        noisy = published.pca_gauss_gmm(mine, one, epsilon=whole, draws=1, rng=generator)[0, 0]
        level = laplace_level(components**2 / ((1 - PCA_MEAN) * epsilon), components) / len(mine)
        covariances[label] = repaired(noisy, level)
    return Gaussians(sizes / sizes.sum(), means, covariances)


def pca_unsupervised(rows: Floats, components: int, epsilon: float) -> tuple[PcaMap, Gaussians]:
    """Algorithm 1 along the components of public rows, corrected, around their mean."""
    found, mean = _around_public(rows, components, epsilon)
    return found.space, _moved(mean, *noisy_second_moment(found.space(rows[found.rest]), found.epsilon))


def published_pca_unsupervised(
    rows: Floats, components: int, epsilon: float, generator: Generator
) -> tuple[PcaMap, Gaussians]:
    """Algorithm 1's noise, which is meant for eigenvalues, along the components of public rows: refuted."""
    found, mean = _around_public(rows, components, epsilon)
    points = found.space(rows[found.rest])
    scale = components / (len(points) * epsilon)
    noise = generator.laplace(scale=scale, size=(components, components))
    second = points.T @ points / len(points) + noise
    return found.space, _moved(mean, second, laplace_level(scale, components))


def _around_public(rows: Floats, components: int, epsilon: float) -> tuple[Components, Floats]:
    found = public_components(rows, components, epsilon)
    mean: Floats = found.space(rows[public_rows(rows)]).mean(axis=0)
    return found, mean


def _moved(mean: Floats, second: Floats, level: float) -> Gaussians:
    """Return one Gaussian with a known mean from a noisy second moment."""
    return Gaussians(np.ones(1), mean[None], repaired(second - np.outer(mean, mean), level)[None])
