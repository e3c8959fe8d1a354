"""A condition out of its nested lists, as records hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpcore.records.rules.conditions import Both, Comparison, Condition, IsNull, Level, LevelIn, Not, SameLevel
from dpcore.records.rules.numbers import Arithmetic, Constant, DatePart, IntervalValue, LevelNumber, Number
from dpcore.records.schema import Column, IntervalColumn, Kind, NominalColumn

DAY_MICROSECONDS = 86_400_000_000.0

Columns = Mapping[str, Column]


def condition_from_json(tree: Any, columns: Columns) -> Condition:
    """The condition that nested lists describe.

    Raises: KeyError, TypeError, ValueError if they describe none.
    """
    operator, *parts = tree
    match operator:
        case "and" | "or" if parts:
            return Both(operator, tuple(condition_from_json(part, columns) for part in parts))
        case "not":
            (part,) = parts
            return Not(condition_from_json(part, columns))
        case "<" | "<=" | "=":
            left, right = (number_from_json(part, columns) for part in parts[:2])
            (tolerance,) = parts[2:] or [0.0]
            return Comparison(operator, left, right, float(tolerance))
        case "in":
            (_, name), levels = parts
            column = _nominal(columns[name])
            return level_in(column, tuple(_code(column, level) for level in levels))
        case "same":
            (_, left), (_, right) = parts
            return same_level(_nominal(columns[left]), _nominal(columns[right]))
        case "null":
            ((_, name),) = parts
            return is_null(columns[name])
    raise ValueError("no such condition")


def number_from_json(tree: Any, columns: Columns) -> Number:
    """The number that nested lists describe.

    Raises: KeyError, TypeError, ValueError if they describe none.
    """
    if not isinstance(tree, list | tuple):
        return Constant(float(tree))
    operator, *parts = tree
    match operator:
        case "column":
            return column_number(columns[parts[0]])
        case "+" | "-" | "*" | "/":
            left, right = (number_from_json(part, columns) for part in parts)
            return Arithmetic(operator, left, right)
        case "year" | "month" | "day":
            inner, *stated = parts
            return date_part(operator, number_from_json(inner, columns), columns, *map(float, stated))
    raise ValueError("no such number")


def column_number(column: Column) -> IntervalValue | LevelNumber:
    """The number in a cell of a column.

    Raises: TypeError for a column whose cells are no numbers.
    """
    if isinstance(column, IntervalColumn):
        return IntervalValue(column.name)
    if not is_whole_levels(column):
        raise TypeError("the categories are no whole numbers")
    return LevelNumber(column.name, tuple(int(level) for level in column.levels))


def is_whole_levels(column: NominalColumn) -> bool:
    """Whether the categories are whole numbers."""
    return all(type(level) is int for level in column.levels)


def level_in(column: NominalColumn, codes: tuple[int, ...]) -> LevelIn:
    """The cell is one of these levels."""
    return LevelIn(column.name, tuple(sorted(set(codes))), column.levels)


def same_level(left: NominalColumn, right: NominalColumn) -> SameLevel:
    """Two columns of categories hold the same value."""
    codes = {(type(level), level): code for code, level in enumerate(right.levels)}
    matches = tuple(codes.get((type(level), level), -2) for level in left.levels)
    return SameLevel(left.name, right.name, matches, len(right.levels))


def is_null(column: Column) -> IsNull:
    """The cell is missing."""
    return IsNull(column.name, isinstance(column, NominalColumn))


def date_part(part: str, operand: Number, columns: Columns, ticks: float | None = None) -> DatePart:
    """A part of a date or time; the ticks in a day are given where the operand's columns do not tell them."""
    told = ticks_per_day(operand, columns)
    return DatePart(part, operand, told) if ticks in (None, told) else DatePart(part, operand, float(ticks), True)


def ticks_per_day(operand: Number, columns: Columns) -> float:
    """Ticks in a day: microseconds where the number is made of times, else days."""
    kinds = {columns[name].kind for name in operand.columns()}
    return DAY_MICROSECONDS if Kind.TIMESTAMP in kinds else 1.0


def _nominal(column: Column) -> NominalColumn:
    if not isinstance(column, NominalColumn):
        raise TypeError("a column without levels")
    return column


def _code(column: NominalColumn, wanted: Level) -> int:
    return next(code for code, level in enumerate(column.levels) if type(level) is type(wanted) and level == wanted)
