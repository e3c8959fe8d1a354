"""The exact composition of equal pure releases: against every outcome one by one, and against the binomial law."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from dpcore.accounting import Cap, CapKind, Cost, Epsilon, slots_delta, slots_epsilon, times
from dpcore.accounting.slots import MOST_SLOTS

MILLIONTH = Fraction(1, 10**6)

counts = st.integers(1, 8)
sizes = st.fractions(Fraction(1, 50), Fraction(3), max_denominator=50)
shares = st.fractions(Fraction(0), Fraction(1), max_denominator=40)
deltas = st.sampled_from([Fraction(1, 10**12), MILLIONTH, Fraction(1, 100), Fraction(1, 3)])


def by_outcomes(count: int, each: Fraction, epsilon: Fraction) -> Decimal:
    """The sum over all 2^count outcomes of the positive part of one probability minus e^epsilon times the other."""
    with localcontext(prec=70):
        odds = (Decimal(each.numerator) / Decimal(each.denominator)).exp()
        factor = (Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp()
        right, wrong = odds / (1 + odds), 1 / (1 + odds)
        found = Decimal(0)
        for answers in itertools.product((0, 1), repeat=count):
            one, other = Decimal(1), Decimal(1)
            for answer in answers:
                one, other = (one * wrong, other * right) if answer else (one * right, other * wrong)
            found += max(Decimal(0), one - factor * other)
        return found


@given(count=counts, each=sizes, share=shares)
def test_delta_is_that_of_all_outcomes_one_by_one(count: int, each: Fraction, share: Fraction) -> None:
    epsilon = share * count * each
    exact, found = by_outcomes(count, each, epsilon), Decimal(slots_delta(count, each, epsilon=epsilon))
    assert exact - Decimal("1e-60") <= found
    assert float(found) == pytest.approx(float(exact), rel=1e-12, abs=1e-60)


@given(count=counts, each=sizes, delta=deltas)
def test_epsilon_is_the_least_that_meets_delta_and_errs_upward(count: int, each: Fraction, delta: Fraction) -> None:
    epsilon, target = slots_epsilon(count, each, delta=delta), Decimal(delta.numerator) / Decimal(delta.denominator)
    assert 0 <= epsilon <= count * each
    assert by_outcomes(count, each, epsilon) <= target
    if epsilon:
        assert by_outcomes(count, each, epsilon * (1 - Fraction(1, 10**12))) > target * (1 - Decimal("1e-9"))


def test_two_dozen_releases_of_a_tenth_are_stated_below_two() -> None:
    exact = slots_epsilon(24, Fraction(1, 10), delta=MILLIONTH)
    assert round(float(exact), 3) == 1.996
    assert round(float(Cap(Fraction(9), MILLIONTH, Fraction(0)).balance(pure(24)).epsilon), 2) == 2.37
    assert slots_epsilon(24, Fraction(1, 10), delta=Fraction(0)) == Fraction(24, 10)


def pure(count: int) -> Cost:
    return times(Cost.of(Epsilon(Fraction(1, 10))), count)


@pytest.mark.parametrize(("count", "each"), [(100, Fraction(1, 10)), (1000, Fraction(1, 50)), (4000, Fraction(1, 200))])
def test_many_releases_have_the_delta_of_the_binomial_law(count: int, each: Fraction) -> None:
    epsilon = slots_epsilon(count, each, delta=MILLIONTH)
    wrong = np.arange(count + 1)
    losses = (count - 2 * wrong) * float(each)
    masses = binom.pmf(wrong, count, 1 / (1 + math.exp(each)))
    exact = masses @ -np.expm1(np.minimum(float(epsilon) - losses, 0))
    assert exact == pytest.approx(1e-6, rel=1e-7)
    assert slots_delta(count, each, epsilon=epsilon) == pytest.approx(1e-6, rel=1e-12)


@given(count=st.integers(0, 60), each=sizes, delta=deltas)
def test_one_slot_more_never_costs_less(count: int, each: Fraction, delta: Fraction) -> None:
    fewer, more = (slots_epsilon(slots, each, delta=delta) for slots in (count, count + 1))
    assert fewer <= more
    assert more <= slots_epsilon(count + 1, each * Fraction(11, 10), delta=delta)


def test_nothing_is_lost_by_no_release_and_too_many_are_added_up() -> None:
    assert slots_epsilon(0, Fraction(1), delta=MILLIONTH) == 0
    assert slots_delta(3, Fraction(1), epsilon=Fraction(3)) == 0
    each = Fraction(1, 10**5)
    assert slots_epsilon(MOST_SLOTS + 1, each, delta=MILLIONTH) == (MOST_SLOTS + 1) * each


@pytest.mark.parametrize("delta", [Fraction(0), MILLIONTH])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(2), Fraction(7, 3)])
def test_a_cap_of_slots_has_as_many_as_its_epsilon_buys(epsilon: Fraction, delta: Fraction) -> None:
    each = Fraction(1, 10)
    cap = Cap.of_slots(epsilon, delta, Fraction(0), each=each)
    assert cap.slots
    assert slots_epsilon(cap.slots, each, delta=delta) == cap.stated.epsilon <= epsilon
    assert slots_epsilon(cap.slots + 1, each, delta=delta) > epsilon
    assert cap.releases_left(Cost(), pure(1)) == cap.slots
    smaller = times(pure(1), 3) + Cost(epsilon=Fraction(1, 20))
    assert cap.releases_left(smaller, pure(1), releases=4) == max(0, cap.slots - 4), "a small release took a slot"


def test_a_cap_of_slots_admits_by_the_number_of_releases_and_not_by_their_sum() -> None:
    cap = Cap(Fraction(2), MILLIONTH, Fraction(0), CapKind.SLOTS, slots=24, each=Fraction(1, 10))
    assert cap.admits(pure(24), releases=24)
    assert not cap.admits(pure(24), releases=25), "one that cost nothing took a slot too"
    assert not cap.admits(pure(24), releases=23), "one cost more than a slot"
    assert not cap.admits(pure(23) + Cost(rho=MILLIONTH), releases=24)
    assert cap.balance(pure(3), releases=3).epsilon == slots_epsilon(3, Fraction(1, 10), delta=MILLIONTH)
    few = Cap(Fraction(2), MILLIONTH, Fraction(0), CapKind.SLOTS, slots=3, each=Fraction(1, 10))
    assert few.admits(pure(3), releases=3)
    assert not few.admits(pure(4), releases=4), "its epsilon would buy more than were written"
    assert cap.releases_left(Cost(epsilon=Fraction(1, 20)), pure(2), releases=5) == 0, "each exceeds a slot"
    too_small = Cap(Fraction(19, 10), MILLIONTH, Fraction(0), CapKind.SLOTS, slots=24, each=Fraction(1, 10))
    assert not too_small.admits(pure(1), releases=1), "its slots give more than its epsilon"
    for wrong in (Fraction(0), Fraction(3)):
        with pytest.raises(ValueError, match="of each release"):
            Cap.of_slots(Fraction(2), MILLIONTH, Fraction(0), each=wrong)


def test_randomised_response_gives_any_pair_that_is_as_close() -> None:
    """The two laws that are drawn after a right and a wrong answer, for pairs on four outcomes."""
    dice, epsilon = np.random.Generator(np.random.PCG64(3)), 0.7
    seen: Counter[bool] = Counter()
    for _ in range(200):
        first = dice.dirichlet(np.ones(4))
        other = first * np.exp(dice.uniform(-epsilon / 2, epsilon / 2, 4))
        other /= other.sum()
        assert np.abs(np.log(first / other)).max() <= epsilon
        e = math.exp(epsilon)
        right, wrong = (e * first - other) / (e - 1), (e * other - first) / (e - 1)
        assert min(right.min(), wrong.min()) >= 0
        np.testing.assert_allclose((e * right + wrong) / (1 + e), first)
        np.testing.assert_allclose((right + e * wrong) / (1 + e), other)
        seen[bool(right.argmax() == wrong.argmax())] += 1
    assert len(seen) == 2, "the pairs differ"
