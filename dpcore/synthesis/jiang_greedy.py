"""Rows whose moments approximate noisy ones: the greedy sampler of Jiang et al., section 3.2.

Post-processing: it sees class counts, class means and a pooled second moment that are
released or public, never rows. Coordinates are those of `UnitCoordinates`: numbers in
[0, 1], and plain indicators of levels.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from dpcore.measure import ReleasedVector
from dpcore.measurements.noisy_moments import NoisyMoments, nearest_covariance
from dpcore.mechanisms.queries import MomentsQuery
from dpcore.mechanisms.vectors import UnitCoordinates
from dpcore.noise.sources import public_generator
from dpcore.records.schema import Codes, Floats

Block = tuple[int, int]

LEAST_SPREAD = 0.01
"""Lower bound of a column's spread, as a share of its width, for standardising."""

SWEEPS = 2
"""How often every value of a row is chosen; later sweeps condition on all other values."""


@dataclass(frozen=True, slots=True)
class PooledMoments:
    """Sizes and means of the classes, and the second moment E[x xᵀ] over all classes."""

    counts: Floats
    means: Floats
    second: Floats

    @property
    def weights(self) -> Floats:
        """Share of each class; uniform if every class came out empty."""
        total = float(self.counts.sum())
        return self.counts / total if total > 0 else np.full(len(self.counts), 1 / len(self.counts))

    @property
    def within(self) -> Floats:
        """The covariance that all classes share: the second moment minus that of the class means."""
        return nearest_covariance(self.second - (self.means.T * self.weights) @ self.means)

    @staticmethod
    def of_vector(released: ReleasedVector) -> PooledMoments:
        """Estimate the moments from Jiang's noisy statistics: noisy sums over noisy counts, never over exact ones."""
        query = released.event.query
        if not isinstance(query, MomentsQuery):
            raise ValueError("these are not the statistics of a moments query")
        numbers, classes, width = released.numbers(), query.classes, query.width
        counts = np.where(numbers[:classes] >= 1, numbers[:classes], 0.0)
        sums = numbers[classes : classes * (1 + width)].reshape(classes, width)
        total = max(float(counts.sum()), 1.0)
        everywhere = np.clip(sums.sum(axis=0) / total, 0.0, 1.0)
        known = counts[:, None] > 0
        means = np.where(known, np.clip(sums / np.maximum(counts, 1.0)[:, None], 0.0, 1.0), everywhere)
        return PooledMoments(counts, means, _symmetric_from_triangle(numbers[classes * (1 + width) :], width) / total)

    @staticmethod
    def of_gram(moments: NoisyMoments, coordinates: UnitCoordinates) -> PooledMoments:
        """Convert the moments of encoded points whose classes share a covariance."""
        counts = np.array([each.count for each in moments.classes])
        means = coordinates.from_encoded(np.array([each.mean for each in moments.classes]))
        within = moments.classes[0].covariance / np.outer(coordinates.scale, coordinates.scale)
        return PooledMoments(counts, means, within + (means.T * moments.weights) @ means)


def _symmetric_from_triangle(triangle: Floats, width: int) -> Floats:
    square = np.zeros((width, width))
    square[np.triu_indices(width)] = triangle
    return square + np.triu(square, 1).T


@dataclass(frozen=True, slots=True)
class GreedySampler:
    """Chooses rows one by one, each to bring the moments of all rows so far closest to the target.

    As in the paper, a row is built value by value, categorical columns first, and each value
    is optimal given the others. Unlike in the paper, the distance is a sum of squares over
    standardised columns. The gradient of an absolute difference does not grow with the
    deficit, and in raw columns each second moment is tied to its mean, so the paper's rows
    (`AbsoluteSampler`) stop approaching the target. `blocks` are the coordinates of each categorical column.
    """

    moments: PooledMoments
    blocks: tuple[Block, ...]

    def sample(self, rows: int, seed: str) -> tuple[Floats, Codes]:
        """Return points with numbers in [0, 1] and exactly one level per categorical column, and their classes."""
        return _grow(_GrowingTable(self.moments, self.blocks), rows, public_generator(seed, "greedy"))


@dataclass(frozen=True, slots=True)
class AbsoluteSampler:
    """The sampler as published: every value brings the L1 distance of raw moments to its minimum.

    A square z² counts as z times the class's mean, and a value that is not yet chosen as its class's mean, so that each
    term is |a z - b|: one of their zeros, 0 or 1 is optimal. Nothing is random but the order of the rows.
    """

    moments: PooledMoments
    blocks: tuple[Block, ...]

    def sample(self, rows: int, seed: str) -> tuple[Floats, Codes]:
        """Return points with numbers in [0, 1] and exactly one level per categorical column, and their classes."""
        return _grow(_AbsoluteTable(self.moments, self.blocks), rows, public_generator(seed, "greedy"))


SAMPLERS: dict[str, type[GreedySampler] | type[AbsoluteSampler]] = {
    "squares": GreedySampler,
    "absolute": AbsoluteSampler,
}
"""The greedy samplers, by the distance that they minimise."""


def _grow(growing: _ClassShares, rows: int, generator: np.random.Generator) -> tuple[Floats, Codes]:
    """Return the rows that a growing table chooses, in random order: early ones are rougher than late ones."""
    chosen = [growing.choose_class() for _ in range(rows)]
    points, classes = [growing.choose_point(label, generator) for label in chosen], np.array(chosen, dtype=np.int64)
    shuffled = generator.permutation(rows)
    return np.array(points)[shuffled], classes[shuffled]


class _ClassShares(ABC):
    """Chooses the classes of a growing table; subclasses choose its rows."""

    def __init__(self, wanted: PooledMoments, blocks: tuple[Block, ...]) -> None:
        self._weights, self._blocks = wanted.weights, blocks
        self._counts = np.zeros(len(self._weights))
        self._nominal = [i for start, stop in blocks for i in range(start, stop)]
        self._numeric = np.setdiff1d(np.arange(wanted.means.shape[1]), self._nominal)

    def choose_class(self) -> int:
        """Choose the class with the largest deficit of rows; shares are matched to within one row."""
        self._counts += self._weights
        chosen = int(np.argmax(self._counts))
        self._counts[chosen] -= 1
        return chosen

    @abstractmethod
    def choose_point(self, label: int, generator: np.random.Generator) -> Floats:
        """Choose the next row, of that class."""


class _GrowingTable(_ClassShares):
    """The deficit of the rows so far: (number of rows) times the target means, minus the sums, standardised."""

    def __init__(self, wanted: PooledMoments, blocks: tuple[Block, ...]) -> None:
        super().__init__(wanted, blocks)
        centre = self._weights @ wanted.means
        covariance = wanted.second - np.outer(centre, centre)
        spread = np.sqrt(np.maximum(np.diag(covariance), LEAST_SPREAD**2))
        self._means, self._second = (wanted.means - centre) / spread, covariance / np.outer(spread, spread)
        self._centre, self._spread = centre, spread
        self._ends = np.column_stack([-centre / spread, (1 - centre) / spread])
        values, vectors = np.linalg.eigh(wanted.within / np.outer(spread, spread))
        self._root = vectors * np.sqrt(np.maximum(values, 0.0))
        self._lack, self._lack_second = np.zeros_like(self._means), np.zeros_like(self._second)

    def choose_point(self, label: int, generator: np.random.Generator) -> Floats:
        """Choose the next row; values not yet chosen start at a random draw around the class's mean."""
        self._lack[label] += self._means[label]
        self._lack_second += self._second
        drawn = self._means[label] + self._root @ generator.standard_normal(len(self._root))
        point: Floats = np.clip(drawn, self._ends[:, 0], self._ends[:, 1])
        for _ in range(SWEEPS):
            for start, stop in self._blocks:
                point[start:stop] = self._best_level(label, start, stop, point)
            for i in generator.permutation(self._numeric).tolist():  # no feature always comes first
                point[i] = self._best_number(label, i, point)
        self._lack[label] -= point
        self._lack_second -= np.outer(point, point)
        plain: Floats = np.clip(self._centre + self._spread * point, 0.0, 1.0)
        plain[self._nominal] = np.rint(plain[self._nominal])
        return plain

    def _best_level(self, label: int, start: int, stop: int, point: Floats) -> Floats:
        """Return the column's coordinates at the level that leaves the smallest sum of squares."""
        column, others = slice(start, stop), point.copy()
        others[column] = 0.0
        low, high = self._ends[column].T
        trials = np.where(np.eye(stop - start, dtype=bool), high, low)  # one indicator 1, the rest 0
        pull = self._lack[label, column] + self._lack_second[column] @ others
        pairs = np.triu(self._lack_second[column, column] - trials[:, :, None] * trials[:, None, :])
        across = (1 + others @ others) * np.einsum("li,li->l", trials, trials) - 2 * trials @ pull
        best: Floats = trials[np.argmin(across + np.einsum("lij,lij->l", pairs, pairs))]
        return best

    def _best_number(self, label: int, i: int, point: Floats) -> float:
        """Return the value z that minimises the sum of (z - b)², (z² - q)² and (u z - b)² over the other values u."""
        own, lacks = float(point[i]), self._lack_second[i]
        others = float(point @ point) - own * own
        pull = float(self._lack[label, i] + lacks @ point) - float(lacks[i]) * own
        return _lowest(1 + others - 2 * float(lacks[i]), pull, *self._ends[i].tolist())


class _AbsoluteTable(_ClassShares):
    """The deficit of the rows so far in raw columns."""

    def __init__(self, wanted: PooledMoments, blocks: tuple[Block, ...]) -> None:
        super().__init__(wanted, blocks)
        self._means, self._second = wanted.means, wanted.second
        self._lack, self._lack_second = np.zeros_like(self._means), np.zeros_like(self._second)

    def choose_point(self, label: int, generator: np.random.Generator) -> Floats:
        """Choose the next row, categories first; values not yet chosen count as the class's mean."""
        self._lack[label] += self._means[label]
        self._lack_second += self._second
        point: Floats = np.clip(self._means[label], 0.0, 1.0)
        for start, stop in self._blocks:
            trials = [self._with_level(point, start, stop, level) for level in range(start, stop)]
            point = min(trials, key=lambda trial: self._level_gap(label, start, stop, trial))
        for i in self._numeric.tolist():
            point[i] = self._best_number(label, i, point)
        self._lack[label] -= point
        self._lack_second -= np.outer(point, point)
        return point

    @staticmethod
    def _with_level(point: Floats, start: int, stop: int, level: int) -> Floats:
        trial = point.copy()
        trial[start:stop] = 0.0
        trial[level] = 1.0
        return trial

    def _level_gap(self, label: int, start: int, stop: int, trial: Floats) -> float:
        """Return the terms of the L1 distance that a column's level changes; pairs inside the column count once."""
        column = slice(start, stop)
        gaps = np.abs(np.outer(trial[column], trial) - self._lack_second[column])
        gaps[:, column] = np.triu(gaps[:, column])
        return float(gaps.sum() + np.abs(trial[column] - self._lack[label, column]).sum())

    def _best_number(self, label: int, i: int, point: Floats) -> float:
        """Return the z in [0, 1] that minimises the sum of |a z - b| over the class sum and the second moments."""
        slopes, wanted = np.append(point, 1.0), np.append(self._lack_second[i], self._lack[label, i])
        zeros = wanted[slopes != 0] / slopes[slopes != 0]
        trials = np.concatenate([[0.0, 1.0], zeros[(zeros > 0) & (zeros < 1)]])
        return float(trials[np.argmin(np.abs(np.outer(trials, slopes) - wanted).sum(axis=1))])


def _lowest(bend: float, pull: float, low: float, high: float) -> float:
    """Return the minimiser of z⁴ + bend z² - 2 pull z in [low, high]: an end, or a root of 2z³ + bend z = pull."""
    trials = [low, high, *(min(high, max(low, z)) for z in _cubic_roots(bend / 2, -pull / 2))]
    return min(trials, key=lambda z: z**4 + bend * z * z - 2 * pull * z)


def _cubic_roots(p: float, q: float) -> list[float]:
    """Return the real roots of z³ + p z + q."""
    inside = q * q / 4 + p**3 / 27
    if inside >= 0:
        larger = -math.copysign(math.cbrt(abs(q) / 2 + math.sqrt(inside)), q)  # avoids cancellation
        return [larger - p / (3 * larger) if larger else 0.0]
    size = 2 * math.sqrt(-p / 3)
    angle = math.acos(max(-1.0, min(1.0, 3 * q / (p * size)))) / 3
    return [size * math.cos(angle - 2 * math.pi * k / 3) for k in range(3)]
