"""The generator for mixed tables: marginals from histograms, dependence from one Gram of grouped records.

Each column's own distribution is measured apart from how columns hang together, as copulas do it: heavy tails,
piles at 0, whole numbers, dates and rare levels come out as the histograms have them, whatever the dependence. Rows
are drawn group by group (`dpcore.synthesis.copula.max_entropy`), values inside groups by the histograms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpcore.measure import ReleasedVector
from dpcore.measurements.group_encoding import GroupedEncoding
from dpcore.measurements.groups import group_columns, least_group_size
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection
from dpcore.mechanisms.base import GramEvent
from dpcore.noise.sources import public_generator
from dpcore.records.binning import ColumnCells
from dpcore.records.schema import MISSING, Cells, RecordSchema
from dpcore.synthesis.copula.max_entropy import TableLaw, fit_table_law
from dpcore.synthesis.copula.pair_tables import PairTables, pair_tables

Codes = NDArray[np.int64]


def cells_of_schema(schema: RecordSchema) -> list[ColumnCells]:
    """The public cells of every encoded column."""
    return [ColumnCells(column) for column in schema.encoded_columns]


def grouped_encoding(schema: RecordSchema, marginals: ReleasedVector, event: GramEvent) -> GroupedEncoding:
    """How records are measured for their dependence, once the marginals are released.

    Guarantee: post-processing of the marginals; whatever it is, records are cut to the unit ball (N1).
    """
    columns = cells_of_schema(schema)
    width = event.layout.dimension - event.layout.heads
    groups = group_columns(marginals, columns, least=least_group_size(event, len(columns)), coordinates=width)
    return GroupedEncoding(schema, groups, width)


@dataclass(frozen=True)  # no slots: what is estimated is estimated once
class Copula:
    """The generator of two released measurements: histograms, and the Gram of their groups."""

    schema: RecordSchema
    moments: NoisyMoments

    @property
    def projection(self) -> Projection:
        """Every coordinate of the groups is kept."""
        width = self.encoding.width
        return Projection("none", width, width, None)

    @property
    def marginals(self) -> ReleasedVector:
        """The released histograms."""
        assert self.moments.marginals is not None  # noqa: S101  or there is no copula
        return self.moments.marginals

    @cached_property
    def encoding(self) -> GroupedEncoding:
        """How records were measured."""
        return grouped_encoding(self.schema, self.marginals, self.moments.released.event)

    @cached_property
    def tables(self) -> PairTables:
        """Class sizes, marginals and pairs of columns."""
        return pair_tables(self.moments.released, self.encoding)

    def law(self, seed: str) -> TableLaw:
        """The law of groups of every column, and classes."""
        return fit_table_law(self.tables, public_generator(seed, "fitting"))

    def decoder(self) -> CopulaDecoder:
        """What turns groups into cells."""
        return CopulaDecoder(self.encoding)


@dataclass(frozen=True, slots=True)
class CopulaDecoder:
    """Draws a value out of every group, as the histograms have them."""

    encoding: GroupedEncoding

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
