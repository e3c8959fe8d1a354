"""The rules of a table, column by column in the order in which the copula draws columns.

The label comes first, then the encoded columns. A rule restricts the last of its columns exactly, and earlier ones
as far as bounds and levels tell which of their values leave no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpcore.measurements.groups import ColumnGroups
from dpcore.records.rules.allowed import AllowedCells, allowed_cells, widest
from dpcore.records.rules.rule import Rule, broken_rows
from dpcore.records.rules.views import AnyLevel, Span
from dpcore.records.schema import Cells, Codes, Floats, RecordSchema
from dpcore.synthesis.ruled_rows import allowed_class_weights, class_cells

FORBIDDEN = -1e4
"""The score that is added to a group without any allowed value: its mass is 0."""

TILT_ROUNDS, MOST_TILT = 30, 1e4
"""Rounds of the fit of cells within groups, and its largest factor."""

LEAST_PART = 1e-9
"""The share of a cell that seems empty: it is used only by rows to which the rules leave nothing else."""

CELLS_AT_ONCE = 1 << 16
"""Cells of contexts that are cumulated at once."""

BELOW_ONE = 1.0 - 2.0**-20
"""Points within a group stay below this, so that rounding leads to no cell without mass."""


@dataclass(frozen=True)  # no slots: sums are cached
class AllowedGroups:
    """What the rules leave of a column's groups to each row."""

    groups: ColumnGroups
    allowed: AllowedCells
    tilt: Floats | None = None
    """By how much each cell counts more within its group than its measured share says; see `fit_tilt`."""

    @property
    def contexts(self) -> Codes:
        """Which combination of earlier cells each row has."""
        return self.allowed.contexts

    @cached_property
    def shares(self) -> Floats:
        """The allowed part of each group: (contexts, groups)."""
        return np.concatenate([np.add.reduceat(self._mass_of(block), self._starts, axis=1) for block in self._blocks()])

    @cached_property
    def scores(self) -> Floats:
        """What is added to each group's score: (contexts, groups)."""
        with np.errstate(divide="ignore"):
            return np.maximum(np.log(self.shares), FORBIDDEN)

    def values_at(self, rows: Codes | slice, groups: Codes, points: Floats) -> NDArray[np.generic]:
        """The value at a point from 0 to below 1 of what is allowed of the given group of each row."""
        contexts = self.contexts[rows]
        codes, inside = np.empty(len(groups), dtype=np.int64), np.empty(len(groups))
        order = np.argsort(contexts, kind="stable")
        for block in self._blocks():
            first, last = np.searchsorted(contexts[order], (block.start, block.stop))
            mine = order[first:last]
            codes[mine], inside[mine] = self._cells_at(block, contexts[mine] - block.start, groups[mine], points[mine])
        return self.allowed.values_at(rows, codes, inside)

    def _cells_at(self, block: slice, contexts: Codes, groups: Codes, points: Floats) -> tuple[Codes, Floats]:
        """The cell at a point of a group, and the position in what is allowed of it, for contexts of one block."""
        ends, parts = self._ends_of(block)
        cells = len(self._order)
        key = contexts * self.groups.size + groups + np.minimum(points, BELOW_ONE)
        first = contexts * cells + self._starts[groups]
        last = contexts * cells + np.append(self._starts[1:], cells)[groups] - 1
        place = np.clip(np.searchsorted(ends, key, side="right"), first, last)
        part = parts[place]
        inside = 1.0 - (ends[place] - key) / np.where(part > 0, part, 1.0)
        return self._order[place % cells], np.clip(inside, 0.0, 1.0 - 2.0**-53)

    def _blocks(self) -> list[slice]:
        """Contexts in blocks whose cells fit into a processor's cache."""
        count = len(self.allowed.portions)
        step = max(1, CELLS_AT_ONCE // len(self._order))
        return [slice(start, min(start + step, count)) for start in range(0, count, step)]

    @cached_property
    def _order(self) -> Codes:
        """The cells, group by group."""
        return np.argsort(self.groups.group, kind="stable")

    @cached_property
    def _starts(self) -> Codes:
        """Where each group begins in that order."""
        return np.searchsorted(self.groups.group[self._order], np.arange(self.groups.size))

    def _mass_of(self, block: slice) -> Floats:
        """Each cell's share of its group, as far as it is allowed: (contexts of the block, cells in order)."""
        mass: Floats = (np.maximum(self.groups.within, LEAST_PART) * self.allowed.portions[block])[:, self._order]
        return mass

    def fit_tilt(self, groups: Codes) -> Floats:
        """Return the factors by which the values of rows in these groups get the measured shares of all cells.

        Rules leave more of some cells than of others: if an end must not lie before a beginning, the later cells of a
        group would come too often. This is iterative proportional fitting, as far as the rules allow it.
        """
        of_group, context_count = self.groups.group[self._order], len(self.allowed.portions)
        cell = self.contexts * self.groups.size + groups
        counts = np.bincount(cell, minlength=context_count * self.groups.size).reshape(context_count, -1)
        used = counts.sum(axis=1) > 0
        counts, mass = counts[used][:, of_group].astype(np.float64), self._mass_of(slice(None))[used]
        reached = (mass * counts).sum(axis=0) > 0
        target = np.where(reached, self.groups.within[self._order], 0.0)
        in_group = np.add.reduceat(target, self._starts)[of_group]
        rows = np.bincount(groups, minlength=self.groups.size)[of_group]
        target = np.divide(target * rows, in_group, out=np.zeros_like(target), where=in_group > 0)
        factor = np.ones(len(of_group))
        for _ in range(TILT_ROUNDS):
            tilted = mass * factor
            totals = np.add.reduceat(tilted, self._starts, axis=1)[:, of_group]
            found = np.divide(tilted * counts, totals, out=np.zeros_like(tilted), where=totals > 0).sum(axis=0)
            change = np.divide(target, found, out=np.ones_like(target), where=(found > 0) & (target > 0))
            factor = np.clip(factor * change, 1 / MOST_TILT, MOST_TILT)
        tilt = np.empty_like(factor)
        tilt[self._order] = factor
        return tilt

    def _ends_of(self, block: slice) -> tuple[Floats, Floats]:
        """Cumulated parts of each context and group, from context * groups + group on, and the parts themselves."""
        of_group, mass = self.groups.group[self._order], self._mass_of(block)
        if self.tilt is not None:
            mass *= self.tilt[self._order]
        totals = np.add.reduceat(mass, self._starts, axis=1)[:, of_group]
        parts = np.divide(mass, totals, out=np.zeros_like(mass), where=totals > 0)
        sums = np.cumsum(parts, axis=1)
        sums -= np.hstack([np.zeros((len(sums), 1)), sums])[:, self._starts][:, of_group]
        sums += np.arange(len(sums))[:, None] * self.groups.size + of_group
        return sums.ravel(), parts.ravel()


@dataclass(frozen=True, slots=True)
class RuledColumns:
    """The rules of a copula's table, ready for rows that are drawn column by column."""

    schema: RecordSchema
    groups: Sequence[ColumnGroups]
    rules: tuple[Rule, ...]

    @staticmethod
    def of(schema: RecordSchema, groups: Sequence[ColumnGroups]) -> RuledColumns | None:
        """The rules of a schema; None without any."""
        parts = tuple(part for rule in schema.rules for part in rule.parts())
        return RuledColumns(schema, groups, parts) if parts else None

    def class_weights(self, weights: Floats) -> Floats:
        """The shares of the classes without those of which no row obeys the rules."""
        return allowed_class_weights(self.schema, weights)

    def class_cells(self, classes: Codes) -> Cells:
        """The label's cells of rows of these classes."""
        return class_cells(self.schema, classes)

    def allowed(self, index: int, known: Cells, rows: int, tilt: Floats | None = None) -> AllowedGroups | None:
        """What the rules leave of a column to rows of which the columns before it are known; None if it is all."""
        name = self.groups[index].cells.column.name
        rules = self._about(name)
        if not rules:
            return None
        found = allowed_cells(rules, self.groups[index].cells, known, rows, self._open(index + 1))
        if (found.portions == 1.0).all():
            return None
        return AllowedGroups(self.groups[index], found, tilt)

    def is_used(self, index: int) -> bool:
        """Whether a rule speaks of a column, so that its values are needed."""
        return bool(self._about(self.groups[index].cells.column.name))

    def broken(self, cells: Cells) -> NDArray[np.bool_]:
        """Whether each row breaks a rule."""
        return broken_rows(self.rules, cells)

    def _about(self, name: str) -> list[Rule]:
        return [rule for rule in self.rules if name in rule.columns]

    def _open(self, start: int) -> dict[str, Span | AnyLevel]:
        columns = (group.cells.column for group in self.groups[start:])
        return {column.name: widest(column) for column in columns}
