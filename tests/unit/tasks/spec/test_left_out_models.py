"""A model section may say anything or nothing: the rest is planned, or refused with rule, place and hint."""

from __future__ import annotations

import copy
import itertools
import re
from typing import Any

import pytest
import yaml

from dpcore.errors import SpecError
from dpcore.planning.forecast import LEAST_SIGNAL, expected_signal
from dpcore.planning.plan import Plan
from tasks.spec import parse_spec
from tasks.spec.plan import noise_refusal, plan_release, plan_run

NUMBERS = [{"name": f"x{i}", "kind": "numeric", "bounds": [0, 10]} for i in range(6)]
LEVELS = [{"name": f"c{i}", "kind": "categorical", "categories": ["a", "b", "c"]} for i in range(3)]
LABEL = {"name": "kind", "kind": "categorical", "categories": ["x", "y"], "role": "label"}
TARGET = {"name": "cost", "kind": "numeric", "bounds": [0, 10], "role": "target"}
TABLES: dict[str, list[dict[str, Any]]] = {
    "numbers": NUMBERS,
    "classes": [*NUMBERS, LABEL],
    "regression": [*NUMBERS, TARGET],
    "mixed": [*NUMBERS[:3], *LEVELS, LABEL],
    "levels": LEVELS,
    "one number": NUMBERS[:1],
}
BUDGETS: dict[str, dict[str, Any]] = {
    "pure": {"epsilon": 1, "lifetime": {"epsilon": 10}},
    "delta": {"epsilon": 1, "delta": 1e-6, "lifetime": {"epsilon": 10, "delta": 1e-5}},
    "pure cap": {"epsilon": 1, "delta": 1e-6, "lifetime": {"epsilon": 10, "delta": 1e-5, "kind": "pure"}},
    "gaussian cap": {"epsilon": 1, "delta": 1e-6, "lifetime": {"epsilon": 10, "delta": 1e-5, "kind": "gaussian"}},
    "slots": {"epsilon": 1, "lifetime": {"epsilon": 10, "delta": 1e-6, "kind": "slots", "each": 1}},
    "persons": {
        "unit": {"person": "who", "rows": "at-most 3"},
        "epsilon": 1,
        "neighbours": "add-remove",
        "lifetime": {"epsilon": 10},
    },
}
PARTS: dict[str, tuple[Any, ...]] = {
    "projection": (
        None,
        *({"kind": kind} for kind in ("planned", "auto", "ron", "none", "private-pca")),
        {"dimension": 2},
        {"dimension": "dfm"},
        {"dimension": {"share": 0.9}},
        {"kind": "private-pca", "dimension": {"share": 0.9}},
        {"kind": "private-pca", "dimension": 2, "mechanism": "exponential-pca"},
    ),
    "radius": (None, "planned", "auto", 1, 0.5),
    "generator": (None, "gaussian", "supervised", "mixture", "lda", "copula"),
    "mechanism": (None, "gaussian", "laplace", "wishart-difference", "nuclear-k-norm"),
    "allocation": (
        None,
        "ron-gauss",
        "pca-gauss-0.3",
        {"moments": 1},
        {"marginals": 0.2, "moments": 0.8},
        {"radius": 0.05, "centre": 0.1, "spread": 0.05, "moments": 0.8},
        {"projection": 0.4, "moments": 0.6},
    ),
    "normalise": (None, "length"),
    "output": (None, "projected", "both"),
    "sampling": (None, "independent"),
}
CHECKS: tuple[dict[str, Any], ...] = ({}, {"silhouette": {"budget": 0.1}}, {"accuracy": {"budget": 0.1}})


def written(table: str, budget: str, model: dict[str, Any], rows: int = 5000, **more: Any) -> str:
    spec = {
        "name": "left-out",
        "source": {"path": "landing/*.csv"},
        "privacy": {"population": "people"} | copy.deepcopy(BUDGETS[budget]),
        "expected_rows": rows,
        "columns": copy.deepcopy(TABLES[table]),
    }
    return yaml.safe_dump(spec | ({"model": model} if model else {}) | more)


def planned(*asked: Any, **more: Any) -> Plan:
    return plan_release(parse_spec(written(*asked, **more)))


def models() -> list[dict[str, Any]]:
    """Every pair of parts, each in each of its forms; the other parts are left out."""
    found: list[dict[str, Any]] = []
    for one, other in itertools.combinations(PARTS, 2):
        for first, second in itertools.product(PARTS[one], PARTS[other]):
            model = {name: value for name, value in ((one, first), (other, second)) if value is not None}
            if model not in found:
                found.append(model)
    return found


CASES = list(itertools.product(TABLES, BUDGETS))
SHARE = 12
"""One of so many models is tried in each case; together the cases try each of them three times."""


def outcome(*asked: Any, **more: Any) -> Plan | SpecError:
    """The plan, or the refusal; whatever else is raised is an internal error."""
    try:
        return planned(*asked, **more)
    except SpecError as refusal:
        return refusal


@pytest.mark.parametrize("case", range(len(CASES)))
def test_every_part_of_a_model_beside_every_other_is_planned_or_refused_with_a_hint(case: int) -> None:
    found = {}
    for place, model in enumerate(models()[case % SHARE :: SHARE]):
        found[str(model)] = outcome(*CASES[case], model, checks=CHECKS[place % len(CHECKS)])
    refusals = {model: end for model, end in found.items() if isinstance(end, SpecError)}
    plans = {model: end for model, end in found.items() if isinstance(end, Plan)}
    assert refusals
    assert plans
    assert {model for model, end in refusals.items() if not (end.rule and end.where and end.hint)} == set()
    assert {plan.projection for plan in plans.values()} <= {"none", "ron", "private-pca"}
    assert min(expected_signal(plan) for plan in plans.values()) > 0


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("budget", BUDGETS)
def test_a_specification_without_a_model_is_always_planned_with_a_reason_for_each_choice(
    table: str, budget: str
) -> None:
    plan = planned(table, budget, {})
    words = "\n".join(plan.reasons)
    for choice in (f"projection {plan.projection}", f"generator {plan.generator}", f"mechanism {plan.event.mechanism}"):
        assert choice in words or choice == "mechanism gaussian" == f"mechanism {plan.event.mechanism}"
    assert plan.marginals_event is not None or "radius" in words


@pytest.mark.parametrize(
    ("table", "rows", "generator", "measured"),
    [
        ("mixed", 50_000, "copula", {"marginals", "moments"}),
        ("numbers", 5000, "gaussian", {"radius", "centre", "spread", "moments"}),
        ("classes", 50_000, "copula", {"marginals", "moments"}),
        ("classes", 500, "mixture", {"radius", "centre", "spread", "moments"}),
        ("regression", 5000, "supervised", {"radius", "centre", "spread", "moments"}),
    ],
)
def test_the_planner_takes_what_suits_the_table(table: str, rows: int, generator: str, measured: set[str]) -> None:
    plan = planned(table, "delta", {}, rows=rows)
    assert (plan.projection, plan.generator, set(plan.events)) == ("none", generator, measured)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("kind", ["none", "ron", "auto", "private-pca"])
def test_a_projection_and_a_radius_that_are_given_leave_nothing_to_the_planner(table: str, kind: str) -> None:
    """What was explicit before a choice could be left out has the plan that it had: no frame, and no other kind."""
    plan = planned(table, "pure", {"projection": {"kind": kind}, "radius": 1})
    assert plan.projection == kind or kind == "auto"
    assert not plan.frame_events
    assert not any(reason.startswith("radius") for reason in plan.reasons)


def test_fewer_rows_leave_fewer_random_directions() -> None:
    many = {
        rows: planned("numbers", "pure", {"projection": {"kind": "planned"}}, rows=rows) for rows in (10**5, 300, 200)
    }
    assert many[10**5].projection == "none"
    assert [many[rows].projection for rows in (300, 200)] == ["ron", "ron"]
    assert 6 > many[300].dimension > many[200].dimension >= 1
    assert many[300].dimension_rule == "auto"


def test_projected_rows_are_those_of_a_random_projection_unless_another_is_given() -> None:
    assert planned("numbers", "pure", {"output": "projected"}).projection == "ron"
    with pytest.raises(SpecError) as refusal:
        planned("numbers", "pure", {"output": "projected", "projection": {"kind": "none"}})
    assert refusal.value.rule == "output-without-projection"


# ---------------------------------------------------------------- mostly noise


@pytest.mark.parametrize("model", [{}, {"projection": {"kind": "none"}, "radius": 1}, {"generator": "copula"}])
@pytest.mark.parametrize("table", ["numbers", "mixed"])
def test_what_is_foreseen_to_be_mostly_noise_is_refused_with_what_would_help(table: str, model: dict[str, Any]) -> None:
    text = written(table, "pure", model, rows=40)
    with pytest.raises(SpecError) as refusal:
        plan_run(parse_spec(text))
    assert (refusal.value.rule, refusal.value.where) == ("mostly-noise", "model.accept_noise")
    assert "accept_noise: true" in refusal.value.hint
    accepted = parse_spec(written(table, "pure", model | {"accept_noise": True}, rows=40))
    assert plan_run(accepted) == plan_release(parse_spec(text)), "accepting it changes nothing about it"


def test_a_signal_just_below_the_least_is_not_rounded_up_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.spec.plan.expected_signal", lambda _: 1.999)
    with pytest.raises(SpecError, match=r"foreseen to be 1\.9, below 2"):
        plan_run(parse_spec(written("numbers", "pure", {}, rows=40)))


@pytest.mark.parametrize(("unit", "counted"), [("row", "rows"), ({"person": "who"}, "persons")])
def test_a_refusal_counts_what_expected_rows_counts(unit: Any, counted: str) -> None:
    content = yaml.safe_load(written("numbers", "pure", {}, rows=40))
    content["privacy"]["unit"] = unit
    with pytest.raises(SpecError) as refusal:
        plan_run(parse_spec(yaml.safe_dump(content)))
    assert re.search(rf"release about [0-9,]+ {counted} at a time", refusal.value.hint)


def test_every_figure_that_would_help_helps() -> None:
    text = written("mixed", "pure", {}, rows=60)
    with pytest.raises(SpecError) as refusal:
        plan_run(parse_spec(text))
    hint = refusal.value.hint
    epsilon = hint.partition("raise `privacy.epsilon` to about ")[2].partition(";")[0]
    rows = hint.partition("release about ")[2].partition(" rows")[0].replace(",", "")
    louder = yaml.safe_load(text)
    louder["privacy"] |= {"epsilon": float(epsilon), "lifetime": {"epsilon": 90}}
    for helped in (yaml.safe_dump(louder), written("mixed", "pure", {}, rows=int(rows))):
        assert expected_signal(plan_run(parse_spec(helped))) >= LEAST_SIGNAL


def test_leaving_the_choice_to_the_planner_is_advised_where_it_helps() -> None:
    """Without a frame, the numbers may fill a small part of the ball that the noise is scaled to."""
    given = {"projection": {"kind": "ron", "dimension": 4}, "radius": 1}
    spec = parse_spec(written("numbers", "pure", given, rows=300))
    refusal = noise_refusal(spec, plan_release(spec))
    assert refusal is not None
    assert "leave out `model.projection` and `model.radius`" in refusal.hint
    assert plan_run(parse_spec(written("numbers", "pure", {}, rows=300))).frame_events


def test_an_ordinary_release_is_not_refused() -> None:
    for table in TABLES:
        plan_run(parse_spec(written(table, "pure", {}, rows=20_000)))
