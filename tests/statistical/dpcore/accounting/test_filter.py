"""A cap holds under adaptive composition, when later costs depend on earlier outputs.

The attack observes the privacy loss of small Gaussian releases, each twice or 1.35 times as large as the one before,
and after each may spend all that the cap still admits on a pure release. A dynamic program over the loss finds its
success: the largest Pr[E] - e^epsilon Pr'[E] of any such strategy for one pair of neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.stats import norm

from dpcore.accounting import (
    Cap,
    Cost,
    Epsilon,
    epsilon_of_rho,
    gaussian_epsilon,
    population_balance,
    release_statement,
    rho_of_epsilon,
)

Floats = NDArray[np.float64]
Admits = Callable[[Cost], bool]

SETTINGS = [
    pytest.param(3, 1e-6, 12, 2.0, 1e-3, 7.4, id="epsilon 3, 12 releases"),
    pytest.param(10, 1e-5, 24, 1.35, 2e-3, 12.3, id="epsilon 10, 24 releases"),
]


def cap_of(epsilon: int, delta: float) -> Cap:
    return Cap(Fraction(epsilon), Fraction(str(delta)), Fraction(0))


def growing(epsilon: int, delta: float, count: int, factor: float) -> list[float]:
    """The rho of Gaussian releases that together cost nearly as much rho as the cap admits."""
    sizes = np.array([factor**step for step in range(count)])
    return list(sizes / sizes.sum() * float(rho_of_epsilon(float(epsilon), delta=delta)) * 0.999)


def mixed(rho: float, pure: float) -> Cost:
    return Cost(rho=Fraction(rho)) + Cost.of(Epsilon(Fraction(pure)))


def pure_rest(admits: Admits, rho: float, epsilon: float, *, upper: bool) -> float:
    """The largest pure cost that is admitted together with Gaussian noise of a rho, to a millionth."""
    low, high = 0.0, float(epsilon)
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if admits(mixed(rho, middle)) else (low, middle)
    return high if upper else low


def loss_masses(rho: float, step: float, *, upper: bool) -> tuple[int, Floats]:
    """The distribution of the loss of Gaussian noise on a grid, and the first grid index.

    The loss is normal with mean rho and variance 2 rho; under the other neighbour its mean is -rho. Rounding it
    down can only decrease a strategy's gain. Splitting it between its two neighbours on the grid, so that both laws
    keep their mass, can only increase the gain, because that is a convex function of the likelihood ratio.
    """
    deviation = math.sqrt(2 * rho)
    first, last = math.floor((rho - 9 * deviation) / step), math.ceil((rho + 9 * deviation) / step)
    edges = np.arange(first, last + 1) * step
    mass, other = (-np.diff(norm.sf((edges - mean) / deviation)) for mean in (rho, -rho))
    if not upper:
        return first, mass
    ratio = np.exp(-edges[:-1])
    above = np.clip((mass * ratio - other) / (ratio * -math.expm1(-step)), 0, mass)
    split = np.append(mass - above, 0.0)
    split[1:] += above
    return first, split


def reached(epsilon: float, rhos: list[float], admits: Admits, *, step: float, upper: bool) -> float:
    """The delta that the attack attains at epsilon: a lower bound, or an upper bound with `upper`."""
    whole = math.sqrt(2 * sum(rhos))
    half = int((epsilon + sum(rhos) + 8 * whole) / step) + 2
    losses = np.arange(-half, half + 1) * step

    def gain(loss: Floats) -> Floats:
        return -np.expm1(np.minimum(epsilon - loss, 0))

    def after_pure(spent_rho: float) -> Floats:
        """Randomised response adds the largest loss of any pure cost, up or down."""
        rest = pure_rest(admits, spent_rho, epsilon, upper=upper)
        return gain(losses + rest) / (1 + math.exp(-rest)) + gain(losses - rest) / (1 + math.exp(rest))

    spent = [0.0, *accumulate(rhos)]
    value = after_pure(spent[-1])
    for rho, before in zip(reversed(rhos), reversed(spent[:-1]), strict=True):
        first, masses = loss_masses(rho, step, upper=upper)
        low, high = max(0, -first) + 1, max(0, first + len(masses)) + 1
        padded = np.concatenate([np.full(low, value[0]), value, np.full(high, value[-1])])
        going_on = fftconvolve(padded, masses[::-1], mode="valid")[low + first :][: len(losses)]
        value = np.maximum(going_on, after_pure(before))
    return float(value[half])


def smaller_of_two(cap: Cap) -> Admits:
    """The refuted rule: the smaller of pure sum plus Gaussian conversion, and of all costs as zCDP."""
    epsilon, delta = float(cap.epsilon), float(cap.delta)

    def admits(cost: Cost) -> bool:
        gaussian = gaussian_epsilon(float(cost.rho), delta=delta) if cost.rho else 0.0
        as_zcdp = epsilon_of_rho(float(cost.rho + cost.rho_of_pure), delta=delta)
        return min(float(cost.epsilon) + gaussian, as_zcdp) <= epsilon

    return admits


@pytest.mark.parametrize(("epsilon", "delta", "count", "factor", "step", "excess"), SETTINGS)
def test_the_smaller_of_two_statements_is_no_filter(
    epsilon: int, delta: float, count: int, factor: float, step: float, excess: float
) -> None:
    rhos = growing(epsilon, delta, count, factor)
    found = reached(epsilon, rhos, smaller_of_two(cap_of(epsilon, delta)), step=step, upper=False)
    assert found > excess * delta


@pytest.mark.parametrize(("epsilon", "delta", "count", "factor", "step", "excess"), SETTINGS)
def test_the_attack_stays_within_the_cap(
    epsilon: int, delta: float, count: int, factor: float, step: float, excess: float
) -> None:
    rhos, cap = growing(epsilon, delta, count, factor), cap_of(epsilon, delta)
    assert all(cap.admits(Cost(rho=Fraction(rho))) for rho in accumulate(rhos)), "the attack's releases are admitted"
    assert reached(epsilon, rhos, cap.admits, step=step, upper=True) <= delta


def test_without_pure_rests_the_program_finds_the_exact_curve() -> None:
    """The dynamic program itself, against the closed form of Gaussian noise."""
    rhos = growing(3, 1e-6, 12, 2.0)
    bounds = [reached(3, rhos, lambda cost: not cost.epsilon, step=1e-3, upper=upper) for upper in (False, True)]
    mu = math.sqrt(2 * sum(rhos))
    exact = norm.sf(3 / mu - mu / 2) - math.exp(3) * norm.sf(3 / mu + mu / 2)
    assert bounds[0] <= exact <= bounds[1] <= 1.001 * exact
    assert bounds[0] >= 0.7 * exact


@pytest.mark.parametrize("delta", [Fraction(1, 10**6), Fraction(1, 100)])
def test_a_balance_of_both_kinds_counts_everything_as_zcdp(delta: Fraction) -> None:
    pure, gaussian = Cost.of(Epsilon(Fraction(1, 2))), Cost(rho=Fraction(1, 50))
    both = population_balance(pure + gaussian, delta=delta)
    assert float(both.epsilon) == pytest.approx(epsilon_of_rho(1 / 50 + 1 / 8, delta=float(delta)), rel=1e-9)
    assert both.delta == delta
    for alone in (pure, gaussian):
        assert population_balance(alone, delta=delta) == release_statement(alone, delta=delta)


def test_mixed_costs_that_only_fixed_ones_may_have_are_told_apart() -> None:
    cap = cap_of(1, 1e-6)
    cost = mixed(float(rho_of_epsilon(0.4, delta=1e-6)), 0.5)
    assert cap.admits_if_fixed(cost)
    assert not cap.admits(cost)
    assert not Cap(cap.epsilon, cap.delta, Fraction(0)).admits_if_fixed(cost + Cost(delta_num=Fraction(1, 10**9)))


def test_a_pure_cost_without_its_zcdp_figure_is_no_bargain() -> None:
    assert (
        population_balance(Cost(epsilon=Fraction(1), rho=Fraction(1, 10**6)), delta=Fraction(1, 100)).epsilon
        == math.inf
    )
