"""A rule as release.yaml has it, a condition or one of the short forms, and as records have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from dpcore.records.rules.conditions import Both, Condition, Not, implies
from dpcore.records.rules.reading import condition_from_json, is_null, level_in
from dpcore.records.rules.rule import Rule
from dpcore.records.rules.views import TRUE
from dpcore.records.schema import Column, Kind, NominalColumn
from tasks.spec.refusals import refuse, shown, suggestion
from tasks.spec.rules.sql import parse_condition
from tasks.spec.rules.terms import (
    NumberTerm,
    calculate,
    code_of,
    column_term,
    compare,
    constant,
    quoted,
    time_constant,
    widest_view,
)
from tasks.spec.ticks import as_ticks

MOST_RULES = 500

FORMS = ("implies", "sum_of", "not_applicable")
RECORDED = {"rule", "condition"}

Columns = Mapping[str, Column]


def read_rules(written: Any, columns: Columns) -> tuple[Rule, ...]:
    """The rules of a specification, or of a record's description of one; refused by index where one is none."""
    if not isinstance(written, list | tuple):
        refuse("not-a-list", f"rules are a list, got {shown(written)}", 'write one `- "condition"` per line')
    if len(written) > MOST_RULES:
        refuse("rules-too-many", f"{len(written)} rules; the limit is {MOST_RULES}", "keep the important ones")
    return tuple(_at(index, rule, columns) for index, rule in enumerate(written))


def _at(index: int, written: Any, columns: Columns) -> Rule:
    try:
        return read_rule(written, columns)
    except PydanticCustomError as error:
        context = error.context or {}
        refuse(error.type, str(context["message"]), str(context["hint"]), index, *context["where"])


def read_rule(written: Any, columns: Columns) -> Rule:
    """One rule."""
    if isinstance(written, str):
        return Rule(written, parse_condition(written, columns))
    if is_recorded(written):
        return _recorded(written, columns)
    if not isinstance(written, dict) or len(written) != 1 or next(iter(written)) not in FORMS:
        if isinstance(written, dict) and len(written) == 1:
            key = next(iter(written))
            refuse("rule-form", f"there is no form `{key}` of rules", suggestion(key, FORMS))
        message = f"a rule is text or one of {', '.join(FORMS)}, got {shown(written)}"
        refuse("rule-form", message, 'put a condition in quotes: `- "age >= 0"`')
    form, body = next(iter(written.items()))
    return {"implies": _implies, "sum_of": _sum_of, "not_applicable": _not_applicable}[form](body, columns)


def is_recorded(written: Any) -> bool:
    """Whether a rule is in the form that records have."""
    return isinstance(written, dict) and set(written) == RECORDED


def _recorded(written: dict[str, Any], columns: Columns) -> Rule:
    """A rule of a record, which needs no parser."""
    try:
        return Rule(str(written["rule"]), condition_from_json(written["condition"], columns))
    except (KeyError, TypeError, ValueError, StopIteration, AttributeError, RecursionError):
        pass
    return refuse("rule-form", "this is not a rule as records describe it", "write the condition itself as text")


def _implies(body: Any, columns: Columns) -> Rule:
    hint = 'write `{implies: ["age < 15", "marital = \'never\'"]}`: the first condition, and what then holds'
    if not isinstance(body, list) or len(body) < 2 or not all(isinstance(part, str) for part in body):
        refuse("rule-implies", "`implies` takes a condition and what follows from it", hint, "implies")
    first, *then = body
    condition = parse_condition(first, columns)
    conclusions = tuple(implies(condition, parse_condition(text, columns)) for text in then)
    words = f"where {first}: {' and '.join(f'({text})' if len(then) > 1 else text for text in then)}"
    return Rule(words, _all_of(conclusions))


def _sum_of(body: Any, columns: Columns) -> Rule:
    hint = "write `{sum_of: {total: [part, part]}}` with names of columns"
    listed = isinstance(body, dict) and len(body) == 1 and isinstance(next(iter(body.values())), list)
    if not listed or len(next(iter(body.values()))) < 2:
        refuse("rule-sum", "`sum_of` takes one total and a list of at least two parts", hint, "sum_of")
    total, parts = next(iter(body.items()))
    if len({total, *map(str, parts)}) < len(parts) + 1:
        refuse("rule-sum", "a column occurs twice in the sum", hint, "sum_of")
    terms = [column_term(_named(name, columns)) for name in (total, *parts)]
    for name, term in zip((total, *parts), terms, strict=True):
        if not isinstance(term, NumberTerm) or term.type != "a number":
            refuse("rule-types", f"the column {shown(name)} holds no numbers to add", hint, "sum_of")
    sum_, *more = terms[1:]
    for term in more:
        sum_ = calculate("+", sum_, term, columns)
    return Rule(f"{total} = {' + '.join(map(str, parts))}", compare("=", terms[0], sum_, columns))


def _not_applicable(body: Any, columns: Columns) -> Rule:
    hint = 'write `{not_applicable: {when: "age < 15", columns: {marital: N}}}`, or a list of names for nulls'
    if not isinstance(body, dict) or set(body) != {"when", "columns"} or not isinstance(body["when"], str):
        refuse("rule-not-applicable", "`not_applicable` takes `when` and `columns`", hint, "not_applicable")
    wanted = body["columns"]
    if isinstance(wanted, list) and all(isinstance(name, str) for name in wanted):
        wanted = dict.fromkeys(wanted)
    if not isinstance(wanted, dict) or not wanted:
        refuse("rule-not-applicable", "`columns` names no columns", hint, "not_applicable", "columns")
    when, parts, said = parse_condition(body["when"], columns), [], []
    for name, value in wanted.items():
        column = _named(name, columns)
        holds, words = _holds(column, value, columns)
        certain = Both("and", (Not(is_null(column)), holds)) if value is not None and column.missing_level else holds
        parts += [implies(when, certain), implies(holds, when)]
        said.append(words)
    return Rule(f"exactly where {body['when']}: {' and '.join(said)}", _all_of(tuple(parts)))


def _holds(column: Column, value: Any, columns: Columns) -> tuple[Condition, str]:
    """The condition that a cell is the given value, or null, in words as well."""
    name = column.name
    if value is None:
        if not column.missing_level:
            message = f"released cells of {shown(name)} are never null"
            hint = "give the column `missing: category`, or name the category that stands for not applicable"
            refuse("rule-never-null", message, hint, "not_applicable", "columns", name)
        return is_null(column), f"{name} IS NULL"
    if isinstance(column, NominalColumn):
        code = code_of(value, column)
        return level_in(column, (code,)), f"{name} = {quoted(column, code)}"
    if column.kind in (Kind.DATE, Kind.TIMESTAMP):
        right, words = time_constant(value, column.kind), f"{name} = '{value}'"
    else:
        right, words = constant(as_ticks(value, column.kind, "UTC")), f"{name} = {value}"
    is_value = compare("=", column_term(column), right, columns)
    if not _may_be_true(is_value, columns):
        message = f"{shown(value)} is outside the bounds of {shown(name)}, so that no released row would have it"
        hint = "name a value inside the bounds, or widen these"
        refuse("rule-outside-bounds", message, hint, "not_applicable", "columns", name)
    return is_value, words


def _may_be_true(condition: Condition, columns: Columns) -> bool:
    """Whether bounds and levels leave a row of which the condition is true."""
    return bool(condition.outcomes(widest_view(columns)) >> TRUE & 1)


def _named(name: Any, columns: Columns) -> Column:
    if not isinstance(name, str) or name not in columns:
        refuse("rule-unknown-column", f"there is no column {shown(name)}", suggestion(name, list(columns)[:50]))
    return columns[name]


def _all_of(parts: tuple[Condition, ...]) -> Condition:
    return parts[0] if len(parts) == 1 else Both("and", parts)
