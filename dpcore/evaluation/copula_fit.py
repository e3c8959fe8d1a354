"""The measurements of a copula release, in the same readable quantities as those of other releases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcore.evaluation.table_summary import ClassSums
from dpcore.evaluation.utility import MeasuredSummary
from dpcore.measurements.groups import ColumnGroups
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection
from dpcore.records.encoding import ColumnCode, Encoding, level_corners
from dpcore.records.schema import Column, Floats, IntervalColumn, NominalColumn
from dpcore.stats import Z95
from dpcore.synthesis.copula.generator import Copula
from dpcore.synthesis.generators import ClassGaussians


def measured_summary(encoding: Encoding, moments: NoisyMoments, projection: Projection) -> MeasuredSummary:
    """Return the noisy measurements of a release in readable units."""
    if moments.marginals is None:
        return MeasuredSummary.of(encoding, ClassGaussians(moments, projection))
    copula = Copula(encoding.schema, moments)
    return CopulaSummary(encoding, copula, _class_sums(encoding, copula))


@dataclass(frozen=True, slots=True)
class CopulaSummary(MeasuredSummary):
    """Histograms and tables of groups in readable units, with margins for the histograms' noise."""

    mixture: Copula

    def column(self, column: Column) -> dict[str, Any]:
        """Return the mean and spread of an interval column, or the shares of a nominal one."""
        if self.encoding.schema.label is column:
            return MeasuredSummary.column(self, column)
        groups, shares, errors = self._cells(column)
        if isinstance(column, NominalColumn):
            return {"shares": shares.tolist(), "margins": (Z95 * errors).tolist()}
        mean, square = groups.cells.positions()
        present = shares[: len(mean)]
        known = max(float(present.sum()), 1e-9)
        position = float(present @ mean) / known
        margin = Z95 * float(np.linalg.norm(mean * errors[: len(mean)])) / known
        return {
            "mean": column.middle + column.half_width * position,
            "mean_margin": column.half_width * min(margin, 2.0),
            "sd": column.half_width * math.sqrt(max(0.0, float(present @ square) / known - position**2)),
        }

    def missing_share(self, column: Column) -> float | None:
        """Return the noisy share of missing cells, or None if they have no level of their own."""
        if isinstance(column, IntervalColumn) and column.missing_level:
            return float(self._cells(column)[1][-1])
        return None

    def _cells(self, column: Column) -> tuple[ColumnGroups, Floats, Floats]:
        """Return a column's groups, the share of each of its cells, and the standard deviation of each share's noise.

        A cell that is a group of its own was measured by the Gram too, the others by the histogram alone.
        """
        copula = self.mixture
        index = next(i for i, groups in enumerate(copula.encoding.groups) if groups.cells.column is column)
        groups = copula.encoding.groups[index]
        pooled = copula.tables.weights @ copula.tables.shares[index]
        alone = np.bincount(groups.group)[groups.group] == 1
        by_histogram = float(groups.variances.sum()) / len(groups.group)  # of one cell's count
        variances = np.where(alone, float(copula.tables.pooled_variances[index]), by_histogram)
        return groups, pooled[groups.group] * groups.within, np.sqrt(variances) / copula.tables.total


def _class_sums(encoding: Encoding, copula: Copula) -> ClassSums:
    """Return the sums and second moments of encoded points that the shares of groups and pairs of groups imply."""
    tables, columns = copula.tables, copula.encoding.groups
    vectors = [group_vectors(code, groups) for code, groups in zip(encoding.codes, columns, strict=True)]
    edges = np.cumsum([0, *(groups.size for groups in columns)])
    lift = np.zeros((edges[-1], encoding.width))
    for number, (code, (means, _)) in enumerate(zip(encoding.codes, vectors, strict=True)):
        lift[edges[number] : edges[number + 1], code.start : code.stop] = means / encoding.scale
    sums, seconds = [], []
    for k, count in enumerate(tables.counts):
        shares = np.concatenate([share[k] for share in tables.shares])
        pairs = tables.total * tables.excess[k] + count * np.outer(shares, shares)
        second = lift.T @ pairs @ lift
        for number, (code, (_, squares)) in enumerate(zip(encoding.codes, vectors, strict=True)):
            own = np.tensordot(tables.shares[number][k], squares, 1) * count / encoding.scale**2
            second[code.start : code.stop, code.start : code.stop] = own
        sums.append(count * (shares @ lift))
        seconds.append(second)
    return ClassSums(tables.counts, np.array(sums), np.array(seconds))


def group_vectors(code: ColumnCode, groups: ColumnGroups) -> tuple[Floats, Floats]:
    """Return the mean and second moment of the encoded vectors of each group's cells."""
    means, squares = _cell_vectors(code, groups)
    member = (groups.group == np.arange(groups.size)[:, None]) * groups.within
    return member @ means, np.tensordot(member, squares, 1)


def _cell_vectors(code: ColumnCode, groups: ColumnGroups) -> tuple[Floats, Floats]:
    column = code.column
    if isinstance(column, NominalColumn):
        corners = level_corners(column)
        return corners, corners[:, :, None] * corners[:, None, :]
    position, square = groups.cells.positions()
    if not column.missing_level:
        return position[:, None], square[:, None, None]
    means, squares = np.zeros((len(position) + 1, 2)), np.zeros((len(position) + 1, 2, 2))
    means[:-1, 0], squares[:-1, 0, 0] = position, square
    means[-1, 1], squares[-1, 1, 1] = 1.0, 1.0
    return means, squares
