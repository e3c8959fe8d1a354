"""Rules that leave no row are refused before anything is reserved, by public bounds and categories."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dpcore.errors import SpecError
from tasks.spec import parse_spec

SPEC = """
name: small
source: {path: landing/*.csv}
privacy: {population: people, unit: row, neighbours: add-remove, epsilon: 0.1, lifetime: {epsilon: 1.2}}
expected_rows: 5000
columns:
  - {name: age, kind: integer, bounds: [0, 100]}
  - {name: a, kind: numeric, bounds: [0, 100]}
  - {name: b, kind: numeric, bounds: [0, 100]}
  - {name: c, kind: numeric, bounds: [0, 200]}
  - {name: d, kind: date, bounds: [2000-01-01, 2020-01-01]}
  - {name: e, kind: date, bounds: [2000-01-01, 2020-01-01]}
  - {name: ill, kind: boolean}
  - {name: sex, kind: categorical, categories: [f, m]}
"""

LEAVE_ROWS: list[list[Any]] = [
    ["age < 1"],
    ["age = 100 AND ill AND sex = 'm'"],
    ["a + b >= 199.9"],
    ["a + b >= 199.9", "a >= b"],
    [{"sum_of": {"c": ["a", "b"]}}, "c >= 149", "a = 2 * b"],
    ["d < e - 30", "e < d + 32", "EXTRACT(MONTH FROM d) = 2"],
    ["d = '2004-02-29'", "e - d = 366"],
]

LEAVE_NONE: list[tuple[list[Any], str, str, str]] = [
    (["age < 0"], "rule-unsatisfiable", "rules[0]", "no combination"),
    (["age >= 0", "ill AND NOT ill"], "rule-unsatisfiable", "rules[1]", "no combination"),
    (["age > 3 AND age < 4"], "rule-unsatisfiable", "rules[0]", "no combination"),
    (["a > c + 200"], "rule-unsatisfiable", "rules[0]", "no combination"),
    (["d IS NULL"], "rule-unsatisfiable", "rules[0]", "no combination"),
    (["EXTRACT(YEAR FROM d) = 1999"], "rule-unsatisfiable", "rules[0]", "no combination"),
    (["age > 50", "ill", "age < 40"], "rules-contradictory", "rules[2]", "rules[0] and rules[2]"),
    (["d < e - 30", "e < d + 20"], "rules-contradictory", "rules[1]", "that were drawn"),
    (["a > b", "b > c", "c > a"], "rules-contradictory", "rules[2]", "all of rules[0], rules[1], rules[2]"),
    ([{"implies": ["ill", "sex = 'f'"]}, "ill", "sex = 'm'"], "rules-contradictory", "rules[2]", "no combination"),
]


@pytest.mark.parametrize("rules", LEAVE_ROWS, ids=str)
def test_rules_that_leave_rows_are_accepted_however_few_these_are(rules: list[Any]):
    assert len(parse_spec(f"{SPEC}rules: {json.dumps(rules)}\n").schema.rules) == len(rules)


@pytest.mark.parametrize(("rules", "rule", "where", "said"), LEAVE_NONE, ids=str)
def test_rules_that_leave_none_are_refused_with_how_this_was_found(rules: list[Any], rule: str, where: str, said: str):
    with pytest.raises(SpecError) as caught:
        parse_spec(f"{SPEC}rules: {json.dumps(rules)}\n")
    assert (caught.value.rule, caught.value.where) == (rule, where)
    assert said in caught.value.message
