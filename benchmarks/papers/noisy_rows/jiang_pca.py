"""Differential PCA of Jiang et al. (002) on adult: components from noisy moments, and noisy rows along them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.common import Floats, run_seed
from benchmarks.datasets import Dataset
from benchmarks.papers import epsilon as true_epsilon
from benchmarks.papers.methods import RELATION, leading, measure_points, moments_of, pure
from benchmarks.papers.table import Method, Pair, Scores
from dpcore.auditing import refuted as published
from dpcore.estimators.local_rows import RowBasis, publish_rows
from dpcore.measure import measure_vector
from dpcore.mechanisms.queries import GRID
from dpcore.mechanisms.vectors import JIANG_LAPLACE, UnitCoordinates, exact_moments
from dpcore.noise.sources import SystemNoise, public_generator
from dpcore.records.encoding import Encoding
from dpcore.records.schema import NominalColumn, RecordSchema, Role
from dpcore.synthesis.jiang_greedy import PooledMoments

LEFT_OUT = ("occupation", "native_country")
COMPONENTS = 5
RELEASED = 800
"""Number of rows that are released along the components."""

CAPTURED, ROWS = "captured", "-row error"


def narrowed(data: Dataset) -> Dataset:
    """Return the columns that the paper keeps, numbers first."""
    kept = [column for column in data.schema.columns if column.name not in LEFT_OUT]
    return replace(data, schema=RecordSchema(tuple(kept)))


def unit_points(data: Dataset, coordinates: UnitCoordinates) -> Floats:
    """Return training rows in the paper's coordinates: numbers in [0, 1], and indicators."""
    return coordinates.records(data.cells(data.train)) / GRID


def column_counts(data: Dataset) -> tuple[int, int]:
    """Return the numbers of numeric and of categorical features."""
    features = [column for column in data.schema.columns if column.role is Role.FEATURE]
    categorical = sum(isinstance(column, NominalColumn) for column in features)
    return len(features) - categorical, categorical


def noisy_moments(data: Dataset, coordinates: UnitCoordinates, epsilon: float) -> PooledMoments:
    """Measure mean and second moments of the training rows, at the true sensitivity."""
    event = JIANG_LAPLACE.calibrate(coordinates.query(1), RELATION, pure(epsilon))
    answer = exact_moments([data.cells(data.train)], coordinates, 1)
    return PooledMoments.of_vector(measure_vector(answer, event, SystemNoise()))


def published_moments(
    data: Dataset, coordinates: UnitCoordinates, epsilon: float, generator: np.random.Generator
) -> PooledMoments:
    """The same with the paper's calibration for categories: refuted."""
    plain = unit_points(data, coordinates)
    p1, p2 = column_counts(data)
    indicators = [place for first, end in coordinates.blocks for place in range(first, end)]
    order = np.concatenate([np.setdiff1d(np.arange(plain.shape[1]), indicators), np.sort(indicators)])
    flat = published.jiang_categorical(
        plain[:, order[:p1]], plain[:, order[p1:]], categorical=p2, epsilon=epsilon, draws=1, rng=generator
    )[0]
    size = len(order)
    square = np.zeros((size, size))
    square[np.triu_indices(size)] = flat[size:]
    square = square + np.triu(square, 1).T
    back = np.argsort(order)
    mean = np.clip(flat[:size] / len(plain), 0.0, 1.0)[back]
    return PooledMoments(np.ones(1), mean[None], (square / len(plain))[np.ix_(back, back)])


def pca_table(data: Dataset) -> tuple[list[Method], list[Pair]]:
    """Return the table of directions from half of epsilon, by several calibrations, and of noisy rows along them."""
    coordinates = UnitCoordinates(Encoding(data.schema))
    points = coordinates.encoded(unit_points(data, coordinates))
    centred = points - points.mean(axis=0)
    covariance = centred.T @ centred / len(points)
    best = float(np.linalg.eigvalsh(covariance)[-COMPONENTS:].sum())
    p1, p2 = column_counts(data)

    def judged(mean: Floats, found: Floats) -> Scores:
        directions = leading(found, COMPONENTS)
        basis = RowBasis.of(directions, mean)
        some = points[:RELEASED]
        released = publish_rows(some, basis, pure(0.5), SystemNoise())
        lifted = basis.lift(released.numbers().reshape(len(some), COMPONENTS))
        error = float(np.mean(((lifted - some) ** 2).sum(axis=1)))
        return {CAPTURED: float(np.trace(directions.T @ covariance @ directions)) / best, ROWS: -error}

    def exact(_: int) -> Scores:
        return judged(points.mean(axis=0), covariance)

    def of_pooled(moments: PooledMoments) -> Scores:
        return judged(
            coordinates.encoded(moments.means[0]), moments.within * np.outer(coordinates.scale, coordinates.scale)
        )

    def jiang(epsilon: float) -> Callable[[int], Scores]:
        return lambda _: of_pooled(noisy_moments(data, coordinates, epsilon))

    def jiang_published(run: int) -> Scores:
        generator = public_generator(run_seed("jiang", run), "published")
        return of_pooled(published_moments(data, coordinates, 0.5, generator))

    def wishart(epsilon: float) -> Callable[[int], Scores]:
        def run_once(_: int) -> Scores:
            found = moments_of(measure_points(points, pure(epsilon)))
            return judged(found.means[0], found.covariances[0])

        return run_once

    truth = true_epsilon.jiang_categorical(p1, p2, 0.5)
    at = f"{truth:.2f}"
    methods = [
        Method("exact directions", "", "", exact),
        Method("differential PCA, corrected", "0.5", "0.5", jiang(0.5)),
        Method("differential PCA, published, refuted", "0.5", at, jiang_published),
        Method(f"differential PCA, corrected at {at}", at, at, jiang(truth)),
        Method(f"Wishart difference at {at}", at, at, wishart(truth)),
    ]
    return methods, [Pair(f"Wishart difference at {at}", "differential PCA, published, refuted", (CAPTURED,))]
