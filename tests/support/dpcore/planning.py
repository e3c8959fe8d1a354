"""A plan request shared by the unit and statistical tests of planning."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from support.dpcore.strategies import schema_with

from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PlanRequest
from dpcore.records.schema import Neighbours, PrivacyUnit

REQUEST = PlanRequest(
    schema=schema_with(),
    neighbours=Neighbours.REPLACE_ONE,
    unit=PrivacyUnit(),
    epsilon=Fraction(1),
    delta=Fraction(0),
    expected_rows=10_000,
)


def plan(**changes: object) -> Plan:
    return make_plan(replace(REQUEST, **changes))  # type: ignore[arg-type]
