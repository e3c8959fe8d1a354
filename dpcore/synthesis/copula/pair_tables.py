"""Estimates from a noisy Gram of grouped records: class sizes, class marginals, and pair tables of columns.

Post-processing. All estimates are linear in the released numbers until they are projected onto
distributions. A class's counts combine the Gram's count row, each column's own block and the
histograms by weighted least squares with their known variances. A pair table is the product of its
marginals plus an excess, whose noise is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcore.measure import Released
from dpcore.measurements.group_encoding import GroupedEncoding
from dpcore.measurements.noisy_moments import onto_simplex
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.records.schema import Floats

ROUNDING = 1e-6
"""Variance of the integer grid; keeps denominators positive."""


@dataclass(frozen=True, slots=True)
class PairTables:
    """Class sizes, group shares per class and column, and pair excesses per class as shares of all units.

    `shares`, `variances` and `pooled_variances` have one entry per column: shares of shape (classes, groups),
    the noise variance of a group's count in a class, and over all classes. `excess` has the shape (classes, groups
    of all columns, groups of all columns); a contrast of it has the noise variance `excess_variance`.
    """

    counts: Floats
    shares: list[Floats]
    variances: Floats
    pooled_variances: Floats
    excess: Floats
    excess_variance: float

    @property
    def total(self) -> float:
        """The noisy number of units."""
        return float(self.counts.sum())

    @property
    def weights(self) -> Floats:
        """Share of each class."""
        return self.counts / self.total


def pair_tables(released: Released, encoding: GroupedEncoding) -> PairTables:
    """Estimate the tables from a released Gram of grouped records, and from the histograms behind the groups."""
    blocks, noise = released.matrices(), gram_mechanism(released.event.mechanism).expected_error(released.event)
    weight, square = float(released.event.layout.count_weight), encoding.radius**2
    counts = np.maximum(blocks[:, 0, 0] / weight**2, 1.0)
    seconds, sums = blocks[:, 1:, 1:] * square, blocks[:, 0, 1:] * encoding.radius / weight
    of_sums = (noise.off_diagonal_sd * encoding.radius / weight) ** 2
    of_seconds = (noise.off_diagonal_sd * square) ** 2, (noise.diagonal_sd * square) ** 2
    of_counts = (noise.diagonal_sd / weight**2) ** 2
    noises = (of_counts, of_sums, *of_seconds)
    columns = [_class_shares(encoding, i, counts, sums, seconds, noises) for i in range(len(encoding.groups))]
    shares = [found for found, _, _ in columns]
    variances, pooled = (np.array([column[i] for column in columns]) for i in (1, 2))
    excess = np.array([_excess(encoding, k, counts, shares, seconds[k]) for k in range(len(counts))])
    of_excess = of_seconds[0] / (float(counts.sum()) * float(encoding.clipping_factors()[1])) ** 2
    return PairTables(counts, shares, variances, pooled, excess, of_excess)


def _class_shares(
    encoding: GroupedEncoding,
    index: int,
    counts: Floats,
    sums: Floats,
    seconds: Floats,
    noise: tuple[float, float, float, float],
) -> tuple[Floats, float, float]:
    """Return a column's group shares per class, and the mean noise variance of a group's count per class and in all."""
    column, place, corners = encoding.groups[index], encoding.slices[index], encoding.corners[index]
    if column.size == 1:
        return np.ones((len(counts), 1)), 0.0, 0.0
    design, variances = _column_design(corners, encoding.clipping_factors(index), noise)
    upper = np.triu_indices(column.size - 1)
    answers = np.array(
        [np.concatenate([[n], s[place], m[place, place][upper]]) for n, s, m in zip(counts, sums, seconds, strict=True)]
    )
    covariance = np.linalg.inv((design.T / variances) @ design)
    found = answers @ (covariance @ (design.T / variances)).T
    spread = len(counts) * covariance + np.diag(column.variances + ROUNDING)
    gap = column.counts - found.sum(axis=0)
    found = found + covariance @ np.linalg.solve(spread, gap)
    both = len(counts) * covariance - (len(counts) ** 2) * covariance @ np.linalg.solve(spread, covariance)
    covariance = covariance - covariance @ np.linalg.solve(spread, covariance)
    repaired = np.array([onto_simplex(row / n, 1.0) for row, n in zip(found, counts, strict=True)])
    return repaired, float(np.trace(covariance)) / column.size, float(np.trace(both)) / column.size


def _column_design(
    corners: Floats, kept: tuple[Floats, Floats], noise: tuple[float, float, float, float]
) -> tuple[Floats, Floats]:
    """Return the design matrix from a column's counts to count, sums and own second moments, and noise variances."""
    size, width = corners.shape
    of_count, of_sum, off_diagonal, diagonal = noise
    upper = np.triu_indices(width)
    products = (corners[:, :, None] * corners[:, None, :])[:, *upper].T
    design = np.vstack([np.ones((1, size)), corners.T * kept[0], products * kept[1]])
    own = np.where(upper[0] == upper[1], diagonal, off_diagonal)
    return design, np.concatenate([[of_count], np.full(width, of_sum), own]) + ROUNDING


def _excess(encoding: GroupedEncoding, k: int, counts: Floats, shares: list[Floats], second: Floats) -> Floats:
    """Return a class's pair tables minus the products of its marginals; rows and columns of each sum to 0."""
    n, total = float(counts[k]), float(counts.sum())
    edges = np.cumsum([0, *(column.size for column in encoding.groups)])
    result = np.zeros((edges[-1], edges[-1]))
    for a in range(len(shares)):
        for b in range(a):
            _, kept = encoding.clipping_factors(a, b)
            alone = n * np.outer(shares[a][k], shares[b][k]) * kept
            inner = second[encoding.slices[a], encoding.slices[b]] - encoding.corners[a].T @ alone @ encoding.corners[b]
            table = _doubly_centred(encoding.contrasts[a].T @ inner @ encoding.contrasts[b] / kept) / total
            result[edges[a] : edges[a + 1], edges[b] : edges[b + 1]] = table
            result[edges[b] : edges[b + 1], edges[a] : edges[a + 1]] = table.T
    return result


def _doubly_centred(table: Floats) -> Floats:
    """Return the table with row and column means removed."""
    centred: Floats = table - table.mean(axis=0) - table.mean(axis=1)[:, None] + table.mean()
    return centred
