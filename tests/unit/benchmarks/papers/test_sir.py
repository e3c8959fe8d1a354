"""The ratio of sensitivity gain to information loss, and the four ways to state it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers.sir import (
    DIMENSIONS,
    LINEAR,
    NOISE,
    SQUARED,
    best_note,
    operator_noise,
    rank_note,
    ratio,
    ratios,
)
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


def test_a_ratio_ranks_the_dimensions_only_if_the_utility_follows_it() -> None:
    falling = [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    assert "ranks the dimensions by Y's utility, as the dimension alone does" in rank_note("x", falling, "Y", falling)
    assert "ranks in the opposite order the dimensions" in rank_note("x", falling, "Y", falling[::-1])
    assert "is not shown to rank" in rank_note("x", falling, "Y", [1.0, 3.0, 2.0, 3.1, 2.5, 1.5, 2.2])


def test_dimensions_with_the_same_utility_are_named_together() -> None:
    utility = [[0.2, 0.21, 0.19], [0.21, 0.19, 0.2], *([[0.01, 0.02, 0.01]] * 5)]
    assert best_note("Y", utility) == "Y: not shown to be worse than the best are 2, 4 dimensions."
