"""Rules under which the planned generator would find no rows are refused before anything is reserved."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dpcore.errors import SpecError
from tasks.spec import parse_spec
from tasks.spec.plan import plan_release, plan_run

SPEC = """
name: small
source: {path: landing/*.csv}
privacy: {population: people, unit: row, epsilon: 1, lifetime: {epsilon: 10}}
expected_rows: 50000
columns:
  - {name: a, kind: numeric, bounds: [0, 100]}
  - {name: b, kind: numeric, bounds: [0, 100]}
  - {name: c, kind: numeric, bounds: [0, 200]}
  - {name: h, kind: numeric, bounds: [10, 60]}
  - {name: n, kind: integer, bounds: [0, 100]}
  - {name: gap, kind: numeric, bounds: [0, 100], missing: category}
  - {name: d, kind: date, bounds: [2000-01-01, 2020-01-01]}
  - {name: e, kind: date, bounds: [2000-01-01, 2020-01-01]}
  - {name: s, kind: timestamp, bounds: [2000-01-01, 2020-01-01]}
  - {name: t, kind: timestamp, bounds: [2000-01-01, 2020-01-01]}
  - {name: ill, kind: boolean}
  - {name: sex, kind: categorical, categories: [f, m], role: label}
"""


def run(generator: str, *rules: Any) -> None:
    plan_run(parse_spec(f"{SPEC}model: {{generator: {generator}}}\nrules: {json.dumps(list(rules))}\n"))


EQUATIONS: list[Any] = [{"sum_of": {"c": ["a", "b"]}}, "ill AND a = b", "a = b OR 2 * a = c", "s = t", "s = t + 1"]

MET_OFTEN_ENOUGH: list[Any] = [
    "c = 0",
    "ill OR a = b",
    "a <> b",
    "a = gap",
    "a / b = c",
    "d = e",
    {"implies": ["ill", "a = b"]},
    "a - b BETWEEN -1 AND 1",
]


@pytest.mark.parametrize("generator", ["mixture", "gaussian", "lda"])
@pytest.mark.parametrize("rule", EQUATIONS)
def test_equations_of_decimals_are_refused_unless_a_copula_solves_them(generator: str, rule: Any):
    with pytest.raises(SpecError) as caught:
        run(generator, "n >= 1", rule)
    assert (caught.value.rule, caught.value.where) == ("rules-not-drawn", "rules[1]")
    assert "copula" in caught.value.hint
    run("copula", "n >= 1", rule)


@pytest.mark.parametrize("rule", MET_OFTEN_ENOUGH)
def test_what_some_rows_obey_by_chance_is_left_to_the_draws(rule: Any):
    run("mixture", rule)


def test_a_copula_refuses_an_equation_that_its_last_column_cannot_solve():
    with pytest.raises(SpecError) as caught:
        run("copula", "ill OR a < 50", "n = h - 10")
    assert (caught.value.rule, caught.value.where) == ("rules-not-drawn", "rules[1]")
    assert "order of `columns`" in caught.value.hint


def test_an_equation_is_drawn_where_the_number_with_decimals_comes_last():
    run("copula", "n = gap")


def test_a_release_that_was_made_is_still_described():
    text = f"{SPEC}model: {{generator: mixture}}\nrules: ['a = b']\n"
    assert plan_release(parse_spec(text)).generator == "mixture", "an audit plans old releases again"
