"""Figures of the promise as sentences: how far odds move, how sure a reader may become, what a group is left with.

Every figure is rounded upward, so that "at most" stays true of what is written.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dpcore.accounting import group_delta, loss_tail, loss_tail_of_views
from dpcore.mechanisms.registry import cost_of
from dpcore.records.schema import Neighbours
from tasks.spec.plan import PlannedRelease
from tasks.spec.relations import at_most

GROUP = 10
"""The size of the group whose protection is written out."""


def factor(epsilon: float) -> str:
    """e^epsilon, the most by which a probability is multiplied, with a number above it.

    What it exceeds 1 by has three digits, so that a small epsilon does not look ten times as large.
    """
    above = math.nextafter(math.exp(float(at_most(epsilon))), math.inf)
    digits = max(3, min(15, 3 - math.floor(math.log10(above - 1))))
    return f"{exponent(epsilon)} (below {at_most(above, digits)})"


def exponent(epsilon: float) -> str:
    """The factor as a power; the audit looks for it in the words of a record."""
    return f"e^{at_most(epsilon)}"


def surest(epsilon: float) -> str:
    """How sure of one of two accounts somebody may become who held them to be equally likely, in percent."""
    doubt = 100 / (1 + math.exp(epsilon))
    digits = 1 if doubt > 0.1 else 1 - math.floor(math.log10(doubt))  # so many that it is not rounded to certainty
    whole, part = divmod(100 * 10**digits - math.floor(Fraction(doubt) * 10**digits), 10**digits)
    return f"{whole}.{part:0{digits}}%"


def certainty(run: PlannedRelease) -> str:
    """How sure a reader may become, and with which chance surer: a sentence."""
    epsilon, cost = run.spec.privacy.epsilon, run.plan.cost
    start = f"Someone who held {_accounts(run.spec.neighbours)} to be equally likely can become at most"
    start += f" {surest(float(epsilon))} sure of"
    exact = ", up to what finite precision adds" if cost.delta_num else ""
    if not cost.rho:
        return f"{start} either of them through this release{exact}."
    measured = loss_tail(cost, epsilon=epsilon, gaussian_draws=_gaussian_draws(run))
    viewed = loss_tail_of_views(cost, epsilon=epsilon)
    return (
        f"{start} the true one through this release{exact}, except with a chance of at most {at_most(measured, 2)} "
        f"for a reader of the noisy measurements, and of at most {at_most(viewed, 2)} for a reader of whatever is "
        "computed from them: a coarser view is not always a safer one. These chances are not delta, but larger."
    )


def _accounts(neighbours: Neighbours) -> str:
    if neighbours is Neighbours.REPLACE_ONE:
        return "two accounts of what it contained"
    return "its presence in the data, as what it is, and its absence"


def _gaussian_draws(run: PlannedRelease) -> int:
    """How often Gaussian noise is drawn one after the other; the power method does so in every iteration."""
    events = [event for event in run.plan.events.values() if cost_of(event).rho]
    return len(events) + sum(event.mechanism == "noisy-power-method" for event in events)


def group(run: PlannedRelease) -> str:
    """What is left of the promise for several units together: the end of a sentence."""
    epsilon, cost = run.spec.privacy.epsilon, run.plan.cost
    figure = f"{GROUP} with epsilon {at_most(epsilon * GROUP)}"
    exact = ", up to what finite precision adds" if cost.delta_num else ""
    if not cost.rho:
        return f"a group of k of them is protected with k times epsilon only, {figure}{exact}"
    delta = group_delta(cost, epsilon=epsilon, size=GROUP)
    return (
        f"a group of k of them is protected with k times epsilon and a delta that grows faster, {figure} and "
        f"delta {at_most(delta, 2)} only{exact}"
    )


def lifetime(epsilon: Fraction | float, delta: Fraction | float, delta_num: Fraction | float) -> str:
    """What the cap of a population promises: the end of a sentence."""
    exact = f", with at most {at_most(delta_num)} added by finite precision" if delta_num else ""
    if not delta:
        return f"epsilon {at_most(epsilon)} for life{exact}"
    return (
        f"epsilon {at_most(epsilon)}, delta {at_most(delta)} for life (twice that delta at the worst, if the "
        f"population began with Gaussian noise and what was released decided whether pure costs joined it){exact}"
    )
