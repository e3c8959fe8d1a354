"""The numbers in a rule: cells, constants and arithmetic; a null, and a division by zero, give a null."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpcore.records.rules.views import AnyLevel, Numbers, Span, View, limits, span_of

Cells = dict[str, NDArray[np.generic]]
Line = tuple[Numbers, Numbers]
"""Slope and intercept of an expression as a function of one column."""


class Number(Protocol):
    """An expression whose value is a number or null."""

    def value(self, cells: Cells) -> Numbers:
        """The value in each row, NaN for null; shapes are broadcast."""

    def span(self, view: View) -> Span:
        """The values that are possible, or more than those."""

    def line(self, column: str, cells: Cells) -> Line | None:
        """The expression as a function of one column, given the others; None if it is no straight line."""

    def columns(self) -> Iterator[str]:
        """The columns that occur in it."""

    def as_json(self) -> object:
        """The expression as nested lists: an operator first, then its parts; a number is itself."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A number that the rule states; dates are days and times microseconds since 1970-01-01 UTC."""

    number: float

    def value(self, cells: Cells) -> Numbers:
        """The number."""
        return np.array(self.number)

    def span(self, view: View) -> Span:
        """The number."""
        return Span.between(self.number, self.number, missing=False)

    def line(self, column: str, cells: Cells) -> Line | None:
        """A level line."""
        return np.array(0.0), np.array(self.number)

    def columns(self) -> Iterator[str]:
        """None."""
        return iter(())

    def as_json(self) -> object:
        """The number."""
        return self.number


@dataclass(frozen=True, slots=True)
class IntervalValue:
    """The cell of a numeric, integer, date or timestamp column."""

    column: str

    def value(self, cells: Cells) -> Numbers:
        """The cells."""
        return np.asarray(cells[self.column], dtype=np.float64)

    def span(self, view: View) -> Span:
        """What is known of the cells."""
        return span_of(view, self.column)

    def line(self, column: str, cells: Cells) -> Line | None:
        """The diagonal for this column, else a level line."""
        if column == self.column:
            return np.array(1.0), np.array(0.0)
        return np.array(0.0), self.value(cells)

    def columns(self) -> Iterator[str]:
        """The column."""
        yield self.column

    def as_json(self) -> object:
        """The column."""
        return ["column", self.column]


@dataclass(frozen=True, slots=True)
class LevelNumber:
    """The cell of a categorical column whose categories are whole numbers."""

    column: str
    levels: tuple[int, ...]

    def value(self, cells: Cells) -> Numbers:
        """The numbers that the cells' codes stand for."""
        codes = np.asarray(cells[self.column], dtype=np.int64)
        table = np.array([*self.levels, np.nan], dtype=np.float64)
        known = (codes >= 0) & (codes < len(self.levels))
        found: Numbers = table[np.where(known, codes, len(self.levels))]
        return found

    def span(self, view: View) -> Span:
        """The known numbers, or the range of all categories."""
        known = view[self.column]
        if isinstance(known, AnyLevel):
            return Span.between(min(self.levels), max(self.levels), missing=known.missing)
        if isinstance(known, Span):
            raise TypeError(f"column {self.column!r} has levels, not a range")
        return Span.of(self.value({self.column: known}))

    def line(self, column: str, cells: Cells) -> Line | None:
        """A level line; the levels of a column itself are tried one by one."""
        return None if column == self.column else (np.array(0.0), self.value(cells))

    def columns(self) -> Iterator[str]:
        """The column."""
        yield self.column

    def as_json(self) -> object:
        """The column."""
        return ["column", self.column]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The sum, difference, product or quotient of two numbers."""

    operator: str
    left: Number
    right: Number

    def value(self, cells: Cells) -> Numbers:
        """The result, null where an operand is null or the divisor is 0."""
        return _calculate(self.operator, self.left.value(cells), self.right.value(cells))

    def span(self, view: View) -> Span:
        """The results that are possible, or more than those."""
        left, right = self.left.span(view), self.right.span(view)
        missing, empty = left.missing | right.missing, left.empty | right.empty
        with np.errstate(all="ignore"):
            if self.operator == "+":
                return limits(left.low + right.low, left.high + right.high, missing, empty)
            if self.operator == "-":
                return limits(left.low - right.high, left.high - right.low, missing, empty)
            ends = [_calculate(self.operator, a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
            low, high = np.minimum.reduce(np.broadcast_arrays(*ends)), np.maximum.reduce(np.broadcast_arrays(*ends))
            if self.operator == "/":
                zero = (right.low <= 0) & (right.high >= 0)
                low, high, missing = np.where(zero, -np.inf, low), np.where(zero, np.inf, high), missing | zero
                empty = empty | (zero & (right.low == right.high))
            return limits(low, high, missing, empty)

    def line(self, column: str, cells: Cells) -> Line | None:
        """The line, where the operator keeps one."""
        left, right = self.left.line(column, cells), self.right.line(column, cells)
        if left is None or right is None:
            return None
        (a, b), (c, d) = left, right
        with np.errstate(all="ignore"):
            return self._line_of(column, a, b, c, d)

    def _line_of(self, column: str, a: Numbers, b: Numbers, c: Numbers, d: Numbers) -> Line | None:
        """The line out of a x + b on the left and c x + d on the right."""
        if self.operator in ("+", "-"):
            sign = 1 if self.operator == "+" else -1
            return a + sign * c, b + sign * d
        if column in self.right.columns() and (self.operator == "/" or column in self.left.columns()):
            return None
        if self.operator == "/":
            return _calculate("/", a, d), _calculate("/", b, d)
        return a * d + c * b, b * d

    def columns(self) -> Iterator[str]:
        """The columns of both operands."""
        yield from self.left.columns()
        yield from self.right.columns()

    def as_json(self) -> object:
        """Operator and operands."""
        return [self.operator, self.left.as_json(), self.right.as_json()]


def _calculate(operator: str, left: Numbers, right: Numbers) -> Numbers:
    with np.errstate(all="ignore"):
        match operator:
            case "+":
                result = left + right
            case "-":
                result = left - right
            case "*":
                result = left * right
            case _:
                result = np.where(right == 0, np.nan, left / np.where(right == 0, 1.0, right))
    return np.asarray(result)


@dataclass(frozen=True, slots=True)
class DatePart:
    """Year, month or day of a date; of a time, in UTC."""

    part: str
    operand: Number
    ticks_per_day: float
    stated: bool = False
    """Whether a record states the ticks, because the kinds of the operand's columns do not tell them."""

    def value(self, cells: Cells) -> Numbers:
        """The part of each date."""
        return _part_of(self.part, self.operand.value(cells) / self.ticks_per_day)

    def span(self, view: View) -> Span:
        """The parts that are possible, or more than those."""
        inner = self.operand.span(view)
        with np.errstate(all="ignore"):
            days_low, days_high = inner.low / self.ticks_per_day, inner.high / self.ticks_per_day
        low, high = _part_of(self.part, days_low), _part_of(self.part, days_high)
        coarser = {"year": (), "month": ("year",), "day": ("year", "month")}[self.part]
        for other in coarser:  # within one year months only grow, and within one month days
            same = _part_of(other, days_low) == _part_of(other, days_high)
            low, high = np.where(same, low, 1.0), np.where(same, high, 31.0)
        return limits(low, high, inner.missing, inner.empty)

    def line(self, column: str, cells: Cells) -> Line | None:
        """No line, unless the column is another one."""
        return None if column in self.operand.columns() else (np.array(0.0), self.value(cells))

    def columns(self) -> Iterator[str]:
        """The columns of the date."""
        return self.operand.columns()

    def as_json(self) -> object:
        """The part, the date and, where they are stated, the ticks in a day."""
        more = [self.ticks_per_day] if self.stated else []
        return [self.part, self.operand.as_json(), *more]


MOST_DAYS = 3_650_000.0
"""Dates farther from 1970 than this are not told apart."""


def _part_of(part: str, days: Numbers) -> Numbers:
    known = np.isfinite(days)
    dates = np.clip(np.floor(np.where(known, days, 0.0)), -MOST_DAYS, MOST_DAYS).astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    years = dates.astype("datetime64[Y]")
    match part:
        case "year":
            found = years.astype(np.int64) + 1970
        case "month":
            found = (months - years.astype("datetime64[M]")).astype(np.int64) + 1
        case _:
            found = (dates - months.astype("datetime64[D]")).astype(np.int64) + 1
    return np.where(known, found, np.nan)
