"""What a request leaves to the planner follows from public constants, and what it says stays as it is."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from support.dpcore.planning import REQUEST, plan
from support.dpcore.strategies import schema_with

from dpcore.mechanisms.expected_noise import operator_noise
from dpcore.planning.allocation import budget_kind, moments_budgets, shares_of
from dpcore.planning.class_structure import STRONG_DIRECTION
from dpcore.planning.defaults import LEAST_AVERAGE, LEAST_STRENGTH, settle
from dpcore.planning.layouts import moments_layout
from dpcore.planning.mechanism_choice import best_event
from dpcore.planning.planner import make_plan
from dpcore.planning.request import AUTO, PLANNED, PlanRequest
from dpcore.records.schema import IntervalColumn, Kind, NominalColumn, RecordSchema, Role

FREE: dict[str, Any] = {"projection": PLANNED, "radius": PLANNED}
LEVELS = RecordSchema(
    tuple(NominalColumn(name=f"c{i}", kind=Kind.CATEGORICAL, levels=("a", "b", "c")) for i in range(3))
)


def numbers(count: int) -> RecordSchema:
    return RecordSchema(
        tuple(IntervalColumn(name=f"x{i}", kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for i in range(count))
    )


def asked(**changes: Any) -> PlanRequest:
    return replace(REQUEST, **(FREE | changes))


@pytest.mark.parametrize("projection", ["auto", "none", "ron", "private-pca"])
@pytest.mark.parametrize("radius", [AUTO, Fraction(1), Fraction(1, 4)])
def test_a_request_that_leaves_nothing_open_is_not_touched(projection: str, radius: Fraction | str) -> None:
    given = asked(projection=projection, radius=radius)
    reasons: list[str] = []
    assert settle(given, reasons) is given
    assert reasons == []


@pytest.mark.parametrize("schema", [numbers(4), LEVELS, schema_with(), schema_with(label=True)])
@pytest.mark.parametrize("rows", [10, 1000, 10**6])
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
def test_nothing_stays_open_and_the_plan_is_that_of_the_settled_request(
    schema: RecordSchema, rows: int, delta: Fraction
) -> None:
    free, reasons = asked(schema=schema, expected_rows=rows, delta=delta), list[str]()
    settled = settle(free, reasons)
    assert PLANNED not in (settled.projection, settled.radius)
    same, planned = make_plan(settled), make_plan(free)
    assert planned.reasons == (*reasons, *same.reasons)
    assert planned.events == same.events


@pytest.mark.parametrize("rows", [400, 3000, 20_000])
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
def test_as_many_coordinates_are_measured_as_leave_the_strongest_direction_above_the_noise(
    rows: int, delta: Fraction
) -> None:
    schema = numbers(60)
    planned = plan(schema=schema, expected_rows=rows, delta=delta, **FREE)
    budgets = moments_budgets(framed := asked(radius=AUTO, projection="ron", delta=delta), shares_of(framed))

    def is_clear(size: int) -> bool:
        event = best_event(framed, moments_layout(replace(framed, generator="gaussian"), size, 1), budgets)
        kind = budget_kind(event.mechanism)
        strength = STRONG_DIRECTION * rows / operator_noise(event)
        return strength >= LEAST_STRENGTH[kind] and rows / size / operator_noise(event) >= LEAST_AVERAGE[kind]

    assert planned.frame_events
    assert (planned.projection == "none") == (planned.dimension == 60)
    assert planned.dimension == 1 or is_clear(planned.dimension)
    assert planned.dimension == 60 or not is_clear(planned.dimension + 1)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"allocation": {"moments": Fraction(1)}}, "gives a frame nothing"),
        ({"normalise": True}, "all of one length"),
        ({"projection": "private-pca", "projection_mechanism": "exponential-pca", "dimension": 2}, "of their own"),
        ({"schema": LEVELS, "generator": "gaussian"}, "levels fill their bounds"),
    ],
)
def test_a_frame_is_not_measured_where_it_would_not_help_or_be_paid_for(changes: dict[str, Any], why: str) -> None:
    planned = plan(**(FREE | {"schema": numbers(4)} | changes))
    assert planned.radius == 1
    assert "spread" not in planned.frame_events
    assert why in "\n".join(planned.reasons)


def test_parts_of_the_budget_for_a_frame_ask_for_one() -> None:
    split = {
        "radius": Fraction(1, 10),
        "centre": Fraction(1, 10),
        "spread": Fraction(1, 10),
        "moments": Fraction(7, 10),
    }
    assert {"radius", "centre", "spread"} < plan(schema=numbers(4), allocation=split, **FREE).events.keys()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schema": numbers(1), "expected_rows": 10**6}, "the one coordinate leaves the strongest direction"),
        ({"schema": numbers(1), "expected_rows": 3}, "projection none: the one coordinate leaves"),
        ({"schema": numbers(3), "expected_rows": 30}, "one random direction leaves it about"),
        ({"schema": numbers(4), "radius": Fraction(1)}, "times the noise, if its points fill the ball"),
        ({"schema": LEVELS, "expected_rows": 10**5}, "it has categories or whole numbers, and enough rows"),
    ],
)
def test_reasons_say_what_is_measured_in_plain_figures(changes: dict[str, Any], says: str) -> None:
    words = "\n".join(plan(**(FREE | changes)).reasons)
    assert says in words
    assert "e+0" not in words
    assert "class blocks" not in words, "there are no classes"


def test_a_dimension_that_is_given_is_that_of_a_random_projection() -> None:
    planned = plan(schema=numbers(4), dimension=2, **FREE)
    assert (planned.projection, planned.dimension, planned.dimension_rule) == ("ron", 2, "given")


def test_a_mechanism_for_few_dimensions_gets_few_dimensions() -> None:
    assert 1 <= plan(schema=numbers(20), mechanism="nuclear-k-norm", **FREE).dimension <= 8


def test_a_copula_is_left_out_where_its_histograms_are_faint() -> None:
    """The same table goes to one covariance with few rows and to a copula with many, and never back."""
    label = NominalColumn(name="y", kind=Kind.BOOLEAN, levels=(False, True), role=Role.LABEL)
    schema = RecordSchema((*numbers(3).columns, *LEVELS.columns, label))
    chosen = [
        plan(schema=schema, expected_rows=rows, **FREE).generator == "copula" for rows in (10**2, 10**3, 10**4, 10**5)
    ]
    assert chosen == sorted(chosen)
    assert chosen[0] is False
    assert chosen[-1] is True
