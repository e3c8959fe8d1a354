"""The kinds of caps and the spans that a specification asks for."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from dpcore.accounting import CapKind
from dpcore.errors import SpecError
from tasks.spec import ReleaseSpec, parse_spec
from tasks.spec.plan import cap_of, plan_release

SPEC = """
name: small
source: {{path: landing/*.csv}}
privacy:
  population: people
  unit: {unit}
  epsilon: 0.5
  delta: 1.0e-6
  lifetime: {{epsilon: 3, delta: 1.0e-6{lifetime}}}
expected_rows: 50000
columns: [{{name: age, kind: numeric, bounds: [0, 100]}}, {{name: ill, kind: boolean}}]
model: {{mechanism: {mechanism}, projection: {{kind: none}}}}
"""


def spec(lifetime: str = "", unit: str = "row", mechanism: str = "auto") -> ReleaseSpec:
    return parse_spec(SPEC.format(lifetime=f", {lifetime}" if lifetime else "", unit=unit, mechanism=mechanism))


def refusal(**parts: Any) -> tuple[str, str]:
    with pytest.raises(SpecError) as caught:
        plan_release(spec(**parts))
    assert caught.value.hint
    return caught.value.rule, caught.value.where


@pytest.mark.parametrize(("kind", "mechanism"), [("pure", "wishart-difference-trace"), ("gaussian", "gaussian")])
def test_the_automatic_mechanism_is_one_that_the_cap_counts(kind: str, mechanism: str):
    asked = spec(f"kind: {kind}")
    plan = plan_release(asked)
    assert plan.event.mechanism == mechanism
    assert cap_of(asked).kind is CapKind(kind)
    assert cap_of(asked).takes(plan.cost)


@pytest.mark.parametrize(
    ("kind", "mechanism"), [("pure", "gaussian"), ("gaussian", "wishart-difference"), ("slots, each: 0.5", "gaussian")]
)
def test_a_mechanism_that_the_cap_does_not_count_is_refused_before_anything_is_reserved(kind: str, mechanism: str):
    assert refusal(lifetime=f"kind: {kind}", mechanism=mechanism) == ("cap-kind", "privacy.lifetime.kind")


def test_a_release_larger_than_a_slot_is_refused_at_plan():
    assert refusal(lifetime="kind: slots, each: 0.1") == ("cap-kind", "privacy.lifetime.each")


def test_a_split_keeps_its_parts_and_states_no_more_than_the_cap():
    cap = cap_of(spec("kind: split, pure: 1"))
    assert (cap.kind, cap.pure) == (CapKind.SPLIT, 1)
    assert 2.9 < cap.stated.epsilon <= 3


def test_slots_are_as_many_as_compose_to_the_cap():
    cap = cap_of(spec("kind: slots, each: 0.5"))
    assert cap.slots is not None
    assert cap.slots >= 6, "adding up would allow six"
    assert cap.stated.epsilon <= 3


def test_without_a_kind_the_first_release_decides():
    assert cap_of(spec()).kind is None


@pytest.mark.parametrize(
    ("lifetime", "rule", "where"),
    [
        ("kind: split", "cap-figures", "privacy.lifetime"),
        ("pure: 1", "cap-figures", "privacy.lifetime.pure"),
        ("kind: split, pure: 3", "cap-figures", "privacy.lifetime.pure"),
        ("kind: slots", "cap-figures", "privacy.lifetime"),
        ("kind: slots, each: 4", "cap-figures", "privacy.lifetime.each"),
        ("kind: both", "not-allowed", "privacy.lifetime.kind"),
    ],
)
def test_figures_that_are_no_cap_are_refused_with_their_place(lifetime: str, rule: str, where: str):
    found = refusal(lifetime=lifetime)
    assert found[1] == where
    assert found[0] == rule or rule == "not-allowed"


@pytest.mark.parametrize("kind", ["gaussian", "zcdp", "split, pure: 1", "slots, each: 0.5"])
def test_a_cap_that_is_counted_at_a_delta_needs_one(kind: str):
    text = SPEC.format(lifetime=f", kind: {kind}", unit="row", mechanism="auto").replace("delta: 1.0e-6", "delta: 0")
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    assert (caught.value.rule, caught.value.where) == ("cap-needs-delta", "privacy.lifetime.delta")


# ---------------------------------------------------------------- spans


@pytest.mark.parametrize("span", ["0", "-1", "1.5", "yes", "1201", "twelve", "null"])
def test_what_is_no_number_of_months_is_refused(span: str):
    rule, where = refusal(unit=f"{{person: who, span: {span}}}")
    assert (rule, where) == ("unit-span", "privacy.unit.span")


@pytest.mark.parametrize("unit", ["{rows: weight, span: 1}", "{rows: weight}", "{person: null, span: 1}"])
def test_a_span_does_not_make_a_forgotten_person_a_row(unit: str):
    assert refusal(unit=unit)[0] == "unit"


def test_all_months_are_the_default_and_are_written_as_before():
    for unit, public in {"row": "row", "{person: who}": {"person": "who", "rows": "weight"}}.items():
        plain, said = spec(unit=unit), spec(unit=unit.replace("}", ", span: all}"))
        assert plain.privacy.unit.months is None
        assert plain.as_public_json()["privacy"]["unit"] == public
        assert plain.digest() == said.digest()


def test_a_span_needs_a_column_that_tells_months():
    assert refusal(unit="{span: 12}") == ("span-without-months", "privacy.unit.span")
    text = SPEC.format(lifetime="", unit="{span: 12}", mechanism="auto")
    told = parse_spec(text.replace("landing/*.csv", "landing/*.csv, period_column: seen"))
    assert (told.privacy.unit.months, Fraction(told.privacy.lifetime.epsilon)) == (12, 3)
