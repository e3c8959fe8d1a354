"""Hostile records, and the pipeline from cells to an exact integer Gram matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from dpcore.measurements.projection import Projection, no_projection, ron_projection
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout, GramSum, integer_records
from dpcore.records.schema import (
    MISSING,
    UNKNOWN,
    Cells,
    Column,
    IntervalColumn,
    Kind,
    NominalColumn,
    RecordSchema,
    Role,
)

Row = dict[str, float | int]

FEATURES: tuple[Column, ...] = (
    IntervalColumn(name="weight", kind=Kind.NUMERIC, lower=-3.7, upper=11.3),
    IntervalColumn(name="visits", kind=Kind.INTEGER, lower=0, upper=50, missing_level=True),
    IntervalColumn(name="born", kind=Kind.DATE, lower=-10_000, upper=20_000, impute=0.0),
    IntervalColumn(name="seen", kind=Kind.TIMESTAMP, lower=1.5e15, upper=1.9e15),
    NominalColumn(name="smoker", kind=Kind.BOOLEAN, levels=(False, True)),
    NominalColumn(name="insured", kind=Kind.BOOLEAN, levels=(False, True), missing_level=True),
    NominalColumn(name="sex", kind=Kind.CATEGORICAL, levels=("f", "m", "x"), other=2),
    NominalColumn(name="ward", kind=Kind.CATEGORICAL, levels=("a", "b", "c", "d"), impute=1),
)
TARGET = IntervalColumn(name="cost", kind=Kind.NUMERIC, lower=0, upper=1e6, role=Role.TARGET)
LABEL = NominalColumn(
    name="outcome", kind=Kind.CATEGORICAL, levels=("no", "yes", "maybe"), role=Role.LABEL, missing_level=True
)


def schema_with(*, target: bool = False, label: bool = False) -> RecordSchema:
    """Every kind of column, with or without a target and a label."""
    return RecordSchema((*FEATURES, *((TARGET,) if target else ()), *((LABEL,) if label else ())))


def hostile_cell(column: Column) -> SearchStrategy[float | int]:
    """Any value of a cell: bounds, their neighbouring floats, NaN, infinities, 1e308, subnormals."""
    if isinstance(column, NominalColumn):
        return st.sampled_from([*range(len(column.levels)), MISSING, UNKNOWN, 999, -(2**63), 2**63 - 1])
    edges = [column.lower, column.upper, column.middle]
    near = [math.nextafter(e, d) for e in edges for d in (-math.inf, math.inf)]
    special = [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -5e-324, 0.0, -0.0]
    return st.one_of(st.sampled_from(edges + near + special), st.floats(width=64))


def tame_cell(column: Column) -> SearchStrategy[float | int]:
    """A cell that decoding recovers: a declared level or a value inside the bounds."""
    if isinstance(column, NominalColumn):
        return st.integers(-1 if column.missing_level else 0, len(column.levels) - 1)
    inside: SearchStrategy[float | int]
    if column.is_whole:
        inside = st.integers(math.ceil(column.lower), math.floor(column.upper)).map(float)
    else:
        inside = st.floats(column.lower, column.upper)
    return st.one_of(inside, st.just(math.nan)) if column.missing_level else inside


def rows_of(schema: RecordSchema, *, least: int = 1, most: int = 4, tame: bool = False) -> SearchStrategy[list[Row]]:
    """Several records of a schema."""
    cell = tame_cell if tame else hostile_cell
    return st.lists(st.fixed_dictionaries({c.name: cell(c) for c in schema.columns}), min_size=least, max_size=most)


def as_cells(schema: RecordSchema, rows: list[Row]) -> Cells:
    """Records as the arrays that dpcore takes, one per column."""
    return {
        c.name: np.array([row[c.name] for row in rows], dtype=np.int64 if isinstance(c, NominalColumn) else np.float64)
        for c in schema.columns
    }


@dataclass(frozen=True)
class Pipeline:
    """The computation of integer Gram blocks from cells, as in a release."""

    encoding: Encoding
    projection: Projection
    layout: GramLayout
    weighted: bool = False

    def records(self, cells: Cells) -> np.ndarray:
        count = len(next(iter(cells.values())))
        shares = np.full(count, 1 / count) if self.weighted else None
        return integer_records(self.encoding.encode(cells), self.projection.columns, self.layout, shares)

    def gram(self, cells: Cells) -> np.ndarray:
        """Exact blocks of one privacy unit's rows, as Python integers."""
        total = GramSum(self.layout)
        total.add(self.records(cells), self.encoding.classes(cells))
        return total.blocks


def pipeline(
    schema: RecordSchema, *, dimension: int | None, s: Fraction, most_rows: int = 1, weighted: bool = False
) -> Pipeline:
    """A pipeline without projection (`dimension` None) or with a random orthonormal one."""
    encoding = Encoding(schema)
    projection = no_projection(encoding) if dimension is None else ron_projection(encoding, dimension, "5eed" * 8)
    layout = GramLayout(projection.dimension + 1, schema.class_count, s, most_rows)
    return Pipeline(encoding, projection, layout, weighted)


@st.composite
def pipelines(draw: DrawFn) -> Pipeline:
    """Every combination of target, class blocks, projection, count weight and rule for a unit's rows."""
    schema = schema_with(target=draw(st.booleans()), label=draw(st.booleans()))
    rule = draw(st.sampled_from(["row", "weight", "at-most"]))
    return pipeline(
        schema,
        dimension=draw(st.sampled_from([None, 1, 2, 5, Encoding(schema).feature_width])),
        s=draw(st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(1, 64), Fraction(29, 64)])),
        most_rows=draw(st.integers(1, 4)) if rule == "at-most" else 1,
        weighted=rule == "weight",
    )


@st.composite
def units(draw: DrawFn, pipe: Pipeline) -> Cells:
    """The rows of one privacy unit that count under the pipeline's rule."""
    most = 7 if pipe.weighted else pipe.layout.rows_per_unit
    schema = pipe.encoding.schema
    return as_cells(schema, draw(rows_of(schema, most=most)))


def grid_fraction(value: float) -> Fraction:
    """The nearest multiple of 2^-16."""
    return Fraction(round(value * 65536), 65536)
