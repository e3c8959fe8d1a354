"""Refusal of rules that no row can obey, alone or together: decided from bounds and categories, never from data."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from dpcore.records.rules.rule import Rule
from dpcore.records.rules.search import DRAWS, ORDERS, Found, search_row
from dpcore.records.schema import RecordSchema
from tasks.spec.refusals import refuse, shown

MOST_PAIRS = 50
"""So many pairs of rules are tried to name two that contradict each other; a search takes up to a second."""

MOST_NAMED = 10
"""The largest number of rules that a message names, besides the last."""

HOW = {
    Found.NEVER: "no combination of values inside the bounds and categories obeys {what}",
    Found.NOT_DRAWN: f"none of {ORDERS * DRAWS:,} rows that were drawn inside the bounds and categories obeys {{what}}",
}
"""What a search found, in words: by all combinations or by the ranges of its parts, or by public draws."""


def refuse_impossible_rules(schema: RecordSchema, rules: Sequence[Rule]) -> None:
    """Refuse rules that leave no row, naming the first that is impossible alone or beside another."""
    for index, rule in enumerate(rules):
        found = search_row(schema, [rule])
        if found is not Found.ROW:
            hint = "compare the rule with the columns' bounds and categories; one of them is wrong"
            refuse("rule-unsatisfiable", HOW[found].format(what=shown(rule.words)), hint, index)
    for together in _linked(rules):
        found = search_row(schema, [rules[index] for index in together])
        if found is not Found.ROW:
            _refuse_together(schema, rules, together, found)


def _refuse_together(schema: RecordSchema, rules: Sequence[Rule], together: Sequence[int], found: Found) -> None:
    """Refuse the first rule that leaves no row beside those before it, with one of these if one is enough."""
    hint = "they contradict each other within the bounds and categories; change or remove one of them"

    def leaves_none(count: int) -> bool:
        return search_row(schema, [rules[index] for index in together[:count]]) is not Found.ROW

    fewest = bisect_left(range(1, len(together)), True, key=leaves_none)
    *before, last = together[: fewest + 1]
    beside = [index for index in before if rules[index].columns & rules[last].columns]
    for index in beside[:MOST_PAIRS]:
        pair = search_row(schema, [rules[index], rules[last]])
        if pair is not Found.ROW:
            both = f"both rules[{index}] and rules[{last}], {shown(rules[last].words)}"
            refuse("rules-contradictory", HOW[pair].format(what=both), hint, last)
    named = ", ".join(f"rules[{index}]" for index in (*before[:MOST_NAMED], last))
    more = f" and {len(before) - MOST_NAMED} more before it" if len(before) > MOST_NAMED else ""
    refuse("rules-contradictory", HOW[found].format(what=f"all of {named}{more}"), hint, last)


def _linked(rules: Sequence[Rule]) -> list[list[int]]:
    """The rules that are linked through common columns, by index; only these can contradict each other."""
    groups: list[tuple[set[str], list[int]]] = []
    for index, rule in enumerate(rules):
        touched = [group for group in groups if group[0] & rule.columns]
        columns = set(rule.columns).union(*(group[0] for group in touched))
        members = sorted([index, *(member for group in touched for member in group[1])])
        groups = [*(group for group in groups if group not in touched), (columns, members)]
    return [members for _, members in groups if len(members) > 1]
