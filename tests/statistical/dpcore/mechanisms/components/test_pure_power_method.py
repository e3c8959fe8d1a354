"""A power method with Laplace noise would be pure, and one noisy Gram matrix is better: GUARANTEE.md, M7.

The method is not implemented; it is simulated here at less noise than any calibration could allow it.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from support.dpcore.private_pca import REPLACE
from support.dpcore.samplers import SIGMAS, generator, wishart_difference, wishart_trace

from dpcore.accounting import Epsilon
from dpcore.measurements.projection import haar_basis
from dpcore.mechanisms.components.power_method import ITERATIONS
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.planning.layouts import count_weight
from dpcore.records.exact_sums import GramLayout

SHAPES = [(2, 1), (8, 1), (8, 3), (24, 4), (40, 40)]


def frames(m: int, k: int) -> list[np.ndarray]:
    """Return random frames, and one along the axes, which moves less than they do."""
    rng = generator(m * k)
    return [np.eye(m)[:, :k], *(haar_basis(m, k, rng) for _ in range(20))]


def moved(frame: np.ndarray, come: np.ndarray, gone: np.ndarray) -> float:
    """Return the L1 norm by which a replaced record moves the product with the frame."""
    return float(np.abs(np.outer(come, come @ frame) - np.outer(gone, gone @ frame)).sum())


def far_record(frame: np.ndarray) -> np.ndarray:
    """Return the record of the proof: the sum of two directions with signs that agree with each other."""
    m, k = frame.shape
    right = np.ones(k)
    while True:
        left = np.where(frame @ right >= 0, 1.0, -1.0)
        again = np.where(frame.T @ left >= 0, 1.0, -1.0)
        if again @ frame.T @ left <= right @ frame.T @ left + 1e-12:
            break
        right = again
    record = frame @ right / math.sqrt(k) + left / math.sqrt(m)
    return record / np.linalg.norm(record)


@pytest.mark.parametrize(("m", "k"), SHAPES)
def test_every_frame_has_a_record_that_moves_a_product_by_half_the_bound(m: int, k: int) -> None:
    for frame in frames(m, k):
        assert moved(frame, far_record(frame), np.zeros(m)) >= math.sqrt(m * k) / 2 - 1e-9


@pytest.mark.parametrize(("m", "k"), SHAPES)
def test_no_record_moves_a_product_beyond_the_bounds(m: int, k: int) -> None:
    rng = generator(3)
    for frame in frames(m, k):
        points = np.vstack([rng.normal(size=(20, m)), rng.choice([-1.0, 1.0], (20, m)), far_record(frame)])
        points /= np.linalg.norm(points, axis=1)[:, None]
        assert max(moved(frame, point, np.zeros(m)) for point in points) <= math.sqrt(m * k) + 1e-9
        pairs = math.sqrt((2 if k > 1 else 1) * m * k)
        assert max(moved(frame, one, two) for one in points for two in points[:9]) <= pairs + 1e-9


def test_a_direction_of_equal_entries_attains_the_bound() -> None:
    direction = np.full((9, 1), 1 / 3)
    assert moved(direction, direction[:, 0], np.zeros(9)) == pytest.approx(3)


@pytest.mark.parametrize(("m", "k"), [(3, 1), (6, 2), (8, 8)])
def test_the_noise_of_one_gram_on_any_frame_has_the_stated_mean_square(m: int, k: int) -> None:
    """2k(m + 1)² / epsilon² at epsilon 1, for points alone under replace-one."""
    noise = wishart_difference(m, 1, 0.5, 4000, generator(8))[:, 0]
    for frame in frames(m, k)[:2]:
        squares = ((noise @ frame) ** 2).sum(axis=(1, 2))
        assert abs(squares.mean() - 2 * k * (m + 1) ** 2) < SIGMAS * squares.std() / math.sqrt(len(squares))


def noise_ratio(m: int, k: int) -> float:
    """Return the least noise of M7's steps on a product over that of the Gram measured with its count, both pure."""
    layout = GramLayout(m + 1, 1, count_weight(m))
    mechanism = gram_mechanism("wishart-difference-trace")
    gram = mechanism.expected_error(mechanism.calibrate(layout, REPLACE, Epsilon(Fraction(1)))).frobenius
    steps = math.sqrt(m * k) * math.sqrt(2) * ITERATIONS * math.sqrt(m * k) / 2
    return steps / (gram * math.sqrt(k / (m + 1)))


@pytest.mark.parametrize(("m", "k", "ratio"), [(2, 1, 1.3), (8, 1, 2.0), (8, 4, 4.1), (16, 4, 4.7), (64, 8, 7.6)])
def test_six_pure_steps_have_more_noise_than_one_gram(m: int, k: int, ratio: float) -> None:
    assert noise_ratio(m, k) == pytest.approx(ratio, abs=0.06)


def captured(moments: np.ndarray, frame: np.ndarray) -> float:
    best = np.linalg.eigvalsh(moments)[::-1][: frame.shape[1]].sum()
    return float(np.trace(frame.T @ moments @ frame) / best)


def captured_by_steps(moments: np.ndarray, k: int, steps: int, rng: np.random.Generator) -> float:
    """Return what the power method captures at epsilon 1 with the least noise that any calibration could have."""
    m = len(moments)
    frame = haar_basis(m, k, rng)
    for _ in range(steps):
        scale = steps * math.sqrt(m * k) / 2
        frame = np.linalg.qr(moments @ frame + rng.laplace(scale=scale, size=(m, k)))[0]
    return captured(moments, frame)


def captured_by_gram(moments: np.ndarray, k: int, runs: int, rng: np.random.Generator) -> float:
    """Return what the components of one noisy Gram capture at epsilon 1 on average, measured with its count."""
    m = len(moments)
    rate = 1 / (2 * (1 + float(count_weight(m)) ** 2))
    noise = wishart_trace(m + 1, 1, rate, runs, rng)[:, 0, 1:, 1:]
    return float(np.mean([captured(moments, np.linalg.eigh(moments + each)[1][:, ::-1][:, :k]) for each in noise]))


def falling(m: int, ratio: float, rows: int) -> np.ndarray:
    """Return second moments whose eigenvalues fall by a ratio, of rows with a squared length of a half on average."""
    spectrum = ratio ** np.arange(m)
    return np.diag(spectrum / spectrum.sum() * rows / 2)


@pytest.mark.parametrize("m", [8, 24])
@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("ratio", [0.7, 0.9])
def test_no_number_of_pure_steps_captures_more_than_one_gram(m: int, k: int, ratio: float) -> None:
    rng, runs, moments = generator(4), 30, falling(m, ratio, 10_000)
    once = captured_by_gram(moments, k, runs, rng)
    for steps in range(1, 9):
        assert once > np.mean([captured_by_steps(moments, k, steps, rng) for _ in range(runs)])


def test_at_few_rows_one_step_at_the_least_noise_may_capture_more() -> None:
    rng, runs, moments = generator(5), 300, falling(24, 0.9, 1_000)
    one = np.mean([captured_by_steps(moments, 1, 1, rng) for _ in range(runs)])
    assert one == pytest.approx(0.59, abs=0.03)
    assert captured_by_gram(moments, 1, runs, rng) == pytest.approx(0.55, abs=0.03)
