"""The ratio of sensitivity gain to information loss, and the four ways to state it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers.sir import DIMENSIONS, LINEAR, NOISE, SQUARED, operator_noise, ratio, ratios
from dpcore.records.schema import IntervalColumn, Kind, RecordSchema

SPECTRUM = np.array([4.0, 3.0, 2.0, 1.0])


def test_the_ratio_is_one_without_a_projection() -> None:
    assert ratio(1.0, SPECTRUM, 4) == pytest.approx(1.0)


def test_the_gain_counts_for_the_share_of_variance_that_is_kept() -> None:
    assert ratio(4 / 2, SPECTRUM, 2) == pytest.approx(2 * 0.7)


def test_less_noise_is_added_in_fewer_dimensions() -> None:
    assert operator_noise(4) < operator_noise(16) < operator_noise(64)


def test_the_papers_ratios_differ_by_the_gain_and_favour_few_dimensions() -> None:
    width = 150
    schema = RecordSchema(
        tuple(IntervalColumn(name=f"x{i}", kind=Kind.NUMERIC, lower=-1, upper=1) for i in range(width))
    )
    cube = np.clip(np.random.default_rng(3).normal(scale=0.3, size=(4_000, width)), -1, 1)
    found = ratios(schema, cube)
    gains = [width / p for p in DIMENSIONS]
    assert np.allclose(np.array(found[SQUARED]) / found[LINEAR], gains)
    assert np.all(np.diff(found[SQUARED]) < 0)
    assert all(value > 0 for value in found[NOISE])
