"""What is known of a row while it is drawn: cells that are fixed, and the range of those that are still open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Outcomes = NDArray[np.uint8]
"""Sets of truth values that a condition may take, as bits: 1 for false, 2 for unknown, 4 for true."""

FALSE, UNKNOWN, TRUE = np.uint8(0), np.uint8(1), np.uint8(2)
"""The truth values of SQL in an order in which AND is the minimum, OR the maximum, and NOT counts from the top."""

MAY_HOLD = np.uint8(6)
"""The bits of unknown and true: neither breaks a rule."""

MAY_FAIL = np.uint8(1)
"""The bit of false."""


@dataclass(frozen=True, slots=True)
class Span:
    """The numbers from `low` to `high` and, if `missing`, a null; no number if `low` exceeds `high`."""

    low: Numbers
    high: Numbers
    missing: Flags

    @staticmethod
    def of(values: NDArray[np.generic]) -> Span:
        """The spans of known values, NaN for a null."""
        numbers = np.asarray(values, dtype=np.float64)
        missing = np.isnan(numbers)
        return Span(np.where(missing, np.inf, numbers), np.where(missing, -np.inf, numbers), missing)

    @staticmethod
    def between(low: float, high: float, *, missing: bool) -> Span:
        """One span for all rows."""
        return Span(np.array(low), np.array(high), np.array(missing))

    @property
    def empty(self) -> Flags:
        """Whether there is no number."""
        return np.asarray(self.low > self.high)


@dataclass(frozen=True, slots=True)
class AnyLevel:
    """A nominal cell that is not drawn yet: it may hold any level and, if `missing`, a null."""

    missing: bool


View = Mapping[str, NDArray[np.generic] | Span | AnyLevel]
"""Per column: the known cells, as in `dpcore.records.schema`, or what is known of open ones; shapes are broadcast."""


def span_of(view: View, column: str) -> Span:
    """What a view says of an interval column."""
    found = view[column]
    if isinstance(found, AnyLevel):
        raise TypeError(f"column {column!r} has levels, not numbers")
    return found if isinstance(found, Span) else Span.of(found)


def limits(low: Numbers, high: Numbers, missing: Flags, empty: Flags) -> Span:
    """A computed span; limits that are not numbers say nothing."""
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    return Span(np.where(empty, np.inf, low), np.where(empty, -np.inf, high), missing)


def bits(*, false: Flags, unknown: Flags, true: Flags) -> Outcomes:
    """Outcomes of the truth values that are possible."""
    found = false.astype(np.uint8) + 2 * unknown.astype(np.uint8) + 4 * true.astype(np.uint8)
    return found.astype(np.uint8)


def _table(combine: str) -> Outcomes:
    """The outcomes of a conjunction or disjunction, by the outcomes of its parts."""
    table: Outcomes = np.zeros((8, 8), dtype=np.uint8)
    for one in range(8):
        for other in range(8):
            pairs = [(a, b) for a in range(3) if one >> a & 1 for b in range(3) if other >> b & 1]
            for a, b in pairs:
                table[one, other] |= 1 << (min(a, b) if combine == "and" else max(a, b))
    return table


AND_TABLE, OR_TABLE = _table("and"), _table("or")
NOT_TABLE: Outcomes = np.array(
    [(bit & 1) << 2 | (bit & 2) | (bit & 4) >> 2 for bit in range(8)],
    dtype=np.uint8,
)
