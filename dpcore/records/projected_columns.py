"""The columns of projected rows: a number for each coordinate, beside the label and target, which are not projected."""

from __future__ import annotations

from dataclasses import replace

from dpcore.records.schema import Column, IntervalColumn, Kind, RecordSchema, Role


def coordinate_name(index: int) -> str:
    """The name of a projected coordinate's column, counted from 0."""
    return f"c{index + 1}"


def columns_beside(schema: RecordSchema) -> tuple[Column, ...]:
    """The columns that are never projected and keep their own names: label and target."""
    return tuple(column for column in schema.columns if column.role is not Role.FEATURE)


def projected_schema(schema: RecordSchema, dimension: int) -> RecordSchema:
    """The columns of the projected table: one for each coordinate, then label and target."""
    coordinate = IntervalColumn(name="c", kind=Kind.NUMERIC, lower=-1.0, upper=1.0)
    coordinates = (replace(coordinate, name=coordinate_name(index)) for index in range(dimension))
    return RecordSchema((*coordinates, *columns_beside(schema)))
