"""Means and shares estimated from released histograms, with draws of their noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpcore.inference.functionals import NotIdentifiedError, level_index
from dpcore.inference.intervals import Quotient
from dpcore.measure import ReleasedVector
from dpcore.measurements.groups import cells_of_columns
from dpcore.measurements.noise_law import draw_vector_noise
from dpcore.mechanisms.queries import HistogramsQuery
from dpcore.records.schema import MISSING_LEVEL, Floats, IntervalColumn, LevelValue, RecordSchema


class NoisyHistograms:
    """The noisy counts of every encoded column's cells, over all classes.

    Unknown nominal cells are in no count.
    """

    def __init__(self, schema: RecordSchema, released: ReleasedVector, draws: int) -> None:
        query = released.event.query
        if not isinstance(query, HistogramsQuery):
            raise ValueError("marginals are histograms")
        self._released, self._rows_per_unit, self._draws = released, query.rows_per_unit, draws
        cells = cells_of_columns(schema.encoded_columns, query.grouping)
        self._cells = {own.column.name: own for own in cells}
        names, counts = [own.column.name for own in cells], query.split(released.numbers())
        self._counts = dict(zip(names, counts, strict=True))
        self._weights = dict(zip(names, map(float, query.weights), strict=True))

    def mean(self, name: str) -> Quotient:
        """Return the mean position of the present values; the shift bounds their distance from the cells' centres."""
        cells, column = self._cells[name], self._cells[name].column
        places, _ = cells.positions()
        last = [0.0] * (cells.count - len(places))  # missing cells, if they have a level
        assert isinstance(column, IntervalColumn)  # noqa: S101  nominal columns have no positions
        reach = (np.diff(cells.edges) - column.is_whole) / (2 * column.half_width)
        likely = np.maximum(self._counts[name][: len(places)], 0.0)
        quotient = self._quotient(name, np.append(places, last), np.append(np.ones(len(places)), last))
        return replace(quotient, shift=(float(reach @ likely), 0.0))

    def share(self, name: str, level: LevelValue) -> Quotient:
        """Return the share of a level among the known cells."""
        cells, column = self._cells[name], self._cells[name].column
        indicator = np.zeros(cells.count)
        if not isinstance(column, IntervalColumn):
            indicator[level_index(column, level)] = 1.0
        elif column.missing_level and level == MISSING_LEVEL:
            indicator[-1] = 1.0
        else:
            raise NotIdentifiedError(f"{name!r} has no level {level!r}")
        return self._quotient(name, indicator, np.ones(cells.count))

    def _quotient(self, name: str, top: Floats, bottom: Floats) -> Quotient:
        counts, both = self._counts[name], np.stack([top, bottom])
        noise = draw_vector_noise(self._released.event, len(counts), self._draws) @ both.T / self._weights[name]
        return Quotient(
            top=float(counts @ top),
            bottom=float(counts @ bottom),
            noise_top=noise[:, 0],
            noise_bottom=noise[:, 1],
            spread=self._rows_per_unit * (both * counts) @ both.T,
        )
