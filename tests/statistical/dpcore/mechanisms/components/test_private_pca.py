"""Private PCA: the laws of drawn frames and directions, and what they capture."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.special import i0e, i1e
from support.dpcore.private_pca import EXPONENTIAL, FAMILY, GRAMS, POWER, REPLACE, budget_for, dice, event_of, table_of

from dpcore.measure import PrivateGram, measure_gram
from dpcore.measurements.projection import private_projection
from dpcore.mechanisms.base import UNIT
from dpcore.mechanisms.components.exponential_pca import (
    complement,
    sample_bingham_direction,
    sample_bingham_frame,
    sample_gibbs_frame,
)
from dpcore.mechanisms.components.orthonormal import orthonormal
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SeededNoise
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout


@functools.cache
def doubled_angles() -> np.ndarray:
    """Doubled angles of released directions in the plane, with second moments 9 and 1 at epsilon 1."""
    layout, noise = GramLayout(3, 1, Fraction(1, 2)), SeededNoise(3)
    table, event = table_of(np.diag([9.0, 1.0]), layout), event_of(EXPONENTIAL, layout, Fraction(1), 1)
    vectors = np.array([measure_gram(table, event, noise).basis()[:, 0] for _ in range(6000)])
    return 2 * np.arctan2(vectors[:, 1], vectors[:, 0])


@pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (0.9, False), (1.1, False)])
def test_a_direction_in_the_plane_is_von_mises_in_the_doubled_angle(factor: float, fits: bool) -> None:
    """kappa = c (g1 - g2) / 2, and c = epsilon / 2 from the theorem alone."""
    kappa = factor * 0.5 * 8 / 2
    towards, spread = i1e(kappa) / i0e(kappa), np.cos(doubled_angles())
    error = math.sqrt((1 - towards / kappa - towards**2) / len(spread))
    assert (abs(spread.mean() - towards) < 5 * error) == fits
    if fits:
        wrapped = np.angle(np.exp(1j * doubled_angles()))
        assert stats.kstest(wrapped, stats.vonmises(kappa).cdf).pvalue > 1e-6


def squares_on_sphere(values: np.ndarray) -> np.ndarray:
    """E xᵢ² under exp(Σ vᵢ xᵢ²) on the sphere in space, by integration over height and longitude."""
    height, longitude = np.meshgrid(np.linspace(-1, 1, 2001), np.linspace(0, 2 * math.pi, 721)[:-1])
    flat = 1 - height**2
    squares = np.array([flat * np.cos(longitude) ** 2, flat * np.sin(longitude) ** 2, height**2])
    weight = np.exp(np.tensordot(values - values.max(), squares, 1))
    weight[:, [0, -1]] /= 2  # the trapezoidal rule
    return np.array([(s * weight).sum() for s in squares]) / weight.sum()


def turned(values: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A symmetric matrix with these eigenvalues, and its eigenvectors."""
    vectors = orthonormal(dice(seed).standard_normal((len(values), len(values))))
    return (vectors * values) @ vectors.T, vectors


@pytest.mark.parametrize("values", [(0.0, 0.0, 0.0), (6.0, 2.0, -1.0), (40.0, 39.0, 0.0), (-30.0, 0.0, 0.5)])
def test_a_direction_in_space_has_the_moments_of_its_law(values: tuple[float, ...]) -> None:
    matrix, vectors = turned(np.array(values), 4)
    rng = dice(5)
    drawn = np.array([sample_bingham_direction(matrix, rng) for _ in range(2000)]) @ vectors
    squares = drawn**2
    error = 5 * squares.std(axis=0) / math.sqrt(len(drawn)) + 1e-4
    assert np.all(np.abs(squares.mean(axis=0) - squares_on_sphere(np.array(values))) < error)
    assert np.all(np.abs(drawn.mean(axis=0)) < 5 * drawn.std(axis=0) / math.sqrt(len(drawn)) + 1e-9), "no sign"


@pytest.mark.parametrize("sampler", ["rejection", "gibbs"])
def test_two_directions_in_space_leave_out_one_of_the_opposite_law(sampler: str) -> None:
    values = np.array([5.0, 1.0, -2.0])
    matrix, vectors = turned(values, 6)
    rng = dice(7)
    draws = 1500 if sampler == "rejection" else 250
    frames = [
        sample_bingham_frame(matrix, 2, rng) if sampler == "rejection" else sample_gibbs_frame(matrix, 2, rng, 8)
        for _ in range(draws)
    ]
    left_out = np.array([complement(frame)[:, 0] for frame in frames]) @ vectors
    squares = left_out**2
    error = 5 * squares.std(axis=0) / math.sqrt(draws) + 1e-4
    assert np.all(np.abs(squares.mean(axis=0) - squares_on_sphere(-values)) < error)


def whole_frames(values: np.ndarray, k: int, tries: int, rng: np.random.Generator) -> np.ndarray:
    """An independent oracle: uniform frames, accepted with the density's ratio to its maximum."""
    frames = np.linalg.qr(rng.standard_normal((tries, len(values), k)))[0]
    scores = np.einsum("nik,i,nik->n", frames, values, frames)
    return frames[np.log(rng.random(tries)) < scores - np.sort(values)[::-1][:k].sum()]


def test_the_gibbs_sampler_agrees_with_rejection_of_whole_frames() -> None:
    values = np.array([4.0, 3.0, 0.0, -2.0])
    rng = dice(8)
    exact = np.einsum("nik,njk->nij", *[whole_frames(values, 2, 200_000, rng)] * 2)
    drawn = np.array([f @ f.T for f in (sample_gibbs_frame(np.diag(values), 2, rng, 6) for _ in range(400))])
    error = 5 * np.sqrt(exact.var(axis=0) / len(exact) + exact.var(axis=0) / len(drawn)) + 1e-9
    assert len(exact) > 5000
    assert np.all(np.abs(drawn.mean(axis=0) - exact.mean(axis=0)) < error)
    spread = [np.einsum("nii,i->n", p, values).std() for p in (exact, drawn)]
    assert spread[1] == pytest.approx(spread[0], rel=0.2)


@pytest.mark.parametrize(("width", "k"), [(1, 1), (4, 1), (4, 2), (4, 3), (4, 4)])
def test_without_budget_frames_are_uniform(width: int, k: int) -> None:
    rng = dice(9)
    frames = np.array([sample_bingham_frame(np.zeros((width, width)), k, rng) for _ in range(60)])
    assert np.allclose(np.einsum("nij,nik->njk", frames, frames), np.eye(k))
    spans = np.einsum("nik,nik->ni", frames, frames)
    assert np.all(np.abs(spans.mean(axis=0) - k / width) < 5 * spans.std(axis=0) / math.sqrt(60) + 1e-9)


# Projections by private PCA


def strong_table(rows: float, layout: GramLayout) -> tuple[PrivateGram, np.ndarray]:
    moments, _ = turned(rows * np.array([0.4, 0.3, 0.05, 0.03, 0.02, 0.01]), 10)
    total = table_of(moments, layout)._sum
    total.blocks[0][0, 0] = round(rows * UNIT / 4)
    return PrivateGram(total), moments


def captured(name: str, rows: float, epsilon: float) -> float:
    """Captured share of the variance of the best two directions, averaged over seeded draws."""
    schema = schema_of(6)
    layout = GramLayout(7, 1, Fraction(1, 2))
    table, moments = strong_table(rows, layout)
    value = Fraction(epsilon) ** 2 / 20 if name in (POWER, "gaussian") else Fraction(epsilon)
    if name in GRAMS:
        event = gram_mechanism(name).calibrate(layout, REPLACE, budget_for(name, value))
    else:
        event = event_of(name, layout, value, 2)
    shares = []
    for seed in range(8):
        basis = private_projection(measure_gram(table, event, SeededNoise(seed)), Encoding(schema), 2).basis()
        shares.append(np.trace(basis.T @ moments @ basis) / (0.7 * rows))
    return float(np.mean(shares))


def schema_of(width: int):
    from dpcore.records.schema import IntervalColumn, Kind, RecordSchema

    columns = (IntervalColumn(name=f"x{i}", kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for i in range(width))
    return RecordSchema(tuple(columns))


@pytest.mark.parametrize("name", FAMILY)
def test_captured_variance_grows_with_epsilon_and_with_rows(name: str) -> None:
    by_epsilon = [captured(name, 300, epsilon) for epsilon in (0.02, 1.0, 30.0)]
    by_rows = [captured(name, rows, 0.5) for rows in (30, 1000, 100_000)]
    for low, middle, high in (by_epsilon, by_rows):
        assert low + 0.05 < middle
        assert middle <= high + 0.01
        assert high > 0.97
