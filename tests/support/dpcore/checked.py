"""Requests and checks shared by the unit and statistical tests of budgeted checks."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dpcore.planning.budgeted_checks import BudgetedCheck
from dpcore.planning.request import PlanRequest
from dpcore.records.schema import IntervalColumn, Kind, Neighbours, NominalColumn, PrivacyUnit, RecordSchema, Role

NUMBERS = tuple(IntervalColumn(name=n, kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for n in ("a", "b", "c", "d"))
LABEL = NominalColumn(name="class", kind=Kind.CATEGORICAL, levels=("x", "y", "z"), role=Role.LABEL)
TARGET = IntervalColumn(name="cost", kind=Kind.NUMERIC, lower=0.0, upper=9.0, role=Role.TARGET)
DELTA = {"delta": Fraction(1, 10**6)}
TWENTIETH = Fraction(1, 20)
ACCURACY = BudgetedCheck(score="accuracy", share=TWENTIETH)
RMSE = BudgetedCheck(score="rmse", share=TWENTIETH)
SILHOUETTE = BudgetedCheck(score="silhouette", share=Fraction(1, 10))


def plan_request(*special: Any, **changes: Any) -> PlanRequest:
    chosen: dict[str, Any] = {
        "schema": RecordSchema((*NUMBERS, *special)),
        "neighbours": Neighbours.REPLACE_ONE,
        "unit": PrivacyUnit(),
        "epsilon": Fraction(1),
        "delta": Fraction(0),
        "expected_rows": 10_000,
        "projection": "none",
    }
    return PlanRequest(**(chosen | changes))


WAYS: dict[str, dict[str, Any]] = {
    "pure": {},
    "gaussian": {"mechanism": "gaussian", **DELTA},
    "pure though delta is allowed": {"mechanism": "laplace", **DELTA},
    "mixed": {
        "projection": "private-pca",
        "projection_mechanism": "noisy-power-method",
        "mechanism": "laplace",
        "dimension": 2,
        **DELTA,
    },
    "two gaussian ones": {"projection": "private-pca", "mechanism": "gaussian", "dimension": 2, **DELTA},
    "mixed table": {"generator": "copula"},
    "mixed table, gaussian": {"generator": "copula", "mechanism": "gaussian", **DELTA},
}
