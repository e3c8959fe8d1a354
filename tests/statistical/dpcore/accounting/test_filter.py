"""A cap of any kind holds under adaptive composition, when later costs depend on earlier outputs.

The attack observes the privacy loss of small Gaussian releases, each twice or 1.35 times as large as the one before,
and at any of them may spend all that the cap still admits on a pure release. A dynamic program over the loss finds its
success: the largest Pr[E] - e^epsilon Pr'[E] of any such strategy for one pair of neighbours. Rules that are no
filters fail under the same program.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm
from support.dpcore.loss_game import Floats, LossGame, gaussian_rho, growing
from support.dpcore.loss_lattice import best_choice, best_stop, gain

from dpcore.accounting import (
    Cap,
    CapKind,
    Cost,
    Epsilon,
    epsilon_of_rho,
    gaussian_delta,
    gaussian_epsilon,
    population_balance,
    release_statement,
    rho_of_epsilon,
    slots_epsilon,
    statement_of_any_changes,
    times,
    total_delta,
)

Admits = Callable[[Cost], bool]
TENTH, MILLIONTH = Fraction(1, 10), Fraction(1, 10**6)

SETTINGS = [
    pytest.param(3, 1e-6, 12, 2.0, 1e-3, 7.4, id="epsilon 3, 12 releases"),
    pytest.param(10, 1e-5, 24, 1.35, 2e-3, 12.3, id="epsilon 10, 24 releases"),
]
CAPS = [pytest.param(*setting.values[:-1], id=setting.id) for setting in SETTINGS]


def cap_of(epsilon: int, delta: float, kind: CapKind | None = None) -> Cap:
    return Cap(Fraction(epsilon), Fraction(str(delta)), Fraction(0), kind)


def mixed(rho: float, pure: float) -> Cost:
    return Cost(rho=Fraction(rho)) + Cost.of(Epsilon(Fraction(pure)))


def pure_rest(admits: Admits, rho: float, epsilon: float, *, upper: bool) -> float:
    """The largest pure cost that is admitted together with Gaussian noise of a rho, to a millionth."""
    low, high = 0.0, float(epsilon)
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if admits(mixed(rho, middle)) else (low, middle)
    return high if upper else low


def reached(
    epsilon: float, rhos: list[float], admits: Admits, *, step: float, upper: bool, goes_on: bool = False
) -> float:
    """The delta that the attack attains at epsilon: a lower bound, or an upper bound with `upper`."""
    game = LossGame(epsilon, sum(rhos), step=step, upper=upper)

    def spend_purely(rho: float, after: Floats) -> Floats:
        return game.before_pure(after, pure_rest(admits, rho, epsilon, upper=upper))

    return game.best(rhos, spend_purely, goes_on=goes_on)


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
    rhos = growing(gaussian_rho(epsilon, delta), count, factor)
    found = reached(epsilon, rhos, smaller_of_two(cap_of(epsilon, delta)), step=step, upper=False)
    assert found > excess * delta


def zcdp_rho(epsilon: float, delta: float) -> float:
    return float(brentq(lambda rho: epsilon_of_rho(rho, delta=delta) - epsilon, 1e-6, 100.0))


@pytest.mark.parametrize("kind", [None, CapKind.GAUSSIAN, CapKind.ZCDP])
@pytest.mark.parametrize(("epsilon", "delta", "count", "factor", "step"), CAPS)
def test_the_attack_stays_within_the_cap(
    epsilon: int, delta: float, count: int, factor: float, step: float, kind: CapKind | None
) -> None:
    cap = cap_of(epsilon, delta, kind)
    whole = zcdp_rho(epsilon, delta) if kind is CapKind.ZCDP else gaussian_rho(epsilon, delta)
    rhos = growing(whole, count, factor)
    assert all(cap.admits(Cost(rho=Fraction(rho))) for rho in accumulate(rhos)), "the attack's releases are admitted"
    assert reached(epsilon, rhos, cap.admits, step=step, upper=True) <= delta


@pytest.mark.parametrize("pure", [Fraction(1, 4), Fraction(3, 4)])
@pytest.mark.parametrize(("epsilon", "delta", "count", "factor", "step"), CAPS)
def test_the_attack_stays_within_a_split_and_nearly_attains_it(
    epsilon: int, delta: float, count: int, factor: float, step: float, pure: Fraction
) -> None:
    """Here the pure release is made at the best moment, and the Gaussian ones go on after it."""
    cap = Cap.split(Fraction(epsilon), Fraction(str(delta)), Fraction(0), pure=pure * epsilon)
    assert cap.rho
    rhos = growing(float(cap.rho), count, factor)
    low, high = (reached(epsilon, rhos, cap.admits, step=step, upper=upper, goes_on=True) for upper in (False, True))
    assert delta / 2 < low <= high <= delta


def test_without_pure_rests_the_program_finds_the_exact_curve() -> None:
    """The dynamic program itself, against the closed form of Gaussian noise."""
    rhos = growing(gaussian_rho(3, 1e-6), 12, 2.0)
    bounds = [reached(3, rhos, lambda cost: not cost.epsilon, step=1e-3, upper=upper) for upper in (False, True)]
    mu = math.sqrt(2 * sum(rhos))
    exact = norm.sf(3 / mu - mu / 2) - math.exp(3) * norm.sf(3 / mu + mu / 2)
    assert bounds[0] <= exact <= bounds[1] <= 1.001 * exact
    assert bounds[0] >= 0.7 * exact


@pytest.mark.parametrize(
    ("epsilon", "each", "kind"),
    [(2, 0.1, None), (2, 0.1, CapKind.PURE), (2, 0.1, CapKind.ZCDP), (8, 0.2, CapKind.PURE)],
)
def test_pure_costs_that_are_chosen_by_their_loss_stay_within_the_cap(
    epsilon: int, each: float, kind: CapKind | None
) -> None:
    """Equal releases, and whenever it pays one that spends the rest, by the sum or as zCDP."""
    cap, one = cap_of(epsilon, 1e-6, kind), Cost.of(Epsilon(Fraction(each)))
    admitted = cap.releases_left(Cost(), one)
    assert (admitted * each > epsilon) == (epsilon == 8), "many are counted as zCDP, few by their sum"

    @functools.cache
    def rest(done: int) -> float:
        low, high = 0.0, float(epsilon)
        for _ in range(16):
            middle = (low + high) / 2
            fits = cap.admits(times(one, done) + Cost.of(Epsilon(Fraction(middle))))
            low, high = (middle, high) if fits else (low, middle)
        return low

    assert best_stop(epsilon, admitted, each, rest) <= (1e-6 if epsilon == 8 else 1e-12)


@pytest.mark.parametrize(("count", "excess"), [(24, 1.8), (100, 7.5)])
def test_the_exact_composition_of_what_was_released_so_far_is_no_filter(count: int, excess: float) -> None:
    """It would admit a last release as long as the exact composition of all is at most delta."""
    epsilon = float(slots_epsilon(count, TENTH, delta=MILLIONTH))
    right = 1 / (1 + math.exp(-0.1))

    def exact_delta(done: int, last: float) -> float:
        masses = [math.comb(done, i) * right ** (done - i) * (1 - right) ** i for i in range(done + 1)]
        up = 1 / (1 + math.exp(-last))
        return sum(
            mass * chance * gain(epsilon, (done - 2 * i) * 0.1 + side * last)
            for i, mass in enumerate(masses)
            for side, chance in ((1, up), (-1, 1 - up))
        )

    @functools.cache
    def rest(done: int) -> float:
        excess_of = functools.partial(lambda last: exact_delta(done, last) - 1e-6)
        return epsilon if excess_of(epsilon) <= 0 else float(brentq(excess_of, 0, epsilon)) * (1 - 1e-9)

    assert exact_delta(count, 0.0) <= 1e-6 * (1 + 1e-9)
    assert best_stop(epsilon, count, 0.1, rest) > excess * 1e-6


@pytest.mark.parametrize("count", [24, 100])
def test_slots_are_a_filter_however_each_of_them_is_filled(count: int) -> None:
    epsilon = slots_epsilon(count, TENTH, delta=MILLIONTH)
    found = best_choice(float(epsilon), count, [Fraction(0), TENTH / 2, TENTH])
    assert 0.99e-6 < found <= 1e-6


def test_one_release_of_twice_the_size_is_no_pair_of_slots() -> None:
    """Two slots of 1/2 have a smaller delta than one release of 1, which no cap of slots therefore takes."""
    epsilon, half = 0.9, Fraction(1, 2)
    delta = best_choice(epsilon, 2, [Fraction(0), half])
    assert best_choice(epsilon, 1, [2 * half]) > 1.2 * delta
    cap = Cap(Fraction(9, 10), Fraction(delta) * Fraction(1001, 1000), Fraction(0), CapKind.SLOTS, slots=2, each=half)
    assert cap.admits(Cost.of(Epsilon(2 * half)), releases=2)
    assert cap.takes(Cost.of(Epsilon(half)))
    assert not cap.takes(Cost.of(Epsilon(2 * half)))


@pytest.mark.parametrize("epsilon", [1, 3])
def test_a_delta_that_thresholds_may_take_from_the_conversion_is_no_filter(epsilon: int) -> None:
    """Whoever sees a low loss would buy thresholds with all that the conversion then leaves; a fixed part is one."""
    rhos, delta = growing(gaussian_rho(epsilon, 1e-6), 12, 1.0), 1e-6

    def shifted(rho: float, after: Floats) -> Floats:
        used = gaussian_delta(rho, epsilon=epsilon) if rho else 0.0
        return low.before_leak(after, max(0.0, delta - used))

    low = LossGame(epsilon, sum(rhos), step=1e-3, upper=False)
    assert low.best(rhos, shifted) > 1.8 * delta

    thresholds = MILLIONTH / 4
    cap = Cap(Fraction(epsilon), MILLIONTH, Fraction(0), CapKind.GAUSSIAN, thresholds=thresholds)
    kept = growing(gaussian_rho(epsilon, 0.75e-6), 12, 1.0)
    whole = Cost(rho=Fraction(sum(kept)), delta=thresholds)
    assert cap.admits(whole)
    assert not cap.admits(whole + Cost(delta=thresholds / 1000))
    high = LossGame(epsilon, sum(kept), step=1e-3, upper=True)
    assert high.best(kept, lambda rho, after: high.before_leak(after, float(thresholds)), goes_on=True) <= delta


@pytest.mark.parametrize(("epsilon", "delta", "count", "factor", "step"), CAPS)
def test_another_cap_adds_its_delta_and_nearly_needs_it(
    epsilon: int, delta: float, count: int, factor: float, step: float
) -> None:
    """Gaussian noise under its exact curve, and at the best moment a change to a split that was fixed beforehand."""
    first = cap_of(epsilon, delta, CapKind.GAUSSIAN)
    split = Cap.split(Fraction(epsilon), Fraction(str(delta)), Fraction(0), pure=Fraction(epsilon, 2))
    assert split.rho
    shared = growing(float(split.rho), count, factor)
    further = growing(gaussian_rho(epsilon, delta) - float(split.rho), 4, 1.0)

    def found(*, upper: bool) -> float:
        game = LossGame(epsilon, sum(shared) + sum(further), step=step, upper=upper)
        value = game.at_the_end()
        for rho in reversed(further):
            value = game.before_gaussian(value, rho)
        after = game.at_the_end()
        value = np.maximum(value, game.before_pure(after, epsilon / 2))
        for rho in reversed(shared):
            after = game.before_gaussian(after, rho)
            value = np.maximum(game.before_gaussian(value, rho), game.before_pure(after, epsilon / 2))
        return float(value[game.half])

    assert 1.6 * delta < found(upper=False) <= found(upper=True) <= float(total_delta([first, split])) == 2 * delta


@pytest.mark.parametrize(("epsilon", "delta", "count", "factor", "step", "excess"), SETTINGS)
def test_a_split_whose_figures_follow_what_was_released_needs_the_sum_of_all_promises(
    epsilon: int, delta: float, count: int, factor: float, step: float, excess: float
) -> None:
    """The change keeps for pure costs what Gaussian noise has left at that moment: its moment chooses its figures."""
    cap = cap_of(epsilon, delta, CapKind.GAUSSIAN)
    rhos = growing(gaussian_rho(epsilon, delta), count, factor)

    def found(bound: float, *, upper: bool) -> float:
        game = LossGame(bound, sum(rhos), step=step, upper=upper)

        def change(rho: float, after: Floats) -> Floats:
            used = gaussian_epsilon(rho, delta=delta) if rho else 0.0
            return game.before_pure(after, max(0.0, epsilon - used))

        return game.best(rhos, change)

    whole = statement_of_any_changes([cap, cap])
    assert (
        found(epsilon, upper=False)
        > (excess - 0.3) * delta
        > 3 * float(total_delta([cap, cap_of(epsilon, delta, CapKind.ZCDP)]))
    )
    assert found(float(whole.epsilon), upper=True) <= float(whole.delta)


@pytest.mark.parametrize("delta", [MILLIONTH, Fraction(1, 100)])
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
    assert not cap_of(1, 1e-6, CapKind.ZCDP).admits_if_fixed(cost)


def test_a_pure_cost_without_its_zcdp_figure_is_no_bargain() -> None:
    assert (
        population_balance(Cost(epsilon=Fraction(1), rho=Fraction(1, 10**6)), delta=Fraction(1, 100)).epsilon
        == math.inf
    )
