"""The utility report: a synthetic table compared with the noisy measurements. Post-processing.

Both sides are converted to the same readable quantities: positions of interval columns
and indicators of levels, including those of the label.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcore.evaluation.table_summary import ClassSums, TableSummary
from dpcore.mechanisms.expected_noise import count_and_sum_noise
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.records.encoding import Encoding, level_corners
from dpcore.records.schema import Column, Floats, IntervalColumn, NominalColumn, level_names
from dpcore.stats import Z95
from dpcore.synthesis.generators import ClassGaussians, Generator

CONSTANT = 1e-6
"""A quantity with a smaller spread is constant up to rounding, and correlates with nothing."""


@dataclass(frozen=True, slots=True)
class MeasuredSummary:
    """The noisy measurements in readable units; margins include the noise of each sum, not that of the count."""

    encoding: Encoding
    mixture: Generator
    sums: ClassSums

    @staticmethod
    def of(encoding: Encoding, mixture: ClassGaussians) -> MeasuredSummary:
        """Return the summary of released moments, lifted to encoded coordinates."""
        return MeasuredSummary(encoding, mixture, ClassSums.from_moments(mixture))

    def coordinate_margins(self) -> Floats:
        """Return the 95 % margin of each encoded coordinate's mean due to the noise on its sum, not on the count.

        The part of a coordinate that the projection keeps has the noise of the moments, the rest that of the centre;
        both scale with the radius of the frame, if there is one.
        """
        projection, rows = self.mixture.projection, self.sums.rows
        kept: Floats = np.linalg.norm(projection.basis(), axis=1)
        left_out: Floats = np.sqrt(np.maximum(1 - kept**2, 0))
        deviations: Floats = np.hypot(self._moments_deviation() * kept, self._centre_deviation() * left_out) / rows
        if projection.frame is not None:
            of_frame = projection.frame.deviation * left_out if projection.centre is None else 0.0
            deviations = np.hypot(projection.frame.units * deviations, of_frame)
        return Z95 * deviations * self.encoding.scale

    def _moments_deviation(self) -> float:
        """Return the standard deviation of the noise on a coordinate's sum over all classes."""
        return self._count_and_sum_noise()[1] * math.sqrt(self.mixture.moments.released.event.layout.classes)

    def _centre_deviation(self) -> float:
        """Return the standard deviation of the noise on the sums behind the centre.

        The error of a public centre is unknown; it is taken as that of the moments.
        """
        projection = self.mixture.projection
        if projection.centre is None:
            return 0.0
        event = projection.centre_noise
        if event is None:
            return self._moments_deviation()
        return count_and_sum_noise(event)[1] * math.sqrt(event.layout.classes)

    def _count_and_sum_noise(self) -> tuple[float, float]:
        moments = self.mixture.moments
        return count_and_sum_noise(moments.released.event, moments.sums.event if moments.sums else None)

    def class_shares(self) -> tuple[Floats, Floats]:
        """Return the noisy shares of the label's levels, and their margins."""
        margin = Z95 * self._count_and_sum_noise()[0] / self.sums.rows
        return self.mixture.moments.weights, np.full(len(self.sums.counts), margin)

    def column(self, column: Column) -> dict[str, Any]:
        """Return the mean and spread of an interval column, or the shares of a nominal one, with margins."""
        if self.encoding.schema.label is column:
            shares, margins = self.class_shares()
            return {"shares": shares.tolist(), "margins": margins.tolist()}
        code = next(c for c in self.encoding.codes if c.column is column)
        margins = self.coordinate_margins()[code.start : code.stop]
        if isinstance(column, IntervalColumn):
            return self._interval(column, code.start, float(margins[0]))
        shares = self.encoding.level_shares(self.sums.mean)[column.name]
        count = column.level_count
        if not self.mixture.projection.knows_every_mean:
            return {"shares": [None] * count, "margins": [None] * count}
        spread = (count - 1) / count * np.sqrt((level_corners(column) ** 2) @ margins**2)
        return {"shares": shares.tolist(), "margins": spread.tolist()}

    def _interval(self, column: IntervalColumn, at: int, margin: float) -> dict[str, Any]:
        """Return the mean and spread of the present values; missing cells are encoded at position 0."""
        if not self.mixture.projection.knows_every_mean:
            return {"mean": None, "mean_margin": None, "sd": None}
        known = self.encoding.present_values(self.sums.mean).get(column.name)
        present = known.share if known else 1.0
        mean = float(self.sums.mean[at]) * self.encoding.scale / present
        second = float(self.sums.seconds[:, at, at].sum()) / self.sums.rows * self.encoding.scale**2 / present
        return {
            "mean": column.middle + column.half_width * min(1.0, max(-1.0, mean)),
            "mean_margin": column.half_width * margin / present,
            "sd": column.half_width * math.sqrt(max(0.0, second - mean**2)),
        }

    def missing_share(self, column: Column) -> float | None:
        """Return the noisy share of missing cells, or None if they have no level of their own."""
        if isinstance(column, IntervalColumn) and column.missing_level:
            return float(self.encoding.level_shares(self.sums.mean)[column.name][1])
        return None


def readable_map(encoding: Encoding) -> tuple[list[str], Floats]:
    """Return the names of the readable quantities, and the linear map from encoded points to them."""
    names: list[str] = []
    rows: list[Floats] = []
    for code in encoding.codes:
        column, width = code.column, code.stop - code.start
        if isinstance(column, NominalColumn):
            levels, matrix = level_names(column), level_corners(column)
            keep = slice(1, 2) if len(levels) == 2 else slice(None)  # of two levels, one is redundant
            names += [f"{column.name} = {level}" for level in levels[keep]]
            local = matrix[keep]
        else:
            names += [column.name, f"{column.name} missing"][:width]
            local = np.eye(width)
        row = np.zeros((len(local), encoding.width))
        row[:, code.start : code.stop] = local
        rows.append(row)
    return names, np.vstack(rows)


def correlations(encoding: Encoding, sums: ClassSums) -> tuple[list[str], Floats]:
    """Return the names and correlations of all readable quantities, including the label's levels."""
    (names, matrix), total = readable_map(encoding), sums.rows
    second = matrix @ sums.seconds.sum(axis=0) @ matrix.T / total
    mean = matrix @ sums.mean
    label = encoding.schema.label
    if label is not None:
        levels = level_names(label)
        keep = slice(1, 2) if len(levels) == 2 else slice(None)
        shares, cross = sums.counts[keep] / total, sums.sums[keep] @ matrix.T / total
        names = names + [f"{label.name} = {level}" for level in levels[keep]]
        second = np.block([[second, cross.T], [cross, np.diag(shares)]])
        mean = np.concatenate([mean, shares])
    covariance = second - np.outer(mean, mean)
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    safe = np.where(spread > CONSTANT, spread, np.inf)
    result: Floats = np.clip(covariance / np.outer(safe, safe), -1.0, 1.0)
    np.fill_diagonal(result, 1.0)
    return names, result


def utility_report(measured: MeasuredSummary, summary: TableSummary) -> dict[str, Any]:
    """Return the contents of the report: columns, correlations, spectrum, and the metrics that checks use."""
    encoding = measured.encoding
    columns = [_column_report(column, measured, summary) for column in encoding.schema.columns]
    names, noisy = correlations(encoding, measured.sums)
    _, synthetic = correlations(encoding, summary.sums)
    spectrum = noisy_spectrum(measured)
    return {
        "columns": columns,
        "correlation": {"names": names, "measured": noisy.tolist(), "synthetic": synthetic.tolist()},
        "spectrum": spectrum,
        "metrics": {
            "noisy_rows": measured.mixture.moments.count,
            "mean_gap": max((c["gap"] for c in columns if "gap" in c and "levels" not in c), default=0.0),
            "category_gap": max((c["gap"] for c in columns if "gap" in c and "levels" in c), default=0.0),
            "correlation_gap": float(np.sqrt(np.mean((noisy - synthetic) ** 2))),
            "signal_to_noise": spectrum["signal_to_noise"],
        },
    }


def _column_report(column: Column, measured: MeasuredSummary, summary: TableSummary) -> dict[str, Any]:
    noisy, synthetic = measured.column(column), summary.column(column.name)
    facts: dict[str, Any] = {"name": column.name, "kind": column.kind.value, "role": column.role.value}
    if isinstance(column, NominalColumn):
        facts["levels"] = level_names(column)
        if None not in noisy["shares"]:
            facts["gap"] = float(np.max(np.abs(np.array(noisy["shares"]) - np.array(synthetic["shares"]))))
    else:
        if noisy["mean"] is not None:
            facts["gap"] = abs(noisy["mean"] - synthetic["mean"]) / (column.upper - column.lower)
        facts["measured_missing_share"] = measured.missing_share(column)
    return facts | {"measured": noisy, "synthetic": synthetic}


def noisy_spectrum(measured: MeasuredSummary) -> dict[str, Any]:
    """Return the eigenvalues of each class's noisy second moments per unit, and the noise level on that scale."""
    released = measured.mixture.moments.released
    label, heads, total = measured.encoding.schema.label, released.event.layout.heads, measured.sums.rows
    names = level_names(label) if label is not None and released.event.layout.blocks > 1 else ["all rows"]
    blocks = [
        {"label": name, "eigenvalues": (np.linalg.eigvalsh(matrix[heads:, heads:])[::-1] / total).tolist()}
        for name, matrix in zip(names, released.matrices(), strict=True)
    ]
    average = np.mean([max(0.0, float(np.mean(b["eigenvalues"]))) for b in blocks])
    level = gram_mechanism(released.event.mechanism).expected_error(released.event).operator / total
    return {"blocks": blocks, "noise_level": level, "signal_to_noise": float(average / level)}
