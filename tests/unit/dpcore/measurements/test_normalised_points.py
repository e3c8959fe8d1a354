"""Normalised points: pure, inside the ball, as RON-Gauss's Algorithm 1 has them, and lifted back as far as possible."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.dpcore.samplers import generator

import dpcore.measurements.measurement_frame as subject
from dpcore.accounting import Epsilon
from dpcore.auditing.replay import replay_pairs, replay_tables
from dpcore.auditing.replay_measurements import ReplayedGram
from dpcore.estimators.moment_mixture import MomentMixture
from dpcore.measure import Released, exact_gram, measure_gram
from dpcore.measurements.frame_measurements import ROOM, measure_directions, measurement_inputs
from dpcore.measurements.measurement_frame import Directions, Frame, scaled_to
from dpcore.measurements.projection import Projection, feature_projection, no_projection, ron_projection
from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.laplace_sums import LAPLACE_SUMS
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SeededNoise
from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PlanError, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout, integer_records
from dpcore.records.schema import (
    Cells,
    Column,
    IntervalColumn,
    Kind,
    Neighbours,
    NominalColumn,
    PrivacyUnit,
    RecordSchema,
    Role,
    RowRule,
)

FEATURES, ROWS = 6, 3_000
LARGE = Epsilon(Fraction(10**7))
"""A budget so large that the noise is negligible."""


def schema(*, target: bool = False, label: bool = False) -> RecordSchema:
    columns: list[Column] = [
        IntervalColumn(name=f"x{i}", kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for i in range(FEATURES)
    ]
    if label:
        columns.append(NominalColumn(name="class", kind=Kind.CATEGORICAL, levels=("a", "b"), role=Role.LABEL))
    if target:
        columns.append(IntervalColumn(name="y", kind=Kind.NUMERIC, lower=0.0, upper=4.0, role=Role.TARGET))
    return RecordSchema(tuple(columns))


PLAIN, TARGETED = Encoding(schema()), Encoding(schema(target=True))


def plan_of(**changes: Any) -> Plan:
    chosen: dict[str, Any] = {
        "schema": schema(),
        "neighbours": Neighbours.REPLACE_ONE,
        "unit": PrivacyUnit(),
        "epsilon": Fraction(1),
        "delta": Fraction(0),
        "expected_rows": 5_000,
        "projection": "ron",
        "dimension": 3,
        "normalise": True,
    }
    return make_plan(PlanRequest(**chosen | changes))


def rows_around(middle: float, spread: float) -> np.ndarray:
    rows: np.ndarray = np.clip(middle + spread * generator(4).standard_normal((ROWS, FEATURES)), -1, 1)
    return rows


def cells_of(rows: np.ndarray) -> Cells:
    return {f"x{i}": rows[:, i] for i in range(FEATURES)}


def unit(rows: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled


# ---- records --------------------------------------------------------------------------------------


@given(
    points=hnp.arrays(np.float64, (5, FEATURES + 1), elements=st.floats(allow_nan=True, allow_infinity=True, width=64)),
    centre=hnp.arrays(np.float64, FEATURES + 1, elements=st.floats(-1, 1)),
    radius=st.sampled_from([2.0**-8, 0.3, 1.0]),
    share=st.sampled_from([1.0, 0.5, 1 / 3]),
)
def test_a_normalised_record_is_a_function_of_that_record_inside_the_ball(
    points: np.ndarray, centre: np.ndarray, radius: float, share: float
) -> None:
    frame = Frame(centre, radius, directions=Directions.of(TARGETED, 0.1))
    layout = GramLayout(FEATURES + 2, 1, Fraction(1, 2))
    projection = replace(no_projection(TARGETED), frame=frame)

    def records(some: np.ndarray) -> np.ndarray:
        framed, of = projection.framed(some)
        return integer_records(framed, None, layout, np.full(len(some), share), radius=of)

    together = records(points)
    assert all(square <= share * (1 << 32) for square in (together[:, 1:].astype(object) ** 2).sum(axis=1))
    assert np.array_equal(records(np.asfortranarray(points[::-1])), together[::-1])
    for place in range(len(points)):
        assert np.array_equal(records(points[place : place + 1])[0], together[place])


@given(
    points=hnp.arrays(np.float64, (4, 300), elements=st.floats(-1, 1)),
    pieces=st.integers(1, 4),
)
def test_a_length_does_not_depend_on_the_shape_of_the_batch(points: np.ndarray, pieces: int) -> None:
    """A sum of 300 squares in floating point would: its order is that of the library's blocks."""
    parts = [scaled_to(part, 1.0) for part in np.array_split(points, pieces)]
    assert np.array_equal(np.vstack(parts), scaled_to(np.asfortranarray(points), 1.0))


def test_records_are_scaled_moved_and_scaled_again_as_in_algorithm_1() -> None:
    points, centre = PLAIN.encode(cells_of(rows_around(0.3, 0.3))), np.array([0.4, 0.1, 0, 0, -0.2, 0.3])
    found = Directions.of(PLAIN, 0.1).around(centre, points)
    assert found == pytest.approx(unit(unit(points) - centre), abs=1e-4)


def test_a_target_keeps_its_value_and_leaves_room_for_the_features() -> None:
    rng = generator(5)
    cells = {**cells_of(rng.uniform(-1, 1, (200, FEATURES))), "y": rng.uniform(0, 4, 200)}
    points, directions = TARGETED.encode(cells), Directions.of(TARGETED, 0.1)
    found = directions.around(np.zeros(FEATURES + 1), points)
    assert np.linalg.norm(found[:, :FEATURES], axis=1) == pytest.approx((FEATURES / (FEATURES + 1)) ** 0.5, abs=1e-5)
    assert np.array_equal(found[:, FEATURES], points[:, FEATURES])
    assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-9


@pytest.mark.parametrize("cell", [0.0, np.nan, 2.0**-22, -(2.0**-23)])
def test_a_record_without_a_direction_counts_as_zero_and_is_not_dropped(cell: float) -> None:
    point = PLAIN.encode(cells_of(np.full((1, FEATURES), cell)))
    directions, centre = Directions.of(PLAIN, 0.1), np.array([0.3, 0, 0, 0, 0, 0])
    assert not directions.around(np.zeros(FEATURES), point).any()
    assert directions.around(centre, point)[0] == pytest.approx([-1, 0, 0, 0, 0, 0])


# ---- what is measured, and how it is lifted back ----------------------------------------------------


def draw(
    name: str, projection: Projection, cells: Cells, budget: Epsilon = LARGE, seed: int = 1, encoding: Encoding = PLAIN
) -> Released:
    """Measure one quantity of the frame, by the mechanisms that a plan chooses."""
    inputs = measurement_inputs(name, encoding, projection)
    layout = GramLayout(inputs[1].dimension + 1, 1, Fraction(1, 4))
    mechanism = LAPLACE_SUMS if name == "centre" else gram_mechanism("wishart-difference-trace")
    event = mechanism.calibrate(layout, Neighbours.REPLACE_ONE, budget)
    return measure_gram(exact_gram([(cells, None)], inputs[0], layout, inputs[1]), event, SeededNoise(seed))


def bought(rows: np.ndarray, projection: Projection, radius: float | None = 1.0, **how: Any) -> Frame:
    found = measure_directions(PLAIN, projection, lambda n, seen: draw(n, seen, cells_of(rows), **how), radius=radius)
    assert found.frame is not None
    return found.frame


@pytest.mark.parametrize("radius", [1.0, 0.5, None])
def test_the_centre_is_the_mean_direction_and_the_length_the_typical_one(radius: float | None) -> None:
    rows, space = rows_around(0.3, 0.2), ron_projection(PLAIN, 3, "5eed")
    points, frame = PLAIN.encode(cells_of(rows)), bought(rows, space, radius)
    assert frame.centre == pytest.approx(unit(points).mean(axis=0), abs=1e-2)
    assert frame.directions is not None
    assert frame.directions.typical == pytest.approx(np.sqrt((points**2).sum(axis=1).mean()), rel=1e-2)
    if radius is not None:
        assert frame.radius == radius
    else:
        projected = unit(unit(points) - frame.centre) @ space.basis()
        typical = float(np.minimum((projected**2).sum(axis=1), 0.5).mean())
        assert frame.radius == pytest.approx(np.sqrt(min(0.5, ROOM * typical)), rel=0.05)


def test_rows_of_one_length_are_lifted_to_that_length_around_their_mean() -> None:
    """Their mean and their total variance come back; the length of each row would be lost."""
    rows = 0.5 * unit(rows_around(0.4, 0.3))
    points = PLAIN.encode(cells_of(rows))
    projection = no_projection(PLAIN).with_frame(bought(rows, no_projection(PLAIN)))
    framed, radius = projection.framed(points)
    lifted = projection.lift(framed / radius)
    around = points.mean(axis=0)
    assert np.linalg.norm(lifted - around, axis=1) ** 2 == pytest.approx(
        np.full(ROWS, ((points - around) ** 2).sum(axis=1).mean()), rel=2e-2
    )
    cosines = ((lifted - around) * (points - around)).sum(axis=1) / np.linalg.norm(lifted - around, axis=1)
    assert cosines == pytest.approx(np.linalg.norm(points - around, axis=1), abs=2e-3)
    assert projection.lift(framed[:1]) - projection.lift(framed[1:2]) == pytest.approx(
        (framed[:1] - framed[1:2]) @ projection.lifting.T, abs=1e-12
    )


def test_a_target_is_lifted_to_its_value() -> None:
    rng = generator(6)
    cells = {**cells_of(rng.uniform(-1, 1, (500, FEATURES))), "y": rng.uniform(0, 4, 500)}
    space = ron_projection(TARGETED, 2, "5eed")
    projection = measure_directions(
        TARGETED, space, lambda name, seen: draw(name, seen, cells, encoding=TARGETED), radius=0.5
    )
    points = TARGETED.encode(cells)
    framed, radius = projection.framed(points)
    assert projection.lift(framed @ projection.basis() / radius)[:, -1] == pytest.approx(points[:, -1], abs=1e-6)


def test_no_mean_of_a_column_is_claimed_to_be_known() -> None:
    frame = bought(rows_around(0.2, 0.2), no_projection(PLAIN))
    assert frame.whole_mean
    assert not no_projection(PLAIN).with_frame(frame).knows_every_mean
    assert no_projection(PLAIN).with_frame(replace(frame, directions=None)).knows_every_mean


@pytest.mark.parametrize("rate", [Fraction(1, 10**6), Fraction(1, 1000), Fraction(1, 10)])
def test_whatever_the_noise_the_frame_is_usable(rate: Fraction) -> None:
    for seed in range(15):
        frame = bought(rows_around(0.3, 0.2), no_projection(PLAIN), None, budget=Epsilon(rate), seed=seed)
        assert np.linalg.norm(frame.centre) <= 1 + 1e-9
        assert 2.0**-8 <= frame.radius <= 1
        lifted = frame.to_encoded(np.eye(FEATURES))
        assert np.isfinite(lifted).all()
        assert np.abs(lifted).max() <= 2


def test_an_empty_table_is_normalised_too() -> None:
    assert np.isfinite(bought(np.zeros((0, FEATURES)), no_projection(PLAIN), None).units).all()


# ---- neighbours -----------------------------------------------------------------------------------

REQUESTS: dict[str, dict[str, Any]] = {
    "pure": {},
    "radius bought": {"radius": "auto"},
    "a public radius": {"radius": Fraction(1, 3)},
    "every coordinate": {"projection": "none", "dimension": "auto"},
    "zCDP": {"delta": Fraction(1, 10**6), "mechanism": "gaussian", "radius": "auto"},
    "a target": {"schema": schema(target=True), "radius": "auto"},
    "classes": {"schema": schema(label=True), "generator": "mixture"},
    "classes of one covariance": {"schema": schema(label=True), "generator": "lda"},
    "persons": {"unit": PrivacyUnit(person="who", row_rule=RowRule.AT_MOST, most_rows=3)},
    "laplace": {"mechanism": "laplace", "neighbours": Neighbours.ADD_REMOVE},
}


@pytest.mark.parametrize("case", REQUESTS)
def test_the_measurements_of_a_normalised_release_are_replayed_on_hostile_neighbours(case: str) -> None:
    plan = plan_of(**REQUESTS[case])
    replays = replay_pairs(plan, pairs=6, seed="7")
    bought_frame = {"radius", "centre"} | ({"spread"} if REQUESTS[case].get("radius") == "auto" else set())
    assert {found.measurement for found in replays} == bought_frame | {"moments"}
    assert all(found.ok for found in replays), [found.as_json() for found in replays if not found.ok]
    assert max(found.nuclear for found in replays if found.measurement == "moments") > 0.3


EDGES = (0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 1e-7, 5e-324, 1e308, 0.3)


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("name", ["radius", "centre", "spread", "moments"])
def test_records_without_length_infinite_and_at_the_bounds_stay_within_what_is_declared(
    name: str, neighbours: Neighbours
) -> None:
    plan, rng = plan_of(radius="auto", neighbours=neighbours), generator(8)
    event = plan.events[name]
    assert isinstance(event, GramEvent)
    centre = unit(rng.standard_normal((1, FEATURES)))[0] * 0.9
    frame = Frame(centre, 0.5, directions=Directions.of(PLAIN, 0.2))
    space = no_projection(PLAIN) if name == "centre" else ron_projection(PLAIN, 3, "5eed")
    space = feature_projection(PLAIN) if name == "radius" else replace(space, frame=frame)
    replayed = ReplayedGram(event, *measurement_inputs(name, PLAIN, space))
    others, nothing = (cells_of(rng.uniform(-1, 1, (count, FEATURES))) for count in (4, 0))
    for first, second in itertools.product(EDGES, repeat=2):
        own = cells_of(np.full((1, FEATURES), first))
        mixed = np.where(np.arange(FEATURES) % 2, second, -first)[None]
        other = cells_of(mixed) if neighbours is Neighbours.REPLACE_ONE else nothing
        tables = ([(others, None), (own, None)], [(others, None), (other, None)])
        assert replay_tables(tables, replayed, seed=3).ok


def test_a_length_that_depends_on_other_rows_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the papers' experiments scale by the longest record of the data: one record then moves all others."""

    def by_the_longest(points: np.ndarray, length: float) -> np.ndarray:
        longest = float(np.linalg.norm(points, axis=1).max())
        return np.clip(points / longest * length, -1, 1)

    event = plan_of(projection="none", dimension="auto").event
    frame = replace(Frame.around_middle(FEATURES), directions=Directions.of(PLAIN, 0.2))
    replayed = ReplayedGram(event, PLAIN, replace(no_projection(PLAIN), frame=frame))
    rows = np.full((40, FEATURES), 0.1)
    tables = ([(cells_of(rows), None)], [(cells_of(np.vstack([rows[1:], np.ones((1, FEATURES))])), None)])
    assert replay_tables(tables, replayed, seed=9).ok
    monkeypatch.setattr(subject, "scaled_to", by_the_longest)
    assert not replay_tables(tables, replayed, seed=9).ok


# ---- plans ----------------------------------------------------------------------------------------


def test_a_tenth_of_the_budget_buys_length_and_direction_and_the_parts_add_up() -> None:
    plan = plan_of()
    assert plan.allocation == {"radius": 0.025, "centre": 0.075, "moments": 0.9}
    assert plan.cost.epsilon == pytest.approx(1, abs=1e-12)
    assert plan.cost.epsilon <= 1
    assert plan.frame_events["centre"].layout.dimension == FEATURES + 1, "the mean of every coordinate"
    papers = {"radius": Fraction(1, 50), "centre": Fraction(3, 10), "moments": Fraction(34, 50)}
    assert plan_of(allocation=papers).allocation == {name: float(share) for name, share in papers.items()}
    assert any("the length of each row is lost" in reason for reason in plan.reasons)


NUMBERS = schema().columns
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "private components": ({"projection": "private-pca"}, "normalise-not-applicable"),
    "public components": ({"projection": "public-pca"}, "normalise-not-applicable"),
    "a copula": ({"projection": "none", "dimension": "auto", "generator": "copula"}, "normalise-not-applicable"),
    "a category": (
        {"schema": RecordSchema((*NUMBERS, NominalColumn(name="c", kind=Kind.BOOLEAN, levels=(False, True))))},
        "normalise-not-numeric",
    ),
    "a label as a feature": ({"schema": schema(label=True), "generator": "gaussian"}, "normalise-not-numeric"),
    "a level for missing numbers": (
        {"schema": RecordSchema((*NUMBERS[1:], replace(NUMBERS[0], missing_level=True)))},
        "normalise-not-numeric",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_length_is_refused_with_a_hint(case: str) -> None:
    changes, rule = REFUSED[case]
    with pytest.raises(PlanError) as refusal:
        plan_of(**changes)
    assert (refusal.value.rule, refusal.value.where) == (rule, "model.normalise")
    assert "`normalise`" in refusal.value.hint


def test_a_split_that_leaves_nothing_for_the_direction_is_refused() -> None:
    with pytest.raises(PlanError, match="gives no budget to the centre"):
        plan_of(allocation={"mean": Fraction(3, 10), "moments": Fraction(7, 10)})


def test_a_mixed_table_that_is_left_to_the_planner_is_not_given_a_copula() -> None:
    whole = tuple(replace(column, kind=Kind.INTEGER, lower=0.0, upper=9.0) for column in NUMBERS)
    request = {"schema": RecordSchema(whole), "projection": "none", "dimension": "auto", "expected_rows": 10**6}
    assert plan_of(**request, normalise=False).generator == "copula"
    assert plan_of(**request).generator == "gaussian"


def test_the_estimators_normalise_and_keep_to_their_bounds() -> None:
    model = MomentMixture(epsilon=50.0, bounds=(-1.0, 1.0), expected_rows=ROWS, normalise=True)
    rows = model.fit(rows_around(0.4, 0.2)).sample(2_000)
    assert np.abs(rows).max() <= 1
    assert model.privacy_["epsilon"] == pytest.approx(50)
    assert rows.mean(axis=0) == pytest.approx(np.full(FEATURES, 0.4), abs=0.08)
