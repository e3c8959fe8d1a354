"""How well a synthetic table fits the noisy measurements: post-processing, free of charge.

Both sides are brought to the same readable quantities: positions of interval columns
and indicators of levels, the label's among them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.blocks import rows_by_class
from dpcore.encoding import Encoding, level_corners, level_of
from dpcore.expected_noise import count_and_sum_noise
from dpcore.generators import ClassGaussians, Generator
from dpcore.registry import gram_mechanism
from dpcore.schema import MISSING_LEVEL, Cells, Column, IntervalColumn, NominalColumn
from dpcore.stats import Z95

Floats = NDArray[np.float64]

BINS = 24
CONSTANT = 1e-6
"""A spread below this is the rounding of a difference of squares: a constant, which correlates with nothing."""


@dataclass(frozen=True, slots=True)
class ClassSums:
    """Counts, sums and second moments of encoded points, one a class."""

    counts: Floats
    sums: Floats
    seconds: Floats

    @property
    def mean(self) -> Floats:
        """Mean encoded point over all classes."""
        mean: Floats = self.sums.sum(axis=0) / max(float(self.counts.sum()), 1.0)
        return mean

    @staticmethod
    def measured(mixture: ClassGaussians) -> ClassSums:
        """The released moments, lifted to encoded coordinates."""
        basis = mixture.projection.lifting
        classes = mixture.moments.classes
        means = mixture.projection.lift(np.array([c.mean for c in classes]))
        seconds = [basis @ c.covariance @ basis.T + np.outer(m, m) for c, m in zip(classes, means, strict=True)]
        counts = np.array([c.count for c in classes])
        return ClassSums(counts, means * counts[:, None], np.array(seconds) * counts[:, None, None])


class TableSummary:
    """Running summary of a synthetic table, chunk by chunk."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        blocks, width = encoding.schema.class_count, encoding.width
        self._sums = ClassSums(np.zeros(blocks), np.zeros((blocks, width)), np.zeros((blocks, width, width)))
        self.rows = 0
        self._columns = {c.name: _column_tally(c) for c in encoding.schema.columns}

    def add(self, cells: Cells) -> None:
        """Count a chunk of decoded cells."""
        coordinates, classes = self._encoding.encode(cells).T, self._encoding.classes(cells)
        self.rows += len(classes)
        for block, rows in rows_by_class(classes):
            mine = coordinates[:, rows]
            self._sums.counts[block] += mine.shape[1]
            self._sums.sums[block] += mine.sum(axis=1)
            self._sums.seconds[block] += mine @ mine.T
        for name, tally in self._columns.items():
            tally.add(cells[name])

    def empty(self) -> TableSummary:
        """A summary of the same columns that has counted nothing."""
        return TableSummary(self._encoding)

    def merge(self, other: TableSummary) -> None:
        """Count all rows that another summary of the same columns has counted."""
        self.rows += other.rows
        for mine, theirs in (
            (self._sums.counts, other._sums.counts),
            (self._sums.sums, other._sums.sums),
            (self._sums.seconds, other._sums.seconds),
        ):
            mine += theirs
        for name, tally in self._columns.items():
            tally.counted += other._columns[name].counted

    @property
    def sums(self) -> ClassSums:
        """Moments of the encoded synthetic points."""
        return self._sums

    def column(self, name: str) -> dict[str, Any]:
        """Summary of one column's synthetic values."""
        return self._columns[name].summary()


class IntervalTally:
    """Mean, spread and histogram of an interval column."""

    def __init__(self, column: IntervalColumn) -> None:
        self._edges = _bin_edges(column)
        self._middle = column.middle
        self.counted = np.zeros(len(self._edges) + 2)
        """The histogram, then how many are missing, the sum and the sum of squares, from the middle, of the others."""

    def add(self, cells: NDArray[np.generic]) -> None:
        """Count a chunk of values; those beyond the edges are in no bin."""
        values = np.asarray(cells, dtype=np.float64)
        missing = np.isnan(values)
        present = values[~missing] if missing.any() else values
        shifted = present - self._middle
        bins = len(self._edges) - 1
        self.counted[:bins] += np.bincount(_bin_of(_inside(present, self._edges), self._edges), minlength=bins)
        self.counted[bins:] += np.array([len(values) - len(present), shifted.sum(), shifted @ shifted])

    def summary(self) -> dict[str, Any]:
        """Mean, standard deviation, share of missing values, histogram."""
        histogram, (missing, total, squares) = self.counted[:-3], self.counted[-3:].tolist()
        present = max(float(histogram.sum()), 1.0)
        shift = total / present
        return {
            "mean": self._middle + shift,
            "sd": math.sqrt(max(0.0, squares / present - shift**2)),
            "missing_share": missing / max(present + missing, 1.0),
            "edges": self._edges.tolist(),
            "shares": (histogram / present).tolist(),
        }


def _inside(values: Floats, edges: Floats) -> Floats:
    """The values between the first and the last edge; most often all of them, which are then not copied."""
    if not len(values) or (values.min() >= edges[0] and values.max() <= edges[-1]):
        return values
    inside: Floats = values[(values >= edges[0]) & (values <= edges[-1])]
    return inside


def _bin_of(values: Floats, edges: Floats) -> NDArray[np.int64]:
    """The bin of each value that lies between the edges, which are equally far apart."""
    bins = len(edges) - 1
    place = values - edges[0]
    place *= bins / (edges[-1] - edges[0])
    found: NDArray[np.int64] = np.minimum(place.astype(np.int64), bins - 1)
    return found


def _bin_edges(column: IntervalColumn) -> Floats:
    """About `BINS` bins between the bounds; each holds as many whole values as the others where values are whole."""
    if not column.is_whole:
        return np.linspace(column.lower, column.upper, BINS + 1)
    first, last = math.ceil(column.lower), math.floor(column.upper)
    step = math.ceil((last - first + 1) / BINS)
    edges: Floats = np.arange(first, last + step + 1, step, dtype=np.float64) - 0.5
    return edges


class NominalTally:
    """Shares of a nominal column's levels, the missing level last if there is one."""

    def __init__(self, column: NominalColumn) -> None:
        self._column = column
        self.counted = np.zeros(column.level_count)

    def add(self, cells: NDArray[np.generic]) -> None:
        """Count a chunk of codes."""
        levels = level_of(np.asarray(cells, dtype=np.int64), self._column)
        self.counted += np.bincount(levels + 1, minlength=len(self.counted) + 1)[1:]  # -1: nothing is known

    def summary(self) -> dict[str, Any]:
        """The shares."""
        return {"shares": (self.counted / max(float(self.counted.sum()), 1.0)).tolist()}


def _column_tally(column: Column) -> IntervalTally | NominalTally:
    return IntervalTally(column) if isinstance(column, IntervalColumn) else NominalTally(column)


def level_names(column: NominalColumn) -> list[str]:
    """The levels as text, the missing one last."""
    return [str(level) for level in column.levels] + [MISSING_LEVEL] * column.missing_level


@dataclass(frozen=True, slots=True)
class Measured:
    """The noisy measurements in readable units, with margins of the noise of each sum (not of the count below it)."""

    encoding: Encoding
    mixture: Generator
    sums: ClassSums

    @staticmethod
    def of(encoding: Encoding, mixture: ClassGaussians) -> Measured:
        """Lift the released moments."""
        return Measured(encoding, mixture, ClassSums.measured(mixture))

    def coordinate_margins(self) -> Floats:
        """1.96 deviations of the noise of each encoded coordinate's sum, over the rows; the count's noise comes on top.

        What the projection keeps of a coordinate has the moments' noise, the rest that of the centre; both in
        units of the frame's radius, where there is one.
        """
        projection, rows = self.mixture.projection, max(float(self.sums.counts.sum()), 1.0)
        kept: Floats = np.linalg.norm(projection.basis(), axis=1)
        left_out: Floats = np.sqrt(np.maximum(1 - kept**2, 0))
        deviations: Floats = np.hypot(self._moments_deviation() * kept, self._centre_deviation() * left_out) / rows
        if projection.frame is not None:
            of_frame = projection.frame.deviation * left_out if projection.centre is None else 0.0
            deviations = np.hypot(projection.frame.radius * deviations, of_frame)
        return Z95 * deviations * self.encoding.scale

    def _moments_deviation(self) -> float:
        """Standard deviation of the noise on a coordinate's sum over all classes."""
        return self._count_and_sum_noise()[1] * math.sqrt(self.mixture.moments.released.event.layout.classes)

    def _centre_deviation(self) -> float:
        """The same of the sums behind the centre; of a public one, whose error nobody knows, as if it were measured."""
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
        """Noisy shares of the label's levels, and their margins."""
        rows = max(float(self.sums.counts.sum()), 1.0)
        margin = Z95 * self._count_and_sum_noise()[0] / rows
        return self.mixture.moments.weights, np.full(len(self.sums.counts), margin)

    def column(self, column: Column) -> dict[str, Any]:
        """Mean and spread of an interval column, or shares of a nominal one."""
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
        """Mean and spread among the present values: a missing cell sits at position 0."""
        if not self.mixture.projection.knows_every_mean:
            return {"mean": None, "mean_margin": None, "sd": None}
        known = self.encoding.present(self.sums.mean).get(column.name)
        present = known.share if known else 1.0
        rows = max(float(self.sums.counts.sum()), 1.0)
        mean = float(self.sums.mean[at]) * self.encoding.scale / present
        second = float(self.sums.seconds[:, at, at].sum()) / rows * self.encoding.scale**2 / present
        position = min(1.0, max(-1.0, mean))
        return {
            "mean": column.middle + column.half_width * position,
            "mean_margin": column.half_width * margin / present,
            "sd": column.half_width * math.sqrt(max(0.0, second - mean**2)),
        }

    def missing_share(self, column: Column) -> float | None:
        """Noisy share of missing cells where they have a level of their own."""
        if isinstance(column, IntervalColumn) and column.missing_level:
            return float(self.encoding.level_shares(self.sums.mean)[column.name][1])
        return None


def readable_map(encoding: Encoding) -> tuple[list[str], Floats]:
    """Names of readable quantities and the linear map that takes encoded points to them."""
    names: list[str] = []
    rows: list[Floats] = []
    for code in encoding.codes:
        column, width = code.column, code.stop - code.start
        if isinstance(column, NominalColumn):
            levels, matrix = level_names(column), level_corners(column)
            keep = slice(1, 2) if len(levels) == 2 else slice(None)  # of two levels one says all
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
    """Correlations of all readable quantities, the label's levels among them."""
    names, matrix = readable_map(encoding)
    total = max(float(sums.counts.sum()), 1.0)
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


def utility_report(measured: Measured, summary: TableSummary) -> dict[str, Any]:
    """Everything the report shows: columns, correlations, spectrum, and the metrics checks look at."""
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


def _column_report(column: Column, measured: Measured, summary: TableSummary) -> dict[str, Any]:
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


def noisy_spectrum(measured: Measured) -> dict[str, Any]:
    """Eigenvalues of each class's noisy second moments a unit, and the noise's size on that scale."""
    released = measured.mixture.moments.released
    error = gram_mechanism(released.event.mechanism).expected_error(released.event)
    label = measured.encoding.schema.label
    apart = label is not None and released.event.layout.blocks > 1
    names = level_names(label) if label is not None and apart else ["all rows"]
    total, heads = max(float(measured.sums.counts.sum()), 1.0), released.event.layout.heads
    blocks = []
    for name, matrix in zip(names, released.matrices(), strict=True):
        values = np.linalg.eigvalsh(matrix[heads:, heads:])[::-1] / total
        blocks.append({"label": name, "eigenvalues": values.tolist()})
    average = np.mean([max(0.0, float(np.mean(b["eigenvalues"]))) for b in blocks])
    level = error.operator / total
    return {"blocks": blocks, "noise_level": level, "signal_to_noise": float(average / level)}
