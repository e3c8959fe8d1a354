"""The public description of a record: columns, bounds, categories, privacy unit.

Everything here is public: it comes from the specification, never from the data.
A column is either an interval (numeric, integer, date, timestamp) or nominal
(boolean, categorical). Cells of a table are held as plain arrays, one per column:

* interval columns as float64, in the unit of the bounds (dates: days, timestamps:
  microseconds, both since 1970-01-01 UTC), NaN for a missing or unparseable cell;
* nominal columns as int64 indices into `levels`, `MISSING` or `UNKNOWN`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpcore.records.rules.rule import Rule

MISSING = -1
"""Code of a nominal cell that is null."""

UNKNOWN = -2
"""Code of a nominal cell whose category is not declared."""

MISSING_LEVEL = "(missing)"
"""The name of the level of missing cells."""

LevelValue = str | int | bool
Cells = dict[str, NDArray[np.generic]]

Floats = NDArray[np.float64]
"""Real numbers: interval cells, and everything that is computed from points."""

Codes = NDArray[np.int64]
"""Whole numbers that name levels, cells, groups or classes."""


class Neighbours(StrEnum):
    """The neighbouring relation: the pairs of tables that the guarantee makes indistinguishable."""

    REPLACE_ONE = "replace-one"
    ADD_REMOVE = "add-remove"

    @property
    def other(self) -> Neighbours:
        """The other relation."""
        return Neighbours.ADD_REMOVE if self is Neighbours.REPLACE_ONE else Neighbours.REPLACE_ONE

    @classmethod
    def _missing_(cls, value: object) -> Neighbours:
        raise ValueError(f"neighbours must be {' or '.join(cls)}, got {value!r}")


class Kind(StrEnum):
    """The type of a column's values."""

    NUMERIC = "numeric"
    INTEGER = "integer"
    DATE = "date"
    TIMESTAMP = "timestamp"
    BOOLEAN = "boolean"
    CATEGORICAL = "categorical"


class Role(StrEnum):
    """The role of a column: the label splits the moments into class blocks, the target is never projected."""

    FEATURE = "feature"
    LABEL = "label"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalColumn:
    """A column of ordered values inside public bounds.

    A missing cell is replaced by `impute`; without it and without `missing_level`
    it counts as the middle of the bounds.
    """

    name: str
    kind: Kind
    lower: float
    upper: float
    role: Role = Role.FEATURE
    missing_level: bool = False
    impute: float | None = None
    timezone: str = "UTC"
    breaks: tuple[float, ...] = ()
    """Public cut points inside the bounds: a value at a break belongs to what lies above it."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lower) and math.isfinite(self.upper) and self.lower < self.upper):
            raise ValueError(f"column {self.name!r}: bounds must be finite and increasing")
        if not 0 < self.half_width < math.inf:
            raise ValueError(f"column {self.name!r}: the distance between the bounds must be an ordinary number")
        if self.impute is not None and not self.lower <= self.impute <= self.upper:
            raise ValueError(f"column {self.name!r}: the imputed value must lie inside the bounds")
        if any(not a < b for a, b in pairwise((self.lower, *self.breaks, self.upper))):
            raise ValueError(f"column {self.name!r}: breaks must lie inside the bounds, in increasing order")

    @property
    def middle(self) -> float:
        """The centre of the bounds, which encodes to 0."""
        return self.lower + (self.upper - self.lower) / 2

    @property
    def half_width(self) -> float:
        """Half the distance between the bounds, which encodes to 1."""
        return (self.upper - self.lower) / 2

    @property
    def is_whole(self) -> bool:
        """Whether decoded values are whole numbers of the column's unit."""
        return self.kind is not Kind.NUMERIC


@dataclass(frozen=True, slots=True, kw_only=True)
class NominalColumn:
    """A column of unordered values from a public list.

    `other` is the index of the level of unknown categories; `impute` is that
    of the level of missing cells. Without them such a cell counts as no level and is
    encoded as the centre of the levels (for a label, which needs some class, as the
    first level).
    """

    name: str
    kind: Kind
    levels: tuple[LevelValue, ...]
    role: Role = Role.FEATURE
    missing_level: bool = False
    other: int | None = None
    impute: int | None = None

    def __post_init__(self) -> None:
        if len(self.levels) < 2 or len(set(self.levels)) != len(self.levels):
            raise ValueError(f"column {self.name!r}: needs at least two levels, all different")
        for index in (self.other, self.impute):
            if index is not None and not 0 <= index < len(self.levels):
                raise ValueError(f"column {self.name!r}: `other` and `impute` must be declared levels")

    @property
    def level_count(self) -> int:
        """The number of levels, with one for missing cells if they have their own."""
        return len(self.levels) + self.missing_level


Column = IntervalColumn | NominalColumn


def level_names(column: NominalColumn) -> list[str]:
    """The levels as text, that of missing cells last."""
    return [str(level) for level in column.levels] + [MISSING_LEVEL] * column.missing_level


class RowRule(StrEnum):
    """The rule that bounds the contribution of a person's rows."""

    WEIGHT = "weight"
    AT_MOST = "at-most"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyUnit:
    """The unit that the guarantee protects: one row, or one person with all of their rows.

    `person` names the identifying column. Under `WEIGHT` each of a person's k rows
    counts 1/k; under `AT_MOST` the first `most_rows` rows of a person count.
    """

    person: str | None = None
    row_rule: RowRule = RowRule.WEIGHT
    most_rows: int = 1

    def __str__(self) -> str:
        if self.person is None:
            return "row"
        rule = "weight" if self.row_rule is RowRule.WEIGHT else f"at-most {self.most_rows}"
        return f"person by {self.person} (rows: {rule})"


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """The columns of a record in the order of the released table, and the rules that its rows obey.

    >>> age = IntervalColumn(name="age", kind=Kind.INTEGER, lower=0.0, upper=100.0)
    >>> smoker = NominalColumn(name="smoker", kind=Kind.BOOLEAN, levels=(False, True))
    >>> ward = NominalColumn(name="ward", kind=Kind.CATEGORICAL, levels=("a", "b", "c"), role=Role.LABEL)
    >>> schema = RecordSchema((age, smoker, ward))
    >>> [column.name for column in schema.encoded_columns], schema.class_count
    (['age', 'smoker'], 3)
    """

    columns: tuple[Column, ...]
    rules: tuple[Rule, ...] = ()
    """What every released row obeys."""
    by_name: dict[str, Column] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {column.name: column for column in self.columns})
        labels, targets = ([c for c in self.columns if c.role is role] for role in (Role.LABEL, Role.TARGET))
        rules = {
            "columns must have different names": len(self.by_name) == len(self.columns),
            "the label must be a nominal column": all(isinstance(c, NominalColumn) for c in labels),
            "the target must be an interval column": all(isinstance(c, IntervalColumn) for c in targets),
            "at most one column may be the label": len(labels) <= 1,
            "at most one column may be the target": len(targets) <= 1,
            "at least one column besides the label is needed": len(labels) < len(self.columns),
            "rules must speak of declared columns": all(rule.columns <= self.by_name.keys() for rule in self.rules),
        }
        for rule, holds in rules.items():
            if not holds:
                raise ValueError(rule)

    @property
    def label(self) -> NominalColumn | None:
        """The column that splits the moments into class blocks."""
        return next((c for c in self.columns if isinstance(c, NominalColumn) and c.role is Role.LABEL), None)

    @property
    def encoded_columns(self) -> tuple[Column, ...]:
        """The columns that become coordinates: all but the label, the target last."""
        features = [c for c in self.columns if c.role is Role.FEATURE]
        return (*features, *(c for c in self.columns if c.role is Role.TARGET))

    @property
    def class_count(self) -> int:
        """The number of class blocks: the label's levels, or 1."""
        return self.label.level_count if self.label else 1
