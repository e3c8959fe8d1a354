"""Histograms: noise of the promised scale."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.dpcore.histograms import AR, MECHANISMS, ONE

from dpcore.accounting import Budget
from dpcore.measure import measure_vector
from dpcore.noise import SystemNoise
from dpcore.queries import HistogramsQuery
from dpcore.schema import Neighbours
from dpcore.vectors import HISTOGRAM_GAUSSIAN, PrivateVector


@pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (0.9, False), (1.1, False)])
@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize(("mechanism", "budget"), MECHANISMS, ids=lambda x: getattr(x, "name", ""))
def test_noise_has_the_promised_scale(
    mechanism: Any, budget: Budget, neighbours: Neighbours, factor: float, fits: bool
) -> None:
    """By the release's own sampler: normal with sensitivity / sqrt(2 rho), or Laplace with sensitivity / epsilon.

    Absolute values, whose law tells scales apart better: one that is wrong by a tenth passes once in 10^9 runs.
    """
    query = HistogramsQuery((4000,) * 3, (ONE, ONE, ONE / 4), 2)
    event = mechanism.calibrate(query, neighbours, budget)
    both = 1 if neighbours is AR else 2
    if mechanism is HISTOGRAM_GAUSSIAN:
        law, scale = "halfnorm", math.sqrt(both * 4 * (2 + 1 / 16) / (2 * 0.5))
    else:
        law, scale = "expon", both * 2 * (2 + 1 / 4) / 2
    drawn = np.abs(measure_vector(PrivateVector(query, [0] * query.size), event, SystemNoise()).numbers())
    likely = stats.kstest(drawn, law, args=(0, scale * factor)).pvalue
    assert (likely > 1e-9) if fits else (likely < 1e-4)
