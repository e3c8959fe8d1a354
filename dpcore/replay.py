"""Frozen-noise replay of a whole pipeline on two neighbouring tables.

Both tables go through encoding, integer records, the exact Gram matrix and the real
mechanism with the same seeded noise. Nothing but the noise may then stand between them:
the exact sums must differ by no more than every declared sensitivity, the released
values by what the sums differ, and the mechanism must have asked for the same draws.
The tables are invented from the specification's columns: nothing here sees the data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.encoding import Encoding
from dpcore.measure import PrivateGram, measure_gram, summed
from dpcore.mechanisms.base import UNIT, Gives, GramEvent, Triangles, is_diagonal
from dpcore.noise import Noise, SeededNoise, public_generator
from dpcore.planning import Plan, make_plan
from dpcore.projection import Projection, measured_coordinates, no_projection, ron_projection
from dpcore.registry import ENTRIES, mechanism_of
from dpcore.schema import (
    MISSING,
    UNKNOWN,
    Cells,
    Column,
    IntervalColumn,
    Kind,
    Neighbours,
    NominalColumn,
    PrivacyUnit,
    RecordSchema,
    Role,
)
from dpcore.sensitivity import best_l1_weight, gram_frobenius, gram_nuclear, gram_weighted_l1, record_sums_l1
from dpcore.wishes import PROJECTION, Wishes

Floats = NDArray[np.float64]
Part = tuple[Cells, Floats | None]
"""Some rows, and each one's share of its person (None: all 1)."""

TOLERANCE = 1e-9
"""Relative error allowed to the nuclear norm, which alone is computed in floating point."""

COMMON_ROWS, PERSON_ROWS = 5, 3
"""Rows that both tables share, and rows of an invented person."""


class Recorder:
    """Noise that remembers what was asked of it."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise
        self.asked: list[tuple[str, float, int]] = []

    @property
    def seeded(self) -> bool:
        """Whether the draws can be repeated."""
        return self._noise.seeded

    def bits(self, count: int) -> int:
        """A uniform integer of that many bits."""
        self.asked.append(("bits", 0.0, count))
        return self._noise.bits(count)

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        """Independent integers with mass proportional to exp(-|x| / scale)."""
        self.asked.append(("discrete_laplace", scale, size))
        return self._noise.discrete_laplace(scale, size)

    def generator(self) -> np.random.Generator:
        """A stream of floating-point draws; how many are taken from it is not recorded."""
        self.asked.append(("generator", 0.0, 0))
        return self._noise.generator()


@dataclass(frozen=True, slots=True)
class Replay:
    """What one replay found: how much of each declared sensitivity one unit used, and what else differed.

    `change` holds the exact difference of the sums' upper triangles, one a block, on the
    integer grid. Shares above 1 are faults.
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
        """Whether nothing but the noise stood between the tables."""
        shares = max(self.nuclear, self.frobenius, self.weighted_l1)
        return shares <= 1 and self.same_difference and self.same_draws

    def as_json(self) -> dict[str, Any]:
        """The figures, without the change itself."""
        return {
            "measurement": self.measurement,
            "nuclear": self.nuclear,
            "frobenius": self.frobenius,
            "weighted_l1": self.weighted_l1,
            "same_difference": self.same_difference,
            "same_draws": self.same_draws,
            "ok": self.ok,
        }


def replay(
    tables: tuple[Iterable[Part], Iterable[Part]],
    *,
    encoding: Encoding,
    projection: Projection,
    event: GramEvent,
    seed: int,
    name: str = "measurement",
) -> Replay:
    """Measure two tables with the same noise and compare everything that can be compared."""
    sums = [summed(chunks, encoding, event.layout, projection) for chunks in tables]
    noises = [Recorder(SeededNoise(seed)) for _ in sums]
    values = [measure_gram(PrivateGram(total), event, noise).values for total, noise in zip(sums, noises, strict=True)]
    change = _difference(*(total.upper_triangles() for total in sums))  # invented rows: nothing private
    return Replay(
        name,
        change,
        *_shares(change, event),
        same_difference=_follows(values[0], values[1], change, event),
        same_draws=noises[0].asked == noises[1].asked,
    )


def _difference(first: Triangles, second: Triangles) -> Triangles:
    return [[a - b for a, b in zip(x, y, strict=True)] for x, y in zip(first, second, strict=True)]


def _follows(
    first: tuple[tuple[int, ...], ...], second: tuple[tuple[int, ...], ...], change: Triangles, event: GramEvent
) -> bool:
    """Whether released Gram blocks, or their first rows, differ by what the sums differ, to within one step."""
    if mechanism_of(event.mechanism).gives not in (Gives.GRAM, Gives.SUMS):
        return True  # directions and eigenvalues are no sums
    rows = zip(first, second, change, strict=True)
    cells = (cell for a, b, exact in rows for cell in zip(a, b, exact[: len(a)], strict=True))
    return all(abs((a - b) * event.step - exact) <= event.step for a, b, exact in cells)


def _shares(change: Triangles, event: GramEvent) -> tuple[float, float, float]:
    """The change's nuclear, Frobenius and weighted L1 norms over the declared sensitivities.

    Where counts and sums alone are released, the L1 norm is that of the first rows.
    """
    layout, neighbours = event.layout, event.neighbours
    r = layout.squared_norm
    diagonal = is_diagonal(layout.dimension)
    cells = [(Fraction(abs(x), UNIT), d) for block in change for x, d in zip(block, diagonal, strict=True)]
    squares = sum(x**2 * (1 if d else 2) for x, d in cells) / gram_frobenius(neighbours, squared_norm=r) ** 2
    only_sums = mechanism_of(event.mechanism).gives is Gives.SUMS
    sums = _sums_share(change, event) if only_sums else _weighted_share(cells, event)
    nuclear = _nuclear(change, layout.dimension) / float(gram_nuclear(neighbours, squared_norm=r) * UNIT)
    return (
        nuclear * (1 - TOLERANCE),
        _share(float(squares) ** 0.5, above=squares > 1),
        _share(float(sums), above=sums > 1),
    )


def _weighted_share(cells: list[tuple[Fraction, bool]], event: GramEvent) -> Fraction:
    layout, weight = event.layout, best_l1_weight(event.neighbours)
    bound = gram_weighted_l1(
        event.neighbours,
        squared_norm=layout.squared_norm,
        dimension=layout.dimension,
        blocks=layout.blocks,
        weight=weight,
    )
    return sum((x * (1 if d else weight) for x, d in cells), Fraction(0)) / bound


def _sums_share(change: Triangles, event: GramEvent) -> Fraction:
    layout = event.layout
    bound = record_sums_l1(
        event.neighbours,
        count_weight=layout.count_weight,
        points=layout.dimension - layout.heads,
        rows=layout.rows_per_unit,
        blocks=layout.blocks,
    )
    return Fraction(sum(abs(x) for block in change for x in block[: layout.dimension]), UNIT) / bound


def _nuclear(change: Triangles, dimension: int) -> float:
    matrices = np.zeros((len(change), dimension, dimension))
    rows, columns = np.triu_indices(dimension)
    for matrix, block in zip(matrices, change, strict=True):
        matrix[rows, columns] = matrix[columns, rows] = [float(x) for x in block]
    return float(np.abs(np.linalg.eigvalsh(matrices)).sum())


def _share(number: float, *, above: bool) -> float:
    """A float that lies above 1 exactly where the exact share does."""
    return max(number, ABOVE_ONE) if above else min(number, 1.0)


ABOVE_ONE = float(np.nextafter(1.0, 2.0))


# ---- invented neighbours -----------------------------------------------------------------------------


def hostile_rows(schema: RecordSchema, count: int, rng: np.random.Generator) -> Cells:
    """Rows at and beyond every edge: bounds, NaN, infinities, huge and tiny numbers, missing and unknown levels.

    Half of the time all cells are at their bounds or known levels, where records are longest.
    """
    edges = _longest if rng.random() < 0.5 else _hostile
    return {column.name: rng.choice(edges(column), count) for column in schema.columns}


def _longest(column: Column) -> NDArray[np.generic]:
    if isinstance(column, NominalColumn):
        return np.arange(len(column.levels), dtype=np.int64)
    return np.array([column.lower, column.upper])


def _hostile(column: Column) -> NDArray[np.generic]:
    known = _longest(column)
    if isinstance(column, NominalColumn):
        return np.array([*known, MISSING, UNKNOWN, len(known) + 7], dtype=np.int64)
    return np.array([*known, column.middle, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324])


def hostile_pair(schema: RecordSchema, event: GramEvent, rng: np.random.Generator) -> tuple[list[Part], list[Part]]:
    """Two neighbouring tables, the unit at the end of the one and at the start of the other, in other chunks."""
    common: Part = (hostile_rows(schema, COMMON_ROWS, rng), None)
    first = [common, _unit(schema, event.layout.rows_per_unit, rng)]
    if event.neighbours is Neighbours.ADD_REMOVE:
        return first, [common]
    return first, [_unit(schema, event.layout.rows_per_unit, rng), common]


def _unit(schema: RecordSchema, most_rows: int, rng: np.random.Generator) -> Part:
    """A row, a person of several rows that share a weight of 1, or as many rows as a person may have."""
    if most_rows > 1 or rng.random() < 0.5:
        return hostile_rows(schema, int(rng.integers(1, most_rows + 1)), rng), None
    return hostile_rows(schema, PERSON_ROWS, rng), np.full(PERSON_ROWS, 1 / PERSON_ROWS)


def replay_pairs(plan: Plan, *, pairs: int, seed: str) -> list[Replay]:
    """Replay every measurement of a plan on hostile neighbours of its columns.

    A projection that the plan has yet to learn is stood in for by a random one of the
    same shape: the sensitivities must hold for every projection.
    """
    encoding, rng = Encoding(plan.schema), public_generator(seed, "replay")
    result = []
    for name, event in plan.events.items():
        projection = _stand_in(plan, name, encoding, seed)
        for number in range(pairs):
            tables = hostile_pair(plan.schema, event, rng)
            result.append(replay(tables, encoding=encoding, projection=projection, event=event, seed=number, name=name))
    return result


def largest_change(plan: Plan, *, pairs: int, seed: str) -> float:
    """The largest share of any declared sensitivity that hostile neighbours of a plan's columns use.

    The part of a replay before the draw, which is quick at every dimension. Above 1 the
    noise would hide less than is claimed.
    """
    encoding, rng = Encoding(plan.schema), public_generator(seed, "replay")
    shares = [0.0]
    for name, event in plan.events.items():
        projection = _stand_in(plan, name, encoding, seed)
        for _ in range(pairs):
            tables = hostile_pair(plan.schema, event, rng)
            sums = [summed(chunks, encoding, event.layout, projection).upper_triangles() for chunks in tables]
            shares += _shares(_difference(*sums), event)
    return max(shares)


def _stand_in(plan: Plan, name: str, encoding: Encoding, seed: str) -> Projection:
    if name == PROJECTION:
        return measured_coordinates(plan.events[name], encoding)
    if plan.reuses_gram or plan.projection == "none":
        return no_projection(encoding)
    return ron_projection(encoding, plan.dimension, seed)


def example_plans() -> list[Plan]:
    """A plan for every Gram mechanism and relation, on columns of every kind and three classes."""
    columns = (
        IntervalColumn(name="number", kind=Kind.NUMERIC, lower=-3.0, upper=9.0, missing_level=True),
        IntervalColumn(name="day", kind=Kind.DATE, lower=0.0, upper=20_000.0, impute=100.0),
        NominalColumn(name="flag", kind=Kind.BOOLEAN, levels=(False, True)),
        NominalColumn(name="level", kind=Kind.CATEGORICAL, levels=("a", "b", "c"), other=2, missing_level=True),
        NominalColumn(name="class", kind=Kind.CATEGORICAL, levels=("x", "y", "z"), role=Role.LABEL),
        IntervalColumn(name="target", kind=Kind.INTEGER, lower=0.0, upper=100.0, role=Role.TARGET),
    )
    wished = [(e, r) for e in ENTRIES if e.mechanism and e.mechanism.gives is Gives.GRAM for r in e.neighbours]
    return [make_plan(_wishes(RecordSchema(columns), entry.name, relation)) for entry, relation in wished]


def _wishes(schema: RecordSchema, mechanism: str, neighbours: Neighbours) -> Wishes:
    return Wishes(
        schema=schema,
        neighbours=neighbours,
        unit=PrivacyUnit(),
        epsilon=Fraction(1),
        delta=Fraction(1, 10**6),
        expected_rows=10_000,
        dimension=2,
        mechanism=mechanism,
    )
