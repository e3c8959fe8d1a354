"""Replay of a whole pipeline on two neighbouring tables with the same noise.

Both tables go through encoding, integer records, exact sums and the real mechanism with the
same seeded noise. The exact sums must then differ by no more than every declared sensitivity,
the released values by the same amount as the sums, and the mechanism must have requested the
same draws. The tables are invented from the specification's columns: no private data are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpcore.auditing.hostile_rows import WeightedRows, hostile_pair, hostile_rows
from dpcore.auditing.replay_measurements import ReplayedGram, ReplayedHistograms, ReplayedMeasurement, ReplayedScore
from dpcore.measure import measure_vector
from dpcore.measurements.frame_measurements import measurement_inputs
from dpcore.measurements.group_encoding import GroupedEncoding
from dpcore.measurements.groups import cells_of_columns
from dpcore.measurements.histograms import count_cells
from dpcore.measurements.measurement_frame import Directions, Frame
from dpcore.measurements.projection import (
    Projection,
    feature_projection,
    measured_coordinates,
    no_projection,
    ron_projection,
)
from dpcore.measurements.scores import Scorer, train_scorer
from dpcore.mechanisms.base import Output, Triangles
from dpcore.mechanisms.catalogue import ENTRIES
from dpcore.mechanisms.names import PROJECTION, RADIUS
from dpcore.mechanisms.queries import HistogramsQuery, ScoreQuery
from dpcore.mechanisms.vectors import PrivateVector, VectorEvent
from dpcore.noise.sources import Noise, SeededNoise, public_generator
from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.planning.request import COPULA, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import SMALLEST_RADIUS
from dpcore.records.schema import IntervalColumn, Kind, Neighbours, NominalColumn, PrivacyUnit, RecordSchema, Role
from dpcore.synthesis.copula.generator import grouped_encoding

INVENTED_CHUNKS, INVENTED_ROWS = 20, 50
"""Chunks of invented rows, whose histograms replace marginals that the plan has not measured yet."""


class RecordingNoise:
    """A noise source that records which draws were requested."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise
        self.asked: list[tuple[str, float, int]] = []

    @property
    def seeded(self) -> bool:
        """Whether the draws can be repeated."""
        return self._noise.seeded

    def bits(self, count: int) -> int:
        """Draw a uniform integer of that many bits."""
        self.asked.append(("bits", 0.0, count))
        return self._noise.bits(count)

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        """Draw independent integers with mass proportional to exp(-|x| / scale)."""
        self.asked.append(("discrete_laplace", scale, size))
        return self._noise.discrete_laplace(scale, size)

    def generator(self) -> np.random.Generator:
        """Return a generator of floating-point draws; how many are taken from it is not recorded."""
        self.asked.append(("generator", 0.0, 0))
        return self._noise.generator()


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of one replay: the share of each declared sensitivity that one unit used, and other differences.

    `change` is the exact difference of the sums on the integer grid, one upper triangle per block.
    A share above 1 is a violation.
    """

    measurement: str
    change: Triangles
    nuclear: float
    frobenius: float
    weighted_l1: float
    same_difference: bool
    same_draws: bool

    @property
    def ok(self) -> bool:
        """Whether no sensitivity was exceeded and nothing else differed."""
        shares = max(self.nuclear, self.frobenius, self.weighted_l1)
        return shares <= 1 and self.same_difference and self.same_draws

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON, without the change itself."""
        return {
            "measurement": self.measurement,
            "nuclear": self.nuclear,
            "frobenius": self.frobenius,
            "weighted_l1": self.weighted_l1,
            "same_difference": self.same_difference,
            "same_draws": self.same_draws,
            "ok": self.ok,
        }


def replay_tables(
    tables: tuple[Sequence[WeightedRows], Sequence[WeightedRows]],
    subject: ReplayedMeasurement,
    *,
    seed: int,
    name: str = "measurement",
) -> ReplayResult:
    """Measure two tables with the same noise, and compare their sums, released values and requested draws."""
    sums, noises = [subject.sums(chunks) for chunks in tables], [RecordingNoise(SeededNoise(seed)) for _ in tables]
    values = [subject.draw(chunks, noise) for chunks, noise in zip(tables, noises, strict=True)]
    change = _exact_change(*sums)
    return ReplayResult(
        name,
        change,
        *subject.shares(change),
        same_difference=subject.follows(values[0], values[1], change),
        same_draws=noises[0].asked == noises[1].asked,
    )


def _exact_change(first: Triangles, second: Triangles) -> Triangles:
    return [[a - b for a, b in zip(x, y, strict=True)] for x, y in zip(first, second, strict=True)]


# ---- plans ---------------------------------------------------------------------------------------------


def replay_pairs(plan: Plan, *, pairs: int, seed: str) -> list[ReplayResult]:
    """Replay every measurement of a plan on hostile neighbours of its columns.

    Earlier measurements of the plan are replaced by random or invented values of the same shape,
    because the sensitivities must hold for every projection, frame and set of marginals.
    """
    rng = public_generator(seed, "replay")
    return [
        replay_tables(hostile_pair(plan.schema, subject.event, rng), subject, seed=number, name=name)
        for name, subject in _replayed_measurements(plan, seed)
        for number in range(pairs)
    ]


def largest_change(plan: Plan, *, pairs: int, seed: str) -> float:
    """Return the largest share of any declared sensitivity that hostile neighbours of a plan's columns use.

    This is the part of a replay that needs no noise, so it is quick at every dimension. Above 1,
    the noise is too small for the claim.
    """
    rng, shares = public_generator(seed, "replay"), [0.0]
    for _, subject in _replayed_measurements(plan, seed):
        for _ in range(pairs):
            tables = hostile_pair(plan.schema, subject.event, rng)
            shares += subject.shares(_exact_change(*(subject.sums(chunks) for chunks in tables)))
    return max(shares)


def _replayed_measurements(plan: Plan, seed: str) -> Iterator[tuple[str, ReplayedMeasurement]]:
    """Yield every measurement of the plan with its name."""
    encoding = Encoding(plan.schema)
    for name, event in plan.events.items():
        if isinstance(event, VectorEvent) and isinstance(event.query, ScoreQuery):
            yield name, ReplayedScore(event, event.query, _invented_model(plan, event.query, seed))
        elif isinstance(event, VectorEvent):
            assert isinstance(event.query, HistogramsQuery)  # noqa: S101  the only other vectors that a plan measures
            columns = cells_of_columns(plan.schema.encoded_columns, event.query.grouping)
            yield name, ReplayedHistograms(event, event.query, columns)
        elif plan.marginals_event is not None:
            grouped = _invented_groups(plan, seed)
            yield name, ReplayedGram(event, grouped, Projection("none", grouped.width, grouped.width, None))
        else:
            projection = _invented_framed_projection(plan, name, encoding, seed)
            yield name, ReplayedGram(event, *measurement_inputs(name, encoding, projection))


def _invented_framed_projection(plan: Plan, name: str, encoding: Encoding, seed: str) -> Projection:
    """Return an invented projection for a measurement, with an invented frame if the plan measures one."""
    if plan.normalise and name == RADIUS:
        return feature_projection(encoding)
    projection = _invented_projection(plan, name, encoding, seed)
    if plan.frame_events:
        frame = _invented_frame(encoding.width, seed)
        directions = Directions.of(encoding, frame.radius**2) if plan.normalise else None
        return replace(projection, frame=replace(frame, directions=directions))
    if plan.radius != 1:
        return replace(projection, frame=Frame.around_middle(encoding.width, float(plan.radius)))
    return projection


def _invented_frame(width: int, seed: str) -> Frame:
    """Return a random centre in the unit ball and a random radius between the smallest one and 1."""
    rng = public_generator(seed, "frame")
    centre = rng.standard_normal(width)
    return Frame(centre * rng.random() / np.linalg.norm(centre), float(SMALLEST_RADIUS) ** rng.random())


def _invented_projection(plan: Plan, name: str, encoding: Encoding, seed: str) -> Projection:
    if name in plan.frame_events and plan.frame_events[name].layout.dimension == encoding.width + 1:
        return no_projection(encoding)
    if name == PROJECTION and plan.projection_event is not None:
        return measured_coordinates(plan.projection_event, encoding)
    if plan.reuses_gram or plan.projection == "none":
        return no_projection(encoding)
    return ron_projection(encoding, plan.dimension, seed)


def _invented_groups(plan: Plan, seed: str) -> GroupedEncoding:
    """Return the groups that the marginals of hostile rows give, scaled to the expected number of rows."""
    event, generator = plan.marginals_event, public_generator(seed, "marginals")
    assert event is not None  # noqa: S101  only a plan with marginals comes here
    assert isinstance(event.query, HistogramsQuery)  # noqa: S101  the only vectors that a plan measures
    chunks = [(hostile_rows(plan.schema, INVENTED_ROWS, generator), None) for _ in range(INVENTED_CHUNKS)]
    counts = count_cells(chunks, cells_of_columns(plan.schema.encoded_columns, event.query.grouping), event.query)
    many = [count * plan.expected_rows // (INVENTED_ROWS * INVENTED_CHUNKS) for count in counts]
    marginals = measure_vector(PrivateVector(event.query, many), event, SeededNoise(int(seed, 16)))
    return grouped_encoding(plan.schema, marginals, plan.event)


def _invented_model(plan: Plan, query: ScoreQuery, seed: str) -> Scorer:
    """Return a model trained on hostile rows; the sensitivity must hold for every model."""
    rows = hostile_rows(plan.schema, INVENTED_ROWS, public_generator(seed, "model"))
    return train_scorer(query, plan.schema, rows, seed)


def example_plans() -> list[Plan]:
    """Return plans for every Gram mechanism and relation, and for every histogram mechanism and relation.

    Their schema has columns of every kind and three classes.
    """
    columns = (
        IntervalColumn(name="number", kind=Kind.NUMERIC, lower=-3.0, upper=9.0, missing_level=True),
        IntervalColumn(name="day", kind=Kind.DATE, lower=0.0, upper=20_000.0, impute=100.0),
        NominalColumn(name="flag", kind=Kind.BOOLEAN, levels=(False, True)),
        NominalColumn(name="level", kind=Kind.CATEGORICAL, levels=("a", "b", "c"), other=2, missing_level=True),
        NominalColumn(name="class", kind=Kind.CATEGORICAL, levels=("x", "y", "z"), role=Role.LABEL),
        IntervalColumn(name="target", kind=Kind.INTEGER, lower=0.0, upper=100.0, role=Role.TARGET),
    )
    schema = RecordSchema(columns)
    requested = [(e, r) for e in ENTRIES if e.mechanism and e.mechanism.output is Output.GRAM for r in e.neighbours]
    plans = [make_plan(_plan_request(schema, relation, entry.name)) for entry, relation in requested]
    mixed = [(mechanism, relation) for mechanism in ("gaussian", "laplace") for relation in Neighbours]
    return plans + [
        make_plan(_plan_request(schema, relation, name, generator=COPULA, projection="none"))
        for name, relation in mixed
    ]


def _plan_request(schema: RecordSchema, neighbours: Neighbours, mechanism: str, **chosen: Any) -> PlanRequest:
    return PlanRequest(
        schema=schema,
        neighbours=neighbours,
        unit=PrivacyUnit(),
        epsilon=Fraction(1),
        delta=Fraction(1, 10**6),
        expected_rows=10_000,
        mechanism=mechanism,
        dimension=2,
        **chosen,
    )
