"""Invented neighbouring tables for a specification's columns, with extreme values; no private data are read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpcore.mechanisms.queries import HistogramsQuery, ScoreQuery
from dpcore.mechanisms.registry import Event
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.records.schema import MISSING, UNKNOWN, Cells, Column, Floats, Neighbours, NominalColumn, RecordSchema

WeightedRows = tuple[Cells, Floats | None]
"""Rows and the weight of each row (None: all 1)."""

COMMON_ROWS, PERSON_ROWS = 5, 3
"""Number of rows that both tables share, and of the rows of an invented person."""


def hostile_rows(schema: RecordSchema, count: int, rng: np.random.Generator) -> Cells:
    """Draw rows of extreme values: bounds, NaN, infinities, huge and tiny numbers, missing and unknown levels.

    Half of the time all values are bounds or known levels, which make the longest records.
    """
    edges = _longest if rng.random() < 0.5 else _hostile
    return {column.name: rng.choice(edges(column), count) for column in schema.columns}


def _longest(column: Column) -> NDArray[np.generic]:
    if isinstance(column, NominalColumn):
        return np.arange(len(column.levels), dtype=np.int64)
    return np.array([column.lower, column.upper])


def _hostile(column: Column) -> NDArray[np.generic]:
    known = _longest(column)
    if isinstance(column, NominalColumn):
        return np.array([*known, MISSING, UNKNOWN, len(known) + 7], dtype=np.int64)
    return np.array([*known, column.middle, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324])


def hostile_pair(
    schema: RecordSchema, event: Event, rng: np.random.Generator
) -> tuple[list[WeightedRows], list[WeightedRows]]:
    """Draw two neighbouring tables; the differing unit comes last in the one and first in the other.

    Half of the units that replace another have its number of rows, and differ from them in every column.
    """
    common: WeightedRows = (hostile_rows(schema, COMMON_ROWS, rng), None)
    unit = hostile_unit(schema, _rows_per_unit(event), rng)
    if event.neighbours is Neighbours.ADD_REMOVE:
        return [common, unit], [common]
    other = _opposite(schema, unit, rng) if rng.random() < 0.5 else hostile_unit(schema, _rows_per_unit(event), rng)
    return [common, unit], [other, common]


def _opposite(schema: RecordSchema, unit: WeightedRows, rng: np.random.Generator) -> WeightedRows:
    """Draw rows of bounds or known levels, none of them the value that the unit's first row has in that column."""
    rows, weights = unit
    found = {}
    for column in schema.columns:
        values = _longest(column)
        others = values[values != rows[column.name][0]]
        found[column.name] = rng.choice(others if len(others) else values, len(rows[column.name]))
    return found, weights


def _rows_per_unit(event: Event) -> int:
    if not isinstance(event, VectorEvent):
        return event.layout.rows_per_unit
    return event.query.rows_per_unit if isinstance(event.query, HistogramsQuery | ScoreQuery) else 1


def hostile_unit(schema: RecordSchema, most_rows: int, rng: np.random.Generator) -> WeightedRows:
    """Draw the rows of one unit: a single row, several rows with weights that sum to 1, or up to `most_rows` rows."""
    if most_rows > 1 or rng.random() < 0.5:
        return hostile_rows(schema, int(rng.integers(1, most_rows + 1)), rng), None
    return hostile_rows(schema, PERSON_ROWS, rng), np.full(PERSON_ROWS, 1 / PERSON_ROWS)
