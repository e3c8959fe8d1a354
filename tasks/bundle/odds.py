"""Figures of the guarantee in sentences: how far odds move, how sure a reader can become, how a group is protected.

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
    """Write e^epsilon, the largest factor by which a probability changes, with a number above it.

    The excess over 1 has three digits, so that a small epsilon does not look ten times as large.
    """
    above = math.nextafter(math.exp(float(at_most(epsilon))), math.inf)
    digits = max(3, min(15, 3 - math.floor(math.log10(above - 1))))
    return f"{exponent(epsilon)} (below {at_most(above, digits)})"


def exponent(epsilon: float) -> str:
    """Write the factor as a power; the audit looks for it in the sentences of a record."""
    return f"e^{at_most(epsilon)}"


def surest(epsilon: float) -> str:
    """Return how sure somebody can become of one of two equally likely possibilities, in percent."""
    doubt = 100 / (1 + math.exp(epsilon))
    digits = 1 if doubt > 0.1 else 1 - math.floor(math.log10(doubt))  # so many that it is not rounded to certainty
    whole, part = divmod(100 * 10**digits - math.floor(Fraction(doubt) * 10**digits), 10**digits)
    return f"{whole}.{part:0{digits}}%"


def certainty(run: PlannedRelease) -> str:
    """Return the sentence on how sure a reader can become, and with which probability surer than that."""
    epsilon, cost = run.spec.privacy.epsilon, run.plan.cost
    start = f"Someone who considers {_possibilities(run)} equally likely beforehand can become at most"
    start += f" {surest(float(epsilon))} sure of"
    exact = ", up to what finite precision adds" if cost.delta_num else ""
    if not cost.rho:
        return f"{start} either of them through this release{exact}."
    measured = loss_tail(cost, epsilon=epsilon, gaussian_draws=_gaussian_draws(run))
    viewed = loss_tail_of_views(cost, epsilon=epsilon)
    return (
        f"{start} the true one through this release{exact}, except with a probability of at most "
        f"{at_most(measured, 2)} for a reader of the noisy measurements, and of at most {at_most(viewed, 2)} for a "
        "reader of anything computed from them (a coarser view is not always a safer one). These probabilities are "
        "not delta; they are larger."
    )


def _possibilities(run: PlannedRelease) -> str:
    person = run.spec.unit.person is not None
    if run.spec.neighbours is Neighbours.REPLACE_ONE:
        return f"two possible contents of {'these rows' if person else 'that row'}"
    if person:
        return "the presence of that person, with exactly these rows, and their absence"
    return "the presence of that row, with exactly these values, and its absence"


def _gaussian_draws(run: PlannedRelease) -> int:
    """Count the successive draws of Gaussian noise; the power method draws in every iteration."""
    events = [event for event in run.plan.events.values() if cost_of(event).rho]
    return len(events) + sum(event.mechanism == "noisy-power-method" for event in events)


def group(run: PlannedRelease) -> str:
    """Return how well several units are protected together: the end of a sentence."""
    epsilon, cost = run.spec.privacy.epsilon, run.plan.cost
    whom = "persons" if run.spec.unit.person else "rows"
    figure = f"epsilon {at_most(epsilon * GROUP)}"
    exact = ", up to what finite precision adds" if cost.delta_num else ""
    if not cost.rho:
        return f"a group of k {whom} is protected only with k times epsilon, {GROUP} {whom} with {figure}{exact}"
    delta = group_delta(cost, epsilon=epsilon, size=GROUP)
    return (
        f"a group of k {whom} is protected only with k times epsilon and a delta that grows faster than epsilon, "
        f"{GROUP} {whom} with {figure} and delta {at_most(delta, 2)}{exact}"
    )


def lifetime(
    epsilon: Fraction | float, delta: Fraction | float, delta_num: Fraction | float, *, whole: str = "lifetime"
) -> str:
    """Return the cap of a population, on its lifetime or on a `total`: the end of a sentence."""
    exact = f", with at most {at_most(delta_num)} added by finite precision" if delta_num else ""
    if not delta:
        return f"a {whole} epsilon of {at_most(epsilon)}{exact}"
    return (
        f"a {whole} epsilon of {at_most(epsilon)} and delta of {at_most(delta)} (at worst twice that delta under a "
        "cap of an earlier version, which names no kind of cost, if the population began with Gaussian noise and "
        f"released values decided whether pure costs were added){exact}"
    )
