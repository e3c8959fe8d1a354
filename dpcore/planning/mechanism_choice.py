"""The events that a budget buys for a layout, and the one with the least expected noise."""

from __future__ import annotations

from dpcore.accounting import Budget, Rho
from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.entry import MOMENTS_KEY, PROJECTION_KEY, Status
from dpcore.mechanisms.registry import gram_mechanism, offered_under
from dpcore.planning.request import AUTO, PlanError, Wishes
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Neighbours


def best_event(wishes: Wishes, layout: GramLayout, budgets: list[Budget]) -> GramEvent:
    """The event with the least expected noise."""
    events = _candidates(wishes, layout, budgets)
    return min(events, key=lambda event: gram_mechanism(event.mechanism).expected_error(event).frobenius)


def _candidates(wishes: Wishes, layout: GramLayout, budgets: list[Budget]) -> list[GramEvent]:
    """The events that the wishes allow, each spending the whole budget."""
    if wishes.mechanism == AUTO:
        pure = "wishart-difference"
        names = [f"{pure}-trace" if wishes.neighbours is Neighbours.REPLACE_ONE else pure, "gaussian"]
    else:
        names = [require_releasable(wishes)]
    events = []
    for name in names:
        for budget in budgets:
            if (name == "gaussian") == isinstance(budget, Rho):
                events.append(_calibrated(name, layout, wishes, budget))
    if not events:
        raise needs_delta(wishes.mechanism)
    return events


def _calibrated(name: str, layout: GramLayout, wishes: Wishes, budget: Budget) -> GramEvent:
    fault = ""
    try:
        return gram_mechanism(name).calibrate(layout, wishes.neighbours, budget)
    except ValueError as error:
        fault = str(error)
    raise PlanError(fault, rule="mechanism-not-applicable", where="model.mechanism", hint="use `mechanism: auto`")


def needs_delta(mechanism: str) -> PlanError:
    """The refusal of a mechanism that no pure budget buys."""
    return PlanError(
        f"mechanism {mechanism!r} needs delta > 0",
        rule="mechanism-needs-delta",
        where="privacy.delta",
        hint="set a small delta such as 1.0e-6, or use a pure mechanism",
    )


def require_releasable(wishes: Wishes) -> str:
    """The name of the wished mechanism, if moments can be released by it.

    Raises: PlanError.
    """
    name, offered = wishes.mechanism, offered_under(MOMENTS_KEY)
    if name in offered:
        return name
    entry = BY_NAME.get(name)
    if entry is not None and entry.status is Status.REFUTED:
        rule, fault = "mechanism-refuted", f"mechanism {name!r} is refuted: {entry.reason}"
    elif entry is None or PROJECTION_KEY in entry.offered:
        rule, fault = "mechanism-unknown", f"{name!r} is no mechanism for moments"
    else:
        places = ", ".join(entry.offered)
        rule, fault = "mechanism-not-moments", f"mechanism {name!r} gives no whole moments; it serves {places}"
    raise PlanError(fault, rule=rule, where=MOMENTS_KEY, hint=f"use auto, {', '.join(offered)}")
