"""The recipes of the PCA family's experiments, and what the papers' formulas say of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.common import Summary
from benchmarks.papers.components import directions as of
from benchmarks.papers.components.directions import Rows, leading_of, synthetic_rows, synthetic_spectrum
from benchmarks.papers.components.linear_machine import by_spectrum
from benchmarks.papers.components.pca import captured, components_above
from benchmarks.papers.components.ratios import (
    below_one,
    corrected_rows,
    counterexample,
    expected_theta,
    monotone,
    published_errors,
    published_theta,
)
from benchmarks.papers.components.two_classes import BEST_ERROR, error, two_gaussians
from dpcore.measurements.contribution import components_for_share

RNG = np.random.default_rng
SYNTHETIC = synthetic_rows(5_000)


def _two_gaussians() -> Rows:
    points, labels = two_gaussians(9_000)
    return Rows(points[:6_000], labels[:6_000], points[6_000:], labels[6_000:], points[:6_000], 10)


def test_ten_is_the_number_of_directions_at_90_per_cent_of_the_synthetic_variance() -> None:
    assert synthetic_spectrum().sum() == pytest.approx(1.0)
    assert components_for_share(synthetic_spectrum(), 0.9) == 10
    assert components_above(SYNTHETIC.second, 0.0) == 10


def test_synthetic_rows_lie_in_the_unit_ball_and_few_of_them_were_clipped() -> None:
    lengths = np.linalg.norm(SYNTHETIC.points, axis=1)
    assert lengths.max() <= 1 + 1e-12
    assert 0 < np.mean(lengths > 1 - 1e-9) < 0.01
    assert np.abs(SYNTHETIC.cube).max() <= 1


def test_eigenvalues_below_the_noise_do_not_count() -> None:
    assert components_above(np.diag([10.0, 1.0, 1.0, 1.0, -1.0]), 0.0) == 3
    assert components_above(np.diag([10.0, 1.0, 1.0, 1.0, -1.0]), 2.0) == 1


def test_exact_directions_capture_everything_and_random_ones_little() -> None:
    exact = leading_of(of.exact)(SYNTHETIC, 1.0, RNG(1))
    assert captured(SYNTHETIC.second, exact) == pytest.approx(1.0)
    assert captured(SYNTHETIC.second, of.random_directions(SYNTHETIC, 1.0, RNG(1))) < 0.3


def test_one_draw_of_a_noisy_spectrum_gives_both_bases() -> None:
    fixed, own = by_spectrum(of.published_ag)(SYNTHETIC, 1e6, RNG(1))
    assert fixed.shape[1] == 10
    assert own.shape[1] == components_for_share(synthetic_spectrum(), 0.85)
    assert np.allclose(own, fixed[:, : own.shape[1]])


def test_a_machine_along_exact_directions_of_two_gaussians_comes_near_the_best_error() -> None:
    rows = _two_gaussians()
    along_best = error(rows, leading_of(of.exact)(rows, 1.0, RNG(1)))
    assert 100 * BEST_ERROR - 1 < along_best < 100 * BEST_ERROR + 2
    assert error(rows, of.synthetic_basis()[:, -10:]) > 40


@pytest.mark.parametrize(("features", "rows", "components"), [(54, 2_000, 10), (40, 500, 2)])
def test_the_noise_ratio_of_a_draw_is_the_formula_s(features: int, rows: int, components: int) -> None:
    draws = [published_theta(features, rows, components, RNG(seed)) for seed in range(20)]
    assert np.mean(draws) == pytest.approx(expected_theta(features, rows, components), rel=0.05)


def test_the_published_rows_of_lip_are_nearer_than_those_of_lop_on_usual_rows() -> None:
    points = SYNTHETIC.points[:500]
    lip, lop = published_errors(points, 10, 1.0, RNG(1))
    assert lip < np.linalg.norm(points) < lop


def test_three_short_rows_contradict_theorem_4() -> None:
    assert counterexample(RNG(4)) > 2


def test_corrected_rows_have_noise_of_the_diameter_of_the_ball() -> None:
    points, components, epsilon = SYNTHETIC.points[:1_000], 4, 2.0
    whole, noise = corrected_rows(points, SYNTHETIC.second, components, epsilon)
    scale = 2 * math.sqrt(components) / epsilon
    assert noise == pytest.approx(scale * math.sqrt(2 * len(points) * components), rel=0.1)
    best = np.linalg.norm(points - points @ (basis := of.leading(SYNTHETIC.second, components)) @ basis.T)
    assert whole == pytest.approx(math.hypot(noise, best), rel=0.02)


def test_a_ratio_is_below_1_only_if_its_whole_interval_is() -> None:
    low, around, high = Summary(0.5, 0.4, 0.6, 10), Summary(0.9, 0.8, 1.0, 10), Summary(1.5, 1.4, 1.6, 10)
    assert below_one([low]) == below_one([low] * 9) == "yes"
    assert below_one([Summary(0.9, 0.805, 0.995, 10)]) == "yes"
    assert below_one([Summary(0.9, 0.805, 0.995, 10)] * 9) == "not shown"
    assert below_one([low, around]) == "not shown"
    assert below_one([low, around, high]) == "no"
    assert monotone([3.0, 2.0, 1.0], rising=False)
    assert not monotone([3.0, 1.0, 2.0], rising=False)
