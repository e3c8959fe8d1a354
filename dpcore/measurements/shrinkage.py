"""Shrinkage of noisy covariances and class means, given the known size of their noise.

Post-processing of released moments. A covariance is modelled as low-rank plus diagonal:
directions that exceed the noise keep their variance minus the part that the noise added, and
columns keep different variances as far as these differ by more than the noise. Class means
are shrunk in every direction by the share of their spread that noise explains there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.records.schema import Floats

SMALLEST = 1e-300
"""Lower bound of denominators, so that 0 / 0 is defined."""

MARGIN = 1.05
"""Directions count as signal above this multiple of the edge of the noise spectrum, which fluctuates."""

LEAST_VARIANCE = 0.1
"""Lower bound of a column's own variance, as a share of the columns' mean."""

SWEEPS = 4
"""Alternating fits of the low-rank part and the diagonal."""

RATIOS = (0.0, *np.geomspace(1e-3, 3.0, 40).tolist())
"""Candidate ratios of the class means' spread to the table's."""


@dataclass(frozen=True, slots=True)
class MatrixNoise:
    """Symmetric noise: standard deviation off the diagonal (sqrt 2 times that on it) and largest eigenvalue."""

    entry: float
    edge: float

    @staticmethod
    def on_points(event: GramEvent, size: int, blocks: int = 1) -> MatrixNoise:
        """Return the noise on the second moment of `size` coordinates, summed over `blocks` blocks."""
        expected, root = gram_mechanism(event.mechanism).expected_error(event), math.sqrt(blocks)
        edge = expected.operator * math.sqrt(size / event.layout.dimension)
        return MatrixNoise(root * expected.off_diagonal_sd, root * edge)

    def over(self, rows: float) -> MatrixNoise:
        """Return the noise on a mean over `rows` rows."""
        return MatrixNoise(self.entry / rows, self.edge / rows)


def denoised_covariance(matrix: Floats, noise: MatrixNoise) -> Floats:
    """Return a low-rank plus diagonal, positive semidefinite estimate; without noise the matrix itself.

    A direction whose excess v over the diagonal is above the edge of the noise is kept with the excess
    sqrt(v² - edge²), which minimises the squared error: noise has both lengthened and turned it.
    """
    size, trace = len(matrix), max(float(np.trace(matrix)), 0.0)
    diagonal, low_rank = np.full(size, trace / size), np.zeros_like(matrix)
    for _ in range(SWEEPS):
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2 - np.diag(diagonal))
        seen = np.abs(values) > MARGIN * noise.edge
        kept, excess = vectors[:, seen], values[seen]
        low_rank = (kept * np.sign(excess) * np.sqrt(excess**2 - noise.edge**2)) @ kept.T
        diagonal = _shrunk_variances(np.diag(matrix - low_rank), noise)
    return _repair_semidefinite(low_rank + np.diag(diagonal))


def _repair_semidefinite(matrix: Floats) -> Floats:
    """Return the matrix without negative eigenvalues, the others scaled down to keep the trace (if positive)."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    positive = np.maximum(values, 0.0)
    positive = positive * (max(float(values.sum()), 0.0) / max(float(positive.sum()), SMALLEST))
    repaired: Floats = (vectors * positive) @ vectors.T
    return (repaired + repaired.T) / 2


def _shrunk_variances(noisy: Floats, noise: MatrixNoise) -> Floats:
    """Return the variances shrunk towards their mean by the share of noise in their spread; the sum is kept."""
    mean = max(float(noisy.mean()), 0.0)
    drawn = mean + _james_stein(noisy - mean, 2 * len(noisy) * noise.entry**2)
    drawn = np.maximum(drawn, LEAST_VARIANCE * mean)
    return drawn * (mean * len(noisy) / max(float(drawn.sum()), SMALLEST))


def _james_stein(offsets: Floats, noise: float) -> Floats:
    """Return the James-Stein estimate: offsets shrunk by the share of the sum of squares that noise explains."""
    return offsets * max(0.0, 1.0 - noise / max(float(np.sum(offsets**2)), SMALLEST))


def shrunk_offsets(offsets: Floats, variances: Floats, spread: Floats) -> Floats:
    """Return the posterior means of the classes' offsets from the grand mean (empirical Bayes).

    The prior covariance of an offset is the table's covariance `spread` times a ratio, chosen by maximum
    likelihood: where the table varies little, classes hardly differ. `variances` are the variances of
    the noise on each class's mean; infinite for an empty class, whose offset is then 0.
    """
    scales, directions = np.linalg.eigh(spread)
    scales = np.maximum(scales, 0.0)
    along, known = offsets @ directions, np.isfinite(variances)

    def likelihood(ratio: float) -> float:
        expected = np.maximum(ratio * scales + variances[known, None], SMALLEST)
        return float(-np.sum(np.log(expected) + along[known] ** 2 / expected))

    signal = max(RATIOS, key=likelihood) * scales
    share = np.zeros_like(along)
    share[known] = signal / np.maximum(signal + variances[known, None], SMALLEST)
    shrunk: Floats = (along * share) @ directions.T
    return shrunk


@dataclass(frozen=True, slots=True)
class Directions:
    """Orthonormal directions, one per column, and the sine of the angle by which noise may have turned each."""

    columns: Floats
    tilts: Floats


def certain_directions(offsets: Floats, sums: Floats, deviation: float) -> Directions | None:
    """Return the directions in which class means differ, or None unless every one of them exceeds the noise.

    `offsets` are shrunk; `sums` are the measured offsets of the classes' sums, whose entries have noise of
    standard deviation `deviation`. If some direction is lost in noise, an accurate covariance in the others
    would only make a classifier rely on the lost one.
    """
    classes, size = offsets.shape
    count = min(classes - 1, size)
    columns = np.linalg.svd(offsets, full_matrices=False)[2][:count].T
    lengths, edge = np.linalg.norm(sums @ columns, axis=0), deviation * (math.sqrt(classes) + math.sqrt(size))
    return Directions(columns, edge / lengths) if count and np.all(lengths > edge) else None


def shared_covariance(matrix: Floats, noise: MatrixNoise, means: Directions | None) -> Floats:
    """Return the covariance that the classes share; `means` are the directions in which their means surely differ.

    Class means are known better than the covariance, and classes often vary most in the directions in which they
    differ. The few `means` directions then form a block of their own, which has little noise and is shrunk towards
    the average variance of the other directions; the complement is denoised separately. If the covariance between
    the two exceeds what noise, and the tilt of the directions by noise, explain, the whole matrix is denoised at once.
    """
    if means is None:
        return denoised_covariance(matrix, noise)
    size, count = means.columns.shape
    outside = np.eye(size) - means.columns @ means.columns.T
    rest = outside @ denoised_covariance(outside @ matrix @ outside, noise) @ outside
    average = float(np.trace(rest)) / max(size - count, 1) * np.eye(count)
    inside = means.columns.T @ matrix @ means.columns - average
    inside = average + _james_stein(inside, count * (count + 1) * noise.entry**2)
    explained = noise.entry * (math.sqrt(size) + math.sqrt(count)) + means.tilts * np.linalg.norm(inside, axis=0)
    if np.any(np.linalg.norm(outside @ matrix @ means.columns, axis=0) > explained):
        return denoised_covariance(matrix, noise)
    return _repair_semidefinite(rest + means.columns @ inside @ means.columns.T)
