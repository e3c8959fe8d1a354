"""Figures of the promise as sentences: how far odds move, how sure a reader may become, what a group is left with.

Every figure is rounded upward, so that "at most" stays true of what is written.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dpcore.accounting import group_delta, loss_tail, loss_tail_of_views
from dpcore.registry import cost_of
from dpcore.schema import Neighbours
from tasks.stores.relations import at_most
from tasks.stores.run import PlannedRelease

GROUP = 10
"""The size of the group whose protection is written out."""


def factor(epsilon: float) -> str:
    """e^epsilon, the most by which a probability is multiplied."""
    return f"e^{epsilon:g} = {at_most(math.exp(epsilon), 3)}"


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
    if not cost.rho:
        return f"{start} either of them through this release."
    measured = loss_tail(cost, epsilon=epsilon, gaussian_draws=_gaussian_draws(run))
    viewed = loss_tail_of_views(cost, epsilon=epsilon)
    return (
        f"{start} the true one through this release, except with a chance of at most {at_most(measured, 2)} for a "
        f"reader of the noisy measurements, and of at most {at_most(viewed, 2)} for a reader of whatever is computed "
        "from them: a coarser view is not always a safer one. These chances are not delta, but larger."
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
    figure = f"{GROUP} with epsilon {float(epsilon * GROUP):g}"
    if not cost.rho:
        return f"a group of k of them is protected with k times epsilon only, {figure}"
    delta = group_delta(cost, epsilon=epsilon, size=GROUP)
    return (
        f"a group of k of them is protected with k times epsilon and a delta that grows much faster, {figure} and "
        f"delta {at_most(delta, 2)} only"
    )


def lifetime(epsilon: Fraction, delta: Fraction) -> str:
    """What the cap of a population promises: the end of a sentence."""
    if not delta:
        return f"epsilon {float(epsilon):g} for life"
    return (
        f"epsilon {float(epsilon):g}, delta {float(delta):g} for life (twice that delta at the worst, if the "
        "population began with Gaussian noise and what was released decided whether pure costs joined it)"
    )
