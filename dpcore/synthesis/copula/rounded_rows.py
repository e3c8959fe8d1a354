"""Rows of a table law whose counts are close to those that the law expects, instead of independent draws.

A chunk is drawn column by column. Its rows are put in order by class and by the earlier columns on which the column
depends most, and even points along this order decide their groups by each row's own probabilities, in blocks that
make good what earlier blocks left in the pairs with all earlier columns (`group_draws`). A row never gets a group that
has the probability 0 for it. Values inside groups are spread evenly along the same order.

All decisions rest on whole numbers: scores on a grid, which any order of summation adds up exactly, and probabilities
as multiples of 2^-30. Given the law, rows are therefore the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpcore.measurements.groups import ColumnGroups
from dpcore.records.schema import MISSING, Cells, Codes, Floats, RecordSchema
from dpcore.synthesis.copula.group_draws import by_dependence, draw_groups
from dpcore.synthesis.copula.max_entropy import ColumnLaw, TableLaw
from dpcore.synthesis.copula.rows_so_far import RowsSoFar, Singles
from dpcore.synthesis.copula.ruled_columns import AllowedGroups, RuledColumns
from dpcore.synthesis.even_points import Chunk, Words, even_classes, to_unit

SCORE_GRID = 2.0**-12
"""Unit of scores: finer than any noise, and coarse enough for exact sums in single precision."""


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
    def nearest(self) -> list[int]:
        """The earlier columns, those first on which this one depends most."""
        slopes = sum(
            weight * mine.astype(np.float64) for weight, (mine, _) in zip(self.weights, self.by_class, strict=True)
        )
        return by_dependence(np.asarray(slopes), self.shares)

    def scores(self, rows: RowsSoFar) -> Singles:
        """Return the score of each group for every row, given its class and earlier groups: (rows, groups)."""
        found = np.empty((len(rows.classes), self.by_class[0][1].size), dtype=np.float32)
        for k, mine in rows.by_class():
            slopes, offsets = self.by_class[k]
            np.matmul(rows.earlier[mine], slopes, out=found[mine])
            found[mine] += offsets
        return found


def _on_grid(scores: Floats) -> Singles:
    found: Singles = (np.rint(scores / SCORE_GRID) * SCORE_GRID).astype(np.float32)
    return found


@dataclass(frozen=True, slots=True)
class RoundedTable:
    """Draws whole chunks of a table law, and the values of their groups."""

    law: TableLaw
    schema: RecordSchema
    groups: Sequence[ColumnGroups]
    columns: tuple[ColumnScores, ...]
    rules: RuledColumns | None = None

    @staticmethod
    def of(
        law: TableLaw, schema: RecordSchema, groups: Sequence[ColumnGroups], rules: RuledColumns | None = None
    ) -> RoundedTable:
        """Prepare a law for drawing, under rules if there are any."""
        columns = [ColumnScores(c, law.weights, law.shares[:i]) for i, c in enumerate(law.columns)]
        return RoundedTable(law, schema, groups, tuple(columns), rules)

    def draw(self, chunk: Chunk) -> tuple[Codes, Cells]:
        """Return the groups and cells of a chunk, its rows in random order.

        A row to which the rules leave nothing breaks one of them; no other row does, up to rounding.
        """
        generator, starts = chunk.generator(), chunk.starts(1 + len(self.columns))
        classes = even_classes(chunk, self.law.weights, starts[0])
        rows = RowsSoFar(classes, len(self.law.weights), self.law.sizes)
        for column, start in zip(self.columns, starts[1:], strict=True):
            scores, allowed = column.scores(rows), self._allowed(rows)
            if allowed is not None:
                scores += _on_grid(allowed.scores)[allowed.contexts]
            order = draw_groups(rows, scores, column.nearest, generator)
            points = _even_in_groups(rows, order, chunk.even_words(start), generator)
            self._add_values(rows, points, allowed)
        mixed, cells = generator.permutation(chunk.rows), self._with_label(rows)
        return rows.groups[mixed], {column.name: cells[column.name][mixed] for column in self.schema.columns}

    def _allowed(self, rows: RowsSoFar) -> AllowedGroups | None:
        """What the rules leave of the next column to each row; None if no rule speaks of it."""
        if self.rules is None:
            return None
        return self.rules.allowed(rows.drawn, self._with_label(rows), len(rows.classes), self.law.tilts[rows.drawn])

    def _add_values(self, rows: RowsSoFar, points: Floats, allowed: AllowedGroups | None) -> None:
        """Add the values of the last column's groups at these points."""
        column, groups = self.groups[rows.drawn - 1], rows.groups[:, rows.drawn - 1]
        rows.values[column.cells.column.name] = (
            column.values_at(groups, points) if allowed is None else allowed.values_at(slice(None), groups, points)
        )

    def _with_label(self, rows: RowsSoFar) -> Cells:
        label = self.schema.label
        if label is None:
            return rows.values
        return rows.values | {label.name: np.where(rows.classes < len(label.levels), rows.classes, MISSING)}


def _even_in_groups(rows: RowsSoFar, order: Codes, words: Words, generator: np.random.Generator) -> Floats:
    """Return a point of each row such that the points of every group of the last column are even along the order."""
    groups = rows.groups[order, rows.drawn - 1]
    by_group = order[np.argsort(groups.astype(np.int16), kind="stable")]
    points = np.empty(len(groups))
    points[by_group] = (to_unit(words) + generator.random(len(groups)) / len(groups)) % 1.0
    return points
