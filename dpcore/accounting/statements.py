"""The (epsilon, delta) statements that costs compose to, for one release and for a population."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpcore.accounting.costs import Cost
from dpcore.accounting.curves import INFINITE, epsilon_of_rho, float_above, gaussian_epsilon


@dataclass(frozen=True, slots=True)
class Statement:
    """(epsilon, delta)-differential privacy in exact arithmetic, and delta_num for finite precision."""

    epsilon: Fraction | float
    delta: Fraction
    delta_num: Fraction

    def as_json(self) -> dict[str, float]:
        """The three figures as floats."""
        return {"epsilon": float(self.epsilon), "delta": float(self.delta), "delta_num": float(self.delta_num)}


def release_statement(cost: Cost, *, delta: Fraction) -> Statement:
    """The smaller valid statement at a given delta for costs that were fixed beforehand.

    Either the pure costs are added to the epsilon of Gaussian noise of the whole rho, or
    every cost is counted as zCDP (a pure epsilon is epsilon²/2 of rho) and converted once.
    Without Gaussian costs, delta is claimed only if it buys a smaller epsilon. The delta of thresholding is taken
    from it first.
    This is no bound for mixed costs that are chosen adaptively: see `population_balance`.

        >>> from dpcore.accounting import Epsilon, Rho
        >>> twice = Cost.of(Epsilon(Fraction(1, 2))) + Cost.of(Epsilon(Fraction(1, 2)))
        >>> release_statement(twice, delta=Fraction(0)).as_json()
        {'epsilon': 1.0, 'delta': 0.0, 'delta_num': 0.0}
        >>> release_statement(Cost.of(Rho(Fraction(1, 100))), delta=Fraction(0)).epsilon
        inf
    """
    left = delta - cost.delta
    if left < 0:
        return Statement(INFINITE, delta, cost.delta_num)
    added: Fraction | float = cost.epsilon
    if cost.rho:
        gaussian = gaussian_epsilon(float_above(cost.rho), delta=float(left))
        rounded_up = math.nextafter(float_above(cost.epsilon) + gaussian, INFINITE)
        added = rounded_up if cost.epsilon else gaussian
    converted = _zcdp_epsilon(cost, left) if cost.rho_of_pure else INFINITE
    if converted < added:
        return Statement(converted, delta, cost.delta_num)
    return Statement(added, delta if cost.rho else cost.delta, cost.delta_num)


def population_balance(cost: Cost, *, delta: Fraction) -> Statement:
    """The privacy loss of a population at a given delta, valid also for adaptively chosen costs.

    Pure costs alone give the smaller of their sum and their zCDP conversion; Gaussian costs alone give the exact
    curve of the whole rho. Mixed costs are counted as zCDP and converted once. Adding the two conversions would be
    no bound: an analyst could spend the remaining budget purely whenever the noise of small Gaussian releases
    happened to be large. It holds at twice delta at the worst, where earlier outputs decide whether pure costs follow
    Gaussian ones.
    Guarantee: GUARANTEE.md, "Kinds of caps".
    """
    return zcdp_balance(cost, delta=delta) if cost.is_mixed else release_statement(cost, delta=delta)


def zcdp_balance(cost: Cost, *, delta: Fraction) -> Statement:
    """The privacy loss with every cost counted as zCDP; of pure costs alone by their sum where that is smaller."""
    if not cost.rho:
        return release_statement(cost, delta=delta)
    return Statement(_zcdp_epsilon(cost, delta - cost.delta), delta, cost.delta_num)


def _zcdp_epsilon(cost: Cost, delta: Fraction) -> float:
    """The epsilon at a delta of all costs counted as zCDP; infinite if a pure cost lacks its rho."""
    if cost.epsilon and not cost.rho_of_pure:
        return INFINITE
    return epsilon_of_rho(float_above(cost.rho + cost.rho_of_pure), delta=float(delta))
