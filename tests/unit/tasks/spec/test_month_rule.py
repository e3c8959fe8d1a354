"""Which month a record belongs to, as release.yaml says it: the rule and its words, and what is refused."""

from __future__ import annotations

import json

import pytest

from dpcore.errors import SpecError
from tasks.spec import MonthRule, ReleaseSpec, parse_spec

FILES = "path: planted/*.csv"
QUERY = "query: {url: 'env:CLINIC_DB_URL', sql: 'SELECT * FROM visits'}"


def specification(column: str | None = "seen", *, source: str = FILES, unit: str = "row", drop: str = "note") -> str:
    named = "" if column is None else f"  period_column: {column}\n"
    return f"""
name: small
source:
  {source}
  drop: [{drop}]
{named}privacy: {{population: people, unit: {unit}, epsilon: 0.1, lifetime: {{epsilon: 1.2}}}}
expected_rows: 100
columns:
  - {{name: age, kind: numeric, bounds: [0, 1]}}
  - {{name: seen, kind: timestamp, bounds: [2020-01-01, 2030-01-01], timezone: Europe/Berlin}}
  - {{name: moved, kind: timestamp, bounds: [2020-01-01, 2030-01-01]}}
  - {{name: born, kind: date, bounds: [1900-01-01, 2030-01-01]}}
"""


RULES = {
    "seen": (MonthRule("seen", "Europe/Berlin"), "month of seen (Europe/Berlin)"),
    "moved": (MonthRule("moved", "UTC"), "month of moved (UTC)"),
    "born": (MonthRule("born", None), "month of born"),
    "arrival": (MonthRule("arrival", "UTC"), "month of arrival (UTC)"),
}


@pytest.mark.parametrize("source", [FILES, QUERY], ids=["files", "query"])
@pytest.mark.parametrize("column", RULES)
def test_the_rule_names_the_column_and_the_time_zone_of_its_times(column: str, source: str):
    spec = parse_spec(specification(column, source=source))
    rule, words = RULES[column]
    assert spec.month_rule == rule
    assert rule.words == words
    assert spec.source.tells_months_apart


def test_without_the_key_all_data_are_of_the_month():
    spec = parse_spec(specification(None))
    assert spec.month_rule is None
    assert not spec.source.tells_months_apart
    assert "period_column" not in spec.as_public_json()


def test_an_undeclared_column_is_needed_like_the_persons_and_not_released():
    person = "{person: who, rows: weight}"
    assert parse_spec(specification("arrival", unit=person)).undeclared == ("who", "arrival")
    assert parse_spec(specification("seen", unit=person)).undeclared == ("who",)
    assert parse_spec(specification("arrival")).undeclared == ("arrival",)
    assert parse_spec(specification(None)).undeclared == ()


@pytest.mark.parametrize("column", RULES)
def test_a_record_says_the_rule_and_only_the_path_stays_private(column: str):
    spec = parse_spec(specification(column))
    public = json.loads(json.dumps(spec.as_public_json()))
    assert public["period_column"] == column
    assert "planted" not in json.dumps(public)
    back = ReleaseSpec.from_public_json(public)
    assert back.month_rule == MonthRule.of_public(public) == spec.month_rule
    assert back.as_public_json() == public
    assert back.digest() == spec.digest()


def test_which_rows_count_shapes_the_measurement():
    digests = {parse_spec(specification(column)).digest() for column in (None, *RULES)}
    assert len(digests) == 5


REFUSED = {
    "a number": (specification("age"), "period-column-kind"),
    "a dropped column": (specification("arrival", drop="arrival"), "period-column-dropped"),
    "the person": (specification("who", unit="{person: who, rows: weight}"), "period-column-person"),
    "a blank name": (specification("' '"), "empty-text"),
    "a number for a name": (specification("7"), "not-text"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_column_that_says_no_month_is_refused(case: str):
    text, rule = REFUSED[case]
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    assert (caught.value.rule, caught.value.where) == (rule, "source.period_column")
    assert caught.value.hint


def test_a_declared_column_that_is_dropped_too_is_refused():
    with pytest.raises(SpecError) as caught:
        parse_spec(specification("seen", drop="seen"))
    assert caught.value.rule == "drop-declared"
