"""Running summaries of a synthetic table: moments of its encoded points, and tallies of its columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.records.encoding import Encoding, level_of
from dpcore.records.schema import Cells, Floats, IntervalColumn, NominalColumn
from dpcore.synthesis.class_rows import rows_by_class
from dpcore.synthesis.generators import ClassGaussians

BINS = 24


@dataclass(frozen=True, slots=True)
class ClassSums:
    """Counts, sums and second moments of encoded points, one per class."""

    counts: Floats
    sums: Floats
    seconds: Floats

    @property
    def rows(self) -> float:
        """Number of points over all classes, taken as 1 if it is less."""
        return max(float(self.counts.sum()), 1.0)

    @property
    def mean(self) -> Floats:
        """Mean encoded point over all classes."""
        mean: Floats = self.sums.sum(axis=0) / self.rows
        return mean

    @staticmethod
    def from_moments(mixture: ClassGaussians) -> ClassSums:
        """Return the released moments, lifted to encoded coordinates."""
        basis, classes = mixture.projection.lifting, mixture.moments.classes
        means = mixture.projection.lift(np.array([c.mean for c in classes]))
        seconds = [basis @ c.covariance @ basis.T + np.outer(m, m) for c, m in zip(classes, means, strict=True)]
        counts = np.array([c.count for c in classes])
        return ClassSums(counts, means * counts[:, None], np.array(seconds) * counts[:, None, None])


class TableSummary:
    """Running summary of a synthetic table, chunk by chunk."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        blocks, width = encoding.schema.class_count, encoding.width
        self.sums = ClassSums(np.zeros(blocks), np.zeros((blocks, width)), np.zeros((blocks, width, width)))
        """Moments of the encoded synthetic points."""
        self.rows = 0
        self._columns: dict[str, IntervalTally | NominalTally] = {
            c.name: IntervalTally(c) if isinstance(c, IntervalColumn) else NominalTally(c)
            for c in encoding.schema.columns
        }

    def add(self, cells: Cells) -> None:
        """Add a chunk of decoded cells."""
        coordinates, classes = self._encoding.encode(cells).T, self._encoding.classes(cells)
        self.rows += len(classes)
        for block, rows in rows_by_class(classes):
            mine = coordinates[:, rows]
            self.sums.counts[block] += mine.shape[1]
            self.sums.sums[block] += mine.sum(axis=1)
            self.sums.seconds[block] += mine @ mine.T
        for name, tally in self._columns.items():
            tally.add(cells[name])

    def empty(self) -> TableSummary:
        """Return an empty summary of the same columns."""
        return TableSummary(self._encoding)

    def merge(self, other: TableSummary) -> None:
        """Add the totals of another summary of the same columns."""
        self.rows += other.rows
        for mine, theirs in (
            (self.sums.counts, other.sums.counts),
            (self.sums.sums, other.sums.sums),
            (self.sums.seconds, other.sums.seconds),
        ):
            mine += theirs
        for name, tally in self._columns.items():
            tally.totals += other._columns[name].totals

    def column(self, name: str) -> dict[str, Any]:
        """Return the summary of one column's synthetic values."""
        return self._columns[name].summary()


class IntervalTally:
    """Mean, spread and histogram of an interval column."""

    def __init__(self, column: IntervalColumn) -> None:
        self._edges = _bin_edges(column)
        self._middle = column.middle
        self.totals = np.zeros(len(self._edges) + 2)
        """The histogram, the number of missing values, and sum and sum of squares of the others around the middle."""

    def add(self, cells: NDArray[np.generic]) -> None:
        """Add a chunk of values; values beyond the edges are in no bin."""
        values = np.asarray(cells, dtype=np.float64)
        missing = np.isnan(values)
        present = values[~missing] if missing.any() else values
        shifted = present - self._middle
        bins = len(self._edges) - 1
        self.totals[:bins] += np.bincount(_bin_of(_inside_edges(present, self._edges), self._edges), minlength=bins)
        self.totals[bins:] += np.array([len(values) - len(present), shifted.sum(), shifted @ shifted])

    def summary(self) -> dict[str, Any]:
        """Return the mean, standard deviation, share of missing values, and histogram."""
        histogram, (missing, total, squares) = self.totals[:-3], self.totals[-3:].tolist()
        present = max(float(histogram.sum()), 1.0)
        shift = total / present
        return {
            "mean": self._middle + shift,
            "sd": math.sqrt(max(0.0, squares / present - shift**2)),
            "missing_share": missing / max(present + missing, 1.0),
            "edges": self._edges.tolist(),
            "shares": (histogram / present).tolist(),
        }


def _inside_edges(values: Floats, edges: Floats) -> Floats:
    """Return the values between the first and the last edge, without a copy if all are."""
    if not len(values) or (values.min() >= edges[0] and values.max() <= edges[-1]):
        return values
    inside: Floats = values[(values >= edges[0]) & (values <= edges[-1])]
    return inside


def _bin_of(values: Floats, edges: Floats) -> NDArray[np.int64]:
    """Return the bin of each value; the values lie between the edges, which are equally spaced."""
    bins = len(edges) - 1
    place = values - edges[0]
    place *= bins / (edges[-1] - edges[0])
    found: NDArray[np.int64] = np.minimum(place.astype(np.int64), bins - 1)
    return found


def _bin_edges(column: IntervalColumn) -> Floats:
    """Return the edges of about `BINS` equal bins; each holds the same number of integers if values are integers."""
    if not column.is_whole:
        return np.linspace(column.lower, column.upper, BINS + 1)
    first, last = math.ceil(column.lower), math.floor(column.upper)
    step = math.ceil((last - first + 1) / BINS)
    return np.arange(first, last + step + 1, step, dtype=np.float64) - 0.5


class NominalTally:
    """Counts of a nominal column's levels, the missing level last if there is one."""

    def __init__(self, column: NominalColumn) -> None:
        self._column = column
        self.totals = np.zeros(column.level_count)

    def add(self, cells: NDArray[np.generic]) -> None:
        """Add a chunk of codes."""
        levels = level_of(np.asarray(cells, dtype=np.int64), self._column)
        self.totals += np.bincount(levels + 1, minlength=len(self.totals) + 1)[1:]  # -1: nothing is known

    def summary(self) -> dict[str, Any]:
        """Return the shares of the levels."""
        return {"shares": (self.totals / max(float(self.totals.sum()), 1.0)).tolist()}
