"""Plans with budgeted checks: a part of epsilon is reserved to measure the utility of the release."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpcore.accounting import Budget, Epsilon, Rho, rho_of_epsilon
from dpcore.measurements.scores import ACCURACY, RMSE, SILHOUETTE
from dpcore.mechanisms.queries import ScoreQuery
from dpcore.mechanisms.registry import vector_mechanism
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.planning.layouts import unit_rows
from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PlanError, PlanRequest
from dpcore.records.schema import Role
from dpcore.stats import Z95

LAPLACE_95 = math.log(20) / math.sqrt(2)
"""Standard deviations within which Laplace noise stays with probability 0.95."""

CLUSTERS = 8
"""Clusters of a silhouette score if neither the specification nor a label says how many."""

TESTED = {
    ACCURACY: "how often a classifier trained on the synthetic rows classifies real rows correctly",
    RMSE: "the prediction error on real rows of a model trained on the synthetic rows",
    SILHOUETTE: "how well the real rows fit clusters of the synthetic rows",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedCheck:
    """A score that is measured with a share of epsilon."""

    score: str
    share: Fraction
    clusters: int | None = None


def make_checked_plan(request: PlanRequest, checks: Sequence[BudgetedCheck]) -> Plan:
    """Return the plan of a release with the epsilon that the checks leave, followed by the checks' events.

    Raises: PlanError if the request cannot be met.
    """
    kept_back = sum((check.share for check in checks), Fraction(0))
    if not kept_back:
        return make_plan(request)
    queries = {check.score: _query(request, check) for check in checks}
    plan = make_plan(replace(request, epsilon=(1 - kept_back) * request.epsilon))
    whole = _checks_budget(request, plan, kept_back)
    events = {check.score: _event(request, queries[check.score], whole, check.share / kept_back) for check in checks}
    shares = {name: share * (1 - kept_back) for name, share in plan.shares.items()}
    return replace(
        plan,
        check_events=events,
        shares=shares | {check.score: check.share for check in checks},
        reasons=(*plan.reasons, *(_reason(request, check, events[check.score]) for check in checks)),
    )


def _checks_budget(request: PlanRequest, plan: Plan, share: Fraction) -> Budget:
    """Return the budget that the release leaves for the checks.

    If all noise of the release is Gaussian, so is that of the checks, which get the rest of rho. Otherwise the
    parts add up in epsilon.
    """
    if plan.cost.epsilon:
        return Epsilon(share * request.epsilon)
    delta, epsilons = float(request.delta), (request.epsilon, (1 - share) * request.epsilon)
    whole, used = (rho_of_epsilon(float(epsilon), delta=delta) for epsilon in epsilons)
    return Rho(whole - used)


def _event(request: PlanRequest, query: ScoreQuery, whole: Budget, part: Fraction) -> VectorEvent:
    name = "score-gaussian" if isinstance(whole, Rho) else "score-laplace"
    return vector_mechanism(name).calibrate(query, request.neighbours, type(whole)(part * whole.value))


def _query(request: PlanRequest, check: BudgetedCheck) -> ScoreQuery:
    rows = unit_rows(request)
    if check.score == SILHOUETTE:
        label = request.schema.label
        clusters = check.clusters or (label.level_count if label else CLUSTERS)
        return ScoreQuery(SILHOUETTE, clusters=clusters, rows_per_unit=rows)
    role = Role.LABEL if check.score == ACCURACY else Role.TARGET
    named = next((column.name for column in request.schema.columns if column.role is role), None)
    if named is None:
        raise PlanError(
            f"the check {check.score!r} predicts a {role}, but no column has that role",
            rule=f"check-needs-{role}",
            where=f"checks.{check.score}",
            hint=f"give a column `role: {role}`, or remove the check",
        )
    return ScoreQuery(check.score, of=named, rows_per_unit=rows)


def _reason(request: PlanRequest, check: BudgetedCheck, event: VectorEvent) -> str:
    deviation = vector_mechanism(event.mechanism).deviation(event) / event.query.unit
    reach = LAPLACE_95 if event.mechanism == "score-laplace" else Z95
    margin = reach * deviation / request.expected_rows
    return (
        f"check {check.score}: after sampling, {float(check.share):g} of epsilon is spent to measure "
        f"{TESTED[check.score]}; with probability 0.95 the noise changes the mean score, a number from 0 to 1, by less "
        f"than {margin:.2g}"
    )
