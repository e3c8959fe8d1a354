"""Evenly spread points instead of random ones, so that shares of rows are the model's up to about a row.

The points are multiples of the golden ratio, modulo 1, from a random start on. Any stretch of them fills the
unit interval evenly: of r successive points, a share p is met by p r of them up to about one, or two for large r. A
chunk continues where the chunk before it ends, so that chunks that are drawn apart add up as if they were one.
Everything is integer arithmetic, the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.noise.sources import bulk_generator
from dpcore.records.schema import Codes, Floats

Words = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio's fraction in units of 2^-64, made odd."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk's place in a synthetic table: its number, its first row, its rows, and the table's seed and rows."""

    index: int
    start: int
    rows: int
    seed: str
    table_rows: int

    def generator(self) -> np.random.Generator:
        """The random stream of this chunk alone."""
        return bulk_generator(self.seed, f"rows {self.index}")

    def starts(self, count: int) -> Words:
        """Random starts of the table's sequences of points, the same in every chunk."""
        stream = bulk_generator(self.seed, "starts")
        return stream.integers(0, np.iinfo(np.uint64).max, count, dtype=np.uint64, endpoint=True)

    def even_words(self, start: np.uint64) -> Words:
        """The points of this chunk's rows in a sequence that goes through the whole table, in units of 2^-64."""
        return start + (np.arange(self.rows, dtype=np.uint64) + np.uint64(self.start)) * GOLDEN

    def even_points(self, start: np.uint64) -> Floats:
        """The same points as numbers from 0 to below 1."""
        return to_unit(self.even_words(start))


def new_words(count: int, generator: np.random.Generator) -> Words:
    """Return even points from a new random start on, in units of 2^-64."""
    start = generator.integers(0, np.iinfo(np.uint64).max, dtype=np.uint64, endpoint=True)
    words: Words = start + np.arange(count, dtype=np.uint64) * GOLDEN
    return words


def to_unit(words: Words) -> Floats:
    """Return words as multiples of 2^-53 below 1."""
    unit: Floats = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return unit


def even_normals(rows: int, coordinates: int, generator: np.random.Generator) -> Floats:
    """Draw standard normal numbers of shape (coordinates, rows), the numbers of each coordinate evenly spread.

    The quantiles of a coordinate are equally spaced from a random start on, in random order (a Latin hypercube). A row
    is exactly uniform in the unit cube before it is made normal, so every row alone has the law of an independent draw.
    """
    from scipy.special import ndtri

    found = np.empty((coordinates, rows))
    for numbers, start in zip(found, generator.random(coordinates), strict=True):
        numbers[:] = generator.permutation(rows)
        numbers += start
        numbers /= rows
        np.clip(numbers, 2.0**-54, 1 - 2.0**-53, out=numbers)
    normals: Floats = ndtri(found, out=found)
    return normals


def even_classes(chunk: Chunk, weights: Floats, start: np.uint64) -> Codes:
    """Return the classes of a chunk's rows, sorted, in numbers that follow the shares up to about a row.

    A class without a share gets no row.
    """
    edges = np.cumsum(weights)
    found = np.searchsorted(edges / edges[-1], chunk.even_points(start), side="right")
    last = int(np.flatnonzero(weights)[-1])
    return np.sort(np.minimum(found, last)).astype(np.int64)
