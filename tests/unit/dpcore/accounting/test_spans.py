"""What a span protects: strategies that watch and choose, by their exact laws, and what breaks without its conditions.

A release about a month is one bit, the answer of a randomised response or the sign of a noisy number. Somebody chooses
the month, the mechanism and its cost by all earlier bits, as long as the cap admits the largest window.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from dpcore.accounting import (
    Cap,
    CapKind,
    Cost,
    Epsilon,
    Months,
    Rho,
    most_in_a_window,
    release_statement,
)
from dpcore.records.exact_sums import GramLayout, GramSum, integer_records

MILLIONTH = Fraction(1, 10**6)


class Move(NamedTuple):
    """A release about one month."""

    month: int
    cost: Cost

    @property
    def chance(self) -> float:
        """The probability that the bit is that of the table."""
        if self.cost.rho:
            return float(norm.cdf(math.sqrt(2 * self.cost.rho) / 2))
        return 1 / (1 + math.exp(-self.cost.epsilon))


class Spent(NamedTuple):
    """What was spent so far, and by how many releases, month by month."""

    costs: Months = Months()
    counts: Mapping[int, int] = {}

    def with_move(self, move: Move) -> Spent:
        more = {**self.counts, move.month: self.counts.get(move.month, 0) + 1}
        return Spent(self.costs.adding(move.month, move.cost), more)

    def is_within(self, cap: Cap, span: int) -> bool:
        return cap.admits(self.costs.largest(span), releases=most_in_a_window(self.counts, span))


Strategy = Sequence[Move]
"""What is released after each course of bits, in the order of `place`."""


def place(bits: tuple[int, ...]) -> int:
    return 2 ** len(bits) - 1 + sum(bit << position for position, bit in enumerate(bits))


Laws = list[tuple[float, float]]
"""The probabilities of all courses under two tables."""


def laws(strategy: Strategy, steps: int, cap: Cap, span: int, differ: Callable[[int], bool]) -> Laws:
    """Those for tables that differ in some months; what is not admitted is not made."""
    found = []

    def go_on(bits: tuple[int, ...], spent: Spent, one: float, other: float) -> None:
        if len(bits) == steps:
            found.append((one, other))
            return
        move = strategy[place(bits)]
        if not (cap.takes(move.cost) and spent.with_move(move).is_within(cap, span)):
            go_on((*bits, 0), spent, one, other)
            return
        for bit in (0, 1):
            under_one = move.chance if bit == 0 else 1 - move.chance
            under_other = 1 - under_one if differ(move.month) else under_one
            go_on((*bits, bit), spent.with_move(move), one * under_one, other * under_other)

    go_on((), Spent(), 1.0, 1.0)
    return found


def excess(found: Laws, epsilon: float) -> float:
    """The largest Pr[E] - e^epsilon Pr'[E] of any event."""
    return sum(max(0.0, one - math.exp(epsilon) * other) for one, other in found)


STEPS = 4
CAPS = {
    "by use": Cap(Fraction(1), Fraction(1, 100), Fraction(0)),
    "pure": Cap(Fraction(1), Fraction(0), Fraction(0), CapKind.PURE),
    "pure or zcdp": Cap(Fraction(1, 2), Fraction(1, 3), Fraction(0), CapKind.PURE),
    "gaussian": Cap(Fraction(1), Fraction(1, 100), Fraction(0), CapKind.GAUSSIAN),
    "zcdp": Cap(Fraction(1), Fraction(1, 100), Fraction(0), CapKind.ZCDP),
    "split": Cap.split(Fraction(1), Fraction(1, 100), Fraction(0), pure=Fraction(1, 2)),
    "slots": Cap.of_slots(Fraction(1), Fraction(1, 20), Fraction(0), each=Fraction(1, 2)),
}
moves = st.builds(
    Move,
    st.integers(0, 3),
    st.one_of(
        st.sampled_from(["1/10", "1/4", "1/2", "1"]).map(lambda size: Cost.of(Epsilon(Fraction(size)))),
        st.sampled_from(["1/200", "1/50", "1/20"]).map(lambda size: Cost.of(Rho(Fraction(size)))),
    ),
)


@pytest.mark.parametrize("name", CAPS)
@given(strategy=st.lists(moves, min_size=2**STEPS - 1, max_size=2**STEPS - 1), span=st.integers(1, 3))
def test_no_strategy_tells_tables_apart_that_differ_within_one_window(name: str, strategy: Strategy, span: int) -> None:
    cap = CAPS[name]
    for first in range(-1, 4):
        found = laws(strategy, STEPS, cap, span, lambda month, first=first: first <= month < first + span)  # type: ignore[misc]
        assert sum(one for one, _ in found) == pytest.approx(1)
        assert excess(found, float(cap.epsilon)) <= cap.stated.delta + 1e-12


@pytest.mark.parametrize("months", [2, 4])
def test_who_is_present_in_many_windows_is_protected_with_the_sum(months: int) -> None:
    """The sum is attained; what is stated for all months together is an odometer of a schedule fixed beforehand."""
    each, cap = Cost.of(Epsilon(Fraction(1, 2))), Cap(Fraction(1, 2), Fraction(0), Fraction(0), CapKind.PURE)
    schedule = [Move(len(bits), each) for bits in courses(months)]
    spent = Months(dict.fromkeys(range(months), each))
    assert cap.admits(spent.largest(1))
    whole = release_statement(spent.largest(None), delta=Fraction(0))
    assert whole.epsilon == Fraction(months, 2)
    found = laws(schedule, months, cap, 1, lambda _: True)
    assert max(math.log(one / other) for one, other in found) == pytest.approx(float(whole.epsilon))
    assert excess(found, float(cap.epsilon)) > 0.1
    assert excess(found, float(whole.epsilon)) == pytest.approx(0, abs=1e-12)
    one_month = laws(schedule, months, cap, 1, lambda month: month == 1)
    assert excess(one_month, float(cap.epsilon)) == pytest.approx(0, abs=1e-12)


def courses(steps: int) -> list[tuple[int, ...]]:
    """The courses of bits in the order of `place`."""
    return [bits[::-1] for length in range(steps) for bits in itertools.product((0, 1), repeat=length)]


def laplace_loss(moved: Sequence[int], epsilon: float) -> float:
    """The largest loss of counts with discrete Laplace noise of scale 1 / epsilon each, over outcomes around them."""
    outcomes = itertools.product(range(-6, 7), repeat=len(moved))
    return max(
        sum(epsilon * (abs(y - d) - abs(y)) for y, d in zip(outcome, moved, strict=True)) for outcome in outcomes
    )


def test_a_row_that_moves_to_another_month_costs_what_both_months_cost_for_participation() -> None:
    """A row's month is fixed: it leaves one month's count and joins another's."""
    values, epsilon = 0.0, 0.3
    assert laplace_loss([0, 0], epsilon) == values, "a row that changes within its month leaves the counts"
    assert laplace_loss([1], epsilon) == pytest.approx(epsilon), "a row that comes or goes"
    assert laplace_loss([-1, 1], epsilon) == pytest.approx(2 * epsilon)


def test_two_columns_of_months_let_one_row_count_in_two_windows() -> None:
    """A record of an order in January that was delivered in February counts in both months, by either column."""
    spent = Months().adding(0, Cost.of(Epsilon(Fraction(3, 10)))).adding(1, Cost.of(Epsilon(Fraction(3, 10))))
    stated = float(spent.largest(1).epsilon)
    assert laplace_loss([1, 1], 0.3) == pytest.approx(2 * stated)


@pytest.mark.parametrize("months_of_k", ["its own", "all"])
def test_rows_of_other_months_that_count_for_k_change_this_months_sum(months_of_k: str) -> None:
    """A person's rows of January are scaled by 1/sqrt(k): if k counts all rows, others of February move the sum."""
    layout = GramLayout(dimension=3, blocks=1, count_weight=Fraction(1, 2))

    def january(rows: Sequence[tuple[int, tuple[float, float]]]) -> list[list[int]]:
        own = [point for month, point in rows if month == 1]
        k = len(own) if months_of_k == "its own" else len(rows)
        total = GramSum(layout)
        records = integer_records(np.array(own), None, layout, shares=np.full(len(own), 1 / k))
        total.add(records, np.zeros(len(own), dtype=np.int64))
        return total.upper_triangles()

    in_january = [(1, (0.6, 0.8)), (1, (0.0, 0.5))]
    in_february = [(2, (0.1, 0.2)), (2, (0.3, 0.4))]
    assert (january(in_january) == january(in_january + in_february)) == (months_of_k == "its own")


@pytest.mark.parametrize("months", [2, 3])
def test_a_running_total_repeats_a_row_of_one_month_in_all_later_ones(months: int) -> None:
    """A payment in the first month raises every later total of its payer, each released with the same noise."""
    payments = np.zeros((2, months), dtype=int)
    payments[1, 0] = 1
    moved = np.diff(payments.cumsum(axis=1), axis=0)[0]
    assert laplace_loss(list(np.diff(payments, axis=0)[0]), 0.3) == pytest.approx(0.3)
    assert laplace_loss(list(moved), 0.3) == pytest.approx(0.3 * months)


@pytest.mark.parametrize("parts", [1, 12])
def test_noise_that_is_drawn_before_its_data_breaks_parallel_composition(parts: int) -> None:
    """Each part's mechanism tells, before its data are there, whether it will show them: with probability delta.

    For fixed data each is (0, delta)-private, and one unit is in one part. Whoever may choose the part after that
    learns the unit's row if any of them shows it.
    """
    delta = Fraction(1, 100)
    learnt = sum(
        math.prod(delta if shows else 1 - delta for shows in coins)
        for coins in itertools.product((False, True), repeat=parts)
        if any(coins)
    )
    assert learnt == 1 - (1 - delta) ** parts
    assert (learnt > 10 * delta) == (parts == 12)
    fixed_part = sum(
        math.prod(delta if shows else 1 - delta for shows in coins)
        for coins in itertools.product((False, True), repeat=parts)
        if coins[0]
    )
    assert fixed_part == delta, "noise that is drawn after its data is noise for a part chosen before it"


def test_the_maxima_of_different_windows_are_never_less_than_any_window() -> None:
    """A pure January and a Gaussian March are counted together, as one window with both."""
    spent = Months().adding(0, Cost.of(Epsilon(Fraction(1, 2)))).adding(2, Cost.of(Rho(Fraction(1, 20))))
    both = spent.largest(1)
    assert both.is_mixed
    assert (both.epsilon, both.rho) == (Fraction(1, 2), Fraction(1, 20))
