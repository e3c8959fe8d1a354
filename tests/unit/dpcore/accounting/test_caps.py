"""Caps admit what their rule states, and as many releases as trying one after another does."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting import (
    INFINITE,
    Cap,
    Cost,
    Epsilon,
    Rho,
    population_balance,
    release_statement,
    total,
)


def test_twelve_tenths_fit_under_a_cap_of_one_and_a_fifth_exactly_and_a_thirteenth_does_not() -> None:
    each, cap = Cost.of(Epsilon(Fraction("0.1"))), Cap(Fraction("1.2"), Fraction(0), Fraction(0))
    assert cap.admits(total([each] * 12))
    assert not cap.admits(total([each] * 13))
    assert cap.releases_left(total([each] * 5), each) == 7
    assert cap.releases_left(Cost(), each) == 12
    assert cap.releases_left(total([each] * 12), each) == 0


costs = st.builds(
    lambda kind, value, num: Cost.of(kind(value), num),
    st.sampled_from([Epsilon, Rho]),
    st.fractions(Fraction(1, 20), Fraction(1, 2), max_denominator=200),
    st.sampled_from([Fraction(0), Fraction(1, 10**12)]),
)
caps = st.builds(
    Cap,
    st.fractions(Fraction(1, 2), Fraction(5), max_denominator=20),
    st.sampled_from([Fraction(0), Fraction(1, 10**6)]),
    st.sampled_from([Fraction(0), Fraction(1, 10**11), Fraction(1)]),
)


@given(cost=costs, other=costs, cap=caps, more=st.tuples(*[st.sampled_from([0, Fraction(1, 1000), 1])] * 3))
def test_what_a_cap_admits_a_larger_one_admits(
    cost: Cost, other: Cost, cap: Cap, more: tuple[Fraction, Fraction, Fraction]
) -> None:
    """Also at equality, when the smaller cap is exactly spent. GUARANTEE.md, "A cap that is changed"."""
    spent = cost + other
    edge = population_balance(spent, delta=cap.delta)
    caps = [cap] + ([Cap(Fraction(edge.epsilon), cap.delta, spent.delta_num)] if edge.epsilon < INFINITE else [])
    for smaller in caps:
        larger = Cap(smaller.epsilon + more[0], smaller.delta + more[1] / 2, smaller.delta_num + more[2])
        assert not smaller.admits(spent) or larger.admits(spent)


@given(cap=caps, spent=st.lists(costs, max_size=2), each=costs)
def test_the_number_of_further_releases_is_that_of_trying_one_after_another(
    cap: Cap, spent: list[Cost], each: Cost
) -> None:
    tried, so_far = 0, total(spent)
    while tried < 40 and cap.admits(so_far + total([each] * (tried + 1))):
        tried += 1
    found = cap.releases_left(total(spent), each)
    assert found == tried if tried < 40 else found >= 40


def test_the_finite_precision_delta_is_capped_by_itself() -> None:
    each = Cost.of(Epsilon(Fraction(1, 10)), Fraction(1, 10**10))
    cap = Cap(Fraction(10**6), Fraction(0), Fraction(3, 10**10))
    assert cap.releases_left(Cost(), each) == 3
    assert release_statement(each, delta=Fraction(0)).as_json() == {"epsilon": 0.1, "delta": 0.0, "delta_num": 1e-10}
