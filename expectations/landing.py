"""Suites for landing data, which are private: use them through `SuiteRunner` only.

Structure is judged on an empty frame with the file's columns, and refuses a run;
cells are judged batch by batch after decoding, for the operator's eyes only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dpcore.records.schema import MISSING, Column, IntervalColumn, Kind, NominalColumn, RecordSchema
from expectations.extremes import Extremes
from expectations.quiet import quietly
from expectations.rules import rule_expectations
from expectations.verdicts import SuiteRunner, Verdict, label, neutral_name

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.expectations.expectation import Expectation

ENCODED_NORM = "encoded norm"
"""The column of a frame of cells that holds each record's length before any cut, over the radius of its ball."""

MEANINGS = {
    "in-bounds": "some values are outside the column's bounds and are clamped to them",
    "known-category": "some values are not among the column's categories and are mapped as the codebook states",
    "not-missing": "some values are missing although the specification does not provide for that, and are replaced as "
    "the codebook states",
    "rule": "some rows break this rule of the specification; they are measured as they are, and released rows obey the "
    "rule all the same: change it only if it is wrong by what is publicly known, because a choice that is read off the "
    "data is not protected",
    "unit-ball": "some encoded records lie outside the ball in which records are measured, and were shortened to it: "
    "compare the units of the columns with their bounds, and with model.radius if it is set; change these from "
    "public knowledge only, because a choice that is read off the data is not protected",
}
"""What a broken rule about cells means, for the operator: no column's values, and no number of records."""

TREATMENTS = {
    "in-bounds": "some values are outside their declared bounds and were clamped",
    "known-category": "some values are not among the declared categories and were mapped as the codebook states",
    "not-missing": "some values are missing although the specification does not provide for that, and were replaced as "
    "the codebook states",
    "rule": "some rows break rules of the specification and are measured as they are; released rows obey them",
}
"""How cells that break a rule are treated; the names of the columns follow."""

_LONGEST_NORM = 1 + 1e-9  # the unit ball, and room for rounding

_LANDING_DTYPES = {
    Kind.NUMERIC: ("int64", "float64"),
    Kind.INTEGER: ("int64", "float64"),
    Kind.DATE: ("datetime64[us]",),
    Kind.TIMESTAMP: ("datetime64[us]",),
    Kind.BOOLEAN: ("bool",),
    Kind.CATEGORICAL: ("str", "int64", "bool"),
}


def landing_dtypes(column: Column) -> tuple[str, ...]:
    """The canonical dtypes in which a column may land; the first is the one to give an all-missing column."""
    dtypes = _LANDING_DTYPES[column.kind]
    if isinstance(column, NominalColumn) and all(type(level) is int for level in column.levels):
        return (*dtypes, "float64")  # integers with missing cells often land as floats
    return dtypes


def structure_suite(
    schema: RecordSchema, *, extra_columns: Sequence[str] = (), required: Sequence[str] = (), typed: bool
) -> ExpectationSuite:
    """The suite for an empty frame with the landing file's columns and canonical dtypes.

    Rules: `column-missing`, `column-undeclared` and, where the file is `typed`,
    `column-type`. `extra_columns` may be there, `required` ones (the person's id)
    must be; both may have any type.
    """
    with quietly():
        import great_expectations as gx

        expectations = [*_presence(schema, extra_columns, required), *(_types(schema) if typed else ())]
        return gx.ExpectationSuite(name="landing structure", expectations=expectations)


def cell_suite(schema: RecordSchema) -> ExpectationSuite:
    """The suite for a frame of decoded cells, as `dpcore.records.schema` describes them, with their `ENCODED_NORM`.

    The frame also has the truth of each rule of the schema (`expectations.rules`).

    Rules: `in-bounds`, `known-category`, `not-missing` (where the schema says
    nothing about missing cells), `rule` and `unit-ball`: no record is longer than the ball in which it is
    measured, before its cells are clamped and its point is drawn back.
    """
    if ENCODED_NORM in schema.by_name:
        raise ValueError(f"no column may be called {ENCODED_NORM!r}")
    with quietly():
        import great_expectations as gx

        expectations = [rule for column in schema.columns for rule in _cell_rules(column)]
        expectations += [*rule_expectations(schema.rules), *_unit_ball()]
        return gx.ExpectationSuite(name="landing cells", expectations=expectations)


def structure_verdicts(
    shapes: Sequence[Mapping[str, str]],
    schema: RecordSchema,
    *,
    extra_columns: Sequence[str],
    required: Sequence[str],
    typed: bool,
) -> list[tuple[Verdict, ...]]:
    """The verdicts of `structure_suite` on each shape: the names of columns, and their canonical dtypes."""
    import pandas as pd

    runner = SuiteRunner(structure_suite(schema, extra_columns=extra_columns, required=required, typed=typed))
    frames = (pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in shape.items()}) for shape in shapes)
    return [runner.validate(frame) for frame in frames]


def cell_verdicts(extremes: Extremes, schema: RecordSchema) -> tuple[Verdict, ...]:
    """The verdicts of `cell_suite` on all rows that these cells are the extremes of."""
    return SuiteRunner(cell_suite(schema)).validate(extremes.frame())


def _presence(schema: RecordSchema, extra_columns: Sequence[str], required: Sequence[str]) -> Iterator[Expectation]:
    from great_expectations import expectations as gxe

    from expectations.custom import ExpectColumnsWithin

    needed = list(dict.fromkeys([*schema.by_name, *required]))
    for name in needed:
        yield gxe.ExpectColumnToExist(column=neutral_name(name), meta=label(name, "column-missing"))
    yield ExpectColumnsWithin(
        allowed=[*map(neutral_name, (*needed, *extra_columns))], meta=label(None, "column-undeclared")
    )


def _types(schema: RecordSchema) -> Iterator[Expectation]:
    from expectations.custom import ExpectColumnDtypeInSet

    for column in schema.columns:
        meta = label(column.name, "column-type")
        yield ExpectColumnDtypeInSet(column=neutral_name(column.name), dtypes=list(landing_dtypes(column)), meta=meta)


def _cell_rules(column: Column) -> Iterator[Expectation]:
    may_be_missing = column.missing_level or column.impute is not None
    if isinstance(column, IntervalColumn):
        return _interval_rules(column, may_be_missing=may_be_missing)
    return _nominal_rules(column, may_be_missing=may_be_missing)


def _interval_rules(column: IntervalColumn, *, may_be_missing: bool) -> Iterator[Expectation]:
    from great_expectations import expectations as gxe

    yield gxe.ExpectColumnValuesToBeBetween(
        column=neutral_name(column.name),
        min_value=column.lower,
        max_value=column.upper,
        meta=label(column.name, "in-bounds"),
    )
    if not may_be_missing:
        yield gxe.ExpectColumnValuesToNotBeNull(
            column=neutral_name(column.name), meta=label(column.name, "not-missing")
        )


def _nominal_rules(column: NominalColumn, *, may_be_missing: bool) -> Iterator[Expectation]:
    from great_expectations import expectations as gxe

    yield gxe.ExpectColumnValuesToBeBetween(
        column=neutral_name(column.name),
        min_value=MISSING,  # just above UNKNOWN
        max_value=len(column.levels) - 1,
        meta=label(column.name, "known-category"),
    )
    if not may_be_missing:
        meta = label(column.name, "not-missing")
        yield gxe.ExpectColumnValuesToNotBeInSet(column=neutral_name(column.name), value_set=[MISSING], meta=meta)


def _unit_ball() -> Iterator[Expectation]:
    from great_expectations import expectations as gxe

    meta = label(None, "unit-ball")
    yield gxe.ExpectColumnValuesToBeBetween(column=neutral_name(ENCODED_NORM), max_value=_LONGEST_NORM, meta=meta)
    # Comparisons skip NaN, yet a record without a norm is not inside the ball.
    yield gxe.ExpectColumnValuesToNotBeNull(column=neutral_name(ENCODED_NORM), meta=meta)
