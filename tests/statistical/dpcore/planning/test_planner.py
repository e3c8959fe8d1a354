"""Planning: the predicted errors agree with those of releases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.dpcore.planning import plan
from support.dpcore.strategies import schema_with

from dpcore.measure import PrivateGram, measure_gram
from dpcore.noise.sources import SeededNoise
from dpcore.records.exact_sums import GramSum


@pytest.mark.parametrize("mechanism", ["wishart-difference-trace", "wishart-difference", "laplace"])
def test_the_predicted_error_is_that_of_releases(mechanism: str) -> None:
    """250 seeded measurements of an empty table of two classes: the count and one mean, in the plan's units."""
    decided = plan(schema=schema_with(label=True), dimension=2, mechanism=mechanism)
    predicted, layout = decided.expected_error(), decided.event.layout
    gram, noise = PrivateGram(GramSum(layout)), SeededNoise(5)
    counts, means, norms = [], [], []
    s = float(layout.count_weight)
    for _ in range(250):
        blocks = measure_gram(gram, decided.event, noise).matrices()
        counts.append(blocks[:, 0, 0].sum() / s**2)
        means.append(blocks[:, 0, 1].sum() / s / decided.expected_rows)
        norms.append(np.linalg.norm(blocks, axis=(1, 2)))
    assert math.sqrt(np.mean(np.square(norms))) == pytest.approx(predicted["frobenius"], rel=0.12)
    assert np.std(means) == pytest.approx(predicted["mean_sd"], rel=0.25)
    assert set(predicted) == {
        "frobenius",
        "operator",
        "count_sd",
        "mean_sd",
        "relative_operator",
        "signal_to_noise",
        "sir",
    }
    if mechanism == "laplace":  # the Wishart noise of different blocks is correlated by the trace factor
        assert np.std(counts) == pytest.approx(predicted["count_sd"], rel=0.25)
