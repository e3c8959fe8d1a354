"""Frames: every record stays within the bound, measurements are inverted, and the radius fits the points."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.dpcore.samplers import generator
from support.dpcore.strategies import schema_with

from dpcore.accounting import Epsilon, Rho
from dpcore.auditing.hostile_rows import hostile_pair
from dpcore.auditing.replay import replay_tables
from dpcore.auditing.replay_measurements import ReplayedGram
from dpcore.measure import Released, exact_gram, measure_gram
from dpcore.measurements.frame_measurements import ONE_COORDINATE, ROOM, SquaredLengths, fit_centre, measure_frame
from dpcore.measurements.measurement_frame import Frame
from dpcore.measurements.projection import Projection, no_projection, ron_projection
from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.laplace_sums import LAPLACE_SUMS
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SeededNoise
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout, integer_records
from dpcore.records.schema import Cells, IntervalColumn, Kind, Neighbours, PrivacyUnit, RecordSchema

WIDTH, ROWS = 12, 2_000
ENCODING = Encoding(
    RecordSchema(
        tuple(IntervalColumn(name=f"x{i}", kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for i in range(WIDTH)),
    )
)
PURE = Epsilon(Fraction(10**7))
"""A budget so large that the noise is negligible."""


def cells(spread: float = 0.1, middle: float = 0.4) -> Cells:
    rows = middle + spread * generator(1).standard_normal((ROWS, WIDTH))
    return {f"x{i}": rows[:, i] for i in range(WIDTH)}


def draw(
    name: str, projection: Projection, budget: Epsilon | Rho = PURE, seed: int = 1, table: Cells | None = None
) -> Released:
    """Measure one quantity of the frame, by the mechanisms that a plan chooses."""
    chunk = [(cells() if table is None else table, None)]
    if name != "centre":
        layout = GramLayout(2, 1, Fraction(1))
        gram = exact_gram(chunk, SquaredLengths(ENCODING, projection), layout, ONE_COORDINATE)
    else:
        layout = GramLayout(projection.dimension + 1, 1, Fraction(1, 4))
        gram = exact_gram(chunk, ENCODING, layout, projection)
    if isinstance(budget, Rho):
        event = gram_mechanism("gaussian").calibrate(layout, Neighbours.REPLACE_ONE, budget)
    elif name == "centre":
        event = LAPLACE_SUMS.calibrate(layout, Neighbours.REPLACE_ONE, budget)
    else:
        event = gram_mechanism("wishart-difference-trace").calibrate(layout, Neighbours.REPLACE_ONE, budget)
    return measure_gram(gram, event, SeededNoise(seed))


def frame_of(projection: Projection) -> Frame:
    assert projection.frame is not None
    return projection.frame


# ---- records --------------------------------------------------------------------------------------


hostile = hnp.arrays(np.float64, (5, 3), elements=st.floats(allow_nan=True, allow_infinity=True, width=64))


@given(
    points=hostile,
    centre=hnp.arrays(np.float64, 3, elements=st.floats(-1, 1)),
    radius=st.sampled_from([2.0**-8, 0.1, 0.5, 1.0]),
    share=st.sampled_from([1.0, 0.5, 1 / 3]),
)
def test_framed_records_stay_within_the_bound(
    points: np.ndarray, centre: np.ndarray, radius: float, share: float
) -> None:
    layout = GramLayout(4, 1, Fraction(1, 2))
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
    records = integer_records(points, None, GramLayout(3, 1, Fraction(1)), radius=radius)[:, 1:] / (1 << 16)
    assert records[0] == pytest.approx([0.8, 0.6], abs=1e-4)
    assert records[1] == pytest.approx([0.5, 0.0], abs=1e-4)


@pytest.mark.parametrize("projected", [False, True])
def test_what_is_measured_in_a_frame_lifts_back(projected: bool) -> None:
    plain = ron_projection(ENCODING, WIDTH, "5eed") if projected else no_projection(ENCODING)
    projection = replace(plain, frame=Frame(np.full(WIDTH, 0.05), 0.25))
    points = ENCODING.encode(cells(spread=0.01))
    framed, radius = projection.framed(points)
    layout = GramLayout(WIDTH + 1, 1, Fraction(1))
    records = integer_records(framed, projection.columns, layout, radius=radius)[:, 1:] / (1 << 16)
    assert projection.lift(records) == pytest.approx(points, abs=1e-4)
    assert projection.lift(records[:1]) - projection.lift(records[1:2]) == pytest.approx(
        (records[:1] - records[1:2]) @ projection.lifting.T, abs=1e-12
    )


# ---- lengths, centre and radius --------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [None, 4])
def test_lengths_are_those_of_the_projected_points_in_their_frame(dimension: int | None) -> None:
    plain = no_projection(ENCODING) if dimension is None else ron_projection(ENCODING, dimension, "5eed")
    frame = Frame(np.full(WIDTH, 0.1), 0.5)
    points = (ENCODING.encode(cells()) - frame.centre) @ plain.basis() / frame.radius
    found = SquaredLengths(ENCODING, replace(plain, frame=frame)).encode(cells())
    assert found[:, 0] == pytest.approx(np.minimum((points**2).sum(axis=1), 1.0), abs=1e-4)
    assert found.max() <= 1


@pytest.mark.parametrize("budget", [PURE, Rho(Fraction(10**12))])
@pytest.mark.parametrize(("dimension", "whole_mean"), [(None, True), (6, True), (6, False)])
def test_a_bought_frame_is_that_of_the_points(budget: Epsilon | Rho, dimension: int | None, whole_mean: bool) -> None:
    plain = no_projection(ENCODING) if dimension is None else ron_projection(ENCODING, dimension, "5eed")
    frame = frame_of(measure_frame(plain, lambda name, seen: draw(name, seen, budget), whole_mean=whole_mean))
    points = ENCODING.encode(cells())
    spread = float((((points - points.mean(axis=0)) @ plain.basis()) ** 2).sum(axis=1).mean())
    known = points.mean(axis=0) if whole_mean else points.mean(axis=0) @ plain.basis() @ plain.basis().T
    assert frame.centre == pytest.approx(known, abs=1e-2)
    assert frame.radius == pytest.approx(np.sqrt(ROOM * spread), rel=0.1)
    assert frame.radius < 0.5 * np.linalg.norm(points.mean(axis=0) @ plain.basis())
    assert replace(plain, frame=frame).knows_every_mean is whole_mean


@pytest.mark.parametrize("rate", [Fraction(1, 10**6), Fraction(1, 1000), Fraction(1, 10)])
def test_whatever_the_noise_a_frame_is_usable(rate: Fraction) -> None:
    plain = no_projection(ENCODING)
    for seed in range(15):
        bought = measure_frame(plain, lambda name, seen, s=seed: draw(name, seen, Epsilon(rate), s), whole_mean=True)
        frame = frame_of(bought)
        assert 2.0**-8 <= frame.radius <= 1
        assert np.linalg.norm(frame.centre) <= 1 + 1e-9


def test_a_mean_of_nothing_but_noise_does_not_move_the_centre_far() -> None:
    """The shrunk mean is nearer to the truth than the measured one."""
    table = cells(spread=0.1, middle=0.0)
    plain, distances, raw = no_projection(ENCODING), [], []
    start = replace(plain, frame=Frame.around_middle(WIDTH))
    for seed in range(20):
        lengths = draw("radius", start, PURE, seed, table)
        sums = draw("centre", start, Epsilon(Fraction(1, 100)), seed, table)
        distances.append(np.linalg.norm(fit_centre(frame_of(start), sums, lengths, plain).centre))
        raw.append(np.linalg.norm(sums.counts_and_sums()[1][0] / ROWS))
    assert np.mean(distances) < 0.6 * np.mean(raw)


@pytest.mark.parametrize("radius", [0.0, -1.0, 2.0**-9, 1.5, np.nan, np.inf])
def test_no_frame_has_a_radius_beyond_reason(radius: float) -> None:
    with pytest.raises(ValueError, match="between 1/256 and 1"):
        Frame(np.zeros(2), radius)


@pytest.mark.parametrize("radius", [np.nan, 0.0, 1e-320, -0.0])
def test_whatever_a_record_is_divided_by_it_stays_in_the_ball(radius: float) -> None:
    layout, points = GramLayout(3, 1, Fraction(1)), np.array([[0.5, -0.5], [0.0, 0.0]])
    records = integer_records(points, None, layout, radius=radius)
    assert np.isfinite(records).all()
    assert (records[:, 1:] ** 2).sum(axis=1).max() <= 4.0**16
    broken = integer_records(points, np.full((2, 2), np.nan), layout)
    assert np.isfinite(broken).all()


def test_an_empty_table_has_a_frame_too() -> None:
    nothing = {name: values[:0] for name, values in cells().items()}
    plain = no_projection(ENCODING)
    frame = frame_of(measure_frame(plain, lambda name, seen: draw(name, seen, PURE, 1, nothing), whole_mean=True))
    assert 2.0**-8 <= frame.radius <= 1


# ---- neighbours -----------------------------------------------------------------------------------


def random_frame(width: int, rng: np.random.Generator) -> Frame:
    direction = rng.standard_normal(width)
    return Frame(direction / np.linalg.norm(direction) * rng.random(), float(rng.choice([2.0**-8, 0.05, 0.3, 1.0])))


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
def test_hostile_neighbours_move_every_measurement_of_a_framed_release_by_no_more_than_declared(
    neighbours: Neighbours, projected: bool, delta: Fraction
) -> None:
    """The sensitivities hold for every released frame."""
    plan = make_plan(
        PlanRequest(
            schema=schema_with(label=True, target=True),
            neighbours=neighbours,
            unit=PrivacyUnit(),
            epsilon=Fraction(1),
            delta=delta,
            expected_rows=1_000,
            projection="ron" if projected else "none",
            dimension=3 if projected else "auto",
            radius="auto",
        )
    )
    encoding, rng = Encoding(plan.schema), generator(11)
    space = ron_projection(encoding, 3, "5eed") if projected else no_projection(encoding)
    for name, event in plan.events.items():
        assert isinstance(event, GramEvent)
        for number in range(6):
            framed = replace(space, frame=random_frame(encoding.width, rng))
            whole = replace(no_projection(encoding), frame=framed.frame)
            if name in ("radius", "spread"):
                subject = ReplayedGram(event, SquaredLengths(encoding, framed), ONE_COORDINATE)
            else:
                along = whole if name == "centre" and plan.frame_knows_mean else framed
                subject = ReplayedGram(event, encoding, along)
            found = replay_tables(hostile_pair(plan.schema, event, rng), subject, seed=number, name=name)
            assert found.ok, found.as_json()
