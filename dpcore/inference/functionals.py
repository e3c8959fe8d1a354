"""Functionals of a record, by column name: values, presence, indicators of levels."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from dpcore.records.encoding import ColumnCode, Encoding, level_corners
from dpcore.records.schema import MISSING_LEVEL, Floats, IntervalColumn, LevelValue, NominalColumn, level_names


class NotIdentifiedError(ValueError):
    """The release does not identify the quantity; the message says why."""


@dataclass(frozen=True, slots=True)
class Functional:
    """A constant per class plus a linear function of the encoded point."""

    constants: Floats
    weights: Floats

    def __add__(self, other: Functional) -> Functional:
        return Functional(self.constants + other.constants, self.weights + other.weights)

    def times(self, factor: float) -> Functional:
        """Return the functional multiplied by a factor."""
        return Functional(self.constants * factor, self.weights * factor)


@dataclass(frozen=True, slots=True)
class Regressor:
    """A regressor: a functional, and how many of the column's units (`unit`) one unit of it is."""

    name: str
    functional: Functional
    unit: float = 1.0


@dataclass(frozen=True, slots=True)
class ColumnFunctionals:
    """Functionals by the names of columns and levels; raises NotIdentifiedError for unknown quantities."""

    encoding: Encoding

    def one(self) -> Functional:
        """Return the functional that is 1 for every record."""
        return Functional(np.ones(self.encoding.schema.class_count), np.zeros(self.encoding.width))

    def in_class(self, index: int) -> Functional:
        """Return the indicator of a class."""
        constants = np.zeros(self.encoding.schema.class_count)
        constants[index] = 1.0
        return Functional(constants, np.zeros(self.encoding.width))

    def interval(self, name: str) -> IntervalColumn:
        """Return the interval column of this name."""
        column = self._code(name).column
        if isinstance(column, NominalColumn):
            raise NotIdentifiedError(f"{name!r} has levels: ask for their proportions")
        return column

    def position(self, name: str) -> Functional:
        """Return the value's position between the bounds, from -1 to 1; 0 for missing cells with their own level."""
        return self._coordinate(self._code(name).start)

    def present(self, name: str) -> Functional:
        """Return the functional that is 1 if the value is present or imputed."""
        code = self._code(name)
        return self.one() + self._coordinate(code.start + 1).times(-1.0) if code.column.missing_level else self.one()

    def level(self, name: str, level: LevelValue) -> Functional:
        """Return the indicator of a level; `MISSING_LEVEL` if missing cells have a level of their own."""
        label = self.encoding.schema.label
        if label is not None and label.name == name:
            return self.in_class(level_index(label, level))
        code = self._code(name)
        column = code.column
        if isinstance(column, IntervalColumn):
            if not column.missing_level or level != MISSING_LEVEL:
                raise NotIdentifiedError(f"{name!r} has no level {level!r}")
            return self._coordinate(code.start + 1)
        count, corners = column.level_count, level_corners(column)
        weights = np.zeros(self.encoding.width)
        weights[code.start : code.stop] = (
            corners[level_index(column, level)] * self.encoding.scale * (count - 1) / count
        )
        return Functional(self.one().constants / count, weights)

    def regressors(self, name: str) -> list[Regressor]:
        """Return a column's regressors: its value, or indicators of all levels but the first.

        Missing cells with a level of their own count as the middle of the bounds, and add an indicator.
        """
        label = self.encoding.schema.label
        column = label if label is not None and label.name == name else self._code(name).column
        if isinstance(column, NominalColumn):
            return [Regressor(f"{name} = {level}", self.level(name, level)) for level in levels_of(column)[1:]]
        value = self.position(name) + self.one().times(column.middle / column.half_width)
        missing = [Regressor(f"{name} missing", self.level(name, MISSING_LEVEL))] if column.missing_level else []
        return [Regressor(name, value, column.half_width), *missing]

    def given_class(self, given: dict[str, LevelValue] | None, columns: Collection[str] = ()) -> int | None:
        """Return the class that a condition names, or None without a condition; refuse it for columns that it fixes."""
        if not given:
            return None
        label = self.encoding.schema.label
        if label is None or list(given) != [label.name]:
            known = f"the label {label.name!r} only" if label else "nothing: this release has no label"
            raise NotIdentifiedError(f"records are told apart by {known}, not by {', '.join(given)}")
        if label.name in columns:
            raise NotIdentifiedError(
                f"all records of a class share its {label.name!r}: leave out the column or `given`"
            )
        return level_index(label, given[label.name])

    def _code(self, name: str) -> ColumnCode:
        for code in self.encoding.codes:
            if code.column.name == name:
                return code
        label = self.encoding.schema.label
        if label is not None and label.name == name:
            raise NotIdentifiedError(f"{name!r} is the label: ask for a level's proportion, or use `given`")
        raise NotIdentifiedError(f"{name!r} is no column of this release")

    def _coordinate(self, at: int) -> Functional:
        weights = np.zeros(self.encoding.width)
        weights[at] = self.encoding.scale
        return Functional(np.zeros(self.encoding.schema.class_count), weights)


def levels_of(column: NominalColumn) -> list[LevelValue]:
    """Return the levels; that of missing cells is the last, if there is one."""
    return [*column.levels, *[MISSING_LEVEL] * column.missing_level]


def level_index(column: NominalColumn, level: LevelValue) -> int:
    """Return the index of a level; `True` differs from 1."""
    for index, known in enumerate(levels_of(column)):
        if known == level and isinstance(known, bool) == isinstance(level, bool):
            return index
    raise NotIdentifiedError(f"{column.name!r} has no level {level!r}; it has {', '.join(level_names(column))}")
