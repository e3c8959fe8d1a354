"""Shrinkage by the known size of the noise: the identity without noise, and a smaller error with it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.dpcore.samplers import generator

from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.measure import PrivateGram, measure_gram
from dpcore.measurements.noisy_moments import nearest_covariance
from dpcore.measurements.projection import haar_basis
from dpcore.measurements.shrinkage import (
    Directions,
    MatrixNoise,
    certain_directions,
    denoised_covariance,
    shared_covariance,
    shrunk_offsets,
)
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SeededNoise
from dpcore.records.exact_sums import GramLayout, GramSum
from dpcore.records.schema import Neighbours

NOTHING = MatrixNoise(0.0, 0.0)


def symmetric_noise(size: int, entry: float, rng: np.random.Generator) -> np.ndarray:
    square = rng.standard_normal((size, size)) * entry
    return (square + square.T) / np.sqrt(2)


def gaussian_noise(size: int, entry: float) -> MatrixNoise:
    return MatrixNoise(entry, 2 * entry * np.sqrt(size))


# ---- the size of the noise ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "budget"), [("gaussian", Rho(Fraction(1, 30))), ("wishart-difference-trace", Epsilon(Fraction(1)))]
)
def test_the_stated_noise_is_that_of_drawn_measurements(name: str, budget: Budget) -> None:
    layout = GramLayout(31, 2, Fraction(1, 2))
    event = gram_mechanism(name).calibrate(layout, Neighbours.REPLACE_ONE, budget)
    drawn = [measure_gram(PrivateGram(GramSum(layout)), event, SeededNoise(s)).matrices() for s in range(6)]
    for blocks in (1, 2):
        stated = MatrixNoise.on_points(event, 30, blocks)
        points = [d[:blocks].sum(axis=0)[1:, 1:] for d in drawn]
        entries = np.concatenate([p[np.triu_indices(30, 1)] for p in points])
        assert np.std(entries) == pytest.approx(stated.entry, rel=0.1)
        edge = np.mean([np.abs(np.linalg.eigvalsh(p)).max() for p in points])
        assert 0.8 * stated.edge < edge < 1.05 * stated.edge  # the sum of blocks has lighter tails than one
    assert stated.over(10).entry == pytest.approx(stated.entry / 10)


# ---- covariances ----------------------------------------------------------------------------------


squares = st.integers(1, 6).flatmap(lambda p: hnp.arrays(np.float64, (p, p), elements=st.floats(-5, 5)))


@given(factor=squares)
def test_without_noise_a_covariance_stays_as_it_is(factor: np.ndarray) -> None:
    covariance = factor @ factor.T
    assert denoised_covariance(covariance, NOTHING) == pytest.approx(covariance, abs=1e-7)


@given(matrix=squares, entry=st.sampled_from([0.0, 0.1, 1.0, 100.0]))
def test_whatever_comes_in_a_covariance_comes_out(matrix: np.ndarray, entry: float) -> None:
    noisy = (matrix + matrix.T) / 2
    found = denoised_covariance(noisy, gaussian_noise(len(noisy), entry))
    assert np.array_equal(found, found.T)
    assert np.linalg.eigvalsh(found)[0] >= -1e-9


def low_rank_table(size: int) -> np.ndarray:
    """Three strong directions over columns of different variances."""
    basis = haar_basis(size, 3, generator(4))
    return (basis * [1.0, 0.6, 0.4]) @ basis.T + np.diag(np.linspace(0.01, 0.05, size))


@pytest.mark.parametrize("entry", [0.005, 0.02, 0.05])
def test_the_denoised_covariance_is_nearer_to_the_truth_than_the_nearest_one(entry: float) -> None:
    size = 40
    truth, rng = low_rank_table(size), generator(7)
    plain, better = [], []
    for _ in range(10):
        noisy = truth + symmetric_noise(size, entry, rng)
        plain.append(np.linalg.norm(nearest_covariance(noisy) - truth))
        better.append(np.linalg.norm(denoised_covariance(noisy, gaussian_noise(size, entry)) - truth))
    assert np.mean(better) < 0.9 * np.mean(plain)


def test_pure_noise_becomes_a_covariance_without_directions() -> None:
    size, entry = 40, 0.05
    noisy = np.eye(size) / size + symmetric_noise(size, entry, generator(9))
    found = denoised_covariance(noisy, gaussian_noise(size, entry))
    assert np.array_equal(found, np.diag(np.diag(found)))


# ---- class means ----------------------------------------------------------------------------------


def test_without_noise_offsets_stay_and_with_endless_noise_they_vanish() -> None:
    offsets, spread = generator(1).standard_normal((3, 4)) / 4, np.diag([1.0, 0.5, 0.2, 0.1])
    assert shrunk_offsets(offsets, np.zeros(3), spread) == pytest.approx(offsets, abs=1e-12)
    assert not shrunk_offsets(offsets, np.full(3, np.inf), spread).any()
    one_empty = shrunk_offsets(offsets, np.array([0.0, np.inf, 0.0]), spread)
    assert one_empty[[0, 2]] == pytest.approx(offsets[[0, 2]], abs=1e-12)
    assert not one_empty[1].any()


def test_offsets_are_shortened_most_where_the_table_hardly_varies() -> None:
    """The result is nearer to the truth than if all directions were shrunk alike."""
    rng, spread = generator(2), np.diag(np.geomspace(1.0, 0.001, 30))
    known, alike = [], []
    for _ in range(20):
        truth = rng.standard_normal((10, 30)) * np.sqrt(np.diag(spread) * 0.3)
        noisy, variances = truth + 0.1 * rng.standard_normal(truth.shape), np.full(10, 0.01)
        known.append(np.linalg.norm(shrunk_offsets(noisy, variances, spread) - truth))
        alike.append(np.linalg.norm(shrunk_offsets(noisy, variances, np.eye(30) * 0.1) - truth))
    assert np.mean(known) < 0.8 * np.mean(alike)


def test_directions_are_certain_only_if_all_of_them_rise_above_the_noise() -> None:
    offsets = np.array([[3.0, 0, 0, 0], [0, 0.5, 0, 0], [-3.0, -0.5, 0, 0]])
    sure = certain_directions(offsets, 100 * offsets, 1.0)
    assert sure is not None
    assert np.abs(sure.columns[2:]).max() < 1e-12
    assert sure.columns.T @ sure.columns == pytest.approx(np.eye(2))
    assert certain_directions(offsets, 100 * offsets, 20.0) is None
    assert certain_directions(offsets[:1], offsets[:1], 0.0) is None


# ---- the covariance that classes share ------------------------------------------------------------


def test_without_noise_the_shared_covariance_stays_as_it_is() -> None:
    truth = low_rank_table(12)
    directions = Directions(haar_basis(12, 2, generator(5)), np.zeros(2))
    assert shared_covariance(truth, NOTHING, directions) == pytest.approx(truth, abs=1e-9)
    assert shared_covariance(truth, NOTHING, None) == pytest.approx(truth, abs=1e-9)


def test_a_direction_below_the_edge_is_seen_where_class_means_point_to_it() -> None:
    size, entry = 40, 0.05
    directions, rng = Directions(haar_basis(size, 2, generator(6)), np.full(2, 0.1)), generator(3)
    truth = (directions.columns * 0.5) @ directions.columns.T + np.eye(size) * 0.01
    noise = gaussian_noise(size, entry)
    assert noise.edge > 0.5
    known, unknown = [], []
    for _ in range(10):
        noisy = truth + symmetric_noise(size, entry, rng)
        known.append(np.linalg.norm(shared_covariance(noisy, noise, directions) - truth))
        unknown.append(np.linalg.norm(shared_covariance(noisy, noise, None) - truth))
    assert np.mean(known) < 0.5 * np.mean(unknown)


def test_directions_that_noise_has_turned_do_not_make_others_hang_together() -> None:
    """Relative to a slightly tilted direction, a covariance along the true one has spurious cross entries."""
    size, angle, noise = 30, 0.2, gaussian_noise(30, 0.002)
    true, aside = haar_basis(size, 2, generator(8)).T
    turned = (np.cos(angle) * true + np.sin(angle) * aside)[:, None]
    matrix = 0.5 * np.outer(true, true) + np.eye(size) * 0.01
    outside = np.eye(size) - turned @ turned.T
    across = [outside @ shared_covariance(matrix, noise, Directions(turned, np.array([t]))) @ turned for t in (0, 0.3)]
    assert np.linalg.norm(across[0]) > 0.05
    assert np.linalg.norm(across[1]) < 1e-9
