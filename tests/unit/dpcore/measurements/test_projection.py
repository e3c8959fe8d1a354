"""Projections: points and their way back, and the number of components that a released spectrum gives."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dpcore.samplers import seed_the_noise

from dpcore import PcaGauss
from dpcore.estimators import moment_mixture
from dpcore.measure import measurement_from_json
from dpcore.measurements.contribution import components_for_share, held_shares
from dpcore.measurements.measurement_frame import Frame
from dpcore.measurements.noisy_moments import pooled_moments
from dpcore.measurements.projection import (
    feature_spectrum,
    no_projection,
    private_projection,
    ron_projection,
)
from dpcore.records.encoding import Encoding
from dpcore.records.schema import IntervalColumn, Kind, RecordSchema, Role

SHARE = Fraction(9, 10)
shares = st.fractions(Fraction(1, 1000), Fraction(999, 1000))
spectra = st.lists(st.floats(0, 1), min_size=5, max_size=5)


def encoding_of(features: int, *, target: bool = False) -> Encoding:
    names = [(f"x{i}", Role.FEATURE) for i in range(features)] + ([("t", Role.TARGET)] if target else [])
    columns = (IntervalColumn(name=n, kind=Kind.NUMERIC, lower=-1.0, upper=1.0, role=role) for n, role in names)
    return Encoding(RecordSchema(tuple(columns)))


@given(spectra, shares)
def test_the_components_are_the_fewest_that_hold_the_share(values: list[float], share: Fraction) -> None:
    spectrum = feature_spectrum(np.diag(values), encoding_of(5))
    held, kept = held_shares(spectrum), components_for_share(spectrum, share)
    assert 1 <= kept <= 5
    assert held[kept - 1] >= float(share) - 1e-9
    assert kept == 1 or held[kept - 2] < float(share)
    assert np.all(np.diff(held) >= 0)
    assert held[-1] == pytest.approx(1)


@pytest.mark.parametrize("size", [10, 20, 30])
def test_rounding_decides_no_tie_of_equal_variances(size: int) -> None:
    """Where noise hides everything, all variances are equal, and nine tenths of them hold exactly nine tenths."""
    rotation = np.linalg.qr(np.random.Generator(np.random.PCG64(size)).standard_normal((size, size)))[0]
    for covariance in (np.eye(size) / 3, rotation @ rotation.T * 0.1, rotation @ rotation.T * 7e-5):
        assert components_for_share(feature_spectrum(covariance, encoding_of(size)), SHARE) == size * 9 // 10


def test_no_variance_at_all_keeps_one_component() -> None:
    assert components_for_share(feature_spectrum(np.zeros((4, 4)), encoding_of(4)), SHARE) == 1
    assert components_for_share(feature_spectrum(-np.eye(4), encoding_of(4)), SHARE) == 1


def test_the_variance_of_a_target_does_not_count() -> None:
    covariance = np.diag([1.0, 1.0, 0.0, 1000.0])
    assert components_for_share(feature_spectrum(covariance, encoding_of(3, target=True)), SHARE) == 2


# ---- released values alone decide --------------------------------------------------------------------------------


def line(n: int = 4000, features: int = 6) -> np.ndarray:
    """Rows whose exact spectrum has a single component."""
    position = np.random.Generator(np.random.PCG64(3)).uniform(-1, 1, n)
    return np.tile(position[:, None], features)


def cloud(n: int = 4000, features: int = 6) -> np.ndarray:
    """Rows whose exact spectrum is flat."""
    return np.random.Generator(np.random.PCG64(4)).uniform(-1, 1, (n, features))


def fitted(rows: np.ndarray, epsilon: float, share: float = 0.9) -> PcaGauss:
    return PcaGauss(epsilon=epsilon, bounds=(-1.0, 1.0), n_components=share).fit(rows)


def test_the_number_of_components_follows_the_released_spectrum() -> None:
    assert fitted(line(), 50.0).projection_.dimension == 1
    assert fitted(cloud(), 50.0).projection_.dimension == 6
    assert fitted(cloud(), 50.0, share=0.4).projection_.dimension == 3


@pytest.mark.parametrize("epsilon", [0.001, 0.05, 50.0])
@pytest.mark.parametrize("rows", [line(), cloud()], ids=["line", "cloud"])
def test_whoever_holds_the_release_counts_the_same_components(rows: np.ndarray, epsilon: float) -> None:
    """The count is a function of what is published: after a way through JSON, without rows, it is the same."""
    model = fitted(rows, epsilon)
    published = measurement_from_json(model.moments_.as_json())
    again = private_projection(published, model.encoding_, Fraction(9, 10))
    assert again.dimension == model.projection_.dimension
    assert np.array_equal(again.columns, model.projection_.columns)


def test_tables_that_noise_buries_keep_the_same_components(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frozen noise that buries the table: line and cloud keep alike, though their exact spectra ask for 1 and 6."""
    kept = []
    for rows in (line(40), cloud(40)):
        seed_the_noise(monkeypatch, moment_mixture)
        model = fitted(rows, 1e-4)
        kept.append((model.projection_.dimension, list(model.plan_.events.values())))
    assert kept[0] == kept[1]


def test_a_share_costs_no_more_than_a_given_dimension() -> None:
    model = fitted(cloud(100), 1.0)
    assert model.privacy_["epsilon"] == 1.0
    assert list(model.privacy_["measurements"]) == ["moments"]
    assert model.sample(5).shape == (5, 6)


def test_what_is_held_is_counted_in_denoised_variances() -> None:
    model = fitted(line(), 0.2)
    held = held_shares(feature_spectrum(pooled_moments(model.moments_).covariance, model.encoding_))
    assert held[model.projection_.dimension - 1] >= 0.9 - 1e-9


# ---- points and their way back -----------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [None, Frame(np.full(7, 0.05), 0.5)])
@pytest.mark.parametrize("target", [False, True])
def test_a_lifted_point_projects_to_itself(frame: Frame | None, target: bool) -> None:
    encoding = encoding_of(7 - target, target=target)
    for projection in (no_projection(encoding), ron_projection(encoding, 3, "5eed")):
        framed = projection if frame is None else projection.with_frame(frame)
        points = np.random.Generator(np.random.PCG64(1)).uniform(-1, 1, (20, framed.dimension))
        assert framed.project(framed.lift(points)) == pytest.approx(points, abs=1e-5)
