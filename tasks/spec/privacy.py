"""The privacy section: whose budget, whom it protects, and how much a release may reveal.

The first cap of a population writes its basis: the unit, and the neighbour relation that it is first counted for.
Costs under one relation add, and the ledger adds them up under both. Costs add for a unit that every release protects
as a whole. That holds for any two specifications of persons, whatever their rules about rows and
whichever column identifies a person: each protects all rows that bear one identifier (GUARANTEE.md, "The identifier of
persons"). A cost for a row says nothing about a person, and one for rows of a query's answer nothing about rows of a
table. Those are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainValidator, field_validator, model_serializer, model_validator

from dpcore.accounting import LARGEST_FIGURE, Cap, CapKind
from dpcore.planning.request import SMALLEST_DELTA, SMALLEST_EPSILON
from dpcore.records.schema import Neighbours, PrivacyUnit, RowRule
from tasks.spec.refusals import refuse, shown
from tasks.spec.values import ColumnName, ExactDecimal, Section, Slug, positive_whole

MOST_EPSILON = 100
"""Above it a single release may multiply an adversary's odds by e^100: no promise at all."""

MOST_SPAN = 1200
"""A longer span protects a lifetime: `all` says so."""

MOST_DELTA = Fraction(1, 1000)
"""Above it a release may simply publish one record in a thousand."""


ALL_MONTHS = "all"
"""The span that protects all months of a unit together."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Over how many consecutive months a cap counts, None for all; and by which rule records belong to months."""

    span: int | None = None
    rule: dict[str, str] | None = None


_AT_MOST = re.compile(r"at-most\s+(\S+)")


def _read_row_limit(value: object) -> Any:
    """`weight`, or the number in `at-most 3` or `{at-most: 3}`."""
    if value == "weight":
        return value
    if isinstance(value, dict) and list(value) == ["at-most"]:
        return positive_whole(value["at-most"])
    match = _AT_MOST.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        hint = "write `rows: weight` or `rows: at-most 3`"
        refuse("unit-rows", f"{shown(value)} does not bound a person's rows", hint)
    return positive_whole(match[1])


def _read_span(value: object) -> int | str:
    """`all`, or a number of consecutive months."""
    if value == ALL_MONTHS:
        return ALL_MONTHS
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_SPAN:
        hint = f"write `span: all`, or a number of months from 1 to {MOST_SPAN}, such as `span: 12`"
        refuse("unit-span", f"{shown(value)} is no number of consecutive months", hint)
    return value


class UnitSpec(Section):
    """Whom the guarantee protects: `row`, or `{person: COLUMN, rows: weight | at-most N, span: all | N}`."""

    person: ColumnName | None = Field(
        default=None, description="The column that identifies a person; a mapping needs it. It is never released."
    )
    rows: Annotated[int | Literal["weight"], PlainValidator(_read_row_limit)] = Field(
        default="weight",
        description="How a person's rows count: `weight` lets each person count once, however many rows there are; "
        "`at-most 3` uses a person's first three rows (of a query's answer, the first by their own values), with three "
        "times the noise.",
        json_schema_extra={"values": "`weight` or `at-most N`"},
    )
    span: Annotated[int | Literal["all"], PlainValidator(_read_span)] = Field(
        default="all",
        description="How many consecutive months of a unit are protected together: `all` of them, or a number. Then "
        "the lifetime cap holds for every window of so many months, and older releases no longer count. It needs "
        "`source.period_column`. For rows, write `unit: {span: 1}`.",
        json_schema_extra={"values": "`all` or number of months"},
    )

    @model_validator(mode="before")
    @classmethod
    def _row_is_short_for_no_person(cls, value: Any) -> Any:
        if value == "row":
            return {}
        # An empty person must not fall back to `row`, which promises less.
        says_whom = isinstance(value, dict) and ("span" in value or not set(value) <= {"rows"})
        if not says_whom or value.get("person", "") is None or ("rows" in value and "person" not in value):
            hint = "write `unit: row`, or `unit: {person: COLUMN, rows: weight}`"
            refuse("unit", f"{shown(value)} does not say whom the guarantee protects", hint)
        return value

    @model_serializer
    def _as_written(self) -> str | dict[str, str | int]:
        span: dict[str, str | int] = {} if self.span == ALL_MONTHS else {"span": self.span}
        if self.person is None:
            return span or "row"
        rows = "weight" if self.rows == "weight" else f"at-most {self.rows}"
        return {"person": self.person, "rows": rows, **span}

    @property
    def months(self) -> int | None:
        """How many consecutive months of a unit are protected together; None for all."""
        return self.span if isinstance(self.span, int) else None

    @property
    def unit(self) -> PrivacyUnit:
        """The unit as dpcore knows it."""
        if self.rows == "weight":
            return PrivacyUnit(person=self.person)
        return PrivacyUnit(person=self.person, row_rule=RowRule.AT_MOST, most_rows=self.rows)


FIGURE_OF_KIND = {"pure": "split", "each": "slots"}
"""The kind of cap that a further figure belongs to."""


class LifetimeSpec(Section):
    """What all releases over a population may reveal together."""

    epsilon: ExactDecimal = Field(description="The cap on epsilon.")
    delta: ExactDecimal = Field(default=Fraction(0), description="The cap on delta.")
    delta_num: ExactDecimal = Field(
        default=Fraction(1, 10**9), description="The cap on what finite precision may add to delta."
    )
    kind: Literal["auto", "pure", "gaussian", "zcdp", "split", "slots"] = Field(
        default="auto",
        description="Which costs the cap counts, and how: `pure` epsilons; the exact curve of `gaussian` noise; both "
        "as `zcdp`; each within a part of its own (`split`); or pure releases of one size, composed exactly "
        "(`slots`). `auto` is what the first release costs. The first release fixes it.",
    )
    pure: ExactDecimal | None = Field(
        default=None, description="With `split`: the part of epsilon for pure costs. The rest is for Gaussian noise."
    )
    each: ExactDecimal | None = Field(
        default=None,
        description="With `slots`: the most that one release costs. As many releases fit as compose to the cap.",
    )

    @field_validator("epsilon")
    @classmethod
    def _epsilon_is_a_cap(cls, epsilon: Fraction) -> Fraction:
        if epsilon > LARGEST_FIGURE:
            hint = "such a cap promises nothing; common values lie between 1 and 100"
            refuse("epsilon-too-large", "the lifetime epsilon is above 1e12", hint)
        return _positive(epsilon)

    @field_validator("delta", "delta_num")
    @classmethod
    def _delta_is_a_probability(cls, delta: Fraction) -> Fraction:
        return _probability(delta)

    @model_validator(mode="after")
    def _kind_has_its_figures(self) -> Self:
        for key, kind in FIGURE_OF_KIND.items():
            if (getattr(self, key) is not None) != (self.kind == kind):
                missing = self.kind == kind
                message = f"a cap of kind {self.kind} {'needs' if missing else 'has no'} `{key}`"
                hint = f"write for example `{key}: 0.5`" if missing else f"remove it, or write `kind: {kind}`"
                refuse("cap-figures", message, hint, *(() if missing else (key,)))
        if self.kind in ("gaussian", "zcdp", "split", "slots") and not self.delta:
            hint = "set a small lifetime delta such as 1.0e-6, or use `kind: pure`"
            refuse("cap-needs-delta", f"a cap of kind {self.kind} is counted at a delta", hint, "delta")
        if self.pure is not None and not 0 < self.pure < self.epsilon:
            refuse("cap-figures", "the part for pure costs must lie between 0 and epsilon", "lower it", "pure")
        if self.each is not None and not 0 < self.each <= self.epsilon:
            refuse("cap-figures", "a slot must cost more than 0 and at most epsilon", "lower it", "each")
        return self

    @property
    def cap(self) -> Cap:
        """The cap; without a kind where the first release decides it."""
        figures = self.epsilon, self.delta, self.delta_num
        if self.kind == "auto":
            return Cap(*figures)
        if self.pure is not None:
            return Cap.split(*figures, pure=self.pure)
        if self.each is not None:
            return Cap.of_slots(*figures, each=self.each)
        return Cap(*figures, kind=CapKind(self.kind))


class PrivacySpec(Section):
    """What one release may reveal, about whom, out of which budget. Epsilon has no default."""

    population: Slug = Field(
        description="The name of the people whose lifetime budget pays; several specifications may share it."
    )
    unit: UnitSpec = Field(
        default_factory=lambda: UnitSpec.model_validate("row"),
        description="Whom the guarantee protects: each row by itself (the default), or a person with all their rows.",
        json_schema_extra={"values": "`row` or mapping"},
    )
    neighbours: Neighbours = Field(
        default=Neighbours.REPLACE_ONE,
        description="What epsilon is about: the values of one unit (`replace-one`), or whether the unit is in the data "
        "at all (`add-remove`). The record also states epsilon under the other one, or that it is not protected.",
    )
    epsilon: ExactDecimal = Field(
        description="What one release may reveal, from 1e-12 to 100. There is no default; common values lie between "
        "0.1 and 10."
    )
    delta: ExactDecimal = Field(
        default=Fraction(0), description="The delta of one release, at most 0.001; 0 is a pure guarantee."
    )
    lifetime: LifetimeSpec = Field(
        description="The cap on all releases of the population together. The first release writes it into the ledger."
    )

    @field_validator("epsilon", mode="before")
    @classmethod
    def _epsilon_is_given(cls, value: Any) -> Any:
        if value is None:
            refuse("epsilon-missing", "the key `epsilon` has no value", "there is no default: write for example 1.0")
        return value

    @field_validator("epsilon")
    @classmethod
    def _epsilon_promises_something(cls, epsilon: Fraction) -> Fraction:
        if epsilon > MOST_EPSILON:
            hint = f"above {MOST_EPSILON} the guarantee promises nothing; common values lie between 0.1 and 10"
            refuse("epsilon-too-large", f"epsilon is {_decimal(epsilon)}", hint)
        if 0 < epsilon < SMALLEST_EPSILON:
            hint = "below 1e-12 the noise drowns every measurement; common values lie between 0.1 and 10"
            refuse("epsilon-too-small", f"epsilon is {_decimal(epsilon)}", hint)
        return _positive(epsilon)

    @field_validator("delta")
    @classmethod
    def _delta_promises_something(cls, delta: Fraction) -> Fraction:
        if _probability(delta) > MOST_DELTA:
            hint = "at most 0.001: a release may fail outright with this probability; use 0 for a pure guarantee"
            refuse("delta-too-large", f"delta is {_decimal(delta)}", hint)
        return delta

    @model_validator(mode="after")
    def _lifetime_holds_one_release(self) -> Self:
        for key in ("epsilon", "delta"):
            one, all_together = getattr(self, key), getattr(self.lifetime, key)
            if all_together < one:
                message = f"lifetime {key} {_decimal(all_together)} is below one release's {_decimal(one)}"
                hint = f"raise lifetime.{key}, or lower {key}"
                refuse("lifetime-too-small", message, hint, "lifetime", key)
        return self


def _positive(epsilon: Fraction) -> Fraction:
    if epsilon <= 0:
        refuse("epsilon-not-positive", f"epsilon must be above 0, got {_decimal(epsilon)}", "write for example 1.0")
    return epsilon


def _probability(delta: Fraction) -> Fraction:
    if not (delta == 0 or SMALLEST_DELTA <= delta < 1):
        message = f"this must be 0, or at least 1e-100 and below 1, got {_decimal(delta)}"
        refuse("delta-range", message, "use 0 or a tiny number")
    return delta


def _decimal(number: Fraction) -> str:
    return f"{float(number):g}"


OF_ANSWER = " of the query's answer"
"""Ends the words for a unit that is not known outside the answer of a query."""

ROW = "row"
_PERSON = "person by "


def adds_up(known: Mapping[str, str], stated: Mapping[str, str]) -> bool:
    """Whether costs for one basis add to those for another."""
    return what_differs(known, stated) is None


def what_differs(known: Mapping[str, str], stated: Mapping[str, str]) -> str | None:
    """The part of a basis for which costs do not add; None if they do."""
    kinds = [{**basis, "unit": kind_of(basis.get("unit", "")), "neighbours": ""} for basis in (known, stated)]
    return next((name for name in sorted(kinds[0] | kinds[1]) if kinds[0].get(name) != kinds[1].get(name)), None)


def specified_basis(public: dict[str, Any]) -> dict[str, str]:
    """The basis of a specification, from its public description."""
    unit = public["privacy"]["unit"]
    says_person = isinstance(unit, dict) and "person" in unit
    words = f"{_PERSON}{unit['person']} (rows: {unit['rows']})" if says_person else ROW
    ending = OF_ANSWER if public.get("query", {}).get("rows") == "answer" else ""
    return {"unit": words + ending, "neighbours": public["privacy"]["neighbours"]}


def kind_of(unit: str) -> str:
    """Whom a unit's words speak of, without the column and the rule about rows of one specification."""
    if not unit.startswith(_PERSON):
        return unit
    return f"person{OF_ANSWER}" if unit.endswith(OF_ANSWER) else "person"
