"""The only door from private to released values: every draw of noise for a release passes here.

A `PrivateGram` or `PrivateVector` can only be measured: it does not print, pickle or
compare. A `Released` or `ReleasedVector` is returned by `measure_gram` or
`measure_vector`, or read from a ledger that stored it; it carries the event that produced
it, and whether its noise was seeded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dpcore.mechanisms.base import UNIT, GramEvent, Output, PrivateValue, Triangles, triangle_size
from dpcore.mechanisms.registry import mechanism_of, vector_mechanism
from dpcore.mechanisms.vectors import PrivateVector, VectorEvent
from dpcore.noise.sources import Noise
from dpcore.records.exact_sums import (
    PROJECTION_BITS,
    GramLayout,
    GramSum,
    integer_records,
    require_exact_product,
    upper_triangle,
)
from dpcore.records.schema import Cells, Codes, Floats

STORED = "triangles"
"""The key of a measurement's whole numbers in its stored form."""


class RecordEncoder(Protocol):
    """Encodes cells as points of the unit ball, by a pure function of each record and of public or released values."""

    def encode(self, cells: Cells) -> Floats:
        """Points, one per record."""

    def classes(self, cells: Cells) -> Codes:
        """The class block of each record."""


class LinearMap(Protocol):
    """A public linear map from encoded points to the coordinates in which they are measured."""

    @property
    def columns(self) -> Floats | None:
        """The entries as whole multiples of 2^-20; None for the identity."""

    def framed(self, points: Floats) -> tuple[Floats, float]:
        """The points relative to the centre of the measurement frame, and the frame's radius, their unit of length."""


class PrivateGram(PrivateValue):
    """Exact second moments of raw rows, which can only be measured."""

    __slots__ = ("_sum",)

    def __init__(self, total: GramSum) -> None:
        self._sum = total

    @property
    def layout(self) -> GramLayout:
        """The public shape of the blocks."""
        return self._sum.layout

    def _triangles(self) -> Triangles:
        return self._sum.upper_triangles()


def exact_gram(
    chunks: Iterable[tuple[Cells, Floats | None]],
    encoding: RecordEncoder,
    layout: GramLayout,
    projection: LinearMap,
) -> PrivateGram:
    """The exact Gram blocks of a table in chunks, each with the rows' shares of their persons or None.

    A layout with one block adds all classes up. Memory does not grow with the table.
    """
    return PrivateGram(gram_sum(chunks, encoding, layout, projection))


def gram_sum(
    chunks: Iterable[tuple[Cells, Floats | None]],
    encoding: RecordEncoder,
    layout: GramLayout,
    projection: LinearMap,
) -> GramSum:
    """The sum of `exact_gram` without its protection: for simulated rows, and for parts of a table."""
    require_exact_product()
    total = GramSum(layout)
    for cells, shares in chunks:
        points, radius = projection.framed(encoding.encode(cells))
        classes = encoding.classes(cells) if layout.classes > 1 else np.zeros(len(points), dtype=np.int64)
        total.add(integer_records(points, projection.columns, layout, shares, classes, radius), classes)
    return total


@dataclass(frozen=True, slots=True)
class Released:
    """A noisy measurement in whole numbers, safe to publish.

    Gram blocks are upper triangles in steps of `event.step` on the integer grid, directions
    one list each on the grid of projections, eigenvalues one list, counts and sums one list per block.
    """

    event: GramEvent
    values: tuple[tuple[int, ...], ...]
    seeded: bool

    def __post_init__(self) -> None:
        if tuple(len(part) for part in self.values) != _sizes(self.event):
            raise ValueError("a released measurement must have the shape of its event")

    def matrices(self) -> Floats:
        """The noisy blocks as symmetric matrices, in records."""
        p = self.event.layout.dimension
        rows, columns = upper_triangle(p)
        result = np.zeros((len(self.values), p, p))
        for block, triangle in zip(result, self.values, strict=True):
            block[rows, columns] = [cell * self.event.step / UNIT for cell in triangle]
            block[columns, rows] = block[rows, columns]
        return result

    def basis(self) -> Floats:
        """The released directions, one per column."""
        return np.array(self.values, dtype=np.float64).T / (1 << PROJECTION_BITS)

    def spectrum(self) -> Floats:
        """The noisy eigenvalues, in records."""
        return np.array([value * self.event.step / UNIT for value in self.values[0]])

    def counts_and_sums(self) -> tuple[Floats, Floats]:
        """Noisy counts and sums of points, one per block."""
        weight = float(self.event.layout.count_weight)
        rows = np.array([[cell * self.event.step / UNIT for cell in part] for part in self.values])
        return rows[:, 0] / weight**2, rows[:, 1:] / weight

    def as_json(self) -> dict[str, Any]:
        """The stored form; `from_json` is its inverse."""
        return {"event": self.event.as_json(), STORED: [list(part) for part in self.values], "seeded": self.seeded}

    @staticmethod
    def from_json(body: dict[str, Any]) -> Released:
        """The measurement that `as_json` wrote."""
        values = tuple(tuple(part) for part in body[STORED])
        return Released(GramEvent.from_json(body["event"]), values, body["seeded"])

    def digest(self) -> str:
        """SHA-256 of the stored form."""
        return _digest(self.as_json())


def _digest(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _sizes(event: GramEvent) -> tuple[int, ...]:
    """The number of whole numbers in each part of a measurement."""
    layout = event.layout
    sizes = {
        Output.GRAM: (triangle_size(layout.dimension),) * layout.blocks,
        Output.BASIS: (layout.dimension - layout.heads,) * event.components,
        Output.SPECTRUM: (event.components,),
        Output.SUMS: (layout.dimension,) * layout.blocks,
    }
    return sizes[mechanism_of(event.mechanism).output]


def measure_gram(gram: PrivateGram, event: GramEvent, noise: Noise) -> Released:
    """Draw the event's noise and release the output of its mechanism: noisy blocks, directions, eigenvalues or sums.

    Neighbours: those of the event. Guarantee: the cost of the event, by the registry
    entry of its mechanism; it does not depend on the data.
    Raises: ValueError if the event was planned for another shape.
    """
    if gram.layout != event.layout:
        raise ValueError("the event was planned for blocks of another shape")
    values = mechanism_of(event.mechanism).draw(gram._triangles(), event, noise)
    return Released(event, tuple(tuple(part) for part in values), noise.seeded)


@dataclass(frozen=True, slots=True)
class ReleasedVector:
    """A noisy vector in whole numbers of its query's grid, safe to publish."""

    event: VectorEvent
    values: tuple[int, ...]
    seeded: bool

    def __post_init__(self) -> None:
        if len(self.values) != self.event.query.size:
            raise ValueError("a released measurement must have the shape of its event")

    def numbers(self) -> Floats:
        """The noisy answer as real numbers."""
        return np.array(self.values, dtype=np.float64) / self.event.query.unit

    def deviation(self) -> float:
        """Standard deviation of the noise on each number."""
        return vector_mechanism(self.event.mechanism).deviation(self.event) / self.event.query.unit

    def as_json(self) -> dict[str, Any]:
        """The stored form; `from_json` is its inverse."""
        return {"event": self.event.as_json(), "values": list(self.values), "seeded": self.seeded}

    def digest(self) -> str:
        """SHA-256 of the stored form."""
        return _digest(self.as_json())

    @staticmethod
    def from_json(body: dict[str, Any]) -> ReleasedVector:
        """The measurement that `as_json` wrote."""
        return ReleasedVector(VectorEvent.from_json(body["event"]), tuple(body["values"]), body["seeded"])


Measurement = Released | ReleasedVector
"""Any released measurement."""


def measurement_from_json(body: dict[str, Any]) -> Measurement:
    """The measurement, of either kind, that `as_json` wrote."""
    return ReleasedVector.from_json(body) if "values" in body else Released.from_json(body)


def measure_vector(vector: PrivateVector, event: VectorEvent, noise: Noise) -> ReleasedVector:
    """Draw the event's noise and release the noisy answer to its query.

    Neighbours: those of the event. Guarantee: the cost of the event, by the registry
    entry of its mechanism; it does not depend on the data.
    Raises: ValueError if the event was planned for another query.
    """
    if vector.query != event.query:
        raise ValueError("the event was planned for another query")
    values = vector_mechanism(event.mechanism).draw(vector._whole_numbers(), event, noise)
    return ReleasedVector(event, tuple(values), noise.seeded)
