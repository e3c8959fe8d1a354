"""Bounding what one person's several rows add (GUARANTEE.md, S4).

The unit is the value of the identifying column; rows without one count together as a
single person.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpcore.schema import PrivacyUnit, RowRule
from tasks.stores.landing import Landing


class PersonRows:
    """Which rows of a batch count, and for how much."""

    def __init__(self, landing: Landing, unit: PrivacyUnit) -> None:
        if unit.person is None:
            raise ValueError("the unit has no person column")
        self._column, self._unit = unit.person, unit
        self._rows: Counter[str | None] = Counter()
        if unit.row_rule is RowRule.WEIGHT:  # a person's rows are counted over the whole dataset first
            for batch in landing.batches([self._column]):
                for entry in pc.value_counts(self._keys(batch)).to_pylist():
                    self._rows[entry["values"]] += entry["counts"]

    def __repr__(self) -> str:
        return "PersonRows(<private>)"

    def _keys(self, batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(self._column)
        return pc.cast(column.dictionary_decode() if pa.types.is_dictionary(column.type) else column, pa.string())

    def select(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, NDArray[np.float64] | None]:
        """The rows that count, and their shares 1/k; None where each counts whole."""
        keys = self._keys(batch).to_pylist()
        if self._unit.row_rule is RowRule.WEIGHT:
            return batch, np.array([1 / self._rows[key] for key in keys])
        return batch.filter(pa.array([self._admit(key) for key in keys], type=pa.bool_())), None

    def _admit(self, key: str | None) -> bool:
        """Whether this is among the person's first rows: a rule about that person's rows only."""
        self._rows[key] += 1
        return self._rows[key] <= self._unit.most_rows
