"""Rows of a table law whose counts are the law's up to about a row, instead of independent draws.

A chunk is drawn column by column. Its rows are put in order by class and by the earlier columns on which the
column depends most, and even points along this order decide their groups by each row's own probabilities: neighbours
are alike, so every class and leading earlier group gets about its expected number of each group. What remains of all
other pairs is lowered by exchanging groups between rows (`pair_balance`). A row never gets a group that has the
probability 0 for it. Values inside groups are spread evenly in the same way.

All decisions rest on whole numbers: scores on a grid, which any order of summation adds up exactly, and probabilities
as multiples of 2^-18. Given the law, rows are therefore the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpcore.measurements.groups import ColumnGroups
from dpcore.records.schema import MISSING, Cells, Codes, Floats, RecordSchema
from dpcore.synthesis.copula.max_entropy import ColumnLaw, Singles, TableLaw
from dpcore.synthesis.copula.pair_balance import balance_pairs
from dpcore.synthesis.copula.rows_so_far import PARTS, PARTS_BITS, RowsSoFar
from dpcore.synthesis.even_points import Chunk, Words, even_classes, to_unit

SCORE_GRID = 2.0**-12
"""Unit of scores: finer than any noise, and coarse enough for exact sums in single precision."""

LEADING = 4
"""How many earlier columns order the rows of a chunk: those on which the column depends most."""

STEPS = 1024
"""Steps of the expected group, by which rows are ordered within equal leading groups."""

ROW_BITS = 15
"""Bits of a row's number within a chunk."""

MOST_KEYS = 1 << 38
"""The largest number of different keys that an order can tell apart."""


@dataclass(frozen=True)  # no slots: cached_property needs a __dict__
class ColumnScores:
    """A column's law on the grid of scores."""

    law: ColumnLaw
    weights: Floats
    """Shares of the classes."""
    shares: Sequence[Floats]
    """Shares of the earlier columns' groups."""

    @cached_property
    def by_class(self) -> list[tuple[Singles, Singles]]:
        """Slopes per earlier group, and offsets, of each class."""
        count = len(self.law.by_class)
        of_class, common = np.split(self.law.common.slopes, [count])
        found = []
        for k, own in enumerate(self.law.by_class):
            slopes, offsets = common, of_class[k] + self.law.common.offsets
            if own is not None:
                slopes, offsets = slopes + own.slopes, offsets + own.offsets
            found.append((_on_grid(slopes), _on_grid(offsets)))
        return found

    @cached_property
    def leading(self) -> list[int]:
        """The earlier columns on which this one depends most, by the spread of their slopes."""
        slopes = sum(
            weight * mine.astype(np.float64) for weight, (mine, _) in zip(self.weights, self.by_class, strict=True)
        )
        spreads, start = [], 0
        for share in self.shares:
            part = np.asarray(slopes)[start : start + len(share)]
            spreads.append(float((share @ (part - share @ part) ** 2).sum()))
            start += len(share)
        order = sorted(range(len(spreads)), key=lambda c: (-spreads[c], c))
        return [c for c in order[:LEADING] if spreads[c] > 0]

    def chances(self, rows: RowsSoFar) -> NDArray[np.int64]:
        """Return the probability of each group for every row, given its class and earlier groups: (groups, rows).

        They are whole numbers of 2^-18 that sum to 1 for each row.
        """
        found = np.empty((self.by_class[0][1].size, len(rows.classes)), dtype=np.int64)
        for k, mine in rows.by_class():
            slopes, offsets = self.by_class[k]
            scores = rows.earlier[mine] @ slopes
            scores += offsets
            mass = np.ascontiguousarray(scores.T, dtype=np.float64)  # summing few long rows is faster
            mass -= mass.max(axis=0)
            np.exp(mass, out=mass)
            found[:, mine] = whole_chances(mass)
        return found


def _on_grid(scores: Floats) -> Singles:
    found: Singles = (np.rint(scores / SCORE_GRID) * SCORE_GRID).astype(np.float32)
    return found


def whole_chances(mass: Floats) -> NDArray[np.int64]:
    """Return probabilities in proportion to masses of shape (groups, rows), as whole numbers that sum to `PARTS`.

    A mass of 0 keeps the probability 0.
    """
    below = np.cumsum(mass, axis=0)
    below /= below[-1]
    edges = np.floor(below * PARTS).astype(np.int64)
    return np.diff(edges, axis=0, prepend=0)


@dataclass(frozen=True, slots=True)
class RoundedTable:
    """Draws whole chunks of a table law, and the values of their groups."""

    law: TableLaw
    schema: RecordSchema
    groups: Sequence[ColumnGroups]
    columns: tuple[ColumnScores, ...]

    @staticmethod
    def of(law: TableLaw, schema: RecordSchema, groups: Sequence[ColumnGroups]) -> RoundedTable:
        """Prepare a law for drawing."""
        columns = [ColumnScores(c, law.weights, law.shares[:i]) for i, c in enumerate(law.columns)]
        return RoundedTable(law, schema, groups, tuple(columns))

    def draw(self, chunk: Chunk) -> tuple[Codes, Cells]:
        """Return the groups and cells of a chunk, its rows in random order."""
        generator, count = chunk.generator(), len(self.columns)
        starts = chunk.starts(2 * count + 1)
        rows = RowsSoFar(chunk, even_classes(chunk, self.law.weights, starts[0]), self.law.sizes, len(self.law.weights))
        for index in range(count):
            order = self._draw_groups(rows, starts[1 + 2 * index], generator)
            self._draw_values(rows, order, starts[2 + 2 * index], generator)
        mixed = generator.permutation(chunk.rows)
        cells = self._with_label(rows)
        return rows.groups[mixed], {column.name: cells[column.name][mixed] for column in self.schema.columns}

    def _draw_groups(self, rows: RowsSoFar, start: np.uint64, generator: np.random.Generator) -> Codes:
        """Draw the next column's groups, and return the order of rows along which they were spread."""
        column = self.columns[rows.drawn]
        chances = column.chances(rows)
        order = _order(rows, column.leading, chances, generator)
        groups = spread_groups(chances, order, rows.chunk.even_words(start))
        if rows.drawn:
            balance_pairs(groups, chances, order, rows, generator)
        rows.add(groups)
        return order

    def _draw_values(self, rows: RowsSoFar, order: Codes, start: np.uint64, generator: np.random.Generator) -> None:
        """Draw values within the groups of the last column, spread evenly within every group."""
        index = rows.drawn - 1
        column, groups = self.groups[index], rows.groups[:, index]
        by_group = order[np.argsort(groups[order], kind="stable")]
        jitter = generator.random(len(groups)) / len(groups)
        points = np.empty(len(groups))
        points[by_group] = (to_unit(rows.chunk.even_words(start)) + jitter) % 1.0
        rows.values[column.cells.column.name] = column.values_at(groups, points)

    def _with_label(self, rows: RowsSoFar) -> Cells:
        label = self.schema.label
        if label is None:
            return rows.values
        return rows.values | {label.name: np.where(rows.classes < len(label.levels), rows.classes, MISSING)}


def _order(
    rows: RowsSoFar, leading: Sequence[int], chances: NDArray[np.int64], generator: np.random.Generator
) -> Codes:
    """Return the rows in an order in which neighbours are alike; rows that are equal in it come in random order."""
    keys, size = rows.classes.copy(), int(rows.classes[-1]) + 1
    for column in leading:
        if size * rows.sizes[column] * STEPS > MOST_KEYS:
            break
        keys = keys * rows.sizes[column] + rows.groups[:, column]
        size *= rows.sizes[column]
    if len(chances) > 1:
        expected = np.cumsum(chances[:-1], axis=0).sum(axis=0) * (STEPS - 1) // (PARTS * (len(chances) - 1))
        keys = keys * STEPS + expected
    lots = generator.permutation(len(keys))
    back = np.empty_like(lots)
    back[lots] = np.arange(len(lots))
    keys = (keys << ROW_BITS) | lots  # all different, so that every way of sorting gives the same order
    keys.sort()
    found: Codes = back[keys & ((1 << ROW_BITS) - 1)]
    return found


def spread_groups(chances: NDArray[np.int64], order: Codes, words: Words) -> Codes:
    """Return a group for each row: by its own probabilities, at even points along the order."""
    points = np.empty(len(order), dtype=np.int64)
    points[order] = (words >> np.uint64(64 - PARTS_BITS)).astype(np.int64)
    below, groups = np.zeros(len(order), dtype=np.int64), np.zeros(len(order), dtype=np.int64)
    for chance in chances[:-1]:
        below += chance
        groups += below <= points
    return groups
