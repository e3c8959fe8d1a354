"""Bounding what one person's several rows add (GUARANTEE.md, S4).

The unit is the value of the identifying column, compared as stripped text; rows without
one count together as a single person.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpcore.errors import LandingError
from dpcore.schema import PrivacyUnit, RowRule
from tasks.stores.landing import Landing


class PersonRows:
    """Which rows of a batch count, and for how much.

    Under `WEIGHT` the rows are read twice: counted first, then weighted. The second reading
    is counted too, and must agree with the first before anything is measured.
    """

    def __init__(self, landing: Landing, unit: PrivacyUnit) -> None:
        if unit.person is None:
            raise ValueError("the unit has no person column")
        self._landing, self._column, self._unit = landing, unit.person, unit
        self._counted: Counter[str | None] = Counter()
        self._seen: Counter[str | None] = Counter()
        if unit.row_rule is RowRule.WEIGHT:  # a person's rows are counted over the whole dataset first
            for batch in landing.batches([self._column]):
                self._counted.update(self._keys(batch))

    def __repr__(self) -> str:
        return "PersonRows(<private>)"

    def _keys(self, batch: pa.RecordBatch) -> list[str | None]:
        """The identifiers as stripped text: one person has one spelling."""
        column = batch.column(self._column)
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        raw = pc.cast(pc.cast(plain, pa.large_string()), pa.large_binary()).to_pylist()
        return [None if key is None else key.decode(errors="replace").strip() for key in raw]

    def select(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, NDArray[np.float64] | None]:
        """The rows that count, and their shares 1/k; None where each counts whole."""
        keys = self._keys(batch)
        if self._unit.row_rule is RowRule.WEIGHT:
            self._seen.update(keys)
            return batch, np.array([1 / (self._counted[key] or 1) for key in keys])
        return batch.filter(pa.array([self._admit(key) for key in keys], type=pa.bool_())), None

    def _admit(self, key: str | None) -> bool:
        """Whether this is among the person's first rows: a rule about that person's rows only."""
        self._seen[key] += 1
        return self._seen[key] <= self._unit.most_rows

    def require_unchanged(self) -> None:
        """Refuse data that changed between the two readings.

        Raises: LandingError.
        """
        if self._unit.row_rule is RowRule.WEIGHT and self._seen != self._counted:
            raise LandingError(
                "the landing data changed while they were read",
                rule="landing-changed",
                where=self._landing.where,
                hint="land files by moving them in whole, then run again; nothing was measured",
            )
