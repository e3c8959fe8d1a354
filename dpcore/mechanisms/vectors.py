"""Noisy vectors: histograms, scores, Jiang's statistics and noisy rows.

A `PrivateVector` of whole numbers can only be measured, by `dpcore.measure.measure_vector`.
Its `VectorEvent` is public and holds the query and the scale of the noise; the cost follows
from it alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting import Budget, Epsilon, Rho, float_above
from dpcore.mechanisms.base import CertifiedNoise, PrivateValue, integer_scale, require_budget, saturation_delta
from dpcore.mechanisms.queries import (
    GRID,
    HistogramsQuery,
    L2Query,
    MomentsQuery,
    Query,
    RowsQuery,
    ScoreQuery,
    query_from_json,
)
from dpcore.mechanisms.sensitivity import root_above
from dpcore.noise.certified import NormalSums
from dpcore.noise.sources import Noise
from dpcore.records.encoding import ColumnCode, Encoding, level_of
from dpcore.records.exact_sums import GRID_BITS, ROWS_AT_ONCE, BigIntegers, require_exact_product
from dpcore.records.schema import Cells, Codes, Floats, IntervalColumn, Neighbours, NominalColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorEvent:
    """The public query and the scale of its noise, on the answer's grid."""

    mechanism: str
    neighbours: Neighbours
    query: Query
    noise: Fraction

    def as_json(self) -> dict[str, Any]:
        """The event as stored; fractions are text, so that they stay exact."""
        return {
            "mechanism": self.mechanism,
            "neighbours": self.neighbours.value,
            **self.query.as_json(),
            "grid_bits": GRID_BITS,
            "noise": str(self.noise),
        }

    @staticmethod
    def from_json(body: dict[str, Any]) -> VectorEvent:
        """The event that `as_json` wrote."""
        if body["grid_bits"] != GRID_BITS:
            raise ValueError(f"grid_bits must be {GRID_BITS}")
        return VectorEvent(
            mechanism=body["mechanism"],
            neighbours=Neighbours(body["neighbours"]),
            query=query_from_json(body),
            noise=Fraction(body["noise"]),
        )


class VectorMechanism(Protocol):
    """Noise on every number of the answer to one kind of query."""

    @property
    def name(self) -> str:
        """The name in the registry."""

    def calibrate(self, query: Query, neighbours: Neighbours, budget: Budget) -> VectorEvent:
        """The event that spends the whole budget.

        Raises: ValueError for another kind of query or budget.
        """

    def cost(self, event: VectorEvent, neighbours: Neighbours | None = None) -> Budget:
        """The cost of an event under its own or another neighbouring relation (GUARANTEE.md, R)."""

    def draw(self, answer: Sequence[int], event: VectorEvent, noise: Noise) -> list[int]:
        """Draw the noisy answer in whole numbers of its grid."""

    def delta_num(self, event: VectorEvent) -> Fraction:
        """The increase of delta by finite precision."""

    def deviation(self, event: VectorEvent) -> float:
        """Standard deviation of the noise on each number, on the answer's grid."""


@dataclass(frozen=True, slots=True)
class VectorLaplace:
    """Discrete Laplace noise of one scale b on every number of the answer to one kind of query.

    Guarantee: pure epsilon = (L1 sensitivity) / b (GUARANTEE.md, M9 to M12).
    """

    name: str
    query_type: type[Query]

    def calibrate(self, query: Query, neighbours: Neighbours, budget: Budget) -> VectorEvent:
        """The event that spends the whole epsilon, the scale rounded up."""
        epsilon = require_budget(self.name, budget, Epsilon)
        scale = integer_scale(self.name, self._sensitivity(query, neighbours) / epsilon)
        return VectorEvent(mechanism=self.name, neighbours=neighbours, query=query, noise=scale)

    def cost(self, event: VectorEvent, neighbours: Neighbours | None = None) -> Budget:
        """Epsilon = sensitivity / scale, recomputed from the event alone."""
        return Epsilon(self._sensitivity(event.query, neighbours or event.neighbours) / event.noise)

    def draw(self, answer: Sequence[int], event: VectorEvent, noise: Noise) -> list[int]:
        """Draw the noisy answer in whole numbers of its grid."""
        drawn = noise.discrete_laplace(float_above(event.noise), len(answer))
        return [number + extra for number, extra in zip(answer, drawn, strict=True)]

    def delta_num(self, event: VectorEvent) -> Fraction:
        """The probability that 64-bit noise saturates, times (1 + e^epsilon), as for Gram blocks (N3)."""
        return saturation_delta(event.query.size, event.noise)

    def deviation(self, event: VectorEvent) -> float:
        """The scale times sqrt 2."""
        return math.sqrt(2) * float(event.noise)

    def _sensitivity(self, query: Query, neighbours: Neighbours) -> Fraction:
        if not isinstance(query, self.query_type):
            raise ValueError(f"{self.name} answers {self.query_type.__name__}, not {type(query).__name__}")
        return query.l1_sensitivity(neighbours)


@dataclass(frozen=True, slots=True)
class VectorGaussian(CertifiedNoise):
    """Normal noise of one scale on every number of the answer to one kind of query, rounded to the grid.

    Guarantee: that of Gaussian noise with rho = (L2 sensitivity)² / (2 scale²) (GUARANTEE.md, M11 and
    M12): the rounding is certified, hence post-processing.
    """

    name: str
    query_type: type[L2Query]

    def calibrate(self, query: Query, neighbours: Neighbours, budget: Budget) -> VectorEvent:
        """The event that spends the whole rho, the scale rounded up."""
        rho = require_budget(self.name, budget, Rho)
        scale = root_above(self._squared_sensitivity(query, neighbours) / (2 * rho))
        return VectorEvent(mechanism=self.name, neighbours=neighbours, query=query, noise=scale)

    def cost(self, event: VectorEvent, neighbours: Neighbours | None = None) -> Budget:
        """rho = sensitivity² / (2 scale²)."""
        return Rho(self._squared_sensitivity(event.query, neighbours or event.neighbours) / (2 * event.noise**2))

    def draw(self, answer: Sequence[int], event: VectorEvent, noise: Noise) -> list[int]:
        """Draw the noisy answer in whole numbers of its grid."""
        return NormalSums(len(answer), noise).add_and_round(answer, [event.noise**2] * len(answer))

    def deviation(self, event: VectorEvent) -> float:
        """The scale."""
        return float(event.noise)

    def _squared_sensitivity(self, query: Query, neighbours: Neighbours) -> Fraction:
        if not isinstance(query, self.query_type):
            raise ValueError(f"{self.name} answers {self.query_type.__name__}, not {type(query).__name__}")
        return query.squared_l2_sensitivity(neighbours)


JIANG_LAPLACE = VectorLaplace("jiang-laplace", MomentsQuery)
NOISY_ROWS = VectorLaplace("noisy-rows", RowsQuery)
HISTOGRAM_LAPLACE = VectorLaplace("histogram-laplace", HistogramsQuery)
HISTOGRAM_GAUSSIAN = VectorGaussian("histogram-gaussian", HistogramsQuery)
SCORE_LAPLACE = VectorLaplace("score-laplace", ScoreQuery)
SCORE_GAUSSIAN = VectorGaussian("score-gaussian", ScoreQuery)


class PrivateVector(PrivateValue):
    """The exact answer to a query of raw rows, which can only be measured."""

    __slots__ = ("_answer", "_query")

    def __init__(self, query: Query, answer: Sequence[int]) -> None:
        if len(answer) != query.size:
            raise ValueError("the answer must have the shape of its query")
        self._query, self._answer = query, answer

    @property
    def query(self) -> Query:
        """The public query."""
        return self._query

    def _whole_numbers(self) -> Sequence[int]:
        return self._answer


class UnitCoordinates:
    """Jiang's coordinates x of a record: positions in [0, 1] and 0/1 indicators of levels.

    They correspond to those of the encoding: encoded = scale * x + shift, except for cells
    without a level, whose indicators are all 0.
    """

    def __init__(self, encoding: Encoding) -> None:
        if any(isinstance(c.column, IntervalColumn) and c.column.missing_level for c in encoding.codes):
            raise ValueError("a level of its own for missing numbers is not supported here")
        self.encoding = encoding
        self.blocks = [(code.start, code.stop) for code in encoding.codes if _has_levels(code)]
        self.scale, self.shift = (np.concatenate(parts) for parts in zip(*map(_affine, encoding.codes), strict=True))
        self.scale, self.shift = self.scale / encoding.scale, self.shift / encoding.scale

    def query(self, classes: int) -> MomentsQuery:
        """The query for moments of these coordinates."""
        levels = tuple(stop - start for start, stop in self.blocks)
        return MomentsQuery(self.encoding.width - sum(levels), levels, classes)

    def records(self, cells: Cells) -> Floats:
        """Whole numbers on the grid, between 0 and `GRID`: a pure function of each record (N1)."""
        return np.hstack([_grid_coordinates(code, cells[code.column.name]) for code in self.encoding.codes])

    def encoded(self, points: Floats) -> Floats:
        """Points of these coordinates in those of the encoding."""
        encoded: Floats = points * self.scale + self.shift
        return encoded

    def from_encoded(self, points: Floats) -> Floats:
        """Encoded points in these coordinates."""
        plain: Floats = (points - self.shift) / self.scale
        return plain


def _has_levels(code: ColumnCode) -> bool:
    """Whether the column has one coordinate per level; a boolean column has one coordinate for two levels."""
    return isinstance(code.column, NominalColumn) and code.stop - code.start > 1


def _affine(code: ColumnCode) -> tuple[Floats, Floats]:
    """Scale and shift from Jiang's coordinates to those of the column's code, which has length 1."""
    width = code.stop - code.start
    if not _has_levels(code):
        return np.full(width, 2.0), np.full(width, -1.0)
    stretch = np.sqrt(width / (width - 1))
    return np.full(width, stretch), np.full(width, -stretch / width)


def _grid_coordinates(code: ColumnCode, cells: NDArray[np.generic]) -> Floats:
    if not _has_levels(code):
        half: Floats = (code.encode(cells) + 1) * (GRID / 2)
        return np.clip(np.trunc(half), 0.0, float(GRID))
    assert isinstance(code.column, NominalColumn)  # noqa: S101  checked by _has_levels
    levels = level_of(np.asarray(cells, dtype=np.int64), code.column)
    return np.where(levels[:, None] == np.arange(code.stop - code.start), float(GRID), 0.0)


def exact_moments(chunks: Iterable[Cells], coordinates: UnitCoordinates, classes: int) -> PrivateVector:
    """The exact answer to the moments query of a table in chunks."""
    require_exact_product()
    query = coordinates.query(classes)
    total: BigIntegers = np.full(query.size, 0, dtype=object)
    for cells in chunks:
        records = coordinates.records(cells)
        labels = coordinates.encoding.classes(cells) if classes > 1 else np.zeros(len(records), dtype=np.int64)
        for start in range(0, len(records), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            total = total + _chunk_sums(records[part], labels[part], classes)
    return PrivateVector(query, total.tolist())


def _chunk_sums(records: Floats, labels: Codes, classes: int) -> BigIntegers:
    """Counts, class sums and upper triangle as integers on the grid of products; exact below 2^53."""
    member = np.where(labels[:, None] == np.arange(classes), float(GRID), 0.0)
    counts = member.sum(axis=0) * GRID
    triangle = (records.T @ records)[np.triu_indices(records.shape[1])]
    sums = np.concatenate([counts, (member.T @ records).ravel(), triangle])
    return sums.astype(np.int64).astype(object)
