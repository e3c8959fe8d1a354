"""Post-processing of a measurement: nearest covariances, exact recovery, and error that falls with n and epsilon."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import optimize
from support.dpcore.samplers import generator

from dpcore.accounting import Epsilon
from dpcore.measure import PrivateGram, Released, measure_gram
from dpcore.measurements.noisy_moments import ClassMoments, NoisyMoments, nearest_covariance
from dpcore.measurements.shrinkage import MatrixNoise
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SeededNoise
from dpcore.records.exact_sums import GramLayout, GramSum, integer_records
from dpcore.records.schema import Neighbours

squares = st.integers(1, 6).flatmap(lambda p: hnp.arrays(np.float64, (p, p), elements=st.floats(-5, 5)))


@given(matrix=squares)
def test_the_repaired_matrix_is_a_covariance_with_the_measured_trace(matrix: np.ndarray) -> None:
    repaired = nearest_covariance(matrix)
    assert np.array_equal(repaired, repaired.T)
    assert np.linalg.eigvalsh(repaired)[0] >= -1e-9
    assert np.trace(repaired) == pytest.approx(max(0.0, np.trace(matrix)), abs=1e-9)
    assert nearest_covariance(repaired) == pytest.approx(repaired, abs=1e-9)


@given(matrix=squares)
def test_a_covariance_is_left_alone(matrix: np.ndarray) -> None:
    covariance = matrix @ matrix.T
    assert nearest_covariance(covariance) == pytest.approx(covariance, abs=1e-9 * max(1.0, np.trace(covariance)))


@pytest.mark.parametrize("p", [2, 3, 5])
def test_no_other_covariance_with_that_trace_is_nearer(p: int) -> None:
    """A random search near and far, and clipping rescaled to the same trace, find only matrices farther away."""
    rng = generator(p)
    for _ in range(20):
        noisy = rng.standard_normal((p, p)) + np.eye(p)
        noisy = (noisy + noisy.T) / 2
        trace = max(0.0, float(np.trace(noisy)))
        repaired = nearest_covariance(noisy)
        nearest = np.linalg.norm(repaired - noisy)
        values, vectors = np.linalg.eigh(noisy)
        clipped = (vectors * np.maximum(values, 0)) @ vectors.T
        rivals = [clipped * trace / max(np.trace(clipped), 1e-12)]
        for size in (1e-3, 0.1, 1.0):
            for _ in range(30):
                factor = np.linalg.cholesky(repaired + 1e-9 * np.eye(p)) + size * rng.standard_normal((p, p))
                rival = factor @ factor.T
                rivals.append(rival * trace / np.trace(rival))
        assert all(np.linalg.norm(rival - noisy) >= nearest - 1e-6 for rival in rivals)


def test_the_eigenvalues_solve_the_quadratic_programme() -> None:
    """scipy's solver for the projection onto the simplex is the oracle."""
    values = np.array([3.0, 1.0, 0.2, -0.5, -1.2])
    solved = optimize.minimize(
        lambda x: np.sum((x - values) ** 2),
        np.full(5, 0.5),
        bounds=[(0, None)] * 5,
        constraints={"type": "eq", "fun": lambda x: x.sum() - values.sum()},
        options={"ftol": 1e-14},
    )
    assert np.diag(nearest_covariance(np.diag(values))) == pytest.approx(solved.x, abs=1e-5)


def test_a_matrix_of_negative_trace_becomes_nothing() -> None:
    assert np.all(nearest_covariance(-np.eye(3)) == 0)


# ---- from a table to moments -----------------------------------------------------------------------


def table(rows: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Points of the unit ball in three dimensions in two classes."""
    rng = generator(seed)
    classes = (rng.random(rows) < 0.3).astype(np.int64)
    centres = np.array([[0.3, 0.0, -0.2], [-0.4, 0.2, 0.1]])
    mixing = np.array([[0.2, 0.0, 0.0], [0.1, 0.1, 0.0], [0.0, 0.05, 0.15]])
    points = centres[classes] + np.clip(rng.standard_normal((rows, 3)), -2, 2) @ mixing.T
    return points / np.maximum(1, np.linalg.norm(points, axis=1))[:, None], classes


def measured(points: np.ndarray, classes: np.ndarray, *, epsilon: Fraction, seed: int, blocks: int = 2) -> Released:
    layout = GramLayout(points.shape[1] + 1, blocks, Fraction(1, 2))
    total = GramSum(layout)
    total.add(integer_records(points, None, layout), classes)
    name = "wishart-difference-trace"
    event = gram_mechanism(name).calibrate(layout, Neighbours.REPLACE_ONE, Epsilon(epsilon))
    return measure_gram(PrivateGram(total), event, SeededNoise(seed))


def test_without_noise_counts_means_and_covariances_are_those_of_the_table() -> None:
    points, classes = table(3000)
    moments = NoisyMoments.from_released(measured(points, classes, epsilon=Fraction(10**9), seed=1))
    for k, found in enumerate(moments.classes):
        mine = points[classes == k]
        assert found.count == pytest.approx(len(mine), rel=1e-4)
        assert found.mean == pytest.approx(mine.mean(axis=0), abs=1e-4)
        assert found.covariance == pytest.approx(np.cov(mine.T, bias=True), abs=1e-4)
    assert moments.count == pytest.approx(3000, rel=1e-4)
    assert moments.weights == pytest.approx(np.bincount(classes) / 3000, abs=1e-4)


def mean_error(rows: int, epsilon: Fraction) -> float:
    """Root mean square error of the second moment and the mean, over 40 draws."""
    points, _ = table(rows)
    none = np.zeros(rows, dtype=np.int64)
    truth = np.column_stack([np.ones(rows) / 2, points])
    target = truth.T @ truth / rows
    errors = [
        np.linalg.norm(measured(points, none, epsilon=epsilon, seed=s, blocks=1).matrices()[0] / rows - target)
        for s in range(40)
    ]
    return math.sqrt(float(np.mean(np.square(errors))))


def test_the_error_falls_as_one_over_n_and_one_over_epsilon() -> None:
    base = mean_error(400, Fraction(1))
    assert mean_error(1600, Fraction(1)) == pytest.approx(base / 4, rel=0.05)
    assert mean_error(400, Fraction(4)) == pytest.approx(base / 4, rel=0.05)
    assert mean_error(400, Fraction(1, 4)) == pytest.approx(base * 4, rel=0.05)


def test_a_class_of_noisy_size_below_one_counts_as_empty() -> None:
    for corner in (-7.0, 0.0, 0.9 / 4):
        block = np.full((3, 3), 5.0)
        block[0, 0] = corner
        empty = ClassMoments.from_block(block, 0.5, MatrixNoise(1.0, 4.0))
        assert empty.count == 0
        assert not empty.mean.any()
        assert not empty.covariance.any()


@given(
    block=hnp.arrays(np.float64, (4, 4), elements=st.floats(-1e6, 1e6), fill=st.nothing()),
    entry=st.sampled_from([0.0, 1e-9, 1.0, 1e6]),
)
@example(block=np.diag([1.0, 50.0, 50.0, 50.0]), entry=1.0)
def test_whatever_the_noise_the_moments_are_those_of_points_in_the_unit_ball(block: np.ndarray, entry: float) -> None:
    found = ClassMoments.from_block((block + block.T) / 2, 0.5, MatrixNoise(entry, 4 * entry))
    assert found.count == 0 or found.count >= 1
    assert np.linalg.norm(found.mean) <= 1 + 1e-9
    assert np.linalg.eigvalsh(found.covariance)[0] >= -1e-9
    assert np.trace(found.covariance) + found.mean @ found.mean <= 1 + 1e-9


def test_when_every_class_came_out_empty_the_shares_are_equal() -> None:
    layout = GramLayout(3, 4, Fraction(1, 2))
    event = gram_mechanism("laplace").calibrate(layout, Neighbours.REPLACE_ONE, Epsilon(Fraction(1)))
    moments = NoisyMoments.from_released(Released(event, ((-5, 0, 0, 0, 0, 0),) * 4, False))
    assert moments.weights.tolist() == [0.25] * 4
    assert moments.count == 0
