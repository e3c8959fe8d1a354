"""The only door from private to released: every draw passes here.

A `PrivateGram` can be measured and nothing else: it does not print, pickle or
compare. A `Released` value comes out of `measure_gram`, or out of a ledger that
stored one; it carries the event that produced it, and whether its noise was seeded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpcore.encoding import Encoding
from dpcore.exactgram import GramSum, Layout, integer_records, require_exact_product
from dpcore.mechanisms.base import UNIT, GramEvent, Triangles, triangle_size
from dpcore.noise import Noise
from dpcore.projection import Projection
from dpcore.registry import gram_mechanism
from dpcore.schema import Cells


class PrivateGram:
    """Exact second moments of raw rows: may be measured, and nothing else."""

    __slots__ = ("_sum",)

    def __init__(self, total: GramSum) -> None:
        self._sum = total

    @property
    def layout(self) -> Layout:
        """The public shape of the blocks."""
        return self._sum.layout

    def _triangles(self) -> Triangles:
        rows, columns = np.triu_indices(self.layout.dimension)
        return [block[rows, columns].tolist() for block in self._sum.blocks]

    def __repr__(self) -> str:
        return "PrivateGram(<private>)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("private values are not serialised")


def exact_gram(
    chunks: Iterable[tuple[Cells, NDArray[np.float64] | None]],
    encoding: Encoding,
    layout: Layout,
    projection: Projection,
) -> PrivateGram:
    """The exact Gram blocks of a table that comes in chunks, each row with its share of its person or None.

    One block holds all classes together. Memory does not grow with the table.
    """
    require_exact_product()
    total = GramSum(layout)
    for cells, shares in chunks:
        points = encoding.encode(cells)
        classes = encoding.classes(cells) if layout.blocks > 1 else np.zeros(len(points), dtype=np.int64)
        total.add(integer_records(points, projection.columns, layout, shares), classes)
    return PrivateGram(total)


@dataclass(frozen=True, slots=True)
class Released:
    """Noisy Gram blocks, safe to show: whole multiples of `event.step` on the integer grid."""

    event: GramEvent
    triangles: tuple[tuple[int, ...], ...]
    seeded: bool

    def __post_init__(self) -> None:
        layout = self.event.layout
        size = triangle_size(layout.dimension)
        if len(self.triangles) != layout.blocks or any(len(block) != size for block in self.triangles):
            raise ValueError("a released measurement must have the shape of its event")

    def matrices(self) -> NDArray[np.float64]:
        """The noisy blocks as symmetric matrices, in records."""
        p = self.event.layout.dimension
        rows, columns = np.triu_indices(p)
        result = np.zeros((len(self.triangles), p, p))
        for block, triangle in zip(result, self.triangles, strict=True):
            block[rows, columns] = [cell * self.event.step / UNIT for cell in triangle]
            block[columns, rows] = block[rows, columns]
        return result

    def as_json(self) -> dict[str, Any]:
        """The stored form; `from_json` is its inverse."""
        return {"event": self.event.as_json(), "triangles": [list(t) for t in self.triangles], "seeded": self.seeded}

    @staticmethod
    def from_json(body: dict[str, Any]) -> Released:
        """A measurement that was stored with its spend."""
        triangles = tuple(tuple(block) for block in body["triangles"])
        return Released(GramEvent.from_json(body["event"]), triangles, body["seeded"])

    def digest(self) -> str:
        """SHA-256 of the stored form."""
        text = json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def measure_gram(gram: PrivateGram, event: GramEvent, noise: Noise) -> Released:
    """Draw the event's noise and release the noisy blocks.

    Neighbours: those of the event. Guarantee: the cost of the event, by the entry of
    its mechanism in the registry; the same for every data.
    Raises: ValueError if the event was planned for another shape.
    """
    if gram.layout != event.layout:
        raise ValueError("the event was planned for blocks of another shape")
    triangles = gram_mechanism(event.mechanism).draw(gram._triangles(), event, noise)
    return Released(event, tuple(tuple(block) for block in triangles), noise.seeded)
