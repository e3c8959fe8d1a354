"""What may stand in a rule, and how everything else is refused: with the construct, the place and a hint."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import SpecError
from tasks.spec import ReleaseSpec, parse_spec

SPEC = """
name: small
source: {path: landing/*.csv}
privacy: {population: people, unit: row, neighbours: add-remove, epsilon: 0.1, lifetime: {epsilon: 1.2}}
expected_rows: 5000
columns:
  - {name: age, kind: integer, bounds: [0, 100]}
  - {name: pay, kind: numeric, bounds: [0, 1000]}
  - {name: "Größe in cm", kind: numeric, bounds: [0, 250]}
  - {name: 'o"clock', kind: integer, bounds: [0, 23]}
  - {name: order, kind: integer, bounds: [0, 9]}
  - {name: came, kind: date, bounds: [2000-01-01, 2020-01-01]}
  - {name: seen, kind: timestamp, bounds: [2000-01-01, 2020-01-01]}
  - {name: ill, kind: boolean}
  - {name: wed, kind: categorical, categories: [never, married, "it's"], missing: category}
  - {name: code, kind: categorical, categories: ["1", "2"]}
  - {name: level, kind: categorical, categories: [1, 2, 3]}
"""


def spec_of(*rules: Any) -> ReleaseSpec:
    return parse_spec(f"{SPEC}rules: {json.dumps(list(rules))}\n")


def refusal(*rules: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        spec_of(*rules)
    return caught.value


ALLOWED = [
    "age < 15 AND NOT ill",
    "age <> 3 or wed in ('never', 'it''s')",
    '"Größe in cm" > 30.5 + age',
    '"o""clock" between 1 and 20',
    "order = 3 or ill is true",
    "came <= DATE '2010-02-28'",
    "came <= '2010-02-28'",
    "seen - came < 400",
    "seen >= '2005-01-01T12:00:00'",
    "DATEDIFF(seen, came) >= 1",
    "came + 30 < '2015-01-01'",
    "EXTRACT(month FROM seen) = 2",
    "wed IS NOT NULL",
    "level >= 2",
    "2 < level",
    "level + 1 <= age",
    "level <= level",
    "wed IN ('never', wed)",
    "age * 2 - pay / 3 <> 4",
    "3 + came < '2015-01-01'",
    "seen - 0.5 > came",
    "level = age / 10",
    "level in (1, 3)",
    "code = '1'",
    "(age < 1) or ((pay >= 0))",
    " OR ".join(f"age = {n}" for n in range(101)),
]


@pytest.mark.parametrize("text", ALLOWED)
def test_a_rule_of_listed_parts_is_read(text: str):
    (rule,) = spec_of(text).schema.rules
    assert rule.words == text


REFUSED: dict[str, tuple[str, str]] = {
    "": ("rule-empty", "empty"),
    "agee < 3": ("rule-unknown-column", "'agee'"),
    "Age < 3": ("rule-unknown-column", "'Age'"),
    "age < x": ("rule-unknown-column", "'x'"),
    "wed = never": ("rule-unknown-column", "'never'"),
    "wed = 'nevr'": ("rule-unknown-category", "'nevr'"),
    "level = 4": ("rule-unknown-category", "4"),
    "code = 1": ("rule-types", "do not go together"),
    "age = 'x'": ("rule-types", "text and a number"),
    "wed < 'never'": ("rule-types", "no order"),
    "ill = 1": ("rule-types", "do not go together"),
    "ill = level": ("rule-types", "do not go together"),
    "wed + 1 = 2": ("rule-types", "is no number"),
    "came + seen < 3": ("rule-types", "no meaning"),
    "came * 2 < came": ("rule-types", "no meaning"),
    "came < 3": ("rule-types", "do not go together"),
    "came < 'soon'": ("not-a-date", "'soon'"),
    "EXTRACT(month FROM age) = 2": ("rule-types", "has no month"),
    "EXTRACT(dow FROM came) = 2": ("rule-construct", "DOW"),
    "age": ("rule-not-a-condition", "a number"),
    "wed": ("rule-not-a-condition", "'wed'"),
    "TRUE": ("rule-not-a-condition", "TRUE by itself"),
    "age < 3 < 4": ("rule-types", "stands where a value belongs"),
    "age = NULL": ("rule-null", "NULL"),
    "age / 0 > 3": ("rule-division-by-zero", "always 0"),
    "age / (1 - 1) > 3": ("rule-division-by-zero", "always 0"),
    "age IN (SELECT 1)": ("rule-construct", "subquery"),
    "age = (SELECT 1)": ("rule-construct", "subquery"),
    "EXISTS (SELECT 1)": ("rule-construct", "subquery"),
    "age IN ()": ("rule-construct", "IN"),
    "LOWER(wed) = 'never'": ("rule-construct", "LOWER"),
    "pg_sleep(9) = 1": ("rule-construct", "pg_sleep"),
    "COUNT(*) > 1": ("rule-construct", "COUNT"),
    "CURRENT_DATE > came": ("rule-construct", "CURRENT_DATE"),
    "CASE WHEN ill THEN 1 END = 1": ("rule-construct", "CASE"),
    "wed LIKE 'n%'": ("rule-construct", "LIKE"),
    "wed || 'x' = 'y'": ("rule-construct", "||"),
    "age % 2 = 0": ("rule-construct", "%"),
    "age::text = '3'": ("rule-construct", "type"),
    "age = ?": ("rule-construct", "parameter"),
    "age = :x": ("rule-construct", "parameter"),
    "3 < wed": ("rule-types", "no order"),
    "wed <= wed": ("rule-types", "no order"),
    "level = came": ("rule-types", "do not go together"),
    "(age < 3) IS NULL": ("rule-construct", "IS NULL"),
    "DATEDIFF(age, pay) > 3": ("rule-types", "DATEDIFF"),
    "t.age < 3": ("rule-construct", "table"),
    "(age, pay) = (1, 2)": ("rule-construct", "parentheses"),
    "age IS 3": ("rule-construct", "IS"),
    "age IS NOT DISTINCT FROM 3": ("rule-construct", "IS NOT DISTINCT FROM"),
    "age BETWEEN SYMMETRIC 3 AND 1": ("rule-construct", "SYMMETRIC"),
    "age < 3 AND TRUE": ("rule-not-a-condition", "says nothing about a row"),
    "age < 3; DROP TABLE x": ("rule-not-a-condition", "statement"),
    "age < 3 -- always": ("rule-comment", "comments"),
    "age /* years */ < 3": ("rule-comment", "comments"),
    "SELECT 1": ("rule-syntax", "condition"),
    "age <": ("rule-syntax", "condition"),
    "age ≥ 3": ("rule-syntax", "condition"),
    "wed = 'never": ("rule-syntax", "condition"),
    "age = 1e400": ("not-finite", "float"),
    "(" * 500 + "age < 1" + ")" * 500: ("rule-nested", "nested"),
    "NOT " * 400 + "ill": ("rule-nested", "nested"),
    " + ".join(["age"] * 200) + " < 3": ("rule-nested", "nested"),
    "-" + "(-" * 100 + "age" + ")" * 100 + " < 3": ("rule-nested", "nested"),
    "age < 3 OR " * 1000 + "ill": ("rule-too-long", "characters"),
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:40])
def test_anything_else_is_refused_by_name(text: str):
    rule, named = REFUSED[text]
    found = refusal("age >= 0", text)
    assert (found.rule, found.where) == (rule, "rules[1]")
    assert named in found.message
    assert found.hint


@given(text=st.text(st.sampled_from("age<>=()'\" +-*/,ORANDNT0123.;\n\x00é🙂"), max_size=60))
def test_no_text_breaks_the_parser(text: str):
    try:
        spec_of(text)
    except SpecError as error:
        assert error.rule  # noqa: PT017  a text may also be a rule by chance


FORMS_REFUSED: dict[str, tuple[Any, str, str]] = {
    "a number": (5, "rule-form", "rules[0]"),
    "two forms": ({"implies": ["ill", "ill"], "sum_of": {}}, "rule-form", "rules[0]"),
    "a misspelt form": ({"implis": ["ill", "ill"]}, "rule-form", "rules[0]"),
    "nothing follows": ({"implies": ["ill"]}, "rule-implies", "rules[0].implies"),
    "no text": ({"implies": ["ill", 3]}, "rule-implies", "rules[0].implies"),
    "one part": ({"sum_of": {"pay": ["age"]}}, "rule-sum", "rules[0].sum_of"),
    "its own part": ({"sum_of": {"pay": ["age", "pay"]}}, "rule-sum", "rules[0].sum_of"),
    "an unknown part": ({"sum_of": {"pay": ["age", "agee"]}}, "rule-unknown-column", "rules[0]"),
    "a sum of words": ({"sum_of": {"pay": ["age", "wed"]}}, "rule-types", "rules[0].sum_of"),
    "no condition": ({"not_applicable": {"columns": ["wed"]}}, "rule-not-applicable", "rules[0].not_applicable"),
    "never null": (
        {"not_applicable": {"when": "ill", "columns": ["age"]}},
        "rule-never-null",
        "rules[0].not_applicable.columns.age",
    ),
    "no such category": (
        {"not_applicable": {"when": "ill", "columns": {"wed": "N"}}},
        "rule-unknown-category",
        "rules[0]",
    ),
    "a forged record": ({"rule": "age < 3", "condition": ["<", ["column", "nobody"], 3]}, "rule-form", "rules[0]"),
    "a record without sense": ({"rule": "age < 3", "condition": "age"}, "rule-form", "rules[0]"),
}


@pytest.mark.parametrize("case", FORMS_REFUSED)
def test_a_wrong_short_form_is_refused(case: str):
    written, rule, where = FORMS_REFUSED[case]
    found = refusal(written)
    assert (found.rule, found.where) == (rule, where)


NOT_APPLICABLE: dict[str, tuple[Any, Any]] = {
    "a number": ({"age": 0}, [{"age": 0, "ill": 1}, {"age": 3, "ill": 0}]),
    "a date": ({"came": "2001-02-03"}, [{"came": 11356, "ill": 1}, {"came": 11357, "ill": 0}]),
    "a category": ({"wed": "never"}, [{"wed": 0, "ill": 1}, {"wed": 1, "ill": 0}, {"wed": -1, "ill": 0}]),
    "a null": ({"wed": None}, [{"wed": -1, "ill": 1}, {"wed": 1, "ill": 0}]),
}


@pytest.mark.parametrize("case", NOT_APPLICABLE)
def test_not_applicable_holds_exactly_where_the_condition_does(case: str):
    """Each row obeys, and breaks the rule as soon as its condition turns."""
    columns, rows = NOT_APPLICABLE[case]
    (rule,) = spec_of({"not_applicable": {"when": "ill", "columns": columns}}).schema.rules
    for row in rows:
        cells = {name: np.array([value]) for name, value in row.items()}
        assert not rule.broken(cells).any(), row
        assert rule.broken(cells | {"ill": 1 - cells["ill"]}).all(), row


def test_there_may_not_be_thousands_of_rules():
    found = refusal(*["age >= 0"] * 501)
    assert (found.rule, found.where) == ("rules-too-many", "rules")


def test_rules_are_a_list():
    with pytest.raises(SpecError) as caught:
        parse_spec(f"{SPEC}rules: age < 3\n")
    assert (caught.value.rule, caught.value.where) == ("not-a-list", "rules")


def test_the_nearest_column_is_suggested():
    assert "`age`" in refusal("agee < 3").hint
    assert "`never`" in refusal("wed = 'nevr'").hint


def test_a_record_gives_the_same_rules_without_a_parser():
    spec = spec_of("age < 15 or ill", {"implies": ["ill", "age > 3", "pay > 1"]}, {"sum_of": {"pay": ["age", "order"]}})
    public = json.loads(json.dumps(spec.as_public_json()))
    again = ReleaseSpec.from_public_json(public)
    assert again.schema == spec.schema
    assert again.as_public_json() == spec.as_public_json()


@pytest.mark.parametrize(
    "text",
    [
        "EXTRACT(YEAR FROM seen) >= EXTRACT(YEAR FROM TIMESTAMP '2001-01-01 00:00')",
        "EXTRACT(YEAR FROM came) >= EXTRACT(YEAR FROM DATE '2001-01-01')",
        "EXTRACT(YEAR FROM came + (seen - came)) >= 2001",
        "EXTRACT(YEAR FROM TIMESTAMP '1970-01-01 00:00' + age) <= 1970",
    ],
)
def test_a_record_knows_dates_from_times_that_are_no_columns(text):
    spec = spec_of(text)
    again = ReleaseSpec.from_public_json(json.loads(json.dumps(spec.as_public_json())))
    assert again.schema == spec.schema


def test_true_by_itself_is_refused_in_words_that_make_sense():
    found = refusal("age < 3 OR TRUE")
    assert (found.rule, str(found)) == ("rule-not-a-condition", "TRUE by itself says nothing about a row")


@pytest.mark.parametrize(
    ("column", "value", "rule"),
    [
        ("pay", -1, "rule-outside-bounds"),
        ("age", 101, "rule-outside-bounds"),
        ("came", "2021-01-01", "rule-outside-bounds"),
        ("age", 1.5, "not-whole"),
    ],
)
def test_a_value_that_no_released_row_has_does_not_stand_for_not_applicable(column, value, rule):
    found = refusal({"not_applicable": {"when": "ill", "columns": {column: value}}})
    assert (found.rule, found.where.startswith("rules[0]")) == (rule, True)


def test_numbers_too_large_for_a_float_on_the_way_print_no_warning(recwarn):
    spec_of("age < 1e308 * 10", "pay > 1e-300 * age * 1e308 * 1e308", "pay / 1e-300 >= age / 1e300")
    assert not list(recwarn)


def test_rules_do_not_shape_the_measurement_and_so_not_its_digest():
    plain, ruled = parse_spec(SPEC), spec_of("age < 90")
    assert "rules" not in plain.as_public_json()
    assert parse_spec(f"{SPEC}rules: []\n").as_public_json() == plain.as_public_json()
    assert ruled.digest() == plain.digest()
