"""The generator for mixed tables: marginals from histograms, dependence from one Gram of grouped records.

Each column's own distribution is measured apart from how columns hang together, as copulas do it:
heavy tails, piles at 0, whole numbers, dates and rare levels come out as the histograms have them,
whatever the dependence. Rows are drawn group by group (`dpcore.maxent`), values inside groups by the
histograms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.cells import ColumnCells
from dpcore.grouped import GroupedEncoding
from dpcore.grouping import group_columns
from dpcore.maxent import TableLaw, fit_table_law
from dpcore.measure import Released, ReleasedVector
from dpcore.mechanisms.base import GramEvent
from dpcore.noise import public_generator
from dpcore.pairtables import PairTables, pair_tables
from dpcore.queries import HistogramsQuery
from dpcore.registry import gram_mechanism
from dpcore.schema import MISSING, Cells, RecordSchema

Codes = NDArray[np.int64]

ROWS_AT_ONCE = 65_536

USUAL_LENGTH = 0.6
"""A typical record's squared length a column, before the histograms tell it: what groups are chosen by."""

LEAST_DEVIATIONS = 3.0
"""A group holds at least so many standard deviations of the noise on a pair of groups."""


def cells_of_schema(schema: RecordSchema) -> list[ColumnCells]:
    """The public cells of every encoded column."""
    return [ColumnCells(column) for column in schema.encoded_columns]


def histograms_query(schema: RecordSchema, rows_per_unit: int = 1) -> HistogramsQuery:
    """The marginals' query of a record."""
    return HistogramsQuery(tuple(cells.count for cells in cells_of_schema(schema)), rows_per_unit)


def grouped_encoding(schema: RecordSchema, marginals: ReleasedVector, event: GramEvent) -> GroupedEncoding:
    """How records are measured for their dependence, once the marginals are released.

    Guarantee: post-processing of the marginals; whatever it is, records are cut to the unit ball (N1).
    """
    columns = cells_of_schema(schema)
    width = event.layout.dimension - event.layout.heads
    noise = gram_mechanism(event.mechanism).expected_error(event).off_diagonal_sd
    least = LEAST_DEVIATIONS * noise * USUAL_LENGTH * len(columns)
    groups = group_columns(marginals, columns, least=least, coordinates=width)
    return GroupedEncoding(schema, groups, width)


@dataclass(frozen=True, slots=True)
class Copula:
    """Everything estimated of a mixed table, and the law of its rows."""

    encoding: GroupedEncoding
    tables: PairTables

    @staticmethod
    def from_released(schema: RecordSchema, marginals: ReleasedVector, released: Released) -> Copula:
        """The generator of two released measurements."""
        encoding = grouped_encoding(schema, marginals, released.event)
        return Copula(encoding, pair_tables(released, encoding))

    def law(self, seed: str) -> TableLaw:
        """The law of rows of groups; the seed is of the rows on which it is fitted."""
        return fit_table_law(self.tables, public_generator(seed, "fitting"))

    def sample(self, law: TableLaw, rows: int, seed: str) -> Iterator[tuple[Codes, Codes]]:
        """Groups of every column and classes, in chunks."""
        generator = public_generator(seed, "sampling")
        for start in range(0, rows, ROWS_AT_ONCE):
            yield law.draw(min(ROWS_AT_ONCE, rows - start), generator)

    def decode(self, groups: Codes, classes: Codes, generator: np.random.Generator) -> Cells:
        """Cells of the original columns, in their order."""
        schema = self.encoding.schema
        cells: Cells = {
            column.cells.column.name: column.values(groups[:, index], generator)
            for index, column in enumerate(self.encoding.groups)
        }
        if schema.label is not None:
            cells[schema.label.name] = np.where(classes < len(schema.label.levels), classes, MISSING)
        return {column.name: cells[column.name] for column in schema.columns}
