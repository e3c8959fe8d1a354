"""The rules that give a dimension: public constants decide what is measured, released values what is kept."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from support.dpcore.planning import REQUEST, plan

from dpcore.accounting import Epsilon
from dpcore.planning.dimension_choice import dfm_dimension
from dpcore.planning.request import PlanError
from dpcore.records.encoding import Encoding
from dpcore.records.schema import IntervalColumn, Kind, Neighbours, RecordSchema, Role

COMPONENTS: dict[str, Any] = {"projection": "private-pca", "dimension": Fraction(9, 10)}


def numbers(count: int) -> RecordSchema:
    return RecordSchema(
        tuple(IntervalColumn(name=f"x{i}", kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for i in range(count))
    )


def test_the_rule_of_ron_gauss_is_the_largest_number_below_its_bound() -> None:
    for m in (*range(16, 400), 784, 10**4, 10**6):
        bound, chosen = 2 * math.log(m) / math.log(math.log(m)), dfm_dimension(m)
        assert chosen < bound <= chosen + 1


def test_the_rule_takes_natural_logarithms_and_not_those_of_the_papers_example() -> None:
    assert dfm_dimension(100) == 6
    assert math.ceil(2 * math.log10(100) / math.log10(math.log10(100))) - 1 == 13


def test_few_coordinates_keep_at_most_five_and_the_rule_never_falls() -> None:
    """Below e^e coordinates the formula grows as they get fewer, is infinite near e and negative at 2."""
    chosen = [dfm_dimension(m) for m in range(1, 2000)]
    assert chosen[:15] == [1, 2, 3, 4, *[5] * 11]
    assert chosen == sorted(chosen)


def test_the_rule_is_planned_with_its_reason_and_its_warning() -> None:
    planned = plan(schema=numbers(100), dimension="dfm")
    assert (planned.dimension, planned.dimension_rule) == (6, "dfm")
    (reason,) = [words for words in planned.reasons if words.startswith("dimension")]
    assert "natural" in reason
    assert "not of noise" in reason
    assert planned.event.layout.dimension == 7  # the count beside six directions
    assert planned.as_json()["dimension_rule"] == "dfm"


def test_a_target_is_no_coordinate_of_the_rule() -> None:
    target = IntervalColumn(name="t", kind=Kind.NUMERIC, lower=0.0, upper=1.0, role=Role.TARGET)
    planned = plan(schema=RecordSchema((*numbers(4).columns, target)), dimension="dfm")
    assert planned.dimension == 4


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
@pytest.mark.parametrize("share", [Fraction(1, 100), Fraction(9, 10), Fraction(99, 100)])
def test_a_share_changes_nothing_that_is_reserved(neighbours: Neighbours, delta: Fraction, share: Fraction) -> None:
    """One measurement of all coordinates takes the whole budget, whatever the share and whatever is kept."""
    asked = {"neighbours": neighbours, "delta": delta, "schema": numbers(20)}
    planned = plan(projection="private-pca", dimension=share, **asked)
    given = plan(projection="private-pca", dimension=3, allocation={"moments": Fraction(1)}, **asked)
    assert planned.events == given.events
    assert list(planned.events) == ["moments"]
    assert planned.reuses_gram
    assert (planned.dimension, planned.dimension_rule, planned.components) == (20, "share", share)
    assert delta or planned.cost.epsilon == REQUEST.epsilon


def test_a_frame_beside_a_share_takes_its_part_and_the_moments_the_rest() -> None:
    planned = plan(schema=numbers(20), radius="auto", **COMPONENTS)
    assert list(planned.events) == ["radius", "centre", "spread", "moments"]
    assert REQUEST.epsilon * (1 - Fraction(1, 10**9)) < planned.cost.epsilon <= REQUEST.epsilon
    assert planned.shares["moments"] == Fraction(7, 8)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"projection": "private-pca", "dimension": "dfm"}, "dimension-rule-not-applicable"),
        ({"projection": "public-pca", "dimension": "dfm"}, "dimension-rule-not-applicable"),
        ({"projection": "ron", "dimension": Fraction(1, 2)}, "dimension-rule-not-applicable"),
        ({"projection": "public-pca", "dimension": Fraction(1, 2)}, "dimension-rule-not-applicable"),
        ({"projection": "auto", "dimension": Fraction(1, 2)}, "dimension-rule-not-applicable"),
        ({**COMPONENTS, "projection_mechanism": "laplace"}, "dimension-rule-not-applicable"),
        ({**COMPONENTS, "projection_mechanism": "exponential-pca"}, "dimension-rule-not-applicable"),
        (
            {**COMPONENTS, "allocation": {"projection": Fraction(1, 2), "moments": Fraction(1, 2)}},
            "dimension-rule-not-applicable",
        ),
        (
            {**COMPONENTS, "allocation": {"mean": Fraction(1, 2), "moments": Fraction(1, 2)}},
            "dimension-rule-not-applicable",
        ),
        ({**COMPONENTS, "dimension": Fraction(0)}, "share-out-of-range"),
        ({**COMPONENTS, "dimension": Fraction(1)}, "share-out-of-range"),
        ({**COMPONENTS, "dimension": Fraction(-1, 2)}, "share-out-of-range"),
        ({"dimension": "largest"}, "dimension-out-of-range"),
    ],
)
def test_a_rule_that_does_not_fit_is_refused_with_a_hint(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(PlanError) as refused:
        plan(**changes)
    assert refused.value.rule == rule
    assert refused.value.where.startswith("model.projection.dimension")
    assert refused.value.hint


def test_a_projection_that_is_left_open_is_random_where_the_rule_is_asked_for() -> None:
    planned = plan(schema=numbers(100), projection="auto", dimension="dfm")
    assert (planned.projection, planned.dimension) == ("ron", 6)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"projection": "none"}, "all"),
        ({"projection": "ron"}, "auto"),
        ({"projection": "ron", "dimension": 2}, "given"),
        ({"projection": "private-pca"}, "auto"),
    ],
)
def test_a_plan_says_which_rule_gave_its_dimension(changes: dict[str, Any], rule: str) -> None:
    assert plan(schema=numbers(5), **changes).dimension_rule == rule


def test_the_budget_of_all_coordinates_is_the_whole_one() -> None:
    planned = plan(schema=numbers(8), **COMPONENTS)
    assert planned.event.layout.dimension == Encoding(numbers(8)).width + 1
    assert Epsilon(planned.cost.epsilon) == Epsilon(REQUEST.epsilon)
