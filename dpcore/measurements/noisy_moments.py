"""Counts, means and covariances estimated from one noisy measurement, by post-processing.

A block of the measurement is the noisy sum of z zᵀ with z = (s, y): its corner is s²
times the number of units, its first row s times the sum of y, and the rest the second
moment. The estimates use two facts that hold for every table: covariances are positive
semidefinite, and points lie in the unit ball.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcore.measure import Released, ReleasedVector
from dpcore.measurements.shrinkage import (
    MatrixNoise,
    certain_directions,
    denoised_covariance,
    shared_covariance,
    shrunk_offsets,
)
from dpcore.records.schema import Floats


def nearest_covariance(matrix: Floats) -> Floats:
    """Return the nearest positive semidefinite matrix with the same trace (at least 0).

    Clipping negative eigenvalues alone would keep the positive half of the noise and raise
    the total variance. The trace is measured well, so keeping it lowers the other eigenvalues.
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    repaired: Floats = (vectors * onto_simplex(values, max(float(values.sum()), 0.0))) @ vectors.T
    return (repaired + repaired.T) / 2


def onto_simplex(values: Floats, sum_wanted: float) -> Floats:
    """Return the nearest non-negative values with the given sum."""
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - sum_wanted) / np.arange(1, len(values) + 1)
    kept = np.flatnonzero(descending - excess > 0)
    shift = excess[kept[-1]] if len(kept) else descending[0]
    nearest: Floats = np.maximum(values - shift, 0.0)
    return nearest


@dataclass(frozen=True, slots=True)
class ClassMoments:
    """Estimates for one class: its noisy size, mean, and covariance."""

    count: float
    mean: Floats
    covariance: Floats

    @staticmethod
    def from_block(block: Floats, count_weight: float, noise: MatrixNoise) -> ClassMoments:
        """Estimate the moments from one noisy block; a class of noisy size below 1 counts as empty."""
        size = block.shape[0] - 1
        count = float(block[0, 0]) / count_weight**2
        if count < 1:
            return ClassMoments(0.0, np.zeros(size), np.zeros((size, size)))
        mean = _point_in_ball(block[0, 1:] / count_weight / count)
        covariance = denoised_covariance(block[1:, 1:] / count - np.outer(mean, mean), noise.over(count))
        return ClassMoments(count, mean, covariance * _ball_factor(float(mean @ mean), covariance))


def pooled_moments(released: Released) -> ClassMoments:
    """Return the noisy moments over all classes, from which principal components are computed."""
    layout = released.event.layout
    block = _merge_heads(released.matrices().sum(axis=0), layout.heads)
    noise = MatrixNoise.on_points(released.event, len(block) - 1, layout.blocks)
    return ClassMoments.from_block(block, float(layout.count_weight), noise)


def _merge_heads(block: Floats, heads: int) -> Floats:
    """Return the block with its label coordinates summed into one; entries between two labels are known to be 0."""
    size = block.shape[0] - heads
    result = np.zeros((size + 1, size + 1))
    result[0, 0] = np.trace(block[:heads, :heads])
    result[0, 1:] = result[1:, 0] = block[:heads, heads:].sum(axis=0)
    result[1:, 1:] = block[heads:, heads:]
    return result


def _labelled_moments(block: Floats, labels: int, weight: float, noise: MatrixNoise) -> tuple[ClassMoments, ...]:
    """Estimate every class's count and mean from one block with labels, and the covariance that the classes share."""
    size = block.shape[0] - labels
    counts = np.diag(block)[:labels] / weight**2
    counts = np.where(counts >= 1, counts, 0.0)  # a class of noisy size below 1 counts as empty
    total = float(counts.sum())
    if not total:
        return (ClassMoments(0.0, np.zeros(size), np.zeros((size, size))),) * labels
    shares, full = counts / total, counts > 0
    sums, deviation = block[:labels, labels:] / weight, noise.entry / weight
    centre = _point_in_ball(sums.sum(axis=0) / total)
    second = block[labels:, labels:] / total - np.outer(centre, centre)
    noise = noise.over(total)
    apart = sums - counts[:, None] * centre
    variances = np.where(full, (deviation / np.maximum(counts, 1.0)) ** 2, np.inf)
    raw = np.divide(apart, counts[:, None], out=np.zeros_like(apart), where=full[:, None])
    offsets = shrunk_offsets(raw, variances, denoised_covariance(second, noise))
    sure = certain_directions((offsets * np.sqrt(shares)[:, None])[full], apart[full], deviation)
    between = (offsets.T * shares) @ offsets
    within = shared_covariance(second - between, noise, sure)
    means = np.array([_point_in_ball(centre + offset) for offset in offsets])
    within = within * _ball_factor(float(shares @ np.sum(means**2, axis=1)), within)
    return tuple(ClassMoments(float(count), mean, within) for count, mean in zip(counts, means, strict=True))


def _point_in_ball(point: Floats) -> Floats:
    """Return the point, clipped to the unit ball."""
    return point / max(1.0, float(np.linalg.norm(point)))


def _ball_factor(squared_mean: float, covariance: Floats) -> float:
    """Return the factor that shrinks a covariance so that points can lie in the unit ball."""
    room, trace = max(0.0, 1.0 - squared_mean), float(np.trace(covariance))
    return room / trace if trace > room else 1.0


def _replace_sums(blocks: Floats, sums: Released, count_weight: float) -> Floats:
    """Return the blocks with the counts and sums of another measurement in their first rows and columns."""
    counts, totals = sums.counts_and_sums()
    result = blocks.copy()
    result[:, 0, 0] = counts * count_weight**2
    result[:, 0, 1:] = result[:, 1:, 0] = totals * count_weight
    return result


@dataclass(frozen=True, slots=True)
class NoisyMoments:
    """The noisy moments of every class: the only input that generators accept."""

    classes: tuple[ClassMoments, ...]
    released: Released
    sums: Released | None = None
    marginals: ReleasedVector | None = None
    """Histograms of every column, if the moments are those of grouped records."""
    basis: Floats | None = None
    """The basis onto which the measured coordinates were projected afterwards, if any."""

    @staticmethod
    def from_released(released: Released, basis: Floats | None = None, sums: Released | None = None) -> NoisyMoments:
        """Estimate the moments from a measurement of Gram blocks.

        `basis` projects blocks that were measured in more coordinates; `sums` are separately
        measured counts and sums, which replace those of the blocks.
        """
        layout, blocks = released.event.layout, released.matrices()
        weight, heads = float(layout.count_weight), layout.heads
        if sums is not None:
            blocks = _replace_sums(blocks, sums, weight)
        if basis is not None:
            whole = np.zeros((basis.shape[0] + heads, basis.shape[1] + heads))
            whole[:heads, :heads], whole[heads:, heads:] = np.eye(heads), basis
            blocks = whole.T @ blocks @ whole
        noise = MatrixNoise.on_points(released.event, blocks.shape[1] - heads)
        if layout.labels:
            return NoisyMoments(_labelled_moments(blocks[0], heads, weight, noise), released, basis=basis)
        classes = tuple(ClassMoments.from_block(block, weight, noise) for block in blocks)
        return NoisyMoments(classes, released, sums, basis=basis)

    @property
    def count(self) -> float:
        """Noisy number of privacy units over all classes; of kept rows if a person may keep several."""
        return sum(moments.count for moments in self.classes)

    @property
    def weights(self) -> Floats:
        """Noisy share of each class; uniform if every class came out empty."""
        counts = np.array([moments.count for moments in self.classes])
        return counts / counts.sum() if counts.sum() > 0 else np.full(len(counts), 1 / len(counts))
