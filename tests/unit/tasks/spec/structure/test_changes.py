"""Changes of a specification by the place of a key: what they lead to, and which are refused, by which rule."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from support.flows.pure_rows import SPECIFICATION

from dpcore.errors import SpecError
from tasks.spec import ReleaseSpec, parse_spec
from tasks.spec.loader import read_yaml
from tasks.spec.structure.changes import changed_spec, read_change

COLUMNS = ["age", "age.at", "age=at.visit", "sex"]


def changed(*written: str, text: str = SPECIFICATION) -> ReleaseSpec:
    return changed_spec(read_yaml(text), written)[0]


def refusal(*written: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        changed(*written)
    assert caught.value.hint, "every refusal says what to do"
    return caught.value


@pytest.mark.parametrize(
    ("written", "old", "new"),
    [
        ("privacy.epsilon=0.5", "epsilon: 1.0", "epsilon: 0.5"),
        ("privacy.unit={person: patient_id}", "unit: row", "unit: {person: patient_id}"),
        ("privacy.unit.person=patient_id", "unit: row", "unit: {person: patient_id}"),
        ("expected_rows=100000", "expected_rows: 20000", "expected_rows: 100000"),
        ("model.generator=mixture", "generator: auto", "generator: mixture"),
        ("model.projection.kind=none", "kind: ron", "kind: none"),
        ("checks.min_rows=", "min_rows: 1000, ", ""),
        ("columns.age.bounds=[0, 100]", "[0, 110]", "[0, 100]"),
        ("columns.bmi.missing.impute=27", "{impute: 26}", "{impute: 27}"),
        ("columns.age={kind: integer, bounds: [0, 100]}", "numeric,     bounds: [0, 110],  unit: years",
         "integer, bounds: [0, 100]"),
        ("columns.arrival.timezone=UTC", "timezone: UTC", "timezone: UTC"),
        ("source.csv.delimiter=';'", "  drop:", "  csv: {delimiter: ';'}\n  drop:"),
    ],
)  # fmt: skip
def test_a_change_leads_to_what_the_edited_file_leads_to(written: str, old: str, new: str) -> None:
    assert old in SPECIFICATION
    assert changed(written) == parse_spec(SPECIFICATION.replace(old, new, 1))


def test_numbers_of_a_change_are_exact() -> None:
    assert changed("privacy.epsilon=0.1").privacy.epsilon == Fraction(1, 10)


def test_several_changes_are_one() -> None:
    spec = changed("columns.readmitted.role=feature", "columns.cost.role=target", "model.generator=supervised")
    assert spec.model.generator == "supervised"


@pytest.mark.parametrize("written", ["columns.smoker=drop", "columns.smoker=", "columns.smoker=null"])
def test_a_column_that_is_left_out_is_dropped_from_the_data(written: str) -> None:
    spec = changed(written)
    assert "smoker" not in [column.name for column in spec.columns]
    assert spec.source.drop == ("patient_name", "address", "smoker")


def test_the_column_of_the_month_is_still_read_when_it_is_left_out() -> None:
    spec = changed("columns.arrival=drop", text=SPECIFICATION.replace("  drop:", "  period_column: arrival\n  drop:"))
    assert spec.undeclared == ("arrival",)
    assert "arrival" not in spec.source.drop


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("columns.age.bounds=[0, 1]", ("columns", "age", "bounds"), [0, 1]),
        ("columns.age.at.bounds=[0, 1]", ("columns", "age.at", "bounds"), [0, 1]),
        ("columns.age=at.visit=drop", ("columns", "age=at.visit"), "drop"),
        ("columns.age=drop", ("columns", "age"), "drop"),
        (" privacy.epsilon = 2 ", ("privacy", "epsilon"), 2),
        ("about.why=a=b", ("about", "why"), "a=b"),
        ("model.generator=", ("model", "generator"), None),
    ],
)
def test_a_change_is_a_path_and_a_value(text: str, path: tuple[str, ...], value: Any) -> None:
    change = read_change(text, COLUMNS)
    assert (change.path, change.value) == (path, value)


REFUSED = [
    ("privacy.epsilon", "what-if-form", "--what-if", "KEY=VALUE"),
    ("=5", "what-if-form", "--what-if", "KEY=VALUE"),
    ("columns.age", "what-if-form", "--what-if", "KEY=VALUE"),
    ("privacy.epsilon=[", "yaml-syntax", "--what-if privacy.epsilon", "brackets"),
    ("model={a: 1, a: 2}", "duplicate-key", "a", "keep one"),
    ("privacy.epsilo=1", "unknown-key", "privacy.epsilo (with --what-if)", "`epsilon`"),
    ("privcy.epsilon=1", "unknown-key", "privcy (with --what-if)", "`privacy`"),
    ("columns.aeg.bounds=[0, 1]", "unknown-column", "columns.aeg.bounds (with --what-if)", "`age`"),
    ("columns.smoke=drop", "unknown-column", "columns.smoke (with --what-if)", "`smoker`"),
    ("columns.bmi.bound=[0, 1]", "unknown-key", "columns.bmi.bound (with --what-if)", "`bounds`"),
    ("columns.bmi.bounds=[60, 10]", "bounds-order", "columns.bmi.bounds (with --what-if)", "lowest"),
    ("columns.bmi=5", "what-if-column", "columns.bmi (with --what-if)", "columns.age=drop"),
    ("columns=5", "not-a-list", "columns (with --what-if)", "[first, second]"),
    ("privacy.epsilon=abc", "not-a-number", "privacy.epsilon (with --what-if)", "0.5"),
    ("privacy.epsilon=", "epsilon-missing", "privacy.epsilon (with --what-if)", "no default"),
    ("privacy.epsilon=50", "lifetime-too-small", "privacy.lifetime.epsilon (with --what-if)", "raise"),
    ("privacy.delte=", "key-not-given", "privacy.delte (with --what-if)", "`delta`"),
    ("about.why=", "key-not-given", "about.why (with --what-if)", "KEY=VALUE"),
    ("model.generator=copulla", "unknown-value", "model.generator (with --what-if)", "`copula`"),
    ("source.drop.first=1", "what-if-list", "source.drop.first (with --what-if)", "'source.drop=[...]'"),
    ("columns.sex.categories.f=1", "what-if-list", "columns.sex.categories.f (with --what-if)",
     "'columns.sex.categories=[...]'"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "rule", "where", "hint"), REFUSED)
def test_a_change_that_cannot_be_made_is_refused(written: str, rule: str, where: str, hint: str) -> None:
    error = refusal(written)
    assert (error.rule, error.where) == (rule, where)
    assert hint in error.hint


def test_a_key_is_changed_once() -> None:
    assert refusal("privacy.epsilon=1", "privacy.epsilon=2").rule == "duplicate-key"


def test_a_column_cannot_be_changed_after_it_is_left_out() -> None:
    assert refusal("columns.age=drop", "columns.age.bounds=[0, 1]").rule == "unknown-column"


@pytest.mark.parametrize("first", ["columns=5", "columns=[5]", "source=5", "source.drop=5"])
def test_changes_after_one_that_breaks_the_document_are_refused_in_words(first: str) -> None:
    assert isinstance(refusal(first, "columns.age=drop"), SpecError)
