"""The measurements of a replay: exact sums of invented rows, and their change relative to each sensitivity.

Histograms count as diagonal matrices, whose nuclear norm is the L1 norm and whose Frobenius norm is the L2 norm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from dpcore.auditing.hostile_rows import WeightedRows
from dpcore.measure import RecordEncoder, exact_gram, gram_sum, measure_gram, measure_vector
from dpcore.measurements.histograms import count_cells, exact_histograms
from dpcore.measurements.projection import Projection
from dpcore.measurements.scores import Scorer, exact_score, sum_scores
from dpcore.mechanisms.base import UNIT, GramEvent, Output, Triangles, is_diagonal
from dpcore.mechanisms.queries import HistogramsQuery, ScoreQuery
from dpcore.mechanisms.registry import Event, mechanism_of
from dpcore.mechanisms.sensitivity import best_l1_weight, gram_frobenius, gram_nuclear, gram_weighted_l1, record_sums_l1
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.noise.sources import Noise
from dpcore.records.binning import ColumnCells

NUCLEAR_TOLERANCE = 1e-9
"""Relative error allowed for the nuclear norm of matrices, the only norm that is computed in floating point."""

ABOVE_ONE = float(np.nextafter(1.0, 2.0))


class ReplayedMeasurement(Protocol):
    """One measurement of a plan, made on invented rows."""

    @property
    def event(self) -> Event:
        """The event of the measurement."""

    def sums(self, chunks: Iterable[WeightedRows]) -> Triangles:
        """Return the exact sums on the integer grid; for invented rows only."""

    def draw(self, chunks: Iterable[WeightedRows], noise: Noise) -> Sequence[Sequence[int]]:
        """Release the rows through the real measurement functions; return the released integers."""

    def shares(self, change: Triangles) -> tuple[float, float, float]:
        """Return a change's nuclear, Frobenius and weighted L1 norms over the declared sensitivities."""

    def follows(self, first: Sequence[Sequence[int]], second: Sequence[Sequence[int]], change: Triangles) -> bool:
        """Return whether two releases with the same noise differ by exactly the change of the sums."""


@dataclass(frozen=True, slots=True)
class ReplayedGram:
    """Gram blocks, or the statistics that a mechanism releases of them."""

    event: GramEvent
    encoding: RecordEncoder
    projection: Projection

    def sums(self, chunks: Iterable[WeightedRows]) -> Triangles:
        """Return the exact upper triangles, one per block."""
        return gram_sum(chunks, self.encoding, self.event.layout, self.projection).upper_triangles()

    def draw(self, chunks: Iterable[WeightedRows], noise: Noise) -> Sequence[Sequence[int]]:
        """Release the rows with `measure_gram`."""
        gram = exact_gram(chunks, self.encoding, self.event.layout, self.projection)
        return measure_gram(gram, self.event, noise).values

    def shares(self, change: Triangles) -> tuple[float, float, float]:
        """Return the shares; if only counts and sums are released, the L1 norm is that of the blocks' first rows."""
        layout, neighbours = self.event.layout, self.event.neighbours
        r = layout.squared_norm
        diagonal = is_diagonal(layout.dimension)
        cells = [(Fraction(abs(x), UNIT), d) for block in change for x, d in zip(block, diagonal, strict=True)]
        squares = sum(x**2 * (1 if d else 2) for x, d in cells) / gram_frobenius(neighbours, squared_norm=r) ** 2
        only_sums = mechanism_of(self.event.mechanism).output is Output.SUMS
        sums = self._sums_share(change) if only_sums else self._weighted_share(cells)
        nuclear = _nuclear(change, layout.dimension) / float(gram_nuclear(neighbours, squared_norm=r) * UNIT)
        return nuclear * (1 - NUCLEAR_TOLERANCE), _root_share(squares), rounded_share(sums)

    def _weighted_share(self, cells: list[tuple[Fraction, bool]]) -> Fraction:
        layout, weight = self.event.layout, best_l1_weight(self.event.neighbours)
        bound = gram_weighted_l1(
            self.event.neighbours,
            squared_norm=layout.squared_norm,
            dimension=layout.dimension,
            blocks=layout.blocks,
            weight=weight,
        )
        return sum((x * (1 if d else weight) for x, d in cells), Fraction(0)) / bound

    def _sums_share(self, change: Triangles) -> Fraction:
        layout = self.event.layout
        bound = record_sums_l1(
            self.event.neighbours,
            count_weight=layout.count_weight,
            points=layout.dimension - layout.heads,
            rows=layout.rows_per_unit,
            blocks=layout.blocks,
        )
        return Fraction(sum(abs(x) for block in change for x in block[: layout.dimension]), UNIT) / bound

    def follows(self, first: Sequence[Sequence[int]], second: Sequence[Sequence[int]], change: Triangles) -> bool:
        """Compare Gram blocks, or their first rows, to within one step; directions and eigenvalues always pass."""
        if mechanism_of(self.event.mechanism).output not in (Output.GRAM, Output.SUMS):
            return True
        step, rows = self.event.step, zip(first, second, change, strict=True)
        cells = (cell for a, b, exact in rows for cell in zip(a, b, exact[: len(a)], strict=True))
        return all(abs((a - b) * step - exact) <= step for a, b, exact in cells)


@dataclass(frozen=True, slots=True)
class ReplayedHistograms:
    """Histograms of columns."""

    event: VectorEvent
    query: HistogramsQuery
    columns: Sequence[ColumnCells]

    def sums(self, chunks: Iterable[WeightedRows]) -> Triangles:
        """Return all counts as one list."""
        return [count_cells(chunks, self.columns, self.query)]

    def draw(self, chunks: Iterable[WeightedRows], noise: Noise) -> Sequence[Sequence[int]]:
        """What `measure_vector` releases."""
        return [measure_vector(exact_histograms(chunks, self.columns, self.query), self.event, noise).values]

    def shares(self, change: Triangles) -> tuple[float, float, float]:
        """Return the shares of the L1 norm, the L2 norm, and the L1 norm again (GUARANTEE.md, S7)."""
        ((*moved,),) = change
        sums = sum(abs(x) for x in moved) / self.query.l1_sensitivity(self.event.neighbours)
        squares = sum(x**2 for x in moved) / self.query.squared_l2_sensitivity(self.event.neighbours)
        return rounded_share(sums), _root_share(squares), rounded_share(sums)

    def follows(self, first: Sequence[Sequence[int]], second: Sequence[Sequence[int]], change: Triangles) -> bool:
        """Compare exactly: counts and their noise lie on the same integer grid."""
        return [a - b for a, b in zip(first[0], second[0], strict=True)] == change[0]


@dataclass(frozen=True, slots=True)
class ReplayedScore:
    """The sum of a model's scores."""

    event: VectorEvent
    query: ScoreQuery
    scorer: Scorer

    def sums(self, chunks: Iterable[WeightedRows]) -> Triangles:
        """Return the exact sum of scores."""
        return [[sum_scores(chunks, self.scorer)]]

    def draw(self, chunks: Iterable[WeightedRows], noise: Noise) -> Sequence[Sequence[int]]:
        """What `measure_vector` releases."""
        return [measure_vector(exact_score(chunks, self.scorer, self.query), self.event, noise).values]

    def shares(self, change: Triangles) -> tuple[float, float, float]:
        """Return the share of the absolute change, since all norms of a number agree (GUARANTEE.md, S8)."""
        moved = rounded_share(abs(change[0][0]) / self.query.l1_sensitivity(self.event.neighbours))
        return moved, moved, moved

    def follows(self, first: Sequence[Sequence[int]], second: Sequence[Sequence[int]], change: Triangles) -> bool:
        """Compare exactly."""
        return first[0][0] - second[0][0] == change[0][0]


def _nuclear(change: Triangles, dimension: int) -> float:
    matrices = np.zeros((len(change), dimension, dimension))
    rows, columns = np.triu_indices(dimension)
    for matrix, block in zip(matrices, change, strict=True):
        matrix[rows, columns] = matrix[columns, rows] = [float(x) for x in block]
    return float(np.abs(np.linalg.eigvalsh(matrices)).sum())


def rounded_share(exact: Fraction) -> float:
    """Return the share as a float that exceeds 1 if and only if the exact share does."""
    return _on_its_side_of_one(float(exact), above=exact > 1)


def _root_share(squared: Fraction) -> float:
    return _on_its_side_of_one(float(squared) ** 0.5, above=squared > 1)


def _on_its_side_of_one(number: float, *, above: bool) -> float:
    return max(number, ABOVE_ONE) if above else min(number, 1.0)
