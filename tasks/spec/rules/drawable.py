"""Refusal of rules that the planned generator cannot draw rows under, before anything is reserved or measured.

A copula draws column by column, and solves an equation for the last of its columns only. The other generators draw
all columns together, and meet an equation of numbers with decimals by chance only. Neither looks at data.
"""

from __future__ import annotations

from dpcore.errors import SpecError
from dpcore.planning.request import COPULA
from dpcore.records.rules.conditions import Both, Comparison, Condition
from dpcore.records.rules.search import DRAWS, IN_ORDER, is_drawn_in_order
from dpcore.records.rules.views import UNKNOWN
from dpcore.records.schema import Kind, RecordSchema
from tasks.spec.refusals import shown
from tasks.spec.rules.terms import widest_view

FINE = (Kind.NUMERIC, Kind.TIMESTAMP)
"""Kinds of columns with so many values that two cells are hardly ever equal."""


def refuse_undrawable_rules(schema: RecordSchema, generator: str) -> None:
    """Refuse rules under which the generator would find no rows, when the budget would be spent already.

    Raises: SpecError with the rule.
    """
    if not schema.rules:
        return
    if generator == COPULA:
        _refuse_order(schema)
    else:
        _refuse_equations(schema, generator)


def _refuse_order(schema: RecordSchema) -> None:
    label = [] if schema.label is None else [schema.label]
    order = [*label, *schema.encoded_columns]
    if is_drawn_in_order(order, schema.rules):
        return
    fewest = (count for count in range(1, len(schema.rules)) if not is_drawn_in_order(order, schema.rules[:count]))
    index = next(fewest, len(schema.rules)) - 1
    what = shown(schema.rules[index].words) + (" and the rules before it" if index else "")
    raise SpecError(
        f"none of {IN_ORDER * DRAWS:,} rows that were drawn column by column, as a copula draws them, obeys {what}",
        rule="rules-not-drawn",
        where=f"rules[{index}]",
        hint="columns are drawn in the order of `columns`, the label first and the target last: list whole numbers, "
        "dates and categories before the numbers with decimals that an equation ties to them",
    )


def _refuse_equations(schema: RecordSchema, generator: str) -> None:
    for index, rule in enumerate(schema.rules):
        if _is_equation(rule.condition, schema):
            raise SpecError(
                f"{shown(rule.words)} is an equation of numbers with decimals or times, which rows of generator "
                f"{generator} meet by chance only",
                rule="rules-not-drawn",
                where=f"rules[{index}]",
                hint="use `model: {generator: copula}`, which solves equations, or allow a range, such as "
                "`a - b BETWEEN -1 AND 1`",
            )


def _is_equation(condition: Condition, schema: RecordSchema) -> bool:
    """Whether a condition holds only where two or more fine columns meet an equation; a null may obey it as well."""
    if isinstance(condition, Both):
        parts = (_is_equation(part, schema) for part in condition.parts)
        return any(parts) if condition.operator == "and" else all(parts)
    if not isinstance(condition, Comparison) or condition.operator != "=":
        return False
    fine = [name for name in set(condition.columns()) if schema.by_name[name].kind in FINE]
    unknown = condition.outcomes(widest_view(schema.by_name)) >> UNKNOWN & 1
    return len(fine) > 1 and not bool(unknown.any())
