"""The events that a budget buys for a layout, and the one with the least expected noise."""

from __future__ import annotations

from dpcore.accounting import Budget, Rho
from dpcore.exactgram import Layout
from dpcore.mechanisms.base import Gives, GramEvent
from dpcore.registry import (
    BY_NAME,
    Status,
    gram_mechanism,
)
from dpcore.schema import Neighbours
from dpcore.wishes import (
    AUTO,
    PlanError,
    Wishes,
)


def best_event(wishes: Wishes, layout: Layout, budgets: list[Budget]) -> GramEvent:
    """The event with the least expected noise."""
    events = _candidates(wishes, layout, budgets)
    return min(events, key=lambda event: gram_mechanism(event.mechanism).expected_error(event).frobenius)


def _candidates(wishes: Wishes, layout: Layout, budgets: list[Budget]) -> list[GramEvent]:
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


def _calibrated(name: str, layout: Layout, wishes: Wishes, budget: Budget) -> GramEvent:
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
    entry = BY_NAME.get(wishes.mechanism)
    hint = "use auto, or a proved moments mechanism of `dprelease mechanisms`"
    if entry is None or (entry.mechanism is None and entry.status is not Status.REFUTED):
        raise PlanError(
            f"{wishes.mechanism!r} is no mechanism for moments",
            rule="mechanism-unknown",
            where="model.mechanism",
            hint=hint,
        )
    if entry.status is Status.REFUTED:
        raise PlanError(
            f"mechanism {entry.name!r} is refuted: {entry.reason}",
            rule="mechanism-refuted",
            where="model.mechanism",
            hint=hint,
        )
    if entry.mechanism is not None and entry.mechanism.gives is not Gives.GRAM:
        raise PlanError(
            f"mechanism {entry.name!r} gives a {entry.mechanism.gives} only, and a release needs whole moments",
            rule="mechanism-not-moments",
            where="model.mechanism",
            hint=hint,
        )
    return entry.name


def operator_noise(event: GramEvent) -> float:
    """The noise's expected operator norm, in records."""
    return gram_mechanism(event.mechanism).expected_error(event).operator


def entry_noise(event: GramEvent) -> float:
    """The standard deviation of the noise on an entry, in records."""
    return gram_mechanism(event.mechanism).expected_error(event).off_diagonal_sd
