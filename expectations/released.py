"""The suite for a released table, which is public: its verdicts may be published.

All its rules but the number of rows are about columns and single cells, so a few cells of each
column decide them, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.records.schema import Column, IntervalColumn, Kind, NominalColumn, RecordSchema
from expectations.quiet import quietly
from expectations.verdicts import Verdict, label, neutral_name, validate

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations import ExpectationSuite
    from great_expectations.expectations.expectation import Expectation

ROW_COUNT = "row-count"

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


class DecidingCells:
    """The cells of a released table that decide every rule about its columns, in memory that does not grow.

    Of an interval column the least, the largest and a missing one; of a nominal one as many different
    values as it has levels and one more, of which one is then unknown.
    """

    def __init__(self, schema: RecordSchema, columns: pa.Schema) -> None:
        """`columns` are those of the table, whatever the schema says."""
        self._schema, self._columns = schema, columns
        self._cells = [pa.chunked_array([], field.type) for field in columns]
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes in a batch of rows."""
        self.rows += len(batch)
        self._cells = [
            self._deciding(field.name, pa.chunked_array([*found.chunks, new], field.type))
            for field, found, new in zip(self._columns, self._cells, batch.columns, strict=True)
        ]

    def frame(self) -> pd.DataFrame:
        """These cells as a frame with the columns and dtypes of the whole table; no rows if it has none."""
        rows = max(len(cells) for cells in self._cells) if self._cells else 0
        filled = [cells.take(pa.array(np.minimum(np.arange(rows), len(cells) - 1))) for cells in self._cells]
        return pa.table(filled, schema=self._columns).to_pandas(date_as_object=False)

    def _deciding(self, name: str, cells: pa.ChunkedArray) -> pa.ChunkedArray:
        column = self._schema.by_name.get(name)
        if column is None:
            return cells.slice(0, 1)
        present = _present(cells)
        if isinstance(column, NominalColumn):
            chosen = list(present.unique()[: len(column.levels) + 1])
        else:
            chosen = list(pc.min_max(present).values()) if len(present) else []
        missing = [None] if len(present) < len(cells) else []
        return pa.chunked_array([pa.array([*chosen, *missing], cells.type)])


def _present(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """The cells that pandas does not take for missing; most often all of them, which are then not copied."""
    if cells.null_count:
        cells = cells.drop_null()
    if pa.types.is_floating(cells.type) and pc.any(pc.is_nan(cells)).as_py():
        cells = cells.filter(pc.invert(pc.is_nan(cells)))
    return cells


def released_verdicts(cells: DecidingCells, schema: RecordSchema, *, rows: int) -> tuple[Verdict, ...]:
    """The verdicts of `released_suite` on the whole table that these cells decide."""
    frame = cells.frame()
    verdicts = validate(frame, released_suite(schema, rows=len(frame)))
    return tuple(
        Verdict(None, verdict.rule, cells.rows == rows) if verdict.rule == ROW_COUNT else verdict
        for verdict in verdicts
    )


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

    yield gxe.ExpectTableColumnsToMatchOrderedList(
        column_list=[*map(neutral_name, schema.by_name)], meta=label(None, "columns")
    )
    yield gxe.ExpectTableRowCountToEqual(value=rows, meta=label(None, ROW_COUNT))


def _column_rules(column: Column) -> Iterator[Expectation]:
    from great_expectations import expectations as gxe

    from expectations.custom import ExpectColumnDtypeInSet

    name = column.name
    yield ExpectColumnDtypeInSet(
        column=neutral_name(name), dtypes=list(released_dtypes(column)), meta=label(name, "column-type")
    )
    yield _range_rule(column)
    if not column.missing_level:
        yield gxe.ExpectColumnValuesToNotBeNull(column=neutral_name(name), meta=label(name, "not-null"))


def _range_rule(column: Column) -> Expectation:
    from great_expectations import expectations as gxe

    if isinstance(column, NominalColumn):
        meta = label(column.name, "known-category")
        return gxe.ExpectColumnValuesToBeInSet(
            column=neutral_name(column.name), value_set=list(column.levels), meta=meta
        )
    lower, upper = (_in_original_unit(column, bound) for bound in (column.lower, column.upper))
    meta = label(column.name, "in-bounds")
    return gxe.ExpectColumnValuesToBeBetween(
        column=neutral_name(column.name), min_value=lower, max_value=upper, meta=meta
    )


def _in_original_unit(column: IntervalColumn, bound: float) -> float | datetime:
    """A bound as the released column shows it: days and microseconds become dates and instants."""
    match column.kind:
        case Kind.DATE:
            return datetime(1970, 1, 1) + timedelta(days=bound)
        case Kind.TIMESTAMP:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=bound)
        case _:
            return bound
