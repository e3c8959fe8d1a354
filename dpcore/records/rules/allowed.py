"""Which values of one column the rules leave to a row, given the columns before it.

The last column of a rule is solved: where the rule compares straight lines, exactly the values that obey it are
known, even a single one, as for a sum; elsewhere a few values of each cell are tried. For an earlier column, a value
is left out if no values of the open columns could make up for it, as far as bounds and levels tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.records.binning import ColumnCells
from dpcore.records.rules.conditions import Both, Condition, Not
from dpcore.records.rules.rule import Rule
from dpcore.records.rules.views import FALSE, AnyLevel, Flags, Numbers, Span
from dpcore.records.schema import MISSING, Cells, Codes, Column, IntervalColumn, NominalColumn

NARROW = 2.0**-40
"""Half the width, as a share of the column's range, of what counts as a single number."""

AT_ONCE = 512
"""Contexts whose stretches are added up at once."""

PROBES = 8
"""How many values of a cell are tried where a rule cannot be solved."""

Open = Mapping[str, Span | AnyLevel]


def widest(column: Column) -> Span | AnyLevel:
    """All that a released cell of a column may hold."""
    if isinstance(column, IntervalColumn):
        return Span.between(column.lower, column.upper, missing=column.missing_level)
    return AnyLevel(column.missing_level)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Stretches of a column's range, in order: where each begins, and how much of it is allowed, by context.

    `single` is the one number that a narrow stretch stands for, else NaN.
    """

    starts: Numbers
    widths: Numbers
    single: Numbers

    def below(self, edges: Numbers) -> Numbers:
        """How much is allowed below each edge: (contexts, edges)."""
        found = np.zeros((len(self.starts), len(edges)))
        for first in range(0, len(found), AT_ONCE):  # what fits into a processor's cache
            block = slice(first, first + AT_ONCE)
            for start, width in zip(self.starts[block].T, self.widths[block].T, strict=True):
                found[block] += np.clip(edges[None, :] - start[:, None], 0.0, width[:, None])
        return found

    def at(self, contexts: Codes, amounts: Numbers) -> Numbers:
        """The number below which so much is allowed in each given context."""
        widths = self.widths[contexts]
        ends = np.cumsum(widths, axis=1)
        last = widths.shape[1] - 1 - np.argmax(widths[:, ::-1] > 0, axis=1)
        place = np.minimum((ends <= amounts[:, None]).sum(axis=1), last)
        rows = np.arange(len(contexts))
        inside = np.clip(amounts - (ends - widths)[rows, place], 0.0, widths[rows, place])
        single = self.single[contexts, place]
        found: Numbers = np.where(np.isnan(single), self.starts[contexts, place] + inside, single)
        return found


@dataclass(frozen=True, slots=True)
class AllowedCells:
    """Which part of each cell of a column is left to a row, by the context that the row's other cells make."""

    cells: ColumnCells
    contexts: Codes
    """The context of each row."""
    portions: Numbers
    """The part of each cell that is allowed: (contexts, cells)."""
    pieces: Pieces | None = None
    slots: Flags | None = None
    """Where a rule was tried only: which parts of a cell are allowed, (contexts, cells, parts)."""

    def values_at(self, rows: Codes | slice, codes: Codes, positions: Numbers) -> NDArray[np.generic]:
        """The value at a position from 0 to below 1 within what is allowed of the given cell of each row."""
        column, contexts = self.cells.column, self.contexts[rows]
        plain = self.cells.values_at(codes, positions)
        if isinstance(column, NominalColumn) or (self.pieces is None and self.slots is None):
            return plain
        wide = np.append(_is_wide(self.cells), False)[np.minimum(codes, len(self.cells.edges) - 1)]
        if not wide.any():
            return plain
        contexts, chosen, at = contexts[wide], codes[wide], positions[wide]
        if self.pieces is not None:
            edges = self.cells.edges
            low = _below_at(self.pieces, contexts, edges[chosen])
            high = _below_at(self.pieces, contexts, edges[chosen + 1])
            found = self.pieces.at(contexts, low + at * (high - low))
            last = np.nextafter(edges[chosen + 1], edges[chosen])
            found = np.clip(found, edges[chosen], np.where(last >= edges[chosen], last, edges[chosen]))
            if column.is_whole:
                found = np.floor(found)
        else:
            assert self.slots is not None  # noqa: S101  one of both is there
            free = self.slots[contexts, chosen]
            rank, count = np.cumsum(free, axis=1), free.sum(axis=1)
            step = at * np.maximum(count, 1)
            slot = np.argmax(rank > np.floor(step)[:, None], axis=1)
            found = self.cells.values_at(chosen, (slot + step % 1.0) / PROBES).astype(np.float64)
        plain = plain.copy()
        plain[wide] = np.clip(found, column.lower, column.upper)
        return plain


def allowed_cells(
    rules: Sequence[Rule], cells: ColumnCells, known: Cells, rows: int, open_columns: Open
) -> AllowedCells:
    """What the rules leave of a column to each row; every rule speaks of it, of known columns and of open ones."""
    name = cells.column.name
    used = sorted({c for rule in rules for c in rule.columns if c in known})
    first, contexts = distinct_rows([key for rule in rules for key in _keys(rule.condition, name, known)], rows)
    fixed = {c: np.asarray(known[c])[first][:, None] for c in used}
    closing = [rule for rule in rules if rule.columns <= {name, *used}]
    opening = [rule for rule in rules if rule not in closing]
    shape = (len(first), cells.count)
    possible = np.ones(shape)
    for rule in opening:
        view = fixed | {name: _cell_view(cells)} | {c: open_columns[c] for c in rule.columns if c in open_columns}
        possible *= np.broadcast_to(rule.can_hold(view), shape)
    portions = possible * _obeyed(closing, fixed | {name: _points(cells)[None, :]}, shape)
    if isinstance(cells.column, NominalColumn) or not closing or not _is_wide(cells).any():
        return AllowedCells(cells, contexts, portions)
    pieces, slots = _solve(closing, cells.column, fixed, len(first)), None
    wide, edges = np.flatnonzero(_is_wide(cells)), cells.edges
    if pieces is not None:
        part = np.diff(pieces.below(edges), axis=1)[:, wide] / np.diff(edges)[wide]
    else:
        slots = _try(closing, cells, fixed, len(first))
        part = slots[:, wide].mean(axis=2)
    portions[:, wide] = np.clip(part, 0.0, 1.0) * possible[:, wide]
    return AllowedCells(cells, contexts, portions, pieces, slots)


def _keys(condition: Condition, name: str, known: Cells) -> Iterator[NDArray[np.generic]]:
    """What a condition on a column depends on: the truth of its known parts, and known cells that meet the column."""
    columns = set(condition.columns())
    if name not in columns and columns <= known.keys():
        yield condition.truth(known)
    elif isinstance(condition, Both):
        for part in condition.parts:
            yield from _keys(part, name, known)
    elif isinstance(condition, Not):
        yield from _keys(condition.part, name, known)
    else:
        yield from (known[column] for column in sorted(columns & known.keys()))


def distinct_rows(columns: Iterable[NDArray[np.generic]], rows: int) -> tuple[Codes, Codes]:
    """One row of each different combination of cells, and which combination each row has."""
    found = np.zeros(rows, dtype=np.int64)
    for column in columns:
        _, codes = np.unique(np.broadcast_to(column, (rows,)), return_inverse=True)
        _, found = np.unique(found * (int(codes.max(initial=0)) + 1) + codes.ravel(), return_inverse=True)
        found = found.ravel()
    first = np.zeros(int(found.max(initial=-1)) + 1, dtype=np.int64)
    first[found[::-1]] = np.arange(rows)[::-1]
    return first, found.astype(np.int64)


def _is_wide(cells: ColumnCells) -> Flags:
    """Whether each cell of an interval column holds more than one number; a cell of missing values does not count."""
    column = cells.column
    assert isinstance(column, IntervalColumn)  # noqa: S101  nominal columns have levels
    one = 1.0 if column.is_whole else 2 * NARROW * (column.upper - column.lower)
    wide = np.diff(cells.edges) > one
    return np.append(wide, False) if column.missing_level else wide


def _points(cells: ColumnCells) -> NDArray[np.generic]:
    """The least value of each cell, which is the only one of a cell that is not wide."""
    column = cells.column
    if isinstance(column, NominalColumn):
        codes = np.arange(column.level_count)
        return np.where(codes < len(column.levels), codes, MISSING)
    return np.append(cells.edges[:-1], np.nan) if column.missing_level else cells.edges[:-1]


def _cell_view(cells: ColumnCells) -> NDArray[np.generic] | Span:
    """What is known of a value of each cell, as one row."""
    column = cells.column
    if isinstance(column, NominalColumn):
        return _points(cells)[None, :]
    low, high = cells.edges[:-1], cells.edges[1:] - (1.0 if column.is_whole else 0.0)
    missing = np.zeros(len(low), dtype=bool)
    if column.missing_level:
        low, high, missing = np.append(low, np.inf), np.append(high, -np.inf), np.append(missing, True)
    return Span(low[None, :], high[None, :], missing[None, :])


def _obeyed(rules: Sequence[Rule], cells: Cells, shape: tuple[int, ...]) -> Flags:
    """Where no rule is false."""
    obeyed = np.ones(shape, dtype=bool)
    for rule in rules:
        obeyed &= np.broadcast_to(rule.condition.truth(cells) != FALSE, shape)
    return obeyed


def _solve(rules: Sequence[Rule], column: IntervalColumn, fixed: Cells, contexts: int) -> Pieces | None:
    """The stretches of a column's range in which all rules hold; None if a rule is no comparison of straight lines."""
    roots: list[Numbers] = []
    for rule in rules:
        found = rule.condition.roots(column.name, fixed)
        if found is None:
            return None
        roots += [np.broadcast_to(root, (contexts, 1)) if np.ndim(root) < 2 else root for root in found]
    low, high = column.lower, column.upper
    reach = NARROW * (high - low)
    if column.is_whole:
        low, high = float(np.ceil(low)), float(np.floor(high)) + 1
        steps = [np.rint(root) + step for root in roots for step in (-1.0, 0.0, 1.0, 2.0)]
    else:
        steps = [root + side for root in roots for side in (-reach, reach)]
    ends = [np.full((contexts, 1), end) for end in (low, high)]
    cuts = [np.clip(np.where(np.isnan(step), low, step), low, high) for step in steps]
    stops = np.sort(np.hstack([*ends, *cuts]), axis=1)
    starts, widths = stops[:, :-1], np.diff(stops, axis=1)
    single = np.full(starts.shape, np.nan)
    tried = starts
    if not column.is_whole:
        tried = starts + widths / 2
        for root in roots:
            near = (widths > 0) & (np.abs(tried - root) <= reach) & (root >= low) & (root <= high)
            single = np.where(near, root, single)
        tried = np.where(np.isnan(single), tried, single)
    widths = widths * _obeyed(rules, fixed | {column.name: tried}, starts.shape)
    return Pieces(starts, widths, single)


def _below_at(pieces: Pieces, contexts: Codes, edges: Numbers) -> Numbers:
    """How much is allowed below one edge for each given context."""
    gaps = edges[:, None] - pieces.starts[contexts]
    found: Numbers = np.clip(gaps, 0.0, pieces.widths[contexts]).sum(axis=1)
    return found


def _try(rules: Sequence[Rule], cells: ColumnCells, fixed: Cells, contexts: int) -> Flags:
    """Which parts of each cell of numbers obey the rules, by the value in the middle of each part."""
    column = cells.column
    codes, parts = np.arange(len(cells.edges) - 1), (np.arange(PROBES) + 0.5) / PROBES
    grid = np.repeat(codes, PROBES), np.tile(parts, len(codes))
    tried = cells.values_at(*grid)
    obeyed = _obeyed(rules, fixed | {column.name: tried[None, :]}, (contexts, len(tried)))
    return obeyed.reshape(contexts, len(codes), PROBES)
