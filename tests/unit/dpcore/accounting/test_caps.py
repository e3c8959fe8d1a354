"""Caps admit what their rule states, and as many releases as trying one after another does."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting import (
    INFINITE,
    Cap,
    CapKind,
    Cost,
    Epsilon,
    Rho,
    epsilon_of_rho,
    float_above,
    gaussian_epsilon,
    population_balance,
    release_statement,
    slots_epsilon,
    times,
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


MILLIONTH = Fraction(1, 10**6)
PURE, NOISE = Cost.of(Epsilon(Fraction(1, 2))), Cost.of(Rho(Fraction(1, 50)))
LEAK = Cost(delta=MILLIONTH / 4)


def of_kind(kind: CapKind | None, **figures: Fraction | int) -> Cap:
    return Cap(Fraction(3), MILLIONTH, Fraction(0), kind, **figures)  # type: ignore[arg-type]


SPLIT = Cap.split(Fraction(3), MILLIONTH, Fraction(0), pure=Fraction(1))
KINDS = {
    None: of_kind(None),
    CapKind.PURE: of_kind(CapKind.PURE),
    CapKind.GAUSSIAN: of_kind(CapKind.GAUSSIAN),
    CapKind.ZCDP: of_kind(CapKind.ZCDP),
    CapKind.SPLIT: SPLIT,
    CapKind.SLOTS: Cap.of_slots(Fraction(3), MILLIONTH, Fraction(0), each=Fraction(1, 2)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_takes_what_it_counts_and_refuses_the_rest_as_infinite(kind: CapKind | None) -> None:
    cap = KINDS[kind]
    taken = {
        CapKind.PURE: {PURE},
        CapKind.SLOTS: {PURE},
        CapKind.GAUSSIAN: {NOISE},
    }.get(kind, {PURE, NOISE, PURE + NOISE})  # type: ignore[arg-type]
    for cost in (PURE, NOISE, PURE + NOISE):
        assert cap.takes(cost) == cap.admits(cost, releases=1) == (cost in taken)
        assert (cap.balance(cost, releases=1).epsilon == INFINITE) == (cost not in taken)
        assert (cap.releases_left(Cost(), cost) > 0) == (cost in taken)
    assert cap.admits(Cost())
    assert cap.balance(Cost()).epsilon == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_cap_promises_its_epsilon_at_its_delta_and_without_a_kind_at_twice_that(kind: CapKind | None) -> None:
    cap = KINDS[kind]
    assert cap.stated.epsilon <= cap.epsilon
    assert float(cap.stated.epsilon) == pytest.approx(2.6 if kind is CapKind.SLOTS else 3, rel=0.2)
    assert cap.stated.delta == (1 if kind else 2) * MILLIONTH
    assert cap.stated.delta_num == cap.delta_num


def test_each_kind_counts_by_its_own_rule() -> None:
    delta = 1e-6
    both = PURE + NOISE
    whole = both.rho + both.rho_of_pure
    assert KINDS[CapKind.ZCDP].balance(both).epsilon == epsilon_of_rho(float_above(whole), delta=delta)
    assert KINDS[CapKind.ZCDP].balance(NOISE).epsilon == epsilon_of_rho(0.02, delta=delta)
    assert KINDS[CapKind.GAUSSIAN].balance(NOISE).epsilon == gaussian_epsilon(0.02, delta=delta)
    assert KINDS[CapKind.GAUSSIAN].balance(NOISE).epsilon < KINDS[CapKind.ZCDP].balance(NOISE).epsilon
    added = 0.5 + gaussian_epsilon(0.02, delta=delta)
    assert added <= SPLIT.balance(both).epsilon <= added * (1 + 1e-15)
    for kind in (CapKind.PURE, CapKind.ZCDP):
        assert KINDS[kind].balance(PURE).epsilon == Fraction(1, 2)
        many = times(Cost.of(Epsilon(Fraction(1, 20))), 200)
        assert KINDS[kind].balance(many).epsilon == epsilon_of_rho(float_above(many.rho_of_pure), delta=delta) < 10


def test_a_split_keeps_its_parts_apart() -> None:
    assert SPLIT.rho
    full = Cost.of(Epsilon(Fraction(1))) + Cost(rho=SPLIT.rho)
    assert SPLIT.admits(full)
    assert gaussian_epsilon(float(SPLIT.rho), delta=1e-6) == pytest.approx(2, rel=1e-6)
    assert not SPLIT.admits(full + Cost(epsilon=Fraction(1, 10**9)))
    assert not SPLIT.admits(Cost(epsilon=Fraction(11, 10))), "what Gaussian noise leaves is not for pure costs"
    assert not SPLIT.admits(Cost(rho=SPLIT.rho + Fraction(1, 10**9)))
    greedy = of_kind(CapKind.SPLIT, pure=Fraction(1), rho=SPLIT.rho * Fraction(11, 10))
    assert greedy.stated.epsilon > greedy.epsilon
    assert not greedy.admits(PURE), "its parts give more than its epsilon"
    with pytest.raises(ValueError, match="too little epsilon"):
        Cap.split(Fraction(3), MILLIONTH, Fraction(0), pure=3 - Fraction(1, 10**17))
    for wrong in (Fraction(-1), Fraction(3)):
        with pytest.raises(ValueError, match="of pure costs"):
            Cap.split(Fraction(3), MILLIONTH, Fraction(0), pure=wrong)


@pytest.mark.parametrize(
    ("kind", "figures"),
    [
        (None, {"pure": Fraction(1)}),
        (CapKind.PURE, {"slots": 3, "each": Fraction(1)}),
        (CapKind.SPLIT, {"pure": Fraction(1)}),
        (CapKind.SPLIT, {}),
        (CapKind.SLOTS, {"slots": 3}),
        (CapKind.SLOTS, {"slots": 3, "each": Fraction(1), "pure": Fraction(1)}),
    ],
)
def test_a_cap_has_exactly_the_figures_of_its_kind(kind: CapKind | None, figures: dict[str, Fraction | int]) -> None:
    with pytest.raises(ValueError, match="exactly these figures"):
        of_kind(kind, **figures)


@pytest.mark.parametrize(
    "figures",
    [{"kind": CapKind.SPLIT, "pure": Fraction(-1), "rho": Fraction(1)},
     {"kind": CapKind.SPLIT, "pure": Fraction(1), "rho": Fraction(-1)},
     {"kind": CapKind.SLOTS, "slots": -1, "each": Fraction(1)},
     {"kind": CapKind.SLOTS, "slots": 1, "each": Fraction(-1)}],
)  # fmt: skip
def test_a_cap_has_no_negative_figure(figures: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not negative"):
        of_kind(**figures)


@pytest.mark.parametrize("thresholds", [Fraction(-1, 10**9), MILLIONTH * 2])
def test_thresholds_are_a_part_of_delta(thresholds: Fraction) -> None:
    with pytest.raises(ValueError, match="part of the cap's delta"):
        of_kind(CapKind.PURE, thresholds=thresholds)


@pytest.mark.parametrize("kind", [None, CapKind.PURE, CapKind.GAUSSIAN, CapKind.ZCDP])
def test_thresholds_take_their_part_of_delta_and_the_conversion_has_the_rest(kind: CapKind | None) -> None:
    keeping, less = of_kind(kind, thresholds=MILLIONTH / 2), Cap(Fraction(3), MILLIONTH / 2, Fraction(0), kind)
    cost = NOISE if kind is CapKind.GAUSSIAN else times(Cost.of(Epsilon(Fraction(1, 20))), 90)
    assert not KINDS[kind].admits(cost + LEAK)
    assert not KINDS[kind].admits(LEAK)
    assert keeping.admits(cost + times(LEAK, 2))
    assert not keeping.admits(cost + times(LEAK, 3))
    assert keeping.balance(cost + times(LEAK, 3)).epsilon == INFINITE
    assert keeping.balance(cost + LEAK).epsilon == less.balance(cost).epsilon > KINDS[kind].balance(cost).epsilon
    assert keeping.balance(cost + LEAK).delta == MILLIONTH / 2 + LEAK.delta
    assert keeping.stated.delta == (1 if kind else 2) * MILLIONTH


def test_a_split_and_slots_convert_at_what_thresholds_leave() -> None:
    half = MILLIONTH / 2
    split = Cap.split(Fraction(3), MILLIONTH, Fraction(0), pure=Fraction(1), thresholds=half)
    assert split.rho
    assert SPLIT.rho
    assert split.rho == Cap.split(Fraction(3), half, Fraction(0), pure=Fraction(1)).rho < SPLIT.rho
    slots = Cap.of_slots(Fraction(3), MILLIONTH, Fraction(0), each=Fraction(1, 10), thresholds=half)
    assert slots.slots == Cap.of_slots(Fraction(3), half, Fraction(0), each=Fraction(1, 10)).slots
    assert slots.stated.epsilon == slots_epsilon(slots.slots or 0, Fraction(1, 10), delta=half)


@given(cost=costs, other=costs, kind=st.sampled_from(list(KINDS)))
def test_less_of_a_cost_is_admitted_wherever_more_is(cost: Cost, other: Cost, kind: CapKind | None) -> None:
    cap = replace(KINDS[kind], delta_num=Fraction(1))
    assert not cap.admits(cost + other, releases=2) or cap.admits(cost, releases=1)
