"""Whether some row obeys a set of rules, from public bounds and levels alone.

Few combinations of values are all tried, which decides the matter. Of more, rows are drawn at random column by
column, each among the values that the rules leave to it, in several orders of the columns: a row that is found
decides the matter, and none that is found after so many draws is taken for none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum

import numpy as np

from dpcore.noise.sources import public_generator
from dpcore.records.binning import ColumnCells
from dpcore.records.rules.allowed import allowed_cells, widest
from dpcore.records.rules.rule import Rule, broken_rows
from dpcore.records.schema import MISSING, Cells, Column, NominalColumn, RecordSchema

MOST_COMBINATIONS = 1 << 18
"""All combinations of values are tried up to this number."""

DRAWS, FEW_DRAWS = 4_096, 128
"""Rows that are drawn in one order of the columns, and at first: most rules are easy to obey."""

ORDERS = 6
"""Orders of the columns in which rows are drawn."""

IN_ORDER = 8
"""How many times rows are drawn where the order of the columns is given."""


class Found(StrEnum):
    """The outcome of a search."""

    ROW = "a row that obeys all rules"
    NEVER = "none of all rows"
    NOT_DRAWN = "none of the rows that were drawn"


def search_row(schema: RecordSchema, rules: Sequence[Rule]) -> Found:
    """Look for a row that obeys all rules."""
    if not rules:
        return Found.ROW
    view = {column.name: widest(column) for column in schema.columns}
    parts = [part for rule in rules for part in rule.parts()]
    if not all(bool(part.can_hold(view)) for part in parts):
        return Found.NEVER
    used = set().union(*(rule.columns for rule in rules))
    columns = [column for column in schema.columns if column.name in used]
    if not columns:
        return Found.ROW
    if _is_drawn(columns, parts, rules, seed=ORDERS, rows=FEW_DRAWS):
        return Found.ROW
    if math.prod(_value_count(column) for column in columns) <= MOST_COMBINATIONS:
        return Found.NEVER if broken_rows(rules, _all_rows(columns)).all() else Found.ROW
    drawn = (_is_drawn(order, parts, rules, seed=seed, rows=DRAWS) for seed, order in enumerate(_orders(columns)))
    return Found.ROW if any(drawn) else Found.NOT_DRAWN


def is_drawn_in_order(columns: Sequence[Column], rules: Sequence[Rule]) -> bool:
    """Whether some row that obeys all rules is drawn column by column in this order, as a copula draws."""
    used = set().union(*(rule.columns for rule in rules))
    mine, parts = (
        [column for column in columns if column.name in used],
        [part for rule in rules for part in rule.parts()],
    )
    if not mine:
        return True
    tries = [FEW_DRAWS, *[DRAWS] * IN_ORDER]
    return any(_is_drawn(mine, parts, rules, seed=seed, rows=rows) for seed, rows in enumerate(tries))


def _is_drawn(columns: Sequence[Column], parts: Sequence[Rule], rules: Sequence[Rule], *, seed: int, rows: int) -> bool:
    """Whether a row that obeys all rules is among those drawn."""
    drawn = _draw_rows(columns, parts, seed, rows)
    return drawn is not None and not bool(broken_rows(rules, drawn).all())


def _value_count(column: Column) -> float:
    """How many values a column has; infinitely many if they are no whole numbers."""
    if isinstance(column, NominalColumn):
        return column.level_count
    if not column.is_whole:
        return math.inf
    return max(math.floor(column.upper) - math.ceil(column.lower) + 1, 1) + column.missing_level


def _all_rows(columns: Sequence[Column]) -> Cells:
    """Every combination of the columns' values."""
    values = [_values(column) for column in columns]
    grid = np.meshgrid(*values, indexing="ij")
    return {column.name: axis.ravel() for column, axis in zip(columns, grid, strict=True)}


def _values(column: Column) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    if isinstance(column, NominalColumn):
        codes = np.arange(column.level_count)
        return np.where(codes < len(column.levels), codes, MISSING)
    low = math.ceil(column.lower)
    values = np.arange(low, max(math.floor(column.upper), low) + 1, dtype=np.float64)
    return np.append(values, np.nan) if column.missing_level else values


def _orders(columns: Sequence[Column]) -> Iterator[list[Column]]:
    """The columns forwards, backwards, and in random orders."""
    yield list(columns)
    yield list(columns)[::-1]
    generator = public_generator("0", "orders of columns")
    for _ in range(ORDERS - 2):
        yield [columns[place] for place in generator.permutation(len(columns))]


def _draw_rows(columns: Sequence[Column], rules: Sequence[Rule], seed: int, rows: int) -> Cells | None:
    """Rows drawn column by column among what the rules leave; None if they leave nothing to any of them."""
    generator = public_generator(f"{seed:x}", "rows that obey rules")
    known: Cells = {}
    for place, column in enumerate(columns):
        cells = ColumnCells(column)
        later = {c.name: widest(c) for c in columns[place + 1 :]}
        mine = [rule for rule in rules if column.name in rule.columns]
        allowed = allowed_cells(mine, cells, known, rows, later)
        mass = np.cumsum(allowed.portions, axis=1)[allowed.contexts]
        alive = mass[:, -1] > 0
        if not alive.any():
            return None
        point = generator.random(rows) * mass[:, -1]
        codes = np.minimum((mass <= point[:, None]).sum(axis=1), cells.count - 1)
        values = allowed.values_at(slice(None), codes, generator.random(rows))
        known = {name: held[alive] for name, held in (known | {column.name: values}).items()}
        rows = int(alive.sum())
    return known
