"""Frames: every record stays within the bound, what is measured comes back, and the radius fits the points."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from samplers_dpcore import generator

from dpcore.accounting import Epsilon, Rho
from dpcore.encoding import Encoding
from dpcore.exactgram import Layout, integer_records
from dpcore.frame import ROOM, Frame, SquaredLengths, expected_frame, frame_of_lengths, frame_of_sums, public_frame
from dpcore.measure import Released, exact_gram, measure_gram
from dpcore.mechanisms.sums import LAPLACE_SUMS
from dpcore.noise import SeededNoise
from dpcore.projection import ONE_COORDINATE, Projection, no_projection, ron_projection
from dpcore.registry import gram_mechanism
from dpcore.schema import Cells, IntervalColumn, Kind, Neighbours, RecordSchema

WIDTH, ROWS = 12, 2_000
ENCODING = Encoding(
    RecordSchema(
        tuple(IntervalColumn(name=f"x{i}", kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for i in range(WIDTH)),
    )
)
PURE = Epsilon(Fraction(10**7))
"""So large that the noise does not matter."""


def cells(spread: float = 0.1, middle: float = 0.4) -> Cells:
    rows = middle + spread * generator(1).standard_normal((ROWS, WIDTH))
    return {f"x{i}": rows[:, i] for i in range(WIDTH)}


def measured_lengths(projection: Projection, budget: Epsilon = PURE, seed: int = 1) -> Released:
    layout = Layout(2, 1, Fraction(1))
    event = gram_mechanism("wishart-difference-trace").calibrate(layout, Neighbours.REPLACE_ONE, budget)
    gram = exact_gram([(cells(), None)], SquaredLengths(ENCODING, expected_frame(projection)), layout, ONE_COORDINATE)
    return measure_gram(gram, event, SeededNoise(seed))


def measured_sums(projection: Projection, *, gaussian: bool = False) -> Released:
    layout = Layout(projection.dimension + 1, 1, Fraction(1, 4))
    event = (
        gram_mechanism("gaussian").calibrate(layout, Neighbours.REPLACE_ONE, Rho(Fraction(10**12)))
        if gaussian
        else LAPLACE_SUMS.calibrate(layout, Neighbours.REPLACE_ONE, PURE)
    )
    return measure_gram(exact_gram([(cells(), None)], ENCODING, layout, projection), event, SeededNoise(2))


# ---- records --------------------------------------------------------------------------------------


hostile = hnp.arrays(np.float64, (5, 3), elements=st.floats(allow_nan=True, allow_infinity=True, width=64))


@settings(deadline=None, max_examples=100)
@given(
    points=hostile,
    centre=hnp.arrays(np.float64, 3, elements=st.floats(-1, 1)),
    radius=st.sampled_from([2.0**-8, 0.1, 0.5, 1.0]),
    share=st.sampled_from([1.0, 0.5, 1 / 3]),
)
def test_framed_records_stay_within_the_bound(
    points: np.ndarray, centre: np.ndarray, radius: float, share: float
) -> None:
    layout = Layout(4, 1, Fraction(1, 2))
    framed, unit = replace(no_projection(ENCODING), frame=Frame(centre, radius)).framed(points)
    records = integer_records(framed, None, layout, np.full(5, share), radius=unit)
    squares = (records[:, 1:].astype(object) ** 2).sum(axis=1)
    assert all(square <= share * (1 << 32) for square in squares)
    for i in range(5):  # a pure function of each record
        alone = integer_records(framed[i : i + 1], None, layout, np.full(1, share), radius=unit)
        assert np.array_equal(alone[0], records[i])


def test_records_beyond_the_radius_are_drawn_back_to_it_in_their_direction() -> None:
    frame = Frame(np.array([0.1, 0.0]), 0.2)
    projection = Projection("none", 2, 2, None, frame=frame)
    points, radius = projection.framed(np.array([[0.5, 0.3], [0.2, 0.0]]))
    records = integer_records(points, None, Layout(3, 1, Fraction(1)), radius=radius)[:, 1:] / (1 << 16)
    assert records[0] == pytest.approx([0.8, 0.6], abs=1e-4)
    assert records[1] == pytest.approx([0.5, 0.0], abs=1e-4)


@pytest.mark.parametrize("projected", [False, True])
def test_what_is_measured_in_a_frame_lifts_back(projected: bool) -> None:
    plain = ron_projection(ENCODING, WIDTH, "5eed") if projected else no_projection(ENCODING)
    projection = replace(plain, frame=Frame(np.full(WIDTH, 0.05), 0.25))
    points = ENCODING.encode(cells(spread=0.01))
    framed, radius = projection.framed(points)
    layout = Layout(WIDTH + 1, 1, Fraction(1))
    records = integer_records(framed, projection.columns, layout, radius=radius)[:, 1:] / (1 << 16)
    assert projection.lift(records) == pytest.approx(points, abs=1e-4)
    assert projection.lift(records[:1]) - projection.lift(records[1:2]) == pytest.approx(
        (records[:1] - records[1:2]) @ projection.lifting.T, abs=1e-12
    )


# ---- lengths and radius ---------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [None, 4])
def test_lengths_are_those_of_the_projected_points(dimension: int | None) -> None:
    projection = no_projection(ENCODING) if dimension is None else ron_projection(ENCODING, dimension, "5eed")
    points = ENCODING.encode(cells()) @ projection.basis()
    found = SquaredLengths(ENCODING, projection).encode(cells())
    assert found[:, 0] == pytest.approx((points**2).sum(axis=1), abs=1e-4)
    assert found.max() <= 1


def test_in_a_random_projection_lengths_are_measured_as_if_points_were_whole() -> None:
    projection = expected_frame(ron_projection(ENCODING, 3, "5eed"))
    found = SquaredLengths(ENCODING, projection).encode(cells())
    points = ENCODING.encode(cells()) @ projection.basis()
    assert found[:, 0] == pytest.approx(np.minimum(4 * (points**2).sum(axis=1), 1.0), abs=1e-4)


def test_the_radius_follows_the_mean_squared_length() -> None:
    projection = frame_of_lengths(no_projection(ENCODING), measured_lengths(no_projection(ENCODING)))
    truth = float((ENCODING.encode(cells()) ** 2).sum(axis=1).mean())
    assert projection.frame is not None
    assert projection.frame.radius == pytest.approx(np.sqrt(ROOM * truth), rel=1e-3)
    assert not projection.frame.centre.any()


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("dimension", [None, 6])
def test_around_the_mean_the_radius_is_that_of_the_spread(gaussian: bool, dimension: int | None) -> None:
    plain = no_projection(ENCODING) if dimension is None else ron_projection(ENCODING, dimension, "5eed")
    lengths = measured_lengths(plain)
    first = frame_of_lengths(plain, lengths)
    second = frame_of_sums(plain, lengths, measured_sums(first, gaussian=gaussian))
    points = ENCODING.encode(cells()) @ plain.basis() @ plain.basis().T
    spread = float(((points - points.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert first.frame is not None
    assert second.frame is not None
    assert second.frame.centre == pytest.approx(points.mean(axis=0), abs=1e-3)
    assert second.frame.radius == pytest.approx(np.sqrt(ROOM * spread), rel=0.1)
    assert second.frame.radius < first.frame.radius / 3


def test_whatever_the_noise_a_frame_is_usable() -> None:
    for seed in range(30):
        lengths = measured_lengths(no_projection(ENCODING), Epsilon(Fraction(1, 1000)), seed)
        first = frame_of_lengths(no_projection(ENCODING), lengths)
        event = LAPLACE_SUMS.calibrate(
            Layout(WIDTH + 1, 1, Fraction(1, 4)), Neighbours.REPLACE_ONE, Epsilon(Fraction(1, 1000))
        )
        gram = exact_gram([(cells(), None)], ENCODING, event.layout, first)
        second = frame_of_sums(no_projection(ENCODING), lengths, measure_gram(gram, event, SeededNoise(seed)))
        for projection in (first, second):
            assert projection.frame is not None
            assert 2.0**-8 <= projection.frame.radius <= 1
            assert np.linalg.norm(projection.frame.centre) <= 1 + 1e-9


def test_a_public_radius_needs_no_measurement() -> None:
    projection = public_frame(no_projection(ENCODING), 0.5)
    assert projection.frame is not None
    assert projection.frame.radius == 0.5
