"""The whole of release.yaml, and the rules that hold between its sections."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, PrivateAttr, field_validator, model_validator
from pydantic_core import PydanticCustomError

from dpcore.planning.request import COPULA
from dpcore.records.encoding import Encoding
from dpcore.records.rules.rule import Rule
from dpcore.records.schema import Kind, Neighbours, PrivacyUnit, RecordSchema, Role
from expectations.landing import ENCODED_NORM
from tasks.spec.about import AboutSpec
from tasks.spec.checks import THRESHOLDS, ChecksSpec
from tasks.spec.columns import ColumnSpec
from tasks.spec.modelling import AutoOrWhole, ModelSpec
from tasks.spec.operations import (
    ApprovalRule,
    LineageSpec,
    QueryFacts,
    RunnerSpec,
    ScheduleSpec,
    SourceSpec,
    ledger_url,
)
from tasks.spec.privacy import OF_ANSWER, PrivacySpec
from tasks.spec.refusals import refuse, shown
from tasks.spec.rules.forms import is_recorded, read_rules
from tasks.spec.rules.satisfiable import refuse_impossible_rules
from tasks.spec.ticks import MonthRule
from tasks.spec.values import PositiveWhole, Section, Slug, exact_text, first_repeated

MOST_ROWS = 10**9
"""A longer table fits on few disks, and says no more about the data."""

_PRIVATE_KEYS = {"source", "runner", "ledger", "lineage"}  # file names, addresses and passwords stay here
_KEYS_AFTER_THE_MEASUREMENT = {"rows", "rules", "checks", "schedule", "approve", "about"}
_GENERATOR_NEEDS = {"supervised": Role.TARGET, "mixture": Role.LABEL, "lda": Role.LABEL}


def _writable_rows(rows: int | str) -> int | str:
    if isinstance(rows, int) and rows > MOST_ROWS:
        refuse("rows-too-many", "this is more than a billion rows", "write fewer, or `auto` for the noisy count")
    return rows


class ReleaseSpec(Section):
    """A release as its steward specifies it; everything in it is public knowledge about the data."""

    name: Slug = Field(
        description="The name of the series of releases: at most 64 lower-case letters, digits and hyphens."
    )
    source: SourceSpec = Field(description="Where the data come from.")
    privacy: PrivacySpec = Field(description="Whom the guarantee protects, what a release costs, and the budget.")
    expected_rows: PositiveWhole = Field(
        description="About how many rows a month has, as the public knows it; with `unit: {person: ...}`, how many "
        "persons if `rows` is `weight`. It drives every automatic choice; the exact number is never used."
    )
    columns: tuple[ColumnSpec, ...] = Field(description="The columns of the release, in order.")
    model: ModelSpec = Field(
        default_factory=ModelSpec, description="What is measured, and what synthetic rows are drawn from."
    )
    rules: tuple[Any, ...] | None = Field(
        default=None,
        description="Public knowledge that every released row obeys, such as `discharged >= admitted`: SQL conditions "
        "over the columns, and the short forms `{implies: [condition, conclusion]}`, `{sum_of: {total: [parts]}}` and "
        "`{not_applicable: {when: condition, columns: {column: category}}}`. As in a CHECK constraint, a row breaks a "
        "rule only where it is false, not where it is unknown. Rules come from the form or the process, never from the "
        "data. They cost nothing: rows are drawn such that they obey them, no value is moved and no row is deleted.",
        json_schema_extra={"values": "list of texts and short forms"},
    )
    rows: Annotated[AutoOrWhole, AfterValidator(_writable_rows)] = Field(
        default="auto", description="The number of synthetic rows; `auto` is the noisy count."
    )
    checks: ChecksSpec = Field(default_factory=ChecksSpec, description="What a release must reach to be published.")
    schedule: ScheduleSpec = Field(
        default_factory=ScheduleSpec, description="When `dprelease serve` releases by itself; never, without it."
    )
    approve: ApprovalRule = Field(
        default="none",
        description="Whether a release waits for `dprelease approve`: `required` accepts any key with the role "
        "`approve`; a mapping names the approvers, each with a key of their own. Who and why go into the ledger.",
        json_schema_extra={"values": "`none`, `required` or mapping"},
    )
    about: AboutSpec | None = Field(default=None, description="Public text for the registry entry.")
    runner: RunnerSpec | None = Field(
        default=None,
        description="A Dask cluster that sums up the data, with the same result to the bit; without it, all cores of "
        "this machine.",
    )
    ledger: Annotated[str, AfterValidator(ledger_url)] | None = Field(
        default=None,
        description="`postgresql://user@host/database`, for a ledger that several workspaces share; without it, "
        "`ledger.db` beside the specification. A password in the address is refused.",
    )
    lineage: LineageSpec | None = Field(
        default=None, description="Where OpenLineage events are sent, besides the workspace's own log."
    )
    _recorded_query: QueryFacts | None = PrivateAttr(default=None)
    """What a record says of the query, where the specification comes from one."""
    _rules: tuple[Rule, ...] = PrivateAttr(default=())

    @field_validator("rules", mode="plain")
    @classmethod
    def _keep_rules_as_written(cls, rules: Any) -> Any:
        """They are read once the columns are known; no rules are the same as none given."""
        return tuple(rules) if isinstance(rules, list) and rules else None if rules == [] else rules

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        _refuse_repeated_names(self)
        _refuse_reserved_names(self)
        _refuse_unclear_roles(self)
        _refuse_overlap_with_drop(self)
        _refuse_person_as_column(self)
        _refuse_unusable_period_column(self)
        _refuse_span_without_months(self)
        _refuse_landing_elsewhere(self)
        _refuse_large_dimension(self)
        _refuse_generator_without_role(self)
        self._rules = _read_rules(self)
        return self

    @property
    def schema(self) -> RecordSchema:  # type: ignore[override]  # pydantic's own `schema` is deprecated
        """The columns as dpcore knows them."""
        return RecordSchema(tuple(column.column for column in self.columns), self._rules)

    @property
    def unit(self) -> PrivacyUnit:
        """Whom the guarantee protects."""
        return self.privacy.unit.unit

    @property
    def neighbours(self) -> Neighbours:
        """Which two tables the guarantee makes hard to tell apart."""
        return self.privacy.neighbours

    @property
    def month_rule(self) -> MonthRule | None:
        """Which month a record belongs to; None if all data are of the release's month."""
        columns = [column.model_dump() for column in self.columns]
        return MonthRule.of_public({"period_column": self.source.period_column, "columns": columns})

    @property
    def undeclared(self) -> tuple[str, ...]:
        """The columns that the data must have and that are never released: the person's, and that of the month."""
        names = dict.fromkeys(name for name in (self.unit.person, self.source.period_column) if name)
        return tuple(name for name in names if name not in self.schema.by_name)

    @property
    def query(self) -> QueryFacts | None:
        """What is public of the query that gives the data, if one does."""
        return self.source.query.facts if self.source.query else self._recorded_query

    @property
    def protects(self) -> str:
        """Whom the guarantee protects, in words: costs for different ones do not add."""
        of_answer = self.query is not None and self.query.rows == "answer"
        return f"{self.unit}{OF_ANSWER if of_answer else ''}"

    def as_public_json(self) -> dict[str, Any]:
        """What the record says about the specification: no paths, addresses, statements or passwords.

        An exact number appears as a float under its key and as a ratio under
        `<key>_exact`; values that are not set are left out.
        """
        column = self.source.period_column
        return (
            self.model_dump(mode="json", exclude=_PRIVATE_KEYS | {"rules"}, exclude_none=True)
            | ({"query": self.query.model_dump(mode="json")} if self.query else {})
            | ({"rules": [rule.as_json() for rule in self._rules]} if self._rules else {})
            | ({"period_column": column} if column else {})
        )

    @classmethod
    def from_public_json(cls, public: dict[str, Any]) -> Self:
        """The specification that a record describes; what `as_public_json` leaves out is not in it.

        Raises: RefusedError, ValueError if it describes none.
        """
        written = _as_written(public)
        written["model"] = {"radius": 1, **written["model"]}  # it is written down unless it is 1
        query = QueryFacts.model_validate(written.pop("query")) if "query" in written else None
        source = {"path": "elsewhere", "period_column": written.pop("period_column", None)}
        spec = cls.model_validate(written | {"source": source})
        spec._recorded_query = query
        return spec

    def digest(self) -> str:
        """SHA-256 of all that shapes the measurement; can be recomputed from the public description."""
        return public_digest(self.as_public_json())


def _as_written(value: Any) -> Any:
    """A public description with exact numbers in place of their two spellings, as release.yaml has them."""
    if isinstance(value, dict):
        unsaid = {"projection"} if _is_default_beside_copula(value) else set()
        keys = [key for key in value if not key.endswith("_exact") and key not in unsaid]
        exact = {key: exact_text(str(value[f"{key}_exact"])) for key in keys if f"{key}_exact" in value}
        return {key: exact[key] if key in exact else _as_written(value[key]) for key in keys}
    if isinstance(value, list):
        return [_as_written(item) for item in value]
    return Decimal(repr(value)) if isinstance(value, float) else value


def _is_default_beside_copula(model: dict[str, Any]) -> bool:
    """Whether a projection is only the key's default: a copula has none, and plans refuse one that is asked for."""
    return model.get("generator") == COPULA and model.get("projection", {}).get("kind") == "ron"


def public_digest(public: dict[str, Any]) -> str:
    """The digest of a specification, from its public description alone."""
    shaping = {key: value for key, value in public.items() if key not in _KEYS_AFTER_THE_MEASUREMENT}
    shaping |= _shaping_checks(public)
    shaping["model"] = {key: value for key, value in public["model"].items() if key != "accept_noise"}
    shaping["privacy"] = {key: value for key, value in public["privacy"].items() if key != "lifetime"}
    shaping["columns"] = [{k: v for k, v in column.items() if k != "unit"} for column in public["columns"]]
    text = json.dumps(shaping, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _shaping_checks(public: dict[str, Any]) -> dict[str, Any]:
    """What budgeted checks measure: their budgets, and what decides the rows that they test; nothing without them."""
    parts = {name: body for name, body in public.get("checks", {}).items() if isinstance(body, dict)}
    asked = {name: {k: v for k, v in body.items() if k not in THRESHOLDS} for name, body in parts.items()}
    deciding: dict[str, Any] = {key: public[key] for key in ("rows", "rules") if key in public}
    return {"checks": asked} | deciding if asked else {}


def _read_rules(spec: ReleaseSpec) -> tuple[Rule, ...]:
    """The rules, refused under their own place where they are none or leave no row."""
    if spec.rules is None:
        return ()
    try:
        rules = read_rules(spec.rules, spec.schema.by_name)
        if not all(map(is_recorded, spec.rules)):  # a record's rules were searched when it was made
            refuse_impossible_rules(spec.schema, rules)
    except PydanticCustomError as error:
        context = error.context or {}
        refuse(error.type, str(context["message"]), str(context["hint"]), "rules", *context["where"])
    return rules


def _refuse_repeated_names(spec: ReleaseSpec) -> None:
    index = first_repeated([column.name for column in spec.columns])
    if index is not None:
        message = f"the column {shown(spec.columns[index].name)} is given twice"
        refuse("column-duplicate", message, "give each column once", "columns", index, "name")


def _refuse_reserved_names(spec: ReleaseSpec) -> None:
    for index, column in enumerate(spec.columns):
        if column.name == ENCODED_NORM:
            message = f"the name {shown(column.name)} is used by the validation"
            refuse("name-reserved", message, "rename the column", "columns", index, "name")


def _refuse_unclear_roles(spec: ReleaseSpec) -> None:
    special = [(index, column.role) for index, column in enumerate(spec.columns) if column.role is not Role.FEATURE]
    if len(special) > 1:
        (_, first), (index, second) = special[:2]
        rule = f"two-{first}s" if first is second else "label-and-target"
        message = f"one column is already the {first}; another cannot be the {second}"
        refuse(rule, message, "give one column at most a role", "columns", index, "role")
    if len(special) == len(spec.columns):
        refuse("no-features", "at least one column besides label and target is needed", "declare one", "columns")


def _refuse_overlap_with_drop(spec: ReleaseSpec) -> None:
    declared = {column.name for column in spec.columns}
    for index, name in enumerate(spec.source.drop):
        if name in declared:
            message = f"the column {shown(name)} is both declared and dropped"
            refuse("drop-declared", message, "remove it from one of the two lists", "source", "drop", index)


def _refuse_person_as_column(spec: ReleaseSpec) -> None:
    person, where = spec.privacy.unit.person, ("privacy", "unit", "person")
    if any(column.name == person for column in spec.columns):
        message = f"the column {shown(person)} names persons and cannot be released"
        refuse("person-declared", message, "remove it from the columns", *where)
    if person in spec.source.drop:
        message = f"the column {shown(person)} names persons and is needed"
        refuse("person-dropped", message, "remove it from source.drop; it is never released", *where)


def _refuse_unusable_period_column(spec: ReleaseSpec) -> None:
    name, where = spec.source.period_column, ("source", "period_column")
    declared = next((column for column in spec.columns if column.name == name), None)
    if declared is not None and declared.kind not in (Kind.DATE, Kind.TIMESTAMP):
        message = f"the column {shown(name)} is declared as {declared.kind}, which has no month"
        refuse("period-column-kind", message, "name a column of kind date or timestamp, or one not declared", *where)
    if name is not None and name in spec.source.drop:
        message = f"the column {shown(name)} says the month of each record and is needed"
        refuse("period-column-dropped", message, "remove it from source.drop; undeclared it is never released", *where)
    if name is not None and name == spec.privacy.unit.person:
        message = f"the column {shown(name)} names persons and cannot say the month as well"
        refuse("period-column-person", message, "name the column that holds the date", *where)


def _refuse_span_without_months(spec: ReleaseSpec) -> None:
    if spec.privacy.unit.months is not None and spec.source.period_column is None:
        message = f"nothing says which of {spec.privacy.unit.months} months a record belongs to"
        hint = "name the column with the record's date as `source.period_column`, or write `span: all`"
        refuse("span-without-months", message, hint, "privacy", "unit", "span")


def _refuse_landing_elsewhere(spec: ReleaseSpec) -> None:
    if spec.source.is_elsewhere and spec.schedule.on_landing:
        message = "the data come from elsewhere: no file lands here that could start a release"
        refuse("elsewhere-on-landing", message, "remove it, and give a `cron`", "schedule", "on_landing")


def _refuse_large_dimension(spec: ReleaseSpec) -> None:
    width, dimension = Encoding(spec.schema).feature_width, spec.model.projection.dimension
    if isinstance(dimension, int) and dimension > width:
        message = f"the features have {width} coordinates, fewer than dimension {dimension}"
        hint = f"use at most {width}, or `dimension: auto`"
        refuse("dimension-too-large", message, hint, "model", "projection", "dimension")


def _refuse_generator_without_role(spec: ReleaseSpec) -> None:
    generator = spec.model.generator
    role = _GENERATOR_NEEDS.get(generator)
    if role is not None and not any(column.role is role for column in spec.columns):
        message = f"the generator {generator} needs a {role} column"
        refuse(f"generator-needs-{role}", message, f"give a column `role: {role}`", "model", "generator")
