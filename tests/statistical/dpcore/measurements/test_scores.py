"""Budgeted checks: the noise has the promised scale, and the audit detects too little noise."""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from support.dpcore.samplers import NEVER, has_scale
from support.dpcore.scores import MECHANISMS, QUERIES, R1

from dpcore.accounting import gaussian_epsilon, release_statement
from dpcore.auditing.lower_bounds import sample_lower_bound
from dpcore.measurements.scores import ACCURACY, SILHOUETTE
from dpcore.mechanisms.queries import GRID
from dpcore.mechanisms.registry import cost_of, vector_mechanism
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.noise.sources import SystemNoise

# ---- noise and cost --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (0.9, False), (1.1, False)])
def test_noise_has_the_promised_scale(name: str, factor: float, fits: bool) -> None:
    """Laplace with scale n / epsilon, or normal with n / sqrt(2 rho)."""
    event = vector_mechanism(name).calibrate(QUERIES[ACCURACY], R1, MECHANISMS[name])
    drawn = scores_drawn(event, 0.0, 20_000)
    law, scale = ("laplace", 1 / 2) if name == "score-laplace" else ("norm", 1.0)
    assert has_scale(drawn, law, scale * factor) is fits
    if fits:
        assert stats.kstest(drawn, law, args=(0, scale)).pvalue > NEVER


@functools.cache
def scores_drawn(event: VectorEvent, score: float, draws: int) -> np.ndarray:
    """Draw many noisy results for a single record with this score, by the sampler that releases use."""
    answers = [round(score * GRID)] * draws
    return np.array(vector_mechanism(event.mechanism).draw(answers, event, SystemNoise()), dtype=np.float64) / GRID


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_audit_finds_no_more_than_is_claimed_and_catches_half_the_sensitivity(name: str) -> None:
    """Half the sensitivity: scores from -1 to 1, as the silhouette is usually defined, with noise for [0, 1]."""
    event, delta = vector_mechanism(name).calibrate(QUERIES[SILHOUETTE], R1, MECHANISMS[name]), 0.0
    claimed = float(release_statement(cost_of(event), delta=Fraction(0)).epsilon)
    if name == "score-gaussian":
        delta = 1e-2
        claimed = gaussian_epsilon(0.5, delta=delta)
    right, wrong, worse = (scores_drawn(event, score, 20_000) for score in (1.0, 0.0, -1.0))
    honest = sample_lower_bound(right, wrong, delta=delta, error=1e-6)
    caught = sample_lower_bound(right, worse, delta=delta, error=1e-6)
    assert 0.3 * claimed < honest <= claimed < caught
