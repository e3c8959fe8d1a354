"""RON-Gauss with two kinds of noise, the library's and the refuted published calibration, and common parts.

Everything but the noise is the same in both: scaling by public bounds, a public centre, Haar projections
instead of the QR factor of a uniform matrix, covariances repaired at the level of their noise, and a known
number of rows (public under replace-one). Rows are points of the unit ball, or of the cube [-1, 1] if the
paper uses it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.datasets import Dataset
from dpcore.accounting import Budget, Epsilon, Rho, rho_of_epsilon
from dpcore.auditing import refuted as published
from dpcore.estimators.gaussian_copula import measure_copula
from dpcore.estimators.moment_mixture import MomentMixture
from dpcore.measure import PrivateGram, Released, measure_gram
from dpcore.measurements.projection import haar_basis
from dpcore.mechanisms.laplace_sums import LAPLACE_SUMS
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SystemNoise
from dpcore.planning.layouts import NO_WEIGHT, count_weight
from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.planning.request import AUTO, COPULA, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout, GramSum, integer_records, require_exact_product
from dpcore.records.schema import Cells, Neighbours, PrivacyUnit
from dpcore.synthesis.generators import ClassGaussians, synthetic_rows

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Generator = np.random.Generator

RELATION = Neighbours.REPLACE_ONE
PURE = "wishart-difference-trace"


# ---- the library on a whole table -----------------------------------------------------------------


class TableRelease(MomentMixture):
    """The library's estimator of moments on a table with categories, by a plan."""

    def fit_plan(self, plan: Plan, cells: Cells) -> TableRelease:
        """Measure the cells of a table."""
        self.plan_, self.encoding_ = plan, Encoding(plan.schema)
        self.projection_, self.moments_ = self._measure(cells)
        return self

    def mixture(self) -> ClassGaussians:
        """Return the generator from which rows are drawn."""
        return ClassGaussians(self._noisy_moments(), self.projection_)


def library_rows(
    data: Dataset,
    *,
    epsilon: float,
    rows: int,
    seed: str,
    delta: float = 0.0,
    mechanism: str = AUTO,
    projection: str = "none",
    dimension: int | str = AUTO,
    generator: str = AUTO,
) -> pd.DataFrame:
    """Release a data set's training rows as the release flow does; return synthetic rows."""
    plan = make_plan(
        PlanRequest(
            schema=data.schema,
            neighbours=RELATION,
            unit=PrivacyUnit(),
            epsilon=exact_fraction(epsilon),
            delta=exact_fraction(delta),
            expected_rows=len(data.train),
            projection=projection,
            dimension=dimension,
            mechanism=mechanism,
            generator=generator,
        )
    )
    cells = data.cells(data.train)
    if plan.generator == COPULA:
        copula = measure_copula(cells, plan)
        return data.frame(synthetic_rows(Encoding(plan.schema), copula, rows, seed).cells())
    model = TableRelease(epsilon=epsilon, bounds=(-1.0, 1.0)).fit_plan(plan, cells)
    return data.frame(synthetic_rows(model.encoding_, model.mixture(), rows, seed).cells())


def exact_fraction(number: float) -> Fraction:
    """Return a number as the fraction that it is written as."""
    return Fraction(str(number))


# ---- measurements of points -----------------------------------------------------------------------


def measure_points(
    points: Floats,
    budget: Budget,
    *,
    mechanism: str = PURE,
    classes: Codes | None = None,
    class_count: int = 1,
    weight: Fraction | None = None,
) -> Released:
    """Measure the Gram blocks of points of the unit ball, one per class, by a mechanism of the registry."""
    size = points.shape[1]
    layout = GramLayout(size + 1, class_count, count_weight(size) if weight is None else weight)
    event = gram_mechanism(mechanism).calibrate(layout, RELATION, budget)
    return measure_gram(gram_of(points, layout, classes), event, SystemNoise())


def gram_of(points: Floats, layout: GramLayout, classes: Codes | None = None) -> PrivateGram:
    """Return the exact Gram blocks of points."""
    require_exact_product()
    labels = np.zeros(len(points), dtype=np.int64) if classes is None else classes
    total = GramSum(layout)
    total.add(integer_records(points, None, layout, None, labels), labels)
    return PrivateGram(total)


def pure(epsilon: float) -> Epsilon:
    """Return a pure budget."""
    return Epsilon(Fraction(epsilon).limit_denominator(10**9))


def gaussian(epsilon: float, delta: float) -> Rho:
    """Return the budget of Gaussian noise."""
    return Rho(rho_of_epsilon(epsilon, delta=delta))


def noisy_second_moment(points: Floats, epsilon: float) -> tuple[Floats, float]:
    """Measure E[x xᵀ] around the public centre, and return it with its noise level; the count is known and costs 0."""
    released = measure_points(points, pure(epsilon), weight=NO_WEIGHT)
    return released.matrices()[0][1:, 1:] / len(points), noise_level(released) / len(points)


def noise_level(released: Released) -> float:
    """Return the operator norm of the noise on one block, in records."""
    return gram_mechanism(released.event.mechanism).expected_error(released.event).operator


def laplace_level(scale: float, dimension: int) -> float:
    """Return the operator norm of symmetrised independent Laplace noise on every cell, by the semicircle law."""
    return 2 * scale * math.sqrt(dimension)


def repaired(matrix: Floats, level: float) -> Floats:
    """Return a covariance from a noisy one; eigenvalues below the noise level are replaced by their mean."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    low = values <= level
    values[low] = max(0.0, float(values[low].mean())) if low.any() else 0.0
    known: Floats = (vectors * values) @ vectors.T
    return (known + known.T) / 2


def leading(matrix: Floats, count: int) -> Floats:
    """Return the eigenvectors of the largest eigenvalues of the symmetric part."""
    vectors: Floats = np.linalg.eigh((matrix + matrix.T) / 2)[1][:, ::-1][:, :count]
    return vectors


def noisy_mean(points: Floats, epsilon: float) -> Floats:
    """Return the mean of points with Laplace noise on every coordinate."""
    layout = GramLayout(points.shape[1] + 1, 1, NO_WEIGHT)
    event = LAPLACE_SUMS.calibrate(layout, RELATION, pure(epsilon))
    sums: Floats = measure_gram(gram_of(points, layout), event, SystemNoise()).counts_and_sums()[1][0]
    return sums / len(points)


# ---- RON-Gauss ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RonMap:
    """RON-Gauss's map of rows: scale to length 1, subtract a noisy centre, scale to length 1 again, and project."""

    centre: Floats
    basis: Floats

    def __call__(self, rows: Floats) -> Floats:
        """Projected points of the unit ball."""
        return unit_length(unit_length(rows) - self.centre) @ self.basis


def unit_length(rows: Floats) -> Floats:
    """Return each row scaled to length 1; a row of length 0 stays."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1.0)


@dataclass(frozen=True, slots=True)
class Gaussians:
    """One Gaussian per class, to draw from."""

    weights: Floats
    means: Floats
    covariances: Floats

    def sample(self, rows: int, generator: Generator) -> tuple[Floats, Codes]:
        """Points and their classes."""
        classes = generator.choice(len(self.weights), size=rows, p=self.weights)
        normals = generator.standard_normal((rows, self.means.shape[1]))
        points = np.empty_like(normals)
        for label in range(len(self.weights)):
            values, vectors = np.linalg.eigh(self.covariances[label])
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            mine = classes == label
            points[mine] = self.means[label] + normals[mine] @ root.T
        return points, classes


def ron_unsupervised(
    rows: Floats, dimension: int, mean_epsilon: float, epsilon: float, generator: Generator
) -> tuple[RonMap, Gaussians]:
    """Algorithm 3, corrected: the centre by Laplace sums, the second moment by the Wishart difference."""
    basis = haar_basis(rows.shape[1], dimension, generator)
    space = RonMap(noisy_mean(unit_length(rows), mean_epsilon), basis)
    return space, centred_gaussian(*noisy_second_moment(space(rows), epsilon))


def published_ron_unsupervised(
    rows: Floats, dimension: int, epsilon: float, generator: Generator
) -> tuple[RonMap, Gaussians]:
    """Algorithm 3 as printed, with Lemma 4: refuted."""
    basis = haar_basis(rows.shape[1], dimension, generator)
    space = RonMap(published_mean(unit_length(rows), 0.3 * epsilon, generator), basis)
    noisy = published.ron_gauss(space(rows), epsilon=0.7 * epsilon, draws=1, rng=generator)[0]
    return space, centred_gaussian(noisy / len(rows), _ron_level(dimension, epsilon) / len(rows))


def _ron_level(dimension: int, epsilon: float) -> float:
    return laplace_level(2 * math.sqrt(dimension) / (0.7 * epsilon), dimension)


def published_mean(rows: Floats, epsilon: float, generator: Generator) -> Floats:
    """Lemma 2: Lap(2 sqrt(m) / (n eps)) on every coordinate of the mean; true."""
    scale = 2 * math.sqrt(rows.shape[1]) / (len(rows) * epsilon)
    mean: Floats = rows.mean(axis=0) + generator.laplace(scale=scale, size=rows.shape[1])
    return mean


def centred_gaussian(second: Floats, level: float) -> Gaussians:
    """Return one Gaussian around 0."""
    return Gaussians(np.ones(1), np.zeros((1, len(second))), repaired(second, level)[None])


def ron_supervised(
    rows: Floats, targets: Floats, dimension: int, mean_epsilon: float, epsilon: float, generator: Generator
) -> tuple[RonMap, Gaussians]:
    """Algorithm 4, corrected: (x, y) by the Wishart difference, with their mean in the same measurement."""
    basis = haar_basis(rows.shape[1], dimension, generator)
    space = RonMap(noisy_mean(unit_length(rows), mean_epsilon), basis)
    return space, joint_gaussian(space(rows), targets, epsilon)


def joint_gaussian(points: Floats, targets: Floats, epsilon: float) -> Gaussians:
    """Measure points of the unit ball and targets in [-1, 1] together."""
    both = np.column_stack([points, targets]) / math.sqrt(2)
    found = moments_of(measure_points(both, pure(epsilon)))
    return Gaussians(found.weights, found.means * math.sqrt(2), found.covariances * 2)


def published_ron_supervised(
    rows: Floats, targets: Floats, dimension: int, epsilon: float, generator: Generator
) -> tuple[RonMap, Gaussians]:
    """Algorithm 4 as printed, with Lemma 5: refuted. Neither points nor targets have a mean."""
    basis = haar_basis(rows.shape[1], dimension, generator)
    space = RonMap(published_mean(unit_length(rows), 0.3 * epsilon, generator), basis)
    noisy = published.ron_gauss_supervised(
        space(rows), targets, bound=1.0, epsilon=0.7 * epsilon, draws=1, rng=generator
    )[0]
    level = laplace_level((6 * math.sqrt(dimension) + 1) / (0.7 * epsilon), dimension + 1)
    return space, centred_gaussian(noisy / len(rows), level / len(rows))


def ron_classes(
    rows: Floats, classes: Codes, class_count: int, dimension: int, epsilon: float, generator: Generator
) -> tuple[RonMap, Gaussians]:
    """Algorithm 5, corrected: one projection for all classes, and class blocks with counts and means inside."""
    basis = haar_basis(rows.shape[1], dimension, generator)
    space = RonMap(np.zeros(rows.shape[1]), basis)
    return space, class_gaussians(space(rows), classes, class_count, epsilon)


def class_gaussians(points: Floats, classes: Codes, class_count: int, epsilon: float) -> Gaussians:
    """Measure the class blocks of points of the unit ball together."""
    return moments_of(measure_points(points, pure(epsilon), classes=classes, class_count=class_count))


def moments_of(released: Released) -> Gaussians:
    """Return counts, means and repaired covariances from Gram blocks; a class with less than one row is empty."""
    weight, level = float(released.event.layout.count_weight), noise_level(released)
    blocks = released.matrices()
    counts = np.maximum(blocks[:, 0, 0] / weight**2, 0.0)
    means, covariances = np.zeros(blocks[:, 0, 1:].shape), np.zeros(blocks[:, 1:, 1:].shape)
    for label in np.flatnonzero(counts >= 1):
        mean = blocks[label, 0, 1:] / weight / counts[label]
        means[label] = mean / max(1.0, float(np.linalg.norm(mean)))
        second = blocks[label, 1:, 1:] / counts[label] - np.outer(means[label], means[label])
        covariances[label] = repaired(second, level / counts[label])
    counts = np.where(counts >= 1, counts, 0.0)
    return Gaussians(
        counts / counts.sum() if counts.any() else np.full(len(counts), 1 / len(counts)), means, covariances
    )


def published_ron_classes(
    rows: Floats, classes: Codes, class_count: int, dimension: int, epsilon: float, generator: Generator
) -> tuple[RonMap, Gaussians]:
    """Algorithm 5 as printed, but with one projection: refuted, and it discloses exact class sizes."""
    basis = haar_basis(rows.shape[1], dimension, generator)
    normal = unit_length(rows)
    means, covariances = np.zeros((class_count, dimension)), np.zeros((class_count, dimension, dimension))
    sizes = np.bincount(classes, minlength=class_count)
    for label in np.flatnonzero(sizes):
        mine = normal[classes == label]
        centre = published_mean(mine, 0.3 * epsilon, generator)
        points = unit_length(mine - centre) @ basis
        noisy = published.ron_gauss(points, epsilon=0.7 * epsilon, draws=1, rng=generator)[0]
        level = _ron_level(dimension, epsilon) / len(mine)
        means[label], covariances[label] = centre @ basis, repaired(noisy / len(mine), level)
    return RonMap(np.zeros(rows.shape[1]), basis), Gaussians(sizes / sizes.sum(), means, covariances)


def encoded(data: Dataset, frame: pd.DataFrame) -> Floats:
    """Return a data set's feature columns as points of the unit ball."""
    encoding = Encoding(data.schema)
    points = encoding.encode(data.cells(frame))
    return points[:, : encoding.feature_width]
