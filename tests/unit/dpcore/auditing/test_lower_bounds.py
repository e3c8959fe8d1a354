"""Lower bounds on epsilon: exact intervals, no selection bias, no false alarms, and power."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.dpcore.samplers import generator

from dpcore.auditing.lower_bounds import lower_bound, lower_bound_of_parts, sample_lower_bound, weighted_lower_bound


@given(data=st.data(), trials=st.integers(1, 5000), error=st.sampled_from([1e-6, 1e-3, 0.05]))
def test_the_bound_is_that_of_two_exact_binomial_intervals(data: st.DataObject, trials: int, error: float) -> None:
    """The oracle is scipy's own Clopper-Pearson interval, whose two sides share the error."""
    hits, others = (data.draw(st.integers(0, trials)) for _ in range(2))
    delta = data.draw(st.sampled_from([0.0, 1e-6, 0.01]))
    low = stats.binomtest(hits, trials).proportion_ci(1 - error, "exact").low
    high = stats.binomtest(others, trials).proportion_ci(1 - error, "exact").high
    expected = max(0.0, math.log((low - delta) / high)) if low > delta else 0.0
    found = lower_bound(hits=hits, hits_neighbour=others, trials=trials, delta=delta, error=error)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_the_bound_of_a_certain_event_against_an_impossible_one_has_a_closed_form() -> None:
    """p >= (e/2)^(1/n) and q <= 1 - (e/2)^(1/n)."""
    edge = (1e-6 / 2) ** (1 / 1000)
    found = lower_bound(hits=1000, hits_neighbour=0, trials=1000)
    assert found == pytest.approx(math.log(edge / (1 - edge)), rel=1e-9)
    assert lower_bound(hits=0, hits_neighbour=1000, trials=1000) == 0


@pytest.mark.parametrize(
    ("hits", "others", "trials", "delta", "error"),
    [
        (-1, 0, 10, 0, 0.1),
        (11, 0, 10, 0, 0.1),
        (0, 11, 10, 0, 0.1),
        (0, 0, 0, 0, 0.1),
        (1, 1, 10, 1.0, 0.1),
        (1, 1, 10, 0, 0),
    ],
)
def test_impossible_counts_are_refused(hits: int, others: int, trials: int, delta: float, error: float) -> None:
    with pytest.raises(ValueError, match="must lie"):
        lower_bound(hits=hits, hits_neighbour=others, trials=trials, delta=delta, error=error)


@pytest.mark.parametrize("sizes", [(10, 12), (2, 2), (7, 7)])
def test_samples_of_other_sizes_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="same even size"):
        sample_lower_bound(np.zeros(sizes[0]), np.zeros(sizes[1]))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_the_audit_finds_the_epsilon_of_randomised_response_and_not_more(
    epsilon: float, mirrored: bool, swapped: bool
) -> None:
    """In either tail, and with either table as the likelier one."""
    rng = generator(3)
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    one, two = (rng.random(400_000) < p for p in (truth, 1 - truth))
    sign = -1.0 if mirrored else 1.0
    pair = (sign * one, sign * two)
    found = sample_lower_bound(*(pair[::-1] if swapped else pair))
    assert 0.93 * epsilon <= found <= epsilon


def test_the_audit_of_equal_mechanisms_errs_no_more_often_than_it_says() -> None:
    """If the event were counted on the samples that chose it, most of these bounds would be wrong."""
    rng, error, audits = generator(5), 0.05, 250
    alarms = sum(
        sample_lower_bound(rng.standard_normal(200), rng.standard_normal(200), error=error) > 0 for _ in range(audits)
    )
    assert stats.binomtest(alarms, audits, error, alternative="greater").pvalue > 1e-6


def test_a_delta_forgives_exactly_as_much_as_it_says() -> None:
    """One table reveals itself with probability 0.02: refuted at delta 0.01, not at delta 0.03."""
    rng = generator(6)
    one, two = (rng.random(100_000) for _ in range(2))
    one[rng.random(100_000) < 0.02] = 2.0
    assert sample_lower_bound(one, two) > 4
    assert sample_lower_bound(one, two, delta=0.01) > 3
    assert sample_lower_bound(one, two, delta=0.03) == 0


def test_bounds_of_independent_parts_add_and_share_the_error() -> None:
    parts = [(900, 300), (300, 900), (500, 500)]
    first = lower_bound(hits=900, hits_neighbour=300, trials=1000, error=1e-6 / 3)
    assert 0 < first < math.log(3)
    assert lower_bound_of_parts(parts, trials=1000) == pytest.approx(first)
    assert lower_bound_of_parts(parts[:1] * 3, trials=1000) == pytest.approx(3 * first)


def test_independent_parts_show_an_epsilon_that_no_single_event_could() -> None:
    """Twenty randomised responses of epsilon 1, whose conjunction is too rare to be sampled."""
    rng, truth = generator(7), math.e / (1 + math.e)
    counts = [tuple(int(rng.binomial(20_000, p)) for p in (truth, 1 - truth)) for _ in range(20)]
    assert 17 < lower_bound_of_parts([(a, b) for a, b in counts], trials=20_000) < 20


def test_bounds_of_equal_parts_err_no_more_often_than_they_say() -> None:
    rng, error, audits = generator(8), 0.05, 400
    alarms = sum(
        lower_bound_of_parts([(int(a), int(b)) for a, b in rng.binomial(500, 0.5, (10, 2))], trials=500, error=error)
        > 0
        for _ in range(audits)
    )
    assert stats.binomtest(alarms, audits, error, alternative="greater").pvalue > 1e-6


@given(hits=st.integers(0, 1000), others=st.integers(0, 1000), weights=st.floats(0, 30))
def test_known_weights_are_added_to_the_bound_of_the_counts(hits: int, others: int, weights: float) -> None:
    found = weighted_lower_bound(hits=hits, hits_neighbour=others, trials=1000, log_weights=weights)
    plain = lower_bound(hits=hits, hits_neighbour=others, trials=1000)
    if plain > 0:
        assert found == pytest.approx(plain + weights)
    assert 0 <= found <= plain + weights + 1e-9
