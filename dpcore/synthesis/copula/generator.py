"""The generator for mixed tables: marginals from histograms, dependence from one Gram of grouped records.

As in a copula, each column's marginal distribution is measured separately from the dependence between columns: heavy
tails, atoms at 0, integers, dates and rare levels follow the histograms, whatever the dependence. Rows of groups are
drawn column by column (`dpcore.synthesis.copula.max_entropy`), and values inside groups from the histograms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpcore.measure import ReleasedVector
from dpcore.measurements.group_encoding import GroupedEncoding
from dpcore.measurements.groups import (
    cells_of_columns,
    group_columns,
    grouping_of,
    histograms_of,
    least_group_size,
)
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection
from dpcore.mechanisms.base import GramEvent
from dpcore.noise.sources import public_generator
from dpcore.records.schema import MISSING, Cells, Codes, RecordSchema
from dpcore.synthesis.copula.fit_rule import FIT_RULE, FitRule
from dpcore.synthesis.copula.max_entropy import TableLaw, fit_table_law
from dpcore.synthesis.copula.pair_tables import PairTables, pair_tables
from dpcore.synthesis.copula.ruled_columns import RuledColumns


def grouped_encoding(schema: RecordSchema, marginals: ReleasedVector, event: GramEvent) -> GroupedEncoding:
    """Return the encoding in which the dependence is measured, given the released marginals.

    Guarantee: post-processing of the marginals; any such encoding clips records to the unit ball (N1).
    """
    columns = cells_of_columns(schema.encoded_columns, histograms_of(marginals).grouping)
    width = event.layout.dimension - event.layout.heads
    groups = group_columns(marginals, columns, least=least_group_size(event, len(columns)), coordinates=width)
    return GroupedEncoding(schema, groups, width, room=grouping_of(marginals).room)


@dataclass(frozen=True)  # no slots: cached_property needs a __dict__
class Copula:
    """The generator from two released measurements: histograms, and the Gram of grouped records."""

    schema: RecordSchema
    moments: NoisyMoments
    fitting: FitRule = FIT_RULE

    @property
    def projection(self) -> Projection:
        """The identity projection: every coordinate of the groups is kept."""
        width = self.encoding.width
        return Projection("none", width, width, None)

    @property
    def marginals(self) -> ReleasedVector:
        """The released histograms."""
        assert self.moments.marginals is not None  # noqa: S101  a copula always has them
        return self.moments.marginals

    @cached_property
    def encoding(self) -> GroupedEncoding:
        """The encoding in which records were measured."""
        return grouped_encoding(self.schema, self.marginals, self.moments.released.event)

    @cached_property
    def tables(self) -> PairTables:
        """Estimates of class sizes, marginals and pair tables."""
        return pair_tables(self.moments.released, self.encoding)

    def law(self, seed: str) -> TableLaw:
        """Return the fitted law of rows of groups, and their classes."""
        return fit_table_law(self.tables, public_generator(seed, "fitting"), self.rules, self.fitting)

    @cached_property
    def rules(self) -> RuledColumns | None:
        """The rules that rows obey; None without any."""
        return RuledColumns.of(self.schema, self.encoding.groups)


@dataclass(frozen=True, slots=True)
class CopulaDecoder:
    """Draws a value from each group by the histograms."""

    encoding: GroupedEncoding

    def decode(self, groups: Codes, classes: Codes, generator: np.random.Generator) -> Cells:
        """Draw cells of the original columns, in the order of the schema."""
        schema = self.encoding.schema
        cells: Cells = {
            column.cells.column.name: column.values(groups[:, index], generator)
            for index, column in enumerate(self.encoding.groups)
        }
        if schema.label is not None:
            cells[schema.label.name] = np.where(classes < len(schema.label.levels), classes, MISSING)
        return {column.name: cells[column.name] for column in schema.columns}
