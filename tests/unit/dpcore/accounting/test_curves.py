"""Conversions between rho, epsilon and delta: against OpenDP, against brute force, and failing closed."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from dpcore.accounting import (
    INFINITE,
    delta_of_rho,
    epsilon_of_rho,
    float_above,
    gaussian_delta,
    gaussian_epsilon,
    rho_of_epsilon,
)

rhos = st.floats(1e-6, 50)
deltas = st.floats(1e-12, 0.1)
GRID = [(rho, delta) for rho in (1e-4, 0.01, 0.1, 0.5, 2.0, 20.0) for delta in (1e-10, 1e-6, 1e-2)]


def opendp_epsilon(rho: float, delta: float) -> float:
    """OpenDP's conversion, which is deterministic."""
    dp.enable_features("contrib", "honest-but-curious")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    scale = 1 / math.sqrt(2 * rho)
    gaussian = dp.m.make_gaussian(*space, scale=scale)
    profile = dp.c.make_zCDP_to_approxDP(gaussian).map(1.0)
    return float(profile.epsilon(delta))


def grid_delta(rho: float, epsilon: float) -> float:
    """The formula of Canonne, Kamath and Steinke, minimised over a fine grid and then polished."""

    def log_delta(x: float) -> float:
        alpha = 1 + math.exp(x)
        return (alpha - 1) * (alpha * rho - epsilon) + alpha * math.log1p(-1 / alpha) - math.log(alpha - 1)

    grid = np.linspace(-15, 25, 4001)
    best = grid[int(np.argmin([log_delta(x) for x in grid]))]
    polished = optimize.minimize_scalar(
        log_delta, bounds=(best - 0.02, best + 0.02), method="bounded", options={"xatol": 1e-12}
    )
    return min(1.0, math.exp(polished.fun))


@pytest.mark.parametrize(("rho", "delta"), GRID)
def test_the_conversion_agrees_with_opendp(rho: float, delta: float) -> None:
    assert epsilon_of_rho(rho, delta=delta) == pytest.approx(opendp_epsilon(rho, delta), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("rho", "delta"), GRID)
def test_the_stated_epsilon_meets_its_delta_without_any_slack(rho: float, delta: float) -> None:
    assert delta_of_rho(rho, epsilon=epsilon_of_rho(rho, delta=delta)) <= delta


@pytest.mark.parametrize(("rho", "delta"), GRID)
def test_the_conversion_agrees_with_a_search_over_all_orders(rho: float, delta: float) -> None:
    epsilon = epsilon_of_rho(rho, delta=delta)
    if epsilon > 1e-9:
        assert grid_delta(rho, epsilon) == pytest.approx(delta, rel=1e-5)
    else:  # the delta is met at epsilon 0 already
        assert grid_delta(rho, 0.0) <= delta
    assert delta_of_rho(rho, epsilon=epsilon) == pytest.approx(grid_delta(rho, epsilon), rel=1e-7)


@given(rho=rhos, delta=deltas)
def test_the_stated_epsilon_never_flatters_a_continuous_gaussian(rho: float, delta: float) -> None:
    """The exact curve gives the true delta of this rho: zCDP must not understate it, and our curve attains it."""
    assert true_gaussian_delta(rho, epsilon_of_rho(rho, delta=delta)) <= delta * (1 + 1e-9)
    epsilon = gaussian_epsilon(rho, delta=delta)
    assert epsilon <= epsilon_of_rho(rho, delta=delta) * (1 + 1e-9) + 1e-12
    true = true_gaussian_delta(rho, epsilon)
    assert true <= delta
    assert true == pytest.approx(delta, rel=1e-4) or epsilon < 1e-9


def true_gaussian_delta(rho: float, epsilon: float) -> float:
    """The curve of Balle and Wang in 300 binary places."""
    with ctx.workprec(300):
        mu, root = arb(2 * rho).sqrt(), arb(2).sqrt()
        near, far = arb(epsilon) / mu - mu / 2, arb(epsilon) / mu + mu / 2
        return float(((near / root).erfc() - arb(epsilon).exp() * (far / root).erfc()) / 2)


@pytest.mark.parametrize(("rho", "epsilon"), [(0.02, 0.5), (0.5, 1.0), (2.0, 0.1), (8.0, 12.0)])
def test_the_gaussian_curve_is_the_largest_gain_of_any_event(rho: float, epsilon: float) -> None:
    """The integral of the positive part of one density minus e^epsilon times the other, by quadrature."""
    mu = math.sqrt(2 * rho)
    crossing = epsilon / mu + mu / 2
    gain, _ = integrate.quad(
        lambda x: stats.norm.pdf(x, loc=mu) - math.exp(epsilon) * stats.norm.pdf(x), crossing, crossing + 40
    )
    assert gaussian_delta(rho, epsilon=epsilon) == pytest.approx(gain, rel=1e-6)


@pytest.mark.parametrize(("rho", "delta"), [(0.1, 0.0), (math.inf, 1e-6), (math.nan, 1e-6), (0.1, -1.0)])
def test_a_gaussian_cost_that_cannot_be_stated_is_infinite(rho: float, delta: float) -> None:
    assert gaussian_epsilon(rho, delta=delta) == INFINITE


@given(rho=rhos, delta=deltas)
def test_the_stated_epsilon_is_below_the_simple_conversion_and_its_delta_is_met(rho: float, delta: float) -> None:
    epsilon = epsilon_of_rho(rho, delta=delta)
    assert 0 <= epsilon <= (rho + 2 * math.sqrt(rho * math.log(1 / delta))) * (1 + 1e-9)
    assert delta_of_rho(rho, epsilon=epsilon) <= delta * (1 + 1e-9)


@given(epsilon=st.floats(0.01, 20), delta=deltas)
def test_rho_of_epsilon_is_the_inverse_of_gaussian_epsilon_and_errs_on_the_safe_side(
    epsilon: float, delta: float
) -> None:
    rho = rho_of_epsilon(epsilon, delta=delta)
    back = gaussian_epsilon(float_above(rho), delta=delta)
    assert back <= epsilon
    assert back == pytest.approx(epsilon, rel=1e-6)


@given(rho=rhos, delta=deltas, factor=st.floats(1.001, 3))
def test_the_conversion_is_monotone(rho: float, delta: float, factor: float) -> None:
    epsilon = epsilon_of_rho(rho, delta=delta)
    assert epsilon_of_rho(rho * factor, delta=delta) >= epsilon
    assert epsilon_of_rho(rho, delta=min(0.5, delta * factor)) <= epsilon
    assert delta_of_rho(rho * factor, epsilon=1.0) >= delta_of_rho(rho, epsilon=1.0) * (1 - 1e-9)
    assert delta_of_rho(rho, epsilon=factor) <= delta_of_rho(rho, epsilon=1.0) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("rho", "delta"), [(0.1, 0.0), (math.inf, 1e-6), (math.nan, 1e-6), (0.1, math.nan), (0.1, -1.0)]
)
def test_a_cost_that_cannot_be_stated_is_infinite(rho: float, delta: float) -> None:
    assert epsilon_of_rho(rho, delta=delta) == INFINITE


@given(st.fractions(min_value=Fraction(1, 10**300), max_value=Fraction(10**300)))
def test_a_fraction_becomes_the_least_float_not_below_it(value: Fraction) -> None:
    above = float_above(value)
    assert Fraction(above) >= value
    assert Fraction(math.nextafter(above, 0)) < value


@pytest.mark.parametrize(
    ("rho", "delta"),
    [(3.221242448169162, 1.990168075922841e-285), (206.65893036534064, 1.6120323055268206e-71), (0.7, 1e-299)],
)
def test_a_tail_among_the_smallest_floats_does_not_flatter_the_curve(rho: float, delta: float) -> None:
    epsilon = gaussian_epsilon(rho, delta=delta)
    with ctx.workprec(2000):
        mu, root = (2 * arb(rho)).sqrt(), arb(2).sqrt()
        tails = [((arb(epsilon) / mu + sign * mu / 2) / root).erfc() / 2 for sign in (-1, 1)]
        assert tails[0] - arb(epsilon).exp() * tails[1] <= arb(delta)
