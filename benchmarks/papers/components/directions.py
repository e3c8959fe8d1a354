"""Rows in the unit ball, and what the mechanisms of Imtiaz and Sarwate (003) and Xu et al. (004) release of them.

Second moments are around a public origin and rows are scaled by public bounds; the papers centre by the exact mean
and scale by the exact largest norm, which reveals rows. Published calibrations run at their claim. Their noise is
seeded by a public generator; that of the library's mechanisms never is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Floats
from benchmarks.datasets import load
from benchmarks.papers.baselines import SHRUNK, small_pictures
from benchmarks.papers.methods import RELATION, gaussian, gram_of, leading, measure_points, noise_level, pure
from dpcore.auditing import refuted as published
from dpcore.measure import measure_gram
from dpcore.mechanisms.registry import basis_mechanism
from dpcore.noise.sources import SystemNoise, public_generator
from dpcore.planning.layouts import NO_WEIGHT
from dpcore.records.exact_sums import GramLayout

Labels = NDArray[np.int64]
Generator = np.random.Generator

DELTA = 1e-5
STEPS = 6
"""Steps of the published power method, as in the library; its paper gives their order by exact singular values."""

QUICK_ROWS = 1_000


# ---- rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Space:
    """The public map of a data set's rows into the unit ball, and how many directions are released."""

    rows: int
    squared_radius: Callable[[int], float]
    origin: float = 0.0
    components: int = 10
    shrink: int = 1


SPACES = {
    "covertype": Space(20_000, lambda _: 12.0),  # ten numbers and two indicators of 1
    "mnist": Space(10_000, lambda features: features / 2, origin=-1.0, components=50, shrink=2),
    "waveform40": Space(3_750, lambda features: features / 2),
    "semeion": Space(1_194, lambda features: features / 2, origin=-1.0, shrink=SHRUNK["semeion"]),
    "gfe": Space(1_567, lambda features: features / 2),
}
"""Rows, squared length to which rows are clipped (in half-widths of the columns), origin (black in pictures),
directions (003 has 10 for covertype and 50 for mnist), and the factor by which pictures are scaled down."""

SYNTHETIC = "synthetic"
SYNTHETIC_ROWS, SYNTHETIC_FEATURES, SYNTHETIC_COMPONENTS = 60_000, 100, 10
"""Of the synthetic set of 003."""

LEADING_SHARE = 0.91
"""The share of the synthetic variance along the ten leading directions: they are the fewest that reach 90 %."""

LONGEST = 3.0
"""The squared length to which synthetic rows are clipped, over its expectation; about 1 row in 600 is longer."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Points of the unit ball with labels, and held-out ones; `cube` are the same rows in [-1, 1]."""

    points: Floats
    labels: Labels
    test: Floats
    truth: Labels
    cube: Floats
    components: int

    @property
    def features(self) -> int:
        """Number of columns."""
        return int(self.points.shape[1])

    @property
    def second(self) -> Floats:
        """The exact second moment, as a sum."""
        return self.points.T @ self.points

    def first(self, count: int) -> Rows:
        """Return the data with fewer training rows."""
        return Rows(self.points[:count], self.labels[:count], self.test, self.truth, self.cube[:count], self.components)


def rows_of(name: str, *, quick: bool, full: bool = False, rows: int | None = None) -> Rows:
    """Return a data set's rows in the unit ball; `rows` is the largest number of training rows, if not the usual."""
    if name == SYNTHETIC:
        return synthetic_rows(QUICK_ROWS if quick else rows or SYNTHETIC_ROWS)
    space = SPACES[name]
    data = load(name, train_rows=None if full else QUICK_ROWS if quick else rows or space.rows, test_rows=2_000)
    data = data if full else small_pictures(data, space.shrink)
    cube, test = data.features(data.train), data.features(data.test)
    train_labels, test_labels = data.outcomes(data.train), data.outcomes(data.test)
    return Rows(inside(cube, space), train_labels, inside(test, space), test_labels, cube, space.components)


def inside(cube: Floats, space: Space) -> Floats:
    """Return rows of the cube as points of the unit ball."""
    points = (cube - space.origin) / (1 - space.origin)
    return clipped(points / math.sqrt(space.squared_radius(cube.shape[1])))


def clipped(points: Floats) -> Floats:
    """Return points with those outside the unit ball scaled to length 1."""
    inner: Floats = points / np.maximum(1.0, np.linalg.norm(points, axis=1, keepdims=True))
    return inner


def synthetic_spectrum() -> Floats:
    """Return the eigenvalues of the synthetic covariance, with a trace of 1.

    003 gives the dimension 100 and says that 10 directions hold 90 % of the variance, but not the covariance. Here
    ten eigenvalues fall linearly, as 10, 9, ..., 1, and hold 91 %; ninety equal ones hold the rest.
    """
    first = np.arange(SYNTHETIC_COMPONENTS, 0, -1.0)
    rest = SYNTHETIC_FEATURES - SYNTHETIC_COMPONENTS
    return np.concatenate([first / first.sum() * LEADING_SHARE, np.full(rest, (1 - LEADING_SHARE) / rest)])


def synthetic_basis() -> Floats:
    """Return the eigenvectors of the synthetic covariance: a rotation drawn with a public seed."""
    normals = public_generator("003", "rotation").standard_normal((SYNTHETIC_FEATURES, SYNTHETIC_FEATURES))
    return np.linalg.qr(normals)[0]


def synthetic_rows(count: int) -> Rows:
    """Draw Gaussian rows around 0 with a public seed, and scale and clip them into the unit ball."""
    normals = public_generator("003", "rows").standard_normal((count, SYNTHETIC_FEATURES))
    points = clipped(normals * np.sqrt(synthetic_spectrum() / LONGEST) @ synthetic_basis().T)
    cube = np.clip(points * math.sqrt(LONGEST * SYNTHETIC_FEATURES) / 4, -1.0, 1.0)  # four mean deviations of a column
    none = np.zeros(0, dtype=np.int64)
    return Rows(points, none, points[:0], none, cube, SYNTHETIC_COMPONENTS)


# ---- directions -----------------------------------------------------------------------------------

Directions = Callable[[Rows, float, Generator], Floats]
Noisy = Callable[[Rows, float, Generator], Floats]
"""A noisy second moment, as a sum."""


def exact(rows: Rows, _: float, __: Generator) -> Floats:
    """Return the second moment without noise, which is not private."""
    return rows.second


def measured(rows: Rows, epsilon: float, mechanism: str) -> tuple[Floats, float]:
    """Measure the second moment by a mechanism of the registry, and return it with the operator norm of its noise."""
    budget = gaussian(epsilon, DELTA) if mechanism == "gaussian" else pure(epsilon)
    released = measure_points(rows.points, budget, mechanism=mechanism, weight=NO_WEIGHT)
    return released.matrices()[0][1:, 1:], noise_level(released)


def by_gram(mechanism: str) -> Noisy:
    """Return the measurement of second moments by a mechanism of the registry."""

    def noisy(rows: Rows, epsilon: float, _: Generator) -> Floats:
        return measured(rows, epsilon, mechanism)[0]

    return noisy


def published_sn(rows: Rows, epsilon: float, generator: Generator) -> Floats:
    """SN: refuted."""
    noisy: Floats = published.sn(rows.points, epsilon=epsilon, draws=1, rng=generator)[0]
    return noisy


def published_lip(rows: Rows, epsilon: float, generator: Generator) -> Floats:
    """LIP's matrix, without the rows, which it releases along the leading directions without noise."""
    scale = 2 * rows.features / epsilon
    return rows.second + symmetric(generator.laplace(scale=scale, size=(rows.features, rows.features)))


def published_lap_pca(rows: Rows, epsilon: float, generator: Generator) -> Floats:
    """Lap-PCA on rows of the cube around the middle of the bounds: refuted."""
    noisy: Floats = published.lap_pca(rows.cube, epsilon=epsilon, draws=1, rng=generator)[0]
    return noisy


def published_ag(rows: Rows, epsilon: float, generator: Generator) -> Floats:
    """Analyze Gauss with the classical formula and the sensitivity of add-remove."""
    deviation = math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon
    return rows.second + symmetric(generator.normal(scale=deviation, size=(rows.features, rows.features)))


def symmetric(noise: Floats) -> Floats:
    """Return a matrix with the upper triangle copied to the lower one."""
    upper: Floats = np.triu(noise)
    return upper + np.triu(noise, 1).T


def leading_of(noisy: Noisy) -> Directions:
    """Return a method: the leading directions of a noisy second moment."""

    def directions(rows: Rows, epsilon: float, generator: Generator) -> Floats:
        return leading(noisy(rows, epsilon, generator), rows.components)

    return directions


def random_directions(rows: Rows, _: float, generator: Generator) -> Floats:
    """Draw random directions."""
    return np.linalg.qr(generator.standard_normal((rows.features, rows.components)))[0]


def by_basis(mechanism: str) -> Directions:
    """Return a method: the directions that a mechanism of the registry releases."""

    def directions(rows: Rows, epsilon: float, _: Generator) -> Floats:
        layout = GramLayout(rows.features + 1, 1, Fraction(1))
        budget = gaussian(epsilon, DELTA) if mechanism == "noisy-power-method" else pure(epsilon)
        event = basis_mechanism(mechanism).calibrate(layout, RELATION, budget, components=rows.components)
        return np.linalg.qr(measure_gram(gram_of(rows.points, layout), event, SystemNoise()).basis())[0]

    return directions


def published_ppm(rows: Rows, epsilon: float, generator: Generator) -> Floats:
    """The private power method of Hardt and Price, calibrated for one changed entry."""
    matrix = rows.second
    deviation = math.sqrt(4 * rows.components * STEPS * math.log(1 / DELTA)) / epsilon
    frame = np.linalg.qr(generator.standard_normal((len(matrix), rows.components)))[0]
    for _ in range(STEPS):
        noise = generator.normal(scale=deviation * np.abs(frame).max(), size=frame.shape)
        frame = np.linalg.qr(matrix @ frame + noise)[0]
    return frame


WISHART, LAPLACE, GAUSSIAN = by_gram("wishart-difference-trace"), by_gram("laplace"), by_gram("gaussian")
POWER, EXPONENTIAL = by_basis("noisy-power-method"), by_basis("exponential-pca")
