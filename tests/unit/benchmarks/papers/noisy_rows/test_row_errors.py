"""Noisy rows of the papers' experiments: the invented table, and the baselines on raw cells."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from benchmarks.papers.noisy_rows import heights, row_errors

RNG = np.random.default_rng


def test_the_invented_men_follow_the_recipe() -> None:
    men = np.concatenate([heights.invent_men(f"{seed:04x}") for seed in range(50)])
    assert np.corrcoef(men.T)[0, 1] == pytest.approx(0.84, abs=0.02)
    assert men.mean(axis=0) == pytest.approx([175, 75], abs=0.5)
    assert ((men >= heights.LOWER) & (men <= heights.UPPER)).all()


def test_noise_on_both_cells_has_the_error_of_its_formula() -> None:
    men = np.concatenate([heights.invent_men(f"{seed:04x}") for seed in range(1)])
    errors = [heights.squared_error(men, heights.WAYS[heights.CELLS](men, 2.0)) for _ in range(40)]
    assert np.mean(errors) == pytest.approx(heights.expected_error_on_cells(2.0), rel=0.2)  # 4,000 rows, 8,000 draws


@pytest.mark.parametrize("centre", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_the_truncated_law_is_a_laplace_law_within_the_unit_interval(centre: float, scale: float) -> None:
    drawn = row_errors.truncated_laplace(np.full(20_000, centre), scale, RNG(1).random(20_000))
    law = stats.laplace(centre, scale)
    inside = law.cdf(1) - law.cdf(0)
    assert stats.kstest(drawn, lambda x: (law.cdf(np.clip(x, 0, 1)) - law.cdf(0)) / inside).pvalue > 1e-6
    wider = stats.laplace(centre, 1.3 * scale)
    mass = wider.cdf(1) - wider.cdf(0)
    if scale < 1:  # a wide law is nearly uniform, whatever its scale
        assert stats.kstest(drawn, lambda x: (wider.cdf(np.clip(x, 0, 1)) - wider.cdf(0)) / mass).pvalue < 1e-6


def test_laplace_noise_on_raw_cells_has_the_true_scale() -> None:
    zeros = np.zeros((20_000, 1))
    noise = row_errors.laplace_cells(zeros, 5, 5, 0.5, RNG(2))
    assert np.abs(noise).mean() == pytest.approx((5 + 2 * 5) / 0.5, rel=0.05)
    assert row_errors.squared_error(zeros, row_errors.clamped(noise)) <= 1
