"""Histograms: noise of the promised scale."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.dpcore.histograms import AR, MECHANISMS, ONE
from support.dpcore.samplers import NEVER, has_scale

from dpcore.accounting import Budget
from dpcore.measure import measure_vector
from dpcore.mechanisms.queries import HistogramsQuery
from dpcore.mechanisms.vectors import HISTOGRAM_GAUSSIAN, PrivateVector
from dpcore.noise.sources import SystemNoise
from dpcore.records.schema import Neighbours

QUERY = HistogramsQuery((6000,) * 3, (ONE, ONE, ONE / 4), 2)


@functools.cache
def drawn_noise(mechanism: Any, budget: Budget, neighbours: Neighbours) -> np.ndarray:
    """Draw noise by the sampler that releases use."""
    event = mechanism.calibrate(QUERY, neighbours, budget)
    return measure_vector(PrivateVector(QUERY, [0] * QUERY.size), event, SystemNoise()).numbers()


@pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (0.9, False), (1.1, False)])
@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize(("mechanism", "budget"), MECHANISMS, ids=lambda x: getattr(x, "name", ""))
def test_noise_has_the_promised_scale(
    mechanism: Any, budget: Budget, neighbours: Neighbours, factor: float, fits: bool
) -> None:
    """Normal with sensitivity / sqrt(2 rho), or Laplace with sensitivity / epsilon."""
    drawn, both = drawn_noise(mechanism, budget, neighbours), 1 if neighbours is AR else 2
    if mechanism is HISTOGRAM_GAUSSIAN:
        law, scale = "norm", math.sqrt(both * 4 * (2 + 1 / 16) / (2 * 0.5))
    else:
        law, scale = "laplace", both * 2 * (2 + 1 / 4) / 2
    assert has_scale(drawn, law, scale * factor) is fits
    if fits:
        assert stats.kstest(drawn, law, args=(0, scale)).pvalue > NEVER
