"""Bounded shapes have the measured mean and spread inside the bounds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dpcore.measurements.projection import principal_projection, ron_projection
from dpcore.records.bounded_marginal import NORMAL_SCORES, BoundedShape
from dpcore.records.encoding import Encoding
from dpcore.records.schema import IntervalColumn, Kind, RecordSchema

NORMAL = stats.norm.ppf((np.arange(200_000) + 0.5) / 200_000)


@pytest.mark.parametrize("mean", [-0.97, -0.5, 0.0, 0.3, 0.9])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.7])
def test_bent_values_keep_mean_and_spread_and_stay_inside(mean: float, share: float) -> None:
    spread = share * np.sqrt(1 - mean**2)  # the largest that values with this mean can have
    bent = BoundedShape.fit(mean, spread).transform(mean + spread * NORMAL)
    assert bent.mean() == pytest.approx(mean, abs=2e-3)
    assert bent.std() == pytest.approx(spread, rel=0.02)
    assert np.abs(bent).max() <= 1
    assert np.all(np.diff(bent) >= 0)


def test_far_from_the_bounds_the_shape_is_nearly_gaussian() -> None:
    bent = BoundedShape.fit(0.1, 0.05).transform(0.1 + 0.05 * NORMAL)
    assert np.abs(bent - (0.1 + 0.05 * NORMAL))[1000:-1000].max() < 0.005


@pytest.mark.parametrize(("mean", "spread"), [(0.0, 0.0), (1.0, 0.0), (-1.0, 0.5), (2.0, 3.0), (0.0, 5.0), (0.99, 0.9)])
def test_impossible_moments_still_give_values_inside(mean: float, spread: float) -> None:
    bent = BoundedShape.fit(mean, spread).transform(mean + spread * NORMAL[::100])
    assert np.isfinite(bent).all()
    assert np.abs(bent).max() <= 1


def test_where_noise_leaves_no_bounded_values_their_spread_is_kept_as_far_as_the_bounds_allow() -> None:
    """The mean is just beyond the bound, with a positive spread: a constant column would ignore that spread."""
    bent = BoundedShape.fit(-1.02, 0.3).transform(-1.02 + 0.3 * NORMAL)
    assert bent.std() > 0.1
    assert -1 <= bent.min() < bent.mean() < -0.8


@pytest.mark.parametrize("spread", [0.01, 0.2, 0.5])
@pytest.mark.parametrize("mean", [-0.6, 0.0, 0.7])
def test_a_cut_gaussian_keeps_its_mean_where_it_can(mean: float, spread: float) -> None:
    shape = BoundedShape.clipped_gaussian(mean, spread)
    bent = shape.transform(mean + spread * NORMAL)
    assert bent.mean() == pytest.approx(mean, abs=3e-3)
    assert np.abs(bent).max() <= 1
    assert bent.std() <= spread * 1.01


def test_classes_that_share_a_spread_are_clipped_alike() -> None:
    """Far from the bounds nothing is clipped; at most half of the values are on a bound, however far the mean is."""
    far = BoundedShape.clipped_gaussian(0.1, 0.05).transform(0.1 + 0.05 * NORMAL)
    assert far == pytest.approx(0.1 + 0.05 * NORMAL, abs=1e-3)
    for mean in (-0.99, -1.0, -1.5):
        bent = BoundedShape.clipped_gaussian(mean, 0.2).transform(mean + 0.2 * NORMAL)
        assert np.mean(bent == -1) <= 0.51
        assert bent.mean() == pytest.approx(-1 + 0.2 / np.sqrt(2 * np.pi), abs=5e-3)


def encoding(columns: int = 4) -> Encoding:
    names = [f"x{i}" for i in range(columns)]
    return Encoding(RecordSchema(tuple(IntervalColumn(name=n, kind=Kind.NUMERIC, lower=-1, upper=1) for n in names)))


def test_components_keep_the_mean_that_they_leave_out() -> None:
    mean, covariance = np.array([0.1, -0.2, 0.3, 0.05]), np.diag([0.1, 0.02, 0.01, 0.001])
    projection = principal_projection("public-pca", encoding(), mean=mean, covariance=covariance, dimension=1)
    lifted = projection.lift((mean @ projection.basis())[None, :])[0]
    assert lifted == pytest.approx(mean, abs=1e-5)
    assert projection.knows_every_mean
    assert projection.basis()[0, 0] ** 2 == pytest.approx(1, abs=1e-5)


def test_few_random_directions_do_not_know_every_mean() -> None:
    assert not ron_projection(encoding(), 2, "ab").knows_every_mean
    assert ron_projection(encoding(), 4, "ab").knows_every_mean


@pytest.mark.parametrize("dimension", [0, 5])
def test_a_dimension_out_of_range_is_refused(dimension: int) -> None:
    with pytest.raises(ValueError, match="dimension must be between"):
        principal_projection("public-pca", encoding(), mean=np.zeros(4), covariance=np.eye(4), dimension=dimension)


def test_bent_positions_are_interpolated_between_the_tabulated_quantiles() -> None:
    """numpy.interp is the oracle, also far beyond the ends of the table."""
    shape = BoundedShape.fit(0.3, 0.2)
    positions = np.concatenate([np.linspace(-5, 5, 4001), shape.mean + shape.spread * NORMAL_SCORES])
    expected = np.interp((positions - shape.mean) / shape.spread, NORMAL_SCORES, shape.quantiles)
    assert shape.transform(positions) == pytest.approx(expected, abs=1e-12)
