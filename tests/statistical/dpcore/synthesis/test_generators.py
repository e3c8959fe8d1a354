"""Generators: margins have the stated coverage."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from support.dpcore.strategies import pipeline

from dpcore.accounting import Rho
from dpcore.evaluation.utility import MeasuredSummary
from dpcore.measure import PrivateGram, measure_gram
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.mechanisms.expected_noise import count_and_sum_noise
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SeededNoise
from dpcore.records.exact_sums import GramSum
from dpcore.records.schema import Cells, IntervalColumn, Kind, Neighbours, RecordSchema
from dpcore.synthesis.generators import ClassGaussians


@pytest.mark.parametrize(("value", "share"), [(50.0, 0.95), (95.0, None)])
def test_a_margin_is_of_the_sum_and_the_noise_of_the_count_comes_on_top(value: float, share: float | None) -> None:
    """Margins cover 95 % of the means midway between the bounds, and far fewer near a bound.

    The mean is a noisy sum over a noisy count: at position y it has the noise of the sum and y times that of the count.
    """
    columns = tuple(IntervalColumn(name=n, kind=Kind.NUMERIC, lower=0.0, upper=100.0) for n in ("a", "b"))
    pipe = pipeline(RecordSchema(columns), dimension=None, s=Fraction(1, 2))
    cells: Cells = {"a": np.full(1000, value), "b": np.full(1000, value)}
    total = GramSum(pipe.layout)
    total.add(pipe.records(cells), pipe.encoding.classes(cells))
    event = gram_mechanism("gaussian").calibrate(pipe.layout, Neighbours.REPLACE_ONE, Rho(Fraction(1)))
    inside, draws = 0, 800
    for seed in range(draws):
        moments = NoisyMoments.from_released(measure_gram(PrivateGram(total), event, SeededNoise(seed)))
        shown = MeasuredSummary.of(pipe.encoding, ClassGaussians(moments, pipe.projection)).column(columns[0])
        inside += abs(shown["mean"] - value) <= shown["mean_margin"]
    count_sd, sum_sd = count_and_sum_noise(event)
    position = (value - 50) / 50 / math.sqrt(2)  # two columns share the unit ball
    due = 2 * norm.cdf(1.959964 * sum_sd / math.hypot(sum_sd, position * count_sd)) - 1
    assert binomtest(inside, draws, due).pvalue > 1e-6
    assert due == pytest.approx(share) if share else due < 0.8
