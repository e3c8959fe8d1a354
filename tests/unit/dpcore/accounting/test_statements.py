"""Costs compose to true statements, and what cannot be stated is infinite."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting import (
    INFINITE,
    Cap,
    Cost,
    Epsilon,
    Rho,
    Statement,
    epsilon_of_rho,
    float_above,
    gaussian_epsilon,
    population_balance,
    release_statement,
    rho_of_epsilon,
    times,
    total,
)


def test_zcdp_costs_without_delta_fail_closed() -> None:
    assert release_statement(Cost.of(Rho(Fraction(1, 10))), delta=Fraction(0)).epsilon == INFINITE
    assert not Cap(Fraction(10**9), Fraction(0), Fraction(1)).admits(Cost.of(Rho(Fraction(1, 10**9))))
    with pytest.raises(ValueError, match="delta > 0"):
        rho_of_epsilon(1.0, delta=0.0)


@pytest.mark.parametrize("budget", [Epsilon, Rho])
@pytest.mark.parametrize("value", [Fraction(0), Fraction(-1)])
def test_a_cost_must_be_positive(budget: type[Epsilon] | type[Rho], value: Fraction) -> None:
    with pytest.raises(ValueError, match="positive"):
        budget(value)


costs = st.builds(
    lambda kind, value, num: Cost.of(kind(value), num),
    st.sampled_from([Epsilon, Rho]),
    st.fractions(Fraction(1, 20), Fraction(1, 2), max_denominator=200),
    st.sampled_from([Fraction(0), Fraction(1, 10**12)]),
)


@given(parts=st.lists(costs, min_size=1, max_size=6), delta=st.sampled_from([Fraction(1, 10**6), Fraction(1, 100)]))
def test_a_mixture_composes_to_the_smaller_of_the_two_valid_statements(parts: list[Cost], delta: Fraction) -> None:
    cost = total(parts)
    statement = release_statement(cost, delta=delta)
    pure = float(sum(part.epsilon for part in parts))
    rho = float(sum(part.rho for part in parts))
    as_rho = rho + float(sum(part.epsilon**2 / 2 for part in parts))
    apart = pure + (gaussian_epsilon(rho, delta=float(delta)) if rho else 0)
    merged = epsilon_of_rho(as_rho, delta=float(delta)) if pure else math.inf
    assert float(statement.epsilon) == pytest.approx(min(apart, merged), rel=1e-9)
    assert statement.delta == (delta if rho or statement.epsilon != cost.epsilon else 0)
    assert statement.delta_num == sum(part.delta_num for part in parts)


@given(epsilon=st.fractions(Fraction(1), Fraction(10**6), max_denominator=10**12), rho=st.integers(10**13, 10**15))
def test_a_mixed_statement_is_never_below_its_pure_part(epsilon: Fraction, rho: int) -> None:
    """Rounding the sum of a fraction and a float to nearest would understate it in half of the cases."""
    cost = Cost.of(Epsilon(epsilon)) + Cost.of(Rho(Fraction(1, rho)))
    assert Fraction(release_statement(cost, delta=Fraction(1, 100)).epsilon) >= epsilon


def test_many_small_pure_costs_are_cheaper_as_zcdp_and_few_are_not() -> None:
    each = Cost.of(Epsilon(Fraction("0.1")))
    few, many = (release_statement(times(each, n), delta=Fraction(1, 10**6)) for n in (12, 1200))
    assert (few.epsilon, few.delta) == (Fraction("1.2"), 0)
    assert float(many.epsilon) < 120 / 5
    as_zcdp = 1200 * 0.1**2 / 2
    assert float(many.epsilon) == pytest.approx(epsilon_of_rho(as_zcdp, delta=1e-6), rel=1e-9)
    assert many.delta == Fraction(1, 10**6)
    assert times(each, 7) == total([each] * 7)


def test_thresholds_take_their_delta_before_the_conversion_and_cannot_take_more() -> None:
    millionth, leak = Fraction(1, 10**6), Cost(delta=Fraction(1, 4 * 10**6))
    pure, noise = Cost.of(Epsilon(Fraction(1, 2))), Cost.of(Rho(Fraction(1, 50)))
    left = 0.75e-6
    assert release_statement(pure + leak, delta=millionth) == Statement(Fraction(1, 2), leak.delta, Fraction(0))
    assert release_statement(noise + leak, delta=millionth).epsilon == gaussian_epsilon(0.02, delta=left)
    assert population_balance(pure + noise + leak, delta=millionth).epsilon == epsilon_of_rho(
        float_above(Fraction(1, 50) + Fraction(1, 8)), delta=left
    )
    for cost in (pure, noise, pure + noise):
        assert release_statement(cost + leak, delta=millionth).delta == (leak.delta if cost == pure else millionth)
        for compose in (release_statement, population_balance):
            assert compose(cost + times(leak, 5), delta=millionth).epsilon == INFINITE
    assert total([leak] * 3) == times(leak, 3)
