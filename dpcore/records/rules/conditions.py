"""The conditions in a rule, in SQL's logic of three truth values: a comparison with a null is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Protocol

import numpy as np

from dpcore.records.rules.numbers import Cells, Number
from dpcore.records.rules.views import (
    AND_TABLE,
    NOT_TABLE,
    OR_TABLE,
    TRUE,
    UNKNOWN,
    AnyLevel,
    Flags,
    Numbers,
    Outcomes,
    Span,
    View,
    bits,
)

Level = str | int | bool


class Condition(Protocol):
    """An expression that is true, false or unknown in each row."""

    def truth(self, cells: Cells) -> Outcomes:
        """The truth value in each row: 0 false, 1 unknown, 2 true; shapes are broadcast."""

    def outcomes(self, view: View) -> Outcomes:
        """The truth values that are possible, or more than those, as bits."""

    def roots(self, column: str, cells: Cells) -> list[Numbers] | None:
        """The numbers in a column at which the truth may change, given the others; None if these are not known."""

    def columns(self) -> Iterator[str]:
        """The columns that occur in it."""

    def as_json(self) -> object:
        """The condition as nested lists: an operator first, then its parts."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`<`, `<=` or `=` of two numbers; `=` allows for a tolerance where numbers are no whole ones."""

    operator: str
    left: Number
    right: Number
    tolerance: float = 0.0

    def truth(self, cells: Cells) -> Outcomes:
        """Unknown where a side is null."""
        left, right = self.left.value(cells), self.right.value(cells)
        with np.errstate(invalid="ignore"):
            match self.operator:
                case "<":
                    holds = left < right
                case "<=":
                    holds = left <= right
                case _:
                    holds = np.abs(left - right) <= self.tolerance
        return _truth(holds, np.isnan(left) | np.isnan(right))

    def outcomes(self, view: View) -> Outcomes:
        """What the spans of both sides allow."""
        left, right = self.left.span(view), self.right.span(view)
        with np.errstate(invalid="ignore"):
            match self.operator:
                case "<":
                    true, false = left.low < right.high, left.high >= right.low
                case "<=":
                    true, false = left.low <= right.high, left.high > right.low
                case _:
                    slack = self.tolerance
                    true = (left.low <= right.high + slack) & (right.low <= left.high + slack)
                    false = (left.high - right.low > slack) | (right.high - left.low > slack)
        numbers = ~(left.empty | right.empty)  # without two numbers nothing is compared
        return bits(false=false & numbers, unknown=left.missing | right.missing, true=true & numbers)

    def roots(self, column: str, cells: Cells) -> list[Numbers] | None:
        """Where both sides are equal, if they are straight lines."""
        if column not in self.columns():
            return []
        left, right = self.left.line(column, cells), self.right.line(column, cells)
        if left is None or right is None:
            return None
        with np.errstate(all="ignore"):
            slope, gap = left[0] - right[0], right[1] - left[1]
            level = slope == 0
            return [np.where(level, np.nan, gap / np.where(level, 1.0, slope))]

    def columns(self) -> Iterator[str]:
        """The columns of both sides."""
        yield from self.left.columns()
        yield from self.right.columns()

    def as_json(self) -> object:
        """Operator, sides and, if there is one, the tolerance."""
        more = [self.tolerance] if self.tolerance else []
        return [self.operator, self.left.as_json(), self.right.as_json(), *more]


@dataclass(frozen=True, slots=True)
class LevelIn:
    """The cell of a nominal column is one of some levels."""

    column: str
    codes: tuple[int, ...]
    levels: tuple[Level, ...]
    """All levels of the column."""

    def truth(self, cells: Cells) -> Outcomes:
        """Unknown where the cell is null, or no level at all."""
        return self._by_code()[_places(cells[self.column], len(self.levels))]

    def outcomes(self, view: View) -> Outcomes:
        """The known truth, or whatever the levels allow."""
        known = view[self.column]
        if isinstance(known, AnyLevel):
            inside, outside = bool(self.codes), len(self.codes) < len(self.levels)
            return bits(false=np.array(outside), unknown=np.array(known.missing), true=np.array(inside))
        return np.uint8(1) << self.truth({self.column: _codes(known)})

    def roots(self, column: str, cells: Cells) -> list[Numbers] | None:
        """No numbers."""
        return []

    def columns(self) -> Iterator[str]:
        """The column."""
        yield self.column

    def as_json(self) -> object:
        """The column and the levels."""
        return ["in", ["column", self.column], [self.levels[code] for code in self.codes]]

    def _by_code(self) -> Outcomes:
        table = np.zeros(len(self.levels) + 1, dtype=np.uint8)
        table[list(self.codes)] = TRUE
        table[-1] = UNKNOWN
        return table


@dataclass(frozen=True, slots=True)
class SameLevel:
    """Two nominal cells hold the same value; `matches` has the right column's code of each level on the left, or -2."""

    left: str
    right: str
    matches: tuple[int, ...]
    right_count: int

    def truth(self, cells: Cells) -> Outcomes:
        """Unknown where a cell is null."""
        left = _places(cells[self.left], len(self.matches))
        right = _places(cells[self.right], self.right_count)
        wanted = np.array([*self.matches, -2])[left]
        unknown = (left == len(self.matches)) | (right == self.right_count)
        return _truth(wanted == right, unknown)

    def outcomes(self, view: View) -> Outcomes:
        """The known truth, or whatever the levels allow."""
        left, right = view[self.left], view[self.right]
        if not isinstance(left, AnyLevel) and not isinstance(right, AnyLevel):
            return np.uint8(1) << self.truth({self.left: _codes(left), self.right: _codes(right)})
        missing = [side.missing for side in (left, right) if isinstance(side, AnyLevel)]
        every = np.array(True)
        return bits(false=every, unknown=np.array(any(missing) or len(missing) < 2), true=every)

    def roots(self, column: str, cells: Cells) -> list[Numbers] | None:
        """No numbers."""
        return []

    def columns(self) -> Iterator[str]:
        """Both columns."""
        yield self.left
        yield self.right

    def as_json(self) -> object:
        """Both columns."""
        return ["same", ["column", self.left], ["column", self.right]]


@dataclass(frozen=True, slots=True)
class IsNull:
    """A cell is missing; never unknown."""

    column: str
    nominal: bool

    def truth(self, cells: Cells) -> Outcomes:
        """True where the cell is missing."""
        values = cells[self.column]
        missing = np.asarray(values, dtype=np.int64) < 0 if self.nominal else np.isnan(values.astype(np.float64))
        return _truth(missing, np.zeros_like(missing))

    def outcomes(self, view: View) -> Outcomes:
        """The known truth, or what is possible."""
        known = view[self.column]
        never = np.array(False)
        if isinstance(known, AnyLevel):
            return bits(false=np.array(True), unknown=never, true=np.array(known.missing))
        if isinstance(known, Span):
            return bits(false=~known.empty, unknown=np.zeros_like(known.missing), true=known.missing)
        return np.uint8(1) << self.truth({self.column: known})

    def roots(self, column: str, cells: Cells) -> list[Numbers] | None:
        """No numbers."""
        return []

    def columns(self) -> Iterator[str]:
        """The column."""
        yield self.column

    def as_json(self) -> object:
        """The column."""
        return ["null", ["column", self.column]]


@dataclass(frozen=True, slots=True)
class Not:
    """True where its part is false; unknown stays unknown."""

    part: Condition

    def truth(self, cells: Cells) -> Outcomes:
        """The other truth value."""
        return TRUE - self.part.truth(cells)

    def outcomes(self, view: View) -> Outcomes:
        """The other outcomes."""
        return NOT_TABLE[self.part.outcomes(view)]

    def roots(self, column: str, cells: Cells) -> list[Numbers] | None:
        """Those of its part."""
        return self.part.roots(column, cells)

    def columns(self) -> Iterator[str]:
        """Those of its part."""
        return self.part.columns()

    def as_json(self) -> object:
        """The part."""
        return ["not", self.part.as_json()]


@dataclass(frozen=True, slots=True)
class Both:
    """All parts hold (`and`), or at least one does (`or`)."""

    operator: str
    parts: tuple[Condition, ...]

    def truth(self, cells: Cells) -> Outcomes:
        """The least or the greatest truth value."""
        combine = np.minimum if self.operator == "and" else np.maximum
        return np.asarray(reduce(combine, (part.truth(cells) for part in self.parts)))

    def outcomes(self, view: View) -> Outcomes:
        """The outcomes of all combinations, as if the parts did not depend on each other."""
        table = AND_TABLE if self.operator == "and" else OR_TABLE
        return reduce(lambda one, other: table[one, other], (part.outcomes(view) for part in self.parts))

    def roots(self, column: str, cells: Cells) -> list[Numbers] | None:
        """Those of all parts."""
        found = [part.roots(column, cells) for part in self.parts]
        return None if None in found else [root for roots in found if roots is not None for root in roots]

    def columns(self) -> Iterator[str]:
        """Those of all parts."""
        return chain.from_iterable(part.columns() for part in self.parts)

    def as_json(self) -> object:
        """The parts."""
        return [self.operator, *(part.as_json() for part in self.parts)]


def implies(condition: Condition, conclusion: Condition) -> Condition:
    """The conclusion holds wherever the condition does."""
    return Both("or", (Not(condition), conclusion))


def conjuncts(condition: Condition) -> tuple[Condition, ...]:
    """The conditions that hold together exactly if this one does, each with as few columns as the text shows."""
    if isinstance(condition, Both) and condition.operator == "and":
        return tuple(part for inner in condition.parts for part in conjuncts(inner))
    return (condition,)


def _truth(holds: Flags, unknown: Flags) -> Outcomes:
    return np.where(unknown, UNKNOWN, np.where(holds, TRUE, np.uint8(0)))


def _places(cells: object, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """The codes of known levels, and `count` for any other."""
    codes = np.asarray(cells, dtype=np.int64)
    return np.where((codes >= 0) & (codes < count), codes, count)


def _codes(known: object) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    if not isinstance(known, np.ndarray):
        raise TypeError("a column of levels has codes")
    return known
