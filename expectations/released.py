"""The suite for a released table, which is public: its verdicts may be published."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from dpcore.schema import Column, IntervalColumn, Kind, NominalColumn, RecordSchema
from expectations.quiet import quietly
from expectations.verdicts import label

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.expectations.expectation import Expectation

_RESOLUTIONS = ("s", "ms", "us", "ns")


def released_dtypes(column: Column) -> tuple[str, ...]:
    """The dtypes that a released column may have.

    They are those of `pyarrow.Table.to_pandas(date_as_object=False)`, which turns
    integers with nulls into floats and booleans with nulls into objects, and
    pandas' own nullable ones.
    """
    if isinstance(column, NominalColumn):
        return _nominal_dtypes(column)
    match column.kind:
        case Kind.INTEGER:
            return _integer_dtypes(nullable=column.missing_level)
        case Kind.DATE:
            return tuple(f"datetime64[{unit}]" for unit in _RESOLUTIONS)
        case Kind.TIMESTAMP:
            return tuple(f"datetime64[us, {zone}]" for zone in dict.fromkeys(["UTC", column.timezone]))
        case _:
            return ("float64",)


def released_suite(schema: RecordSchema, *, rows: int) -> ExpectationSuite:
    """The suite for the synthetic table in its original columns.

    Rules: `columns` (names and order), `row-count`, and for each column
    `column-type`, `in-bounds` or `known-category`, and `not-null` (where missing
    cells have no level of their own).
    """
    with quietly():
        import great_expectations as gx

        expectations = [rule for column in schema.columns for rule in _column_rules(column)]
        return gx.ExpectationSuite(name="released", expectations=[*_table_rules(schema, rows), *expectations])


def _integer_dtypes(*, nullable: bool) -> tuple[str, ...]:
    return ("int64", "Int64", "float64") if nullable else ("int64", "Int64")


def _nominal_dtypes(column: NominalColumn) -> tuple[str, ...]:
    types = {type(level) for level in column.levels}
    if types == {bool}:
        return ("bool", "boolean", "object") if column.missing_level else ("bool", "boolean")
    if types == {int}:
        return _integer_dtypes(nullable=column.missing_level)
    return ("str",)


def _table_rules(schema: RecordSchema, rows: int) -> Iterator[Expectation]:
    from great_expectations import expectations as gxe

    yield gxe.ExpectTableColumnsToMatchOrderedList(column_list=list(schema.by_name), meta=label(None, "columns"))
    yield gxe.ExpectTableRowCountToEqual(value=rows, meta=label(None, "row-count"))


def _column_rules(column: Column) -> Iterator[Expectation]:
    from great_expectations import expectations as gxe

    from expectations.custom import ExpectColumnDtypeInSet

    name = column.name
    yield ExpectColumnDtypeInSet(column=name, dtypes=list(released_dtypes(column)), meta=label(name, "column-type"))
    yield _range_rule(column)
    if not column.missing_level:
        yield gxe.ExpectColumnValuesToNotBeNull(column=name, meta=label(name, "not-null"))


def _range_rule(column: Column) -> Expectation:
    from great_expectations import expectations as gxe

    if isinstance(column, NominalColumn):
        meta = label(column.name, "known-category")
        return gxe.ExpectColumnValuesToBeInSet(column=column.name, value_set=list(column.levels), meta=meta)
    lower, upper = (_in_original_unit(column, bound) for bound in (column.lower, column.upper))
    meta = label(column.name, "in-bounds")
    return gxe.ExpectColumnValuesToBeBetween(column=column.name, min_value=lower, max_value=upper, meta=meta)


def _in_original_unit(column: IntervalColumn, bound: float) -> float | datetime:
    """A bound as the released column shows it: days and microseconds become dates and instants."""
    match column.kind:
        case Kind.DATE:
            return datetime(1970, 1, 1) + timedelta(days=bound)
        case Kind.TIMESTAMP:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=bound)
        case _:
            return bound
