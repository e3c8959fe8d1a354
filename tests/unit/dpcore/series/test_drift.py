"""Changes between months: false alarms are at most as frequent as stated, and planted drift is found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dpcore.drift import KINDS, REPEATS, alarms, dice, months

from dpcore.series.drift import LEVEL, DriftVerdict, Quantity, compare_quantities, critical_value, ratio_noise

LEVELS = [0.05, 0.01, 0.05 / 20, 0.05 / 200, 1e-6]


# ---------------------------------------------------------------- critical values


@pytest.mark.parametrize("level", LEVELS)
def test_the_reach_is_exactly_that_of_laplace_noise(level: float) -> None:
    assert math.exp(-math.sqrt(2) * critical_value(level)) == pytest.approx(level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
def test_sums_of_laplace_and_gaussian_noise_stay_within_the_reach(level: float, share: float) -> None:
    """The tail of the sum is computed by numerical integration over the Laplace part."""
    t, grid = critical_value(level), np.linspace(-60, 60, 240_001)
    b = math.sqrt(share / 2)
    if share in (0.0, 1.0):
        tail = math.erfc(t / math.sqrt(2)) if share == 0.0 else math.exp(-t / b)
    else:
        density = np.exp(-np.abs(grid) / b) / (2 * b)
        sd = math.sqrt(1 - share)
        upper = np.array([math.erfc((t - x) / (sd * math.sqrt(2))) / 2 for x in grid[::40]])
        tail = 2 * float(np.trapezoid(density[::40] * upper, grid[::40]))
    assert tail <= level * (1 + 1e-3)


@pytest.mark.parametrize("level", [0.0, -1.0, 0.06, 1.0, math.nan])
def test_a_level_for_which_the_rule_is_not_shown_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        critical_value(level)


def test_an_understated_noise_is_noticed_by_that_rate() -> None:
    """The test above has power: noise of twice the stated size raises far more alarms."""
    before, after = months("laplace", 20, dice())
    found = alarms(2 * before, 2 * after)
    assert (
        np.mean([any(c.verdict is not DriftVerdict.NOISE for c in changes.values()) for changes in found]) > 2 * LEVEL
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_drift_is_found_and_named(kind: str) -> None:
    found = alarms(*months(kind, 20, dice(), drift=12.0))
    assert np.mean([changes[0].verdict is DriftVerdict.DRIFT for changes in found]) >= 0.99
    others = np.mean([any(c.verdict is not DriftVerdict.NOISE for i, c in changes.items() if i) for changes in found])
    assert others <= LEVEL + 6 * math.sqrt(LEVEL / len(found))


def test_chance_explains_what_noise_does_not() -> None:
    """Two samples of one population differ by more than the noise, and the verdict is not drift."""
    rng = dice(9)
    before, after = (months("gaussian", 20, rng)[0] + 6 * rng.normal(size=(REPEATS // 20, 20)) for _ in range(2))
    found = alarms(before, after, chance=6.0)
    verdicts = [c.verdict for changes in found for c in changes.values()]
    assert np.mean([v is DriftVerdict.CHANCE for v in verdicts]) > 0.1
    rate = np.mean([any(c.verdict is DriftVerdict.DRIFT for c in changes.values()) for changes in found])
    assert rate <= LEVEL + 6 * math.sqrt(LEVEL / len(found))


# ---------------------------------------------------------------- properties

finite = st.floats(-1e9, 1e9)
sizes = st.floats(0, 1e9)
quantity = st.builds(Quantity, finite, sizes, sizes)


@given(before=quantity, after=quantity)
def test_a_comparison_does_not_depend_on_its_direction(before: Quantity, after: Quantity) -> None:
    there, back = (
        compare_quantities({"a": before}, {"a": after})["a"],
        compare_quantities({"a": after}, {"a": before})["a"],
    )
    assert (there.change, there.margin, there.verdict) == (-back.change, back.margin, back.verdict)


@given(value=finite, noise=sizes, chance=sizes)
def test_what_stays_the_same_is_never_marked(value: float, noise: float, chance: float) -> None:
    same = Quantity(value, noise, chance)
    assert compare_quantities({"a": same}, {"a": same})["a"].verdict is DriftVerdict.NOISE


@given(before=quantity, after=quantity, more=st.integers(1, 30))
def test_more_comparisons_mark_less(before: Quantity, after: Quantity, more: int) -> None:
    order = list(DriftVerdict)
    alone = compare_quantities({0: before}, {0: after})[0].verdict
    among = compare_quantities(dict.fromkeys(range(more), before), dict.fromkeys(range(more), after))[0].verdict
    assert order.index(among) <= order.index(alone)


def test_only_what_both_months_have_is_compared() -> None:
    one = Quantity(1.0, 1.0)
    assert list(compare_quantities({"a": one, "b": one}, {"b": one, "c": one})) == ["b"]
    assert compare_quantities({}, {}) == {}


@pytest.mark.parametrize("wrong", [(math.nan, 1, 1), (1, -1, 0), (1, math.inf, 0), (1, 0, -1), (math.inf, 1, 1)])
def test_a_quantity_without_a_size_is_refused(wrong: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        Quantity(*wrong)


def test_the_noise_of_a_ratio_holds_its_count() -> None:
    """The formula is compared with many draws of a noisy sum over a noisy count."""
    rng = dice(3)
    count, mean, sum_sd, count_sd = 5000.0, 0.8, 40.0, 60.0
    draws = (count * mean + sum_sd * rng.normal(size=200_000)) / (count + count_sd * rng.normal(size=200_000))
    stated = ratio_noise(sum_sd / count, offset=mean, count_sd=count_sd, count=count)
    assert float(draws.std()) == pytest.approx(stated, rel=0.02)
