"""Numbers that every record has, by the names of its columns: values, presence, indicators of levels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.records.encoding import ColumnCode, Encoding, level_corners
from dpcore.records.schema import MISSING_LEVEL, IntervalColumn, LevelValue, NominalColumn, level_names

Floats = NDArray[np.float64]


class NotIdentifiedError(ValueError):
    """The release does not know the quantity; the message says why."""


@dataclass(frozen=True, slots=True)
class Functional:
    """A constant of the record's class plus a linear function of its encoded point."""

    constants: Floats
    weights: Floats

    def __add__(self, other: Functional) -> Functional:
        return Functional(self.constants + other.constants, self.weights + other.weights)

    def times(self, factor: float) -> Functional:
        """The functional in other units."""
        return Functional(self.constants * factor, self.weights * factor)


@dataclass(frozen=True, slots=True)
class Regressor:
    """A functional beside the constant in a regression; `unit` of the column's units are one of the functional's."""

    name: str
    functional: Functional
    unit: float = 1.0


@dataclass(frozen=True, slots=True)
class ColumnFunctionals:
    """Functionals by the names of columns and levels; raises NotIdentifiedError for what a release cannot know."""

    encoding: Encoding

    def one(self) -> Functional:
        """1 for every record."""
        return Functional(np.ones(self.encoding.schema.class_count), np.zeros(self.encoding.width))

    def in_class(self, index: int) -> Functional:
        """1 for the records of a class."""
        constants = np.zeros(self.encoding.schema.class_count)
        constants[index] = 1.0
        return Functional(constants, np.zeros(self.encoding.width))

    def interval(self, name: str) -> IntervalColumn:
        """A column that has a mean."""
        column = self._code(name).column
        if isinstance(column, NominalColumn):
            raise NotIdentifiedError(f"{name!r} has levels: ask for their proportions")
        return column

    def position(self, name: str) -> Functional:
        """The value's place between the bounds, from -1 to 1; 0 where it is missing and missing cells are apart."""
        return self._coordinate(self._code(name).start)

    def present(self, name: str) -> Functional:
        """1 where a value is, also one that stands in for a missing one."""
        code = self._code(name)
        return self.one() + self._coordinate(code.start + 1).times(-1.0) if code.column.missing_level else self.one()

    def level(self, name: str, level: LevelValue) -> Functional:
        """1 where a nominal column has a level; `MISSING_LEVEL` where missing cells are apart."""
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
        """What a column brings into a regression: its value, or indicators of its levels but the first.

        Missing cells that are apart count as the middle of the bounds, and have an indicator.
        """
        label = self.encoding.schema.label
        column = label if label is not None and label.name == name else self._code(name).column
        if isinstance(column, NominalColumn):
            return [Regressor(f"{name} = {level}", self.level(name, level)) for level in levels_of(column)[1:]]
        value = self.position(name) + self.one().times(column.middle / column.half_width)
        missing = [Regressor(f"{name} missing", self.level(name, MISSING_LEVEL))] if column.missing_level else []
        return [Regressor(name, value, column.half_width), *missing]

    def given_class(self, given: dict[str, LevelValue] | None) -> int | None:
        """The class that a condition names; None without one."""
        if not given:
            return None
        label = self.encoding.schema.label
        if label is None or list(given) != [label.name]:
            known = f"the label {label.name!r} only" if label else "nothing: this release has no label"
            raise NotIdentifiedError(f"records are told apart by {known}, not by {', '.join(given)}")
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
    """The levels, that of missing cells last if they have one."""
    return [*column.levels, *[MISSING_LEVEL] * column.missing_level]


def level_index(column: NominalColumn, level: LevelValue) -> int:
    """A level's place; `True` is not 1."""
    for index, known in enumerate(levels_of(column)):
        if known == level and isinstance(known, bool) == isinstance(level, bool):
            return index
    raise NotIdentifiedError(f"{column.name!r} has no level {level!r}; it has {', '.join(level_names(column))}")
