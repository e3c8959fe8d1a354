"""The choice of a mechanism: the candidate events for a layout and a budget, and the one with the least noise."""

from __future__ import annotations

from dpcore.accounting import Budget, Rho
from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.entry import MOMENTS_KEY, PROJECTION_KEY, Status
from dpcore.mechanisms.registry import gram_mechanism, offered_under
from dpcore.planning.allocation import whole_budgets
from dpcore.planning.request import AUTO, PlanError, PlanRequest
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Neighbours


def best_event(request: PlanRequest, layout: GramLayout, budgets: list[Budget]) -> GramEvent:
    """Return the candidate event with the least expected noise.

    Raises: PlanError if the requested mechanism cannot be released, calibrated or paid for.
    """
    events = _candidates(request, layout, budgets)
    return min(events, key=lambda event: gram_mechanism(event.mechanism).expected_error(event).frobenius)


def mechanism_reasons(request: PlanRequest, event: GramEvent) -> list[str]:
    """Return why the planner chose the mechanism, or nothing if the specification names it."""
    if request.mechanism != AUTO:
        return []
    if len(whole_budgets(request)) > 1:
        return [f"mechanism {event.mechanism}: it has the least expected noise of the mechanisms that apply"]
    why = "a separately measured mean needs pure noise" if request.delta else "delta is 0, so the noise must be pure"
    if request.delta and request.pure_only:
        why = "the population's cap counts pure costs alone"
    return [f"mechanism {event.mechanism}: {why}"]


def _candidates(request: PlanRequest, layout: GramLayout, budgets: list[Budget]) -> list[GramEvent]:
    """Return the events that the request allows, each spending a whole budget."""
    if request.mechanism == AUTO:
        pure = "wishart-difference"
        names = [f"{pure}-trace" if request.neighbours is Neighbours.REPLACE_ONE else pure, "gaussian"]
    else:
        names = [require_releasable(request)]
    events = [
        _calibrate(name, layout, request, budget)
        for name in names
        for budget in budgets
        if (name == "gaussian") == isinstance(budget, Rho)
    ]
    if not events:
        raise delta_needed_error(request, request.mechanism)
    return events


def _calibrate(name: str, layout: GramLayout, request: PlanRequest, budget: Budget) -> GramEvent:
    try:
        return gram_mechanism(name).calibrate(layout, request.neighbours, budget)
    except ValueError as error:
        fault = str(error)
    raise PlanError(fault, rule="mechanism-not-applicable", where="model.mechanism", hint="use `mechanism: auto`")


def delta_needed_error(request: PlanRequest, mechanism: str) -> PlanError:
    """Return the error for a mechanism of Gaussian noise that delta, or the population's cap, does not allow."""
    if request.delta and request.pure_only:
        return PlanError(
            f"mechanism {mechanism!r} draws Gaussian noise, and the population's cap counts pure costs alone",
            rule="cap-kind",
            where="privacy.lifetime.kind",
            hint="use `mechanism: auto` or a pure mechanism, or `kind: zcdp`, which counts both",
        )
    return PlanError(
        f"mechanism {mechanism!r} needs delta > 0",
        rule="mechanism-needs-delta",
        where="privacy.delta",
        hint="set a small delta such as 1.0e-6, or use a pure mechanism",
    )


def require_releasable(request: PlanRequest) -> str:
    """Return the name of the requested mechanism if it can release moments.

    Raises: PlanError if it is unknown, refuted, or made for another kind of measurement.
    """
    name, offered = request.mechanism, offered_under(MOMENTS_KEY)
    if name in offered:
        return name
    entry = BY_NAME.get(name)
    if entry is not None and entry.status is Status.REFUTED:
        rule, fault = "mechanism-refuted", f"mechanism {name!r} is refuted: {entry.reason}"
    elif entry is None or PROJECTION_KEY in entry.offered:
        rule, fault = "mechanism-unknown", f"{name!r} is not a mechanism for moments"
    else:
        places = ", ".join(entry.offered)
        rule, fault = "mechanism-not-moments", f"mechanism {name!r} does not measure moments; it serves {places}"
    raise PlanError(fault, rule=rule, where=MOMENTS_KEY, hint=f"use auto, {', '.join(offered)}")
