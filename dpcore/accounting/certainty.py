"""How sure a reader of a release may become, and what groups of units lose."""

from __future__ import annotations

import math
from fractions import Fraction

from dpcore.accounting.costs import Cost
from dpcore.accounting.curves import (
    GAUSSIAN_MARGIN,
    INFINITE,
    SMALLEST_TAIL,
    delta_of_rho,
    float_above,
    gaussian_delta,
    upper_tail,
)


def loss_tail(cost: Cost, *, epsilon: Fraction, gaussian_draws: int) -> float:
    """The probability that the privacy loss of all measurements exceeds epsilon, rounded up.

    It bounds the probability that a reader of the noisy measurements, starting from even odds between two neighbours,
    becomes surer of the truth than 1 / (1 + e^-epsilon); delta is smaller. Pure measurements lose at most
    their epsilon. The loss of one Gaussian draw exceeds the remaining x with probability Q(x/mu - mu/2), which the
    worst neighbours attain. For several draws, whose distances may depend on earlier outcomes, the loss is a Brownian
    motion with drift 1/2, stopped before time mu²: its maximum exceeds x with probability
    Q(x/mu - mu/2) + e^x Q(x/mu + mu/2).
    With thresholding it is bounded like that of any function of the measurements.
    Guarantee: GUARANTEE.md, "How sure a reader may become".
    """
    rest = _epsilon_left(cost, epsilon)
    if cost.delta:
        return loss_tail_of_views(cost, epsilon=epsilon)
    if not cost.rho and rest >= 0:
        return 0.0
    bounds = [1.0, loss_tail_of_views(cost, epsilon=epsilon)]
    rho = _rho_of_all(cost)
    if epsilon > rho:  # Chernoff bound with all costs as zCDP
        bounds.append(math.exp(-((float(epsilon) - rho) ** 2) / (4 * rho)) * (1 + GAUSSIAN_MARGIN))
    if cost.rho and rest > 0:
        mu = math.sqrt(2 * float_above(cost.rho))
        tail, second = (max(upper_tail(rest / mu + side * mu / 2), SMALLEST_TAIL) for side in (-1, 1))
        later = min(tail, math.exp(min(rest, 700.0)) * second) if gaussian_draws > 1 else 0.0
        bounds.append((tail + later) * (1 + GAUSSIAN_MARGIN))
    return min(bounds)


def loss_tail_of_views(cost: Cost, *, epsilon: Fraction) -> float:
    """The probability that the privacy loss of any function of the measurements exceeds epsilon, rounded up.

    Post-processing may increase it: outcomes of high and of moderate loss that become equal count together.
    The event V of too high a loss has Pr[V] > e^epsilon Pr'[V]; with Pr[V] <= e^x Pr'[V] + delta(x) for every
    x below epsilon this gives Pr[V] <= delta(x) / (1 - e^(x - epsilon)). The delta of thresholding adds to delta(x).
    """
    rest = _epsilon_left(cost, epsilon)
    if not cost.rho and not cost.delta and rest >= 0:
        return 0.0
    gaussian, thresholds = float_above(cost.rho), float_above(cost.delta)
    top = rest if rest > 0 else float(epsilon)

    def curve(x: float) -> float:
        if rest > 0:
            return gaussian_delta(gaussian, epsilon=x) if gaussian else 0.0
        return delta_of_rho(_rho_of_all(cost), epsilon=x)

    def bound(x: float) -> float:
        return (curve(x) + thresholds) * (1 + GAUSSIAN_MARGIN) / -math.expm1(x - top)

    return min(1.0, *(bound(top * step / 1000) for step in range(1000)))


def group_delta(cost: Cost, *, epsilon: Fraction, size: int) -> float:
    """The delta at `size` times epsilon for a group of `size` units, rounded up.

    Each unit moves a measurement by at most its sensitivity, so the group's pure costs are larger by the factor
    `size`, its rho by `size`² and its delta of thresholding by at most size e^((size - 1) epsilon).
    """
    rest = _epsilon_left(cost, epsilon)
    leaks = float_above(cost.delta) * size * math.exp(min(700.0, (size - 1) * float_above(cost.epsilon)))
    if not cost.rho and rest >= 0:
        return min(1.0, leaks * (1 + GAUSSIAN_MARGIN))
    curve = delta_of_rho(_rho_of_all(cost, size), epsilon=float(epsilon) * size)
    if rest >= 0:
        curve = min(curve, gaussian_delta(float_above(cost.rho * size**2), epsilon=rest * size))
    return min(1.0, curve + leaks * (1 + GAUSSIAN_MARGIN))


def _rho_of_all(cost: Cost, size: int = 1) -> float:
    """The rho of all costs as zCDP, for a group of a size, rounded up; infinite if a pure cost lacks its own."""
    lacking = cost.epsilon and not cost.rho_of_pure
    return INFINITE if lacking else float_above((cost.rho + cost.rho_of_pure) * size**2)


def _epsilon_left(cost: Cost, epsilon: Fraction) -> float:
    """An epsilon minus the pure costs, rounded down."""
    return -float_above(cost.epsilon - epsilon)
