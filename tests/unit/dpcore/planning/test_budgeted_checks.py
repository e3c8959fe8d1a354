"""Plans with budgeted checks: release and checks share the budget and stay within epsilon together."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from scipy.stats import laplace
from support.dpcore.checked import ACCURACY, LABEL, RMSE, SILHOUETTE, TARGET, TWENTIETH, WAYS, plan_request

from dpcore.accounting import release_statement
from dpcore.mechanisms.queries import ScoreQuery
from dpcore.mechanisms.registry import cost_of
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.planning.budgeted_checks import CLUSTERS, BudgetedCheck, make_checked_plan
from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PlanError
from dpcore.records.schema import PrivacyUnit, RowRule

AUTOMATIC: dict[str, dict[str, Any]] = {
    "columns as they are": {},
    "private components": {"projection": "private-pca"},
    "a frame": {"projection": "ron", "radius": "auto"},
    "histograms": {"generator": "copula"},
}


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6), Fraction(1, 100)])
@pytest.mark.parametrize("way", AUTOMATIC)
def test_mechanisms_that_are_chosen_automatically_are_of_one_kind(way: str, delta: Fraction) -> None:
    """Mixed pure and Gaussian costs use more of a population's cap, so only named mechanisms may mix them."""
    plan = make_checked_plan(plan_request(LABEL, delta=delta, **AUTOMATIC[way]), [ACCURACY, SILHOUETTE])
    kinds = {bool(cost_of(event).rho) for event in plan.events.values()}
    assert len(kinds) == 1
    assert not plan.cost.is_mixed
    assert make_checked_plan(plan_request(LABEL, **WAYS["mixed"]), [ACCURACY]).cost.is_mixed


@pytest.mark.parametrize("way", WAYS)
def test_release_and_checks_together_cost_the_epsilon_that_is_stated(way: str) -> None:
    asked = plan_request(LABEL, **WAYS[way])
    plan = make_checked_plan(asked, [ACCURACY, SILHOUETTE])
    stated = float(release_statement(plan.cost, delta=asked.delta).epsilon)
    assert 0.995 < stated <= 1 + 1e-12
    assert list(plan.events)[-2:] == ["accuracy", "silhouette"], "they come last"


@pytest.mark.parametrize("way", WAYS)
def test_the_release_itself_is_the_one_that_the_rest_of_epsilon_buys(way: str) -> None:
    asked = plan_request(LABEL, **WAYS[way])
    plan = make_checked_plan(asked, [ACCURACY, SILHOUETTE])
    alone = make_plan(plan_request(LABEL, **WAYS[way], epsilon=Fraction(17, 20)))
    assert {name: event for name, event in plan.events.items() if name in alone.events} == alone.events
    assert plan.allocation["accuracy"] == 0.05
    assert plan.allocation["silhouette"] == pytest.approx(0.1)
    assert sum(plan.allocation.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("way", "mechanism"),
    [("pure", "score-laplace"), ("gaussian", "score-gaussian"), ("mixed", "score-laplace")],
)
def test_noise_of_one_kind_stays_of_one_kind(way: str, mechanism: str) -> None:
    plan = make_checked_plan(plan_request(LABEL, **WAYS[way]), [ACCURACY])
    assert plan.events["accuracy"].mechanism == mechanism


def test_checks_share_what_is_kept_back_as_they_ask() -> None:
    plan = make_checked_plan(plan_request(LABEL), [ACCURACY, SILHOUETTE])
    costs = {name: cost_of(plan.events[name]).epsilon for name in ("accuracy", "silhouette")}
    assert float(costs["accuracy"]) == pytest.approx(0.05, rel=1e-4)
    assert float(costs["silhouette"]) == pytest.approx(0.1, rel=1e-4)


def test_without_checks_nothing_changes() -> None:
    assert make_checked_plan(plan_request(LABEL), []) == make_plan(plan_request(LABEL))


def query_of(plan: Plan, name: str) -> ScoreQuery:
    event = plan.events[name]
    assert isinstance(event, VectorEvent)
    assert isinstance(event.query, ScoreQuery)
    return event.query


def test_queries_name_what_is_predicted_also_where_the_release_takes_the_label_for_a_feature() -> None:
    plan = make_checked_plan(plan_request(LABEL, generator="gaussian"), [ACCURACY])
    assert plan.schema.label is None
    assert query_of(plan, "accuracy") == ScoreQuery("accuracy", of="class")
    assert query_of(make_checked_plan(plan_request(TARGET), [RMSE]), "rmse").of == "cost"


def test_clusters_are_as_many_as_asked_for_or_as_the_label_has_levels() -> None:
    some = BudgetedCheck(score="silhouette", share=TWENTIETH, clusters=5)
    assert query_of(make_checked_plan(plan_request(LABEL), [some]), "silhouette").clusters == 5
    assert query_of(make_checked_plan(plan_request(LABEL), [SILHOUETTE]), "silhouette").clusters == 3
    assert query_of(make_checked_plan(plan_request(), [SILHOUETTE]), "silhouette").clusters == CLUSTERS


def test_persons_who_may_keep_several_rows_need_as_many_times_the_noise() -> None:
    one = make_checked_plan(plan_request(LABEL), [ACCURACY]).check_events["accuracy"]
    unit = PrivacyUnit(person="id", row_rule=RowRule.AT_MOST, most_rows=3)
    several = make_checked_plan(plan_request(LABEL, unit=unit), [ACCURACY]).check_events["accuracy"]
    assert float(several.noise / one.noise) == pytest.approx(3, rel=1e-6)
    weighted = PrivacyUnit(person="id", row_rule=RowRule.WEIGHT)
    assert make_checked_plan(plan_request(LABEL, unit=weighted), [ACCURACY]).check_events["accuracy"] == one


@pytest.mark.parametrize(("check", "role"), [(ACCURACY, "label"), (RMSE, "target")])
def test_a_check_without_anything_to_predict_is_refused(check: BudgetedCheck, role: str) -> None:
    with pytest.raises(PlanError, match=role) as caught:
        make_checked_plan(plan_request(), [check])
    assert (caught.value.rule, caught.value.where) == (f"check-needs-{role}", f"checks.{check.score}")


def test_the_plan_says_what_a_check_costs_and_how_well_it_will_know() -> None:
    plan = make_checked_plan(plan_request(LABEL), [ACCURACY])
    (reason,) = (reason for reason in plan.reasons if "accuracy" in reason)
    assert "0.05 of epsilon" in reason
    scale = 1 / 0.05  # of Laplace noise on a sum of scores out of [0, 1]
    assert f"by less than {laplace.ppf(0.975, scale=scale) / 10_000:.2g}" in reason
