"""Noisy covariances and class means brought nearer to the truth by the known size of their noise.

Post-processing of released moments. A covariance is read as low-rank plus diagonal:
directions that rise above the noise keep their variance less what the noise added to it,
columns keep variances of their own as far as these differ by more than the noise. Class
means are shortened in every direction by the share of their spread that is noise there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.registry import gram_mechanism

Floats = NDArray[np.float64]

SMALLEST = 1e-300
"""Keeps a quotient of two zeros from being undefined."""

MARGIN = 1.05
"""Directions count from this many times the edge of the noise's spectrum: the edge itself wavers."""

LEAST_VARIANCE = 0.1
"""No column's own variance is taken for less than this share of their mean."""

SWEEPS = 4
"""Low-rank part and diagonal are fitted in turn, so often."""

RATIOS = (0.0, *np.geomspace(1e-3, 3.0, 40).tolist())
"""Ratios of the class means' spread to the table's that are tried."""


@dataclass(frozen=True, slots=True)
class MatrixNoise:
    """Symmetric noise: standard deviation off the diagonal (sqrt 2 times that on it) and largest eigenvalue."""

    entry: float
    edge: float

    @staticmethod
    def on_points(event: GramEvent, size: int, blocks: int = 1) -> MatrixNoise:
        """The noise on the second moment of `size` coordinates, measured or projected, in so many blocks together."""
        expected, root = gram_mechanism(event.mechanism).expected_error(event), math.sqrt(blocks)
        edge = expected.operator * math.sqrt(size / event.layout.dimension)
        return MatrixNoise(root * expected.off_diagonal_sd, root * edge)

    def over(self, rows: float) -> MatrixNoise:
        """The noise on a mean over so many rows."""
        return MatrixNoise(self.entry / rows, self.edge / rows)


def denoised_covariance(matrix: Floats, noise: MatrixNoise) -> Floats:
    """Low-rank plus diagonal and positive semidefinite; without noise the matrix itself.

    A direction's excess over the diagonal, v, counts where it is above the noise's edge, and is then
    brought down to sqrt(v² - edge²): best in squared error, since noise has both lengthened and turned it.
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
    """The matrix without its negative eigenvalues, the others shortened so that their sum stays (if positive)."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    positive = np.maximum(values, 0.0)
    positive = positive * (max(float(values.sum()), 0.0) / max(float(positive.sum()), SMALLEST))
    repaired: Floats = (vectors * positive) @ vectors.T
    return (repaired + repaired.T) / 2


def _shrunk_variances(noisy: Floats, noise: MatrixNoise) -> Floats:
    """Columns' variances drawn towards their mean by the share of their spread that is noise; the sum is kept."""
    mean = max(float(noisy.mean()), 0.0)
    drawn = mean + _james_stein(noisy - mean, 2 * len(noisy) * noise.entry**2)
    drawn = np.maximum(drawn, LEAST_VARIANCE * mean)
    kept: Floats = drawn * (mean * len(noisy) / max(float(drawn.sum()), SMALLEST))
    return kept


def _james_stein(offsets: Floats, noise: float) -> Floats:
    """James and Stein's estimate: shortened by the share of the sum of squares that is expected of noise alone."""
    return offsets * max(0.0, 1.0 - noise / max(float(np.sum(offsets**2)), SMALLEST))


def shrunk_offsets(offsets: Floats, variances: Floats, spread: Floats) -> Floats:
    """Class means' offsets from the grand mean, as expected given their noise.

    Offsets are taken to vary as the table does, `spread`, up to a ratio that makes what was measured
    likeliest: where the table varies little, classes hardly differ. `variances` are those of
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
    shortened: Floats = (along * share) @ directions.T
    return shortened


@dataclass(frozen=True, slots=True)
class Directions:
    """Orthonormal directions, one a column, and for each the sine of the angle by which noise may have turned it."""

    columns: Floats
    tilts: Floats


def certain_directions(offsets: Floats, sums: Floats, deviation: float) -> Directions | None:
    """The directions in which class means differ, if every one of them rises above the noise.

    `offsets` are shortened, `sums` the measured offsets of the classes' sums, whose entries carry
    noise of `deviation`. While some direction is lost in noise, a true covariance in the others
    would only make a classifier lean on the lost ones: then there is no answer.
    """
    classes, size = offsets.shape
    count = min(classes - 1, size)
    columns = np.linalg.svd(offsets, full_matrices=False)[2][:count].T
    lengths, edge = np.linalg.norm(sums @ columns, axis=0), deviation * (math.sqrt(classes) + math.sqrt(size))
    return Directions(columns, edge / lengths) if count and np.all(lengths > edge) else None


def shared_covariance(matrix: Floats, noise: MatrixNoise, means: Directions | None) -> Floats:
    """The covariance that classes share; `means` are the directions in which their means are surely apart.

    Class means are known better than the covariance, and often classes vary most in the very directions in
    which they differ. Then it is kept whole in these few, where it has little noise, drawn towards the others'
    average by what it has, and denoised apart from them in the others. That is so unless what one of them
    hangs together with the others is more than noise, and its being turned by noise, explain.
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
