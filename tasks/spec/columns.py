"""The columns of release.yaml, each with its public bounds or categories."""

from __future__ import annotations

import unicodedata
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from dpcore.records.schema import MISSING_LEVEL, Column, IntervalColumn, Kind, LevelValue, NominalColumn, Role
from tasks.spec.about import PublicText
from tasks.spec.refusals import refuse, shown
from tasks.spec.ticks import as_ticks, from_ticks
from tasks.spec.values import ColumnName, Section, TimezoneName, first_repeated, one_line

MOST_CATEGORIES = 100
"""More categories than this need an `other`: such a list is hardly complete, or hardly public."""

MOST_CATEGORIES_AT_ALL = 2_000
"""More are refused: every category is a coordinate, and measurements grow with the square of their number."""
MOST_BREAKS = 500
"""Each break makes one more cell of the column's histogram."""

LARGEST_BOUND = 1e100
"""Summaries of a released table sum squares of its values, which must neither overflow nor vanish."""

_NOMINAL = (Kind.BOOLEAN, Kind.CATEGORICAL)
_TARGETS = (Kind.NUMERIC, Kind.INTEGER)
_FREE_TEXT = ("text", "free-text", "string", "str")
_INT64 = 2**63


def _refuse_free_text(kind: object) -> object:
    if kind in _FREE_TEXT:
        hint = "list the column under source.drop, or declare it categorical with its public categories"
        refuse("free-text", "free text cannot be released", hint)
    return kind


class Impute(Section):
    """`{impute: VALUE}`: what a missing cell counts as; for interval columns in ticks."""

    impute: Any = Field(
        description="A value inside the bounds, or a category.", json_schema_extra={"values": "a value of the column"}
    )


class ColumnSpec(Section):
    """One column: what its cells are and which values are public knowledge.

    Interval kinds need `bounds`, which are held in ticks (numbers, days or
    microseconds since 1970-01-01 UTC); `categorical` needs `categories`.
    """

    # The order matters: a field's validator sees the fields above it.
    name: ColumnName = Field(description="The column's name in the data and in the release.")
    kind: Annotated[Kind, BeforeValidator(_refuse_free_text)] = Field(
        description="The type of the cells. Free text cannot be released."
    )
    role: Role = Field(
        default=Role.FEATURE,
        description="At most one column is what analysts will want to predict: a `label` (categorical or boolean) or a "
        "`target` (numeric or integer). Each class of a label is measured by itself.",
    )
    timezone: TimezoneName | None = Field(
        default=None, description="For timestamps without an offset: their IANA time zone, `UTC` by default."
    )
    bounds: tuple[float, float] | None = Field(
        default=None,
        validate_default=True,
        description="The public range of a numeric, integer, date or timestamp column, which needs one. "
        "Values outside are clamped to the nearer bound.",
        json_schema_extra={"values": "`[lowest, highest]`"},
    )
    breaks: tuple[float, ...] = Field(
        default=(),
        description="Public cut points of a numeric, integer, date or timestamp column, in increasing order inside the "
        "bounds, such as the ages at which other rules apply. A value at a break belongs to what lies above it. A "
        "`copula` measures both sides apart as far as each holds enough rows; other generators do not use breaks.",
        json_schema_extra={"values": "list of values"},
    )
    categories: tuple[LevelValue, ...] | None = Field(
        default=None,
        validate_default=True,
        description="The public levels of a categorical column, which needs at least two and may have at most 2,000.",
        json_schema_extra={"values": "list of texts, of whole numbers or of booleans"},
    )
    other: LevelValue | None = Field(
        default=None,
        description="The category that every undeclared value is mapped to; required above 100 categories.",
        json_schema_extra={"values": "one of `categories`"},
    )
    missing: Literal["category"] | Impute | None = Field(
        default=None,
        description="What a missing cell counts as: a level of its own, so that the released column has gaps too, or a "
        "fixed value. Without the key it counts as the middle of the bounds, or as `other`.",
        json_schema_extra={"values": "`category` or `{impute: VALUE}`"},
    )
    unit: PublicText | None = Field(
        default=None, description="The unit of a numeric or integer column, such as `years`; the codebook shows it."
    )

    @field_validator("role")
    @classmethod
    def _role_fits_kind(cls, role: Role, info: ValidationInfo) -> Role:
        kind = info.data.get("kind")
        if kind is None:
            return role
        if role is Role.LABEL and kind not in _NOMINAL:
            hint = "use `role: target`" if kind in _TARGETS else "use a categorical or boolean column"
            refuse("label-kind", f"a label must be categorical or boolean, not {kind}", hint)
        if role is Role.TARGET and kind not in _TARGETS:
            hint = "use `role: label`" if kind in _NOMINAL else "use a numeric or integer column"
            refuse("target-kind", f"a target must be numeric or integer, not {kind}", hint)
        return role

    @field_validator("timezone")
    @classmethod
    def _only_timestamps_have_timezones(cls, timezone: str | None, info: ValidationInfo) -> str | None:
        kind = info.data.get("kind", Kind.TIMESTAMP)
        if timezone is not None and kind is not Kind.TIMESTAMP:
            refuse("timezone-kind", f"a {kind} column has no time zone", "remove the key, or use `kind: timestamp`")
        return timezone

    @field_validator("bounds", mode="plain")
    @classmethod
    def _read_bounds(cls, value: Any, info: ValidationInfo) -> tuple[float, float] | None:
        kind = info.data.get("kind")
        if kind is None or "timezone" not in info.data:
            return None  # already refused
        if kind in _NOMINAL:
            _refuse_if_given(value, "bounds-kind", f"a {kind} column has no bounds", "remove the key")
            return None
        return _read_bounds(value, kind, info.data["timezone"] or "UTC")

    @field_validator("breaks", mode="plain")
    @classmethod
    def _read_breaks(cls, value: Any, info: ValidationInfo) -> tuple[float, ...]:
        kind, bounds = info.data.get("kind"), info.data.get("bounds")
        if kind in _NOMINAL:
            given = None if value == [] else value
            _refuse_if_given(given, "breaks-kind", f"a {kind} column has no breaks", "remove the key")
        return () if not bounds else _read_breaks(value, info.data["kind"], info.data["timezone"] or "UTC", bounds)

    @field_validator("categories", mode="plain")
    @classmethod
    def _read_categories(cls, value: Any, info: ValidationInfo) -> tuple[LevelValue, ...] | None:
        kind = info.data.get("kind")
        if kind is Kind.CATEGORICAL:
            return _read_categories(value)
        if kind is not None:
            hint = "remove the key, or use `kind: categorical`"
            _refuse_if_given(value, "categories-kind", f"a {kind} column has no categories", hint)
        return None

    @field_validator("other", mode="plain")
    @classmethod
    def _other_is_declared(cls, value: Any, info: ValidationInfo) -> LevelValue | None:
        kind = info.data.get("kind")
        if kind is None or value is None or (kind is Kind.CATEGORICAL and not info.data.get("categories")):
            return None
        if kind is not Kind.CATEGORICAL:
            refuse("other-kind", f"a {kind} column has no `other`", "remove the key")
        return _declared(value, info.data["categories"], "other-unknown")

    @field_validator("missing", mode="plain")
    @classmethod
    def _read_missing(cls, value: Any, info: ValidationInfo) -> Literal["category"] | Impute | None:
        if value is None or value == "category":
            return value  # type: ignore[no-any-return]
        if not (isinstance(value, dict) and list(value) == ["impute"]):
            message = f"{shown(value)} does not state how a missing cell is treated"
            refuse("missing-rule", message, "write `missing: category` or `missing: {impute: VALUE}`")
        return _read_impute(value["impute"], info.data)

    @field_validator("unit")
    @classmethod
    def _only_numbers_have_units(cls, unit: str | None, info: ValidationInfo) -> str | None:
        kind = info.data.get("kind", Kind.NUMERIC)
        if unit is not None and kind not in _TARGETS:
            refuse("unit-kind", f"a {kind} column has no unit", "remove the key")
        return unit

    @model_validator(mode="after")
    def _many_categories_need_an_other(self) -> Self:
        count = len(self.categories or ())
        if count > MOST_CATEGORIES and self.other is None:
            message = f"{count} categories without `other`; the limit is {MOST_CATEGORIES}"
            refuse("cardinality", message, "keep the common ones and name one of them `other: CATEGORY`", "categories")
        return self

    @model_validator(mode="after")
    def _no_category_is_called_missing(self) -> Self:
        if self.missing == "category" and MISSING_LEVEL in (self.categories or ()):
            message = f"missing cells have a level of their own, which is called {MISSING_LEVEL!r} as a category is"
            refuse("category-missing", message, "rename the category, or remove `missing: category`", "categories")
        return self

    @property
    def column(self) -> Column:
        """The column as dpcore knows it."""
        return self._as_interval() if self.bounds else self._as_nominal()

    @property
    def levels(self) -> tuple[LevelValue, ...]:
        """The values of a nominal column."""
        return _levels(self.kind, self.categories)

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        """The column as written, in canonical form: instants in UTC, defaults filled in."""
        always = {"name": self.name, "kind": str(self.kind), "role": str(self.role)}
        optional = {
            "timezone": (self.timezone or "UTC") if self.kind is Kind.TIMESTAMP else None,
            "bounds": [from_ticks(bound, self.kind) for bound in self.bounds] if self.bounds else None,
            "breaks": [from_ticks(point, self.kind) for point in self.breaks] or None,
            "categories": list(self.categories) if self.categories else None,
            "other": self.other,
            "missing": self._missing_as_json(),
            "unit": self.unit,
        }
        return always | {key: value for key, value in optional.items() if value is not None}

    def _as_interval(self) -> IntervalColumn:
        assert self.bounds is not None  # noqa: S101  only called where there are bounds
        return IntervalColumn(
            name=self.name,
            kind=self.kind,
            lower=self.bounds[0],
            upper=self.bounds[1],
            role=self.role,
            missing_level=self.missing == "category",
            impute=self.missing.impute if isinstance(self.missing, Impute) else None,
            timezone=self.timezone or "UTC",
            breaks=self.breaks,
        )

    def _as_nominal(self) -> NominalColumn:
        return NominalColumn(
            name=self.name,
            kind=self.kind,
            levels=self.levels,
            role=self.role,
            missing_level=self.missing == "category",
            other=None if self.other is None else self.levels.index(self.other),
            impute=self.levels.index(self.missing.impute) if isinstance(self.missing, Impute) else None,
        )

    def _missing_as_json(self) -> Any:
        if not isinstance(self.missing, Impute):
            return self.missing
        value = self.missing.impute
        return {"impute": from_ticks(value, self.kind) if self.bounds else value}


def _refuse_if_given(value: object, rule: str, message: str, hint: str) -> None:
    if value is not None:
        refuse(rule, message, hint)


def _read_bounds(value: Any, kind: Kind, timezone: str) -> tuple[float, float]:
    hint = "write `bounds: [lowest, highest]` from public knowledge, never from the data"
    if value is None:
        refuse("bounds-missing", f"a {kind} column needs bounds", hint)
    if not isinstance(value, list | tuple) or len(value) != 2:
        refuse("bounds-shape", "bounds are a list of two values", hint)
    lower, upper = (as_ticks(bound, kind, timezone) for bound in value)
    if lower >= upper:
        message = f"the lower bound {shown(value[0])} must be below the upper bound {shown(value[1])}"
        refuse("bounds-order", message, "write `bounds: [lowest, highest]`")
    if max(-lower, upper) > LARGEST_BOUND or upper - lower < 1 / LARGEST_BOUND:
        hint = f"stay within {LARGEST_BOUND:g}, with a distance above {1 / LARGEST_BOUND:g}; use another unit"
        refuse("bounds-range", "the squares of these values exceed the range of floats", hint)
    return lower, upper


def _read_breaks(value: Any, kind: Kind, timezone: str, bounds: tuple[float, float]) -> tuple[float, ...]:
    hint = "write `breaks: [3, 15]`, in increasing order and inside the bounds"
    if not isinstance(value, list | tuple) or len(value) > MOST_BREAKS:
        refuse("breaks-shape", f"breaks are a list of at most {MOST_BREAKS} values", hint)
    points = tuple(as_ticks(point, kind, timezone) for point in value)
    for index, (before, point) in enumerate(pairwise((bounds[0], *points))):
        if not before < point < bounds[1]:
            message = f"the break {shown(value[index])} is not above the one before it, or not inside the bounds"
            refuse("breaks-order", message, hint)
    return points


def _read_categories(value: Any) -> tuple[LevelValue, ...]:
    hint = "write `categories: [first, second]` from public knowledge, never from the data"
    if value is None:
        refuse("categories-missing", "a categorical column needs categories", hint)
    if not isinstance(value, list | tuple):
        refuse("not-a-list", "categories are a list", hint)
    if len(value) > MOST_CATEGORIES_AT_ALL:
        message = f"{len(value)} categories; the limit is {MOST_CATEGORIES_AT_ALL}"
        refuse("cardinality", message, "keep the common ones and name one of them `other: CATEGORY`")
    for index, item in enumerate(value):
        if not isinstance(item, str | int) or (isinstance(item, int) and not -_INT64 <= item < _INT64):
            message = f"a category is text, a whole number of 64 bits, or a boolean, not {shown(item)}"
            refuse("category-kind", message, "put the value in quotes", index)
        _refuse_unreadable_text(item, index)
    if len({type(item) for item in value}) > 1:
        refuse("categories-mixed", "categories must all be of one type", "put all of them in quotes")
    spelled = [unicodedata.normalize("NFC", item) if isinstance(item, str) else item for item in value]
    repeated = first_repeated(spelled)
    if repeated is not None:
        message = f"the category {shown(value[repeated])} is given twice"
        refuse("category-duplicate", message, "remove one of them", repeated)
    if len(value) < 2:
        refuse("categories-few", "a categorical column needs at least two categories", hint)
    return tuple(value)


def _refuse_unreadable_text(item: LevelValue, index: int) -> None:
    """Refuse a category that no cell can be read as, or that no file can show."""
    if not isinstance(item, str):
        return
    if item != item.strip():
        hint = "remove the space: cells are read without spaces around them"
        refuse("category-padded", f"the category {shown(item)} begins or ends with a space", hint, index)
    try:
        one_line(item)
    except PydanticCustomError as error:
        context = error.context or {}
        refuse(error.type, str(context["message"]), str(context["hint"]), index)


def _read_impute(value: Any, above: dict[str, Any]) -> Impute | None:
    """What a missing cell counts as; `above` are the column's fields before it."""
    kind, bounds, categories = above.get("kind"), above.get("bounds"), above.get("categories")
    if kind in _NOMINAL and (kind is Kind.BOOLEAN or categories):
        return Impute(impute=_declared(value, _levels(kind, categories), "impute-unknown"))
    if kind is None or bounds is None:
        return None  # already refused
    ticks = as_ticks(value, kind, above["timezone"] or "UTC")
    if not bounds[0] <= ticks <= bounds[1]:
        refuse("impute-outside", f"{shown(value)} is outside the bounds", "use a value inside them")
    return Impute(impute=ticks)


def _declared(value: Any, levels: tuple[LevelValue, ...], rule: str) -> LevelValue:
    """A value that is among the levels, type and all: true is not 1."""
    if not any(type(level) is type(value) and level == value for level in levels):
        hint = f"use one of {', '.join(shown(level) for level in levels[:10])}"
        refuse(rule, f"{shown(value)} is not a category of this column", hint)
    return value  # type: ignore[no-any-return]


def _levels(kind: Kind, categories: tuple[LevelValue, ...] | None) -> tuple[LevelValue, ...]:
    return (False, True) if kind is Kind.BOOLEAN else categories or ()
