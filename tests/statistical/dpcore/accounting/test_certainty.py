"""How sure a reader may become: checked by exact arithmetic, post-processing, adaptive draws and the mechanism."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from numpy.typing import NDArray
from scipy import integrate, optimize
from scipy.stats import binomtest, norm

from dpcore.accounting import Cost, Epsilon, Rho, group_delta, loss_tail, loss_tail_of_views, rho_of_epsilon
from dpcore.measure import PrivateGram, measure_gram
from dpcore.mechanisms.base import UNIT
from dpcore.mechanisms.gaussian import GAUSSIAN
from dpcore.mechanisms.registry import cost_of
from dpcore.noise.sources import SeededNoise
from dpcore.records.exact_sums import GramLayout, GramSum
from dpcore.records.schema import Neighbours

SETTINGS = [("1", 1e-6), ("0.1", 1e-6), ("3", 1e-9), ("10", 1e-5), ("0.5", 0.01)]


def gaussian_cost(epsilon: str, delta: float) -> Cost:
    return Cost.of(Rho(rho_of_epsilon(float(epsilon), delta=delta)))


def mu_of(cost: Cost) -> float:
    return math.sqrt(2 * float(cost.rho))


def hockey_stick(mu: float, epsilon: float) -> float:
    """The delta of two normal laws at distance mu, integrated where their ratio exceeds e^epsilon."""
    start = epsilon / mu + mu / 2
    gap = integrate.quad(lambda z: norm.pdf(z - mu) - math.exp(epsilon) * norm.pdf(z), start, start + 40, epsabs=0)
    return float(gap[0])


@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
def test_one_gaussian_draw_exceeds_epsilon_with_the_tail_of_its_loss(epsilon: str, delta: float) -> None:
    cost = gaussian_cost(epsilon, delta)
    found = loss_tail(cost, epsilon=Fraction(epsilon), gaussian_draws=1)
    with ctx.workprec(300):
        mu, x = (2 * arb(cost.rho.numerator) / cost.rho.denominator).sqrt(), arb(epsilon)
        exact = ((x / mu - mu / 2) / arb(2).sqrt()).erfc() / 2
        assert exact <= arb(found) <= exact * (1 + arb("1e-9"))
    assert found > 3 * delta, "it is not delta"


def test_the_figures_of_the_guarantee() -> None:
    """GUARANTEE.md, "How sure a reader may become": all at epsilon 1 and delta 1e-6."""
    cost, one = gaussian_cost("1", 1e-6), Fraction(1)
    assert loss_tail(cost, epsilon=one, gaussian_draws=1) == pytest.approx(2.01e-5, rel=1e-3)
    assert loss_tail_of_views(cost, epsilon=one) == pytest.approx(5.2e-5, rel=0.01)
    assert group_delta(cost, epsilon=one, size=10) == pytest.approx(4.8e-4, rel=0.01)
    assert group_delta(cost, epsilon=one, size=30) == pytest.approx(0.21, rel=0.01)


@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
def test_a_coarser_view_convinces_more_often_and_never_beyond_its_bound(epsilon: str, delta: float) -> None:
    """The function "is the loss above t?", with the smallest t for which a yes has a loss of epsilon itself."""
    cost, x = gaussian_cost(epsilon, delta), float(epsilon)
    mu = mu_of(cost)

    def above(t: float) -> float:
        """The loss of a yes minus epsilon."""
        return float(norm.logsf(t / mu - mu / 2) - norm.logsf(t / mu + mu / 2)) - x

    threshold = optimize.brentq(above, -x - 10, x)
    convinced = float(norm.sf(threshold / mu - mu / 2))
    bound = loss_tail_of_views(cost, epsilon=Fraction(epsilon))
    assert 0.999 * bound <= convinced <= bound
    assert convinced > 2 * loss_tail(cost, epsilon=Fraction(epsilon), gaussian_draws=1)


@pytest.mark.parametrize(("epsilon", "rho"), [("1", "1/8"), ("2", "1/2"), ("0.5", "1/10")])
def test_draws_whose_size_follows_earlier_outcomes_convince_more_often_than_one(epsilon: str, rho: str) -> None:
    """Stopping once the loss is high nearly attains its maximum, which the bound for several draws covers."""
    steps, paths = 60, 100_000
    dice, each = np.random.Generator(np.random.PCG64(5)), float(Fraction(rho)) / steps
    loss = np.zeros(paths)
    for _ in range(steps):
        going_on = loss <= float(epsilon)
        loss += going_on * (each + math.sqrt(2 * each) * dice.standard_normal(paths))
    convinced = binomtest(int((loss > float(epsilon)).sum()), paths).proportion_ci(1 - 1e-9, "exact")
    cost = Cost.of(Rho(Fraction(rho)))
    one, several = (loss_tail(cost, epsilon=Fraction(epsilon), gaussian_draws=draws) for draws in (1, 2))
    assert one < convinced.low <= several


@pytest.mark.parametrize(("pure", "rho", "epsilon"), [("0.5", "1/20", "1"), ("0.2", "1/2", "2"), ("0.9", "1/100", "1")])
def test_randomised_response_beside_gaussian_noise_stays_below_the_bound(pure: str, rho: str, epsilon: str) -> None:
    cost = Cost.of(Epsilon(Fraction(pure))) + Cost.of(Rho(Fraction(rho)))
    mu, e, x = mu_of(cost), float(Fraction(pure)), float(Fraction(epsilon))
    exact = sum(norm.sf((x - side * e) / mu - mu / 2) / (1 + math.exp(-side * e)) for side in (-1, 1))
    bound = loss_tail(cost, epsilon=Fraction(epsilon), gaussian_draws=1)
    assert exact <= bound <= loss_tail_of_views(cost, epsilon=Fraction(epsilon))
    assert bound == pytest.approx(float(norm.sf((x - e) / mu - mu / 2)), rel=1e-6), "pure costs are counted in full"


def test_many_pure_costs_that_were_stated_as_zcdp_are_bounded_by_it() -> None:
    """100 times 0.1 at epsilon 4: the loss is a random walk with steps +-0.1."""
    cost = sum((Cost.of(Epsilon(Fraction(1, 10))) for _ in range(100)), Cost())
    ups = np.arange(101)
    exact = sum(math.comb(100, k) * (1 / (1 + math.exp(-0.1))) ** k * (1 / (1 + math.exp(0.1))) ** (100 - k)
                for k in ups if (2 * k - 100) * 0.1 > 4 + 1e-9)  # fmt: skip
    found = loss_tail(cost, epsilon=Fraction(4), gaussian_draws=0)
    rho = 100 * 0.1**2 / 2
    assert exact <= found <= math.exp(-((4 - rho) ** 2) / (4 * rho)) * (1 + 1e-9)
    assert loss_tail_of_views(cost, epsilon=Fraction(4)) >= exact


def test_pure_costs_alone_never_exceed_their_sum() -> None:
    cost = Cost.of(Epsilon(Fraction(1)))
    figures = (loss_tail(cost, epsilon=Fraction(1), gaussian_draws=0), loss_tail_of_views(cost, epsilon=Fraction(1)))
    assert (*figures, group_delta(cost, epsilon=Fraction(1), size=10)) == (0, 0, 0)


@pytest.mark.parametrize("size", [1, 2, 10, 30])
def test_a_group_has_the_delta_of_noise_at_its_own_distance(size: int) -> None:
    cost = gaussian_cost("1", 1e-6)
    exact = hockey_stick(size * mu_of(cost), float(size))
    assert exact * (1 - 1e-6) <= group_delta(cost, epsilon=Fraction(1), size=size) <= exact * (1 + 1e-6)
    mixed = cost + Cost.of(Epsilon(Fraction(1, 2)))
    apart = hockey_stick(size * mu_of(cost), float(size))  # the pure costs take the other half of 1.5
    assert group_delta(mixed, epsilon=Fraction(3, 2), size=size) <= apart * (1 + 1e-6)


def worst_records() -> list[NDArray[np.float64]]:
    """Two orthogonal records (1/2, y) with y of length 1: they attain S2."""
    return [np.array([0.5, 1.0, 0.0]), np.array([0.5, -0.25, math.sqrt(15) / 4])]


def test_the_mechanism_convinces_as_often_as_is_stated() -> None:
    """Noisy Gram matrices of a table with one record of the worst pair; the reader computes the odds."""
    cost = gaussian_cost("1", 0.05)
    event = GAUSSIAN.calibrate(GramLayout(3, 1, Fraction(1, 2)), Neighbours.REPLACE_ONE, Rho(cost.rho))
    true, other = (np.outer(z, z) for z in worst_records())
    total, noise, draws = GramSum(event.layout), SeededNoise(11), 2000
    total.blocks[0] = np.rint(true * UNIT).astype(np.int64).astype(object)
    seen = np.array([measure_gram(PrivateGram(total), event, noise).matrices()[0] for _ in range(draws)])
    distances = [((seen - gram) ** 2).sum(axis=(1, 2)) for gram in (true, other)]
    odds = np.exp((distances[1] - distances[0]) / (2 * (float(event.noise) / UNIT) ** 2))
    surer = int((odds / (1 + odds) > 1 / (1 + math.exp(-1))).sum())
    stated = loss_tail(cost_of(event), epsilon=Fraction(1), gaussian_draws=1)
    assert binomtest(surer, draws, stated).pvalue > 1e-6
    assert binomtest(surer, draws, 0.05, "greater").pvalue < 1e-9, "as delta it would be false"


LEAK = Fraction(1, 1000)


def test_thresholds_convince_as_often_as_they_leak() -> None:
    """One that shows everything with probability delta, and else a randomised response."""
    cost = Cost.of(Epsilon(Fraction(1, 2))) + Cost(delta=LEAK)
    for tail in (loss_tail(cost, epsilon=Fraction(4), gaussian_draws=0), loss_tail_of_views(cost, epsilon=Fraction(4))):
        assert LEAK <= tail <= LEAK * Fraction(104, 100)
    assert loss_tail_of_views(cost, epsilon=Fraction(1, 2)) > 3 * LEAK, "a view may lift others over its epsilon"


@pytest.mark.parametrize(("pure", "rho"), [("0", "1/20"), ("1/2", "1/20"), ("2", "0")])
def test_thresholds_only_raise_the_odds_of_what_else_is_released(pure: str, rho: str) -> None:
    epsilon = Fraction(pure)
    cost = Cost(rho=Fraction(rho), epsilon=epsilon, rho_of_pure=epsilon**2 / 2)
    for limit in (Fraction(1), Fraction(3)):
        plain, leaky = (
            [
                loss_tail(one, epsilon=limit, gaussian_draws=2),
                loss_tail_of_views(one, epsilon=limit),
                group_delta(one, epsilon=limit, size=3),
            ]
            for one in (cost, cost + Cost(delta=LEAK))
        )
        assert all(more > less or less == 1 for less, more in zip(plain, leaky, strict=True))
        assert all(more - less >= LEAK * 0.999 or more == 1 for less, more in zip(plain[1:], leaky[1:], strict=True))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_group_has_the_leaks_of_a_chain_of_neighbours(size: int) -> None:
    """From one table to that without the group, each step may add delta to what e^epsilon times the next explains."""
    epsilon = 0.3
    chained = 0.0
    for _ in range(size):
        chained = math.exp(epsilon) * chained + float(LEAK)
    cost = Cost.of(Epsilon(Fraction("0.3"))) + Cost(delta=LEAK)
    found = group_delta(cost, epsilon=Fraction("0.3"), size=size)
    assert chained <= found <= chained * math.exp(epsilon * (size - 1) / 2) * (1 + 1e-9)


@pytest.mark.parametrize("rho", ["0", "1/1000"])
def test_a_pure_cost_without_its_zcdp_figure_gives_no_odds(rho: str) -> None:
    cost = Cost(epsilon=Fraction(2), rho=Fraction(rho))
    assert loss_tail(cost, epsilon=Fraction(1), gaussian_draws=1) == 1
    assert loss_tail_of_views(cost, epsilon=Fraction(1)) == 1
    assert group_delta(cost, epsilon=Fraction(1), size=2) == 1
    assert loss_tail(cost, epsilon=Fraction(5, 2), gaussian_draws=1) == loss_tail(
        Cost.of(Epsilon(Fraction(2))) + Cost(rho=Fraction(rho)), epsilon=Fraction(5, 2), gaussian_draws=1
    )
