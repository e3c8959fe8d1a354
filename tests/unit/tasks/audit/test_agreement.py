"""Which cells count as redrawn, on the platform of the record and on another one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dpcore.records.schema import Column, IntervalColumn, Kind, NominalColumn, RecordSchema
from tasks.audit.agreement import odd_cells

WIDE = IntervalColumn(name="code", kind=Kind.INTEGER, lower=0, upper=10**15)
COLUMNS: list[tuple[Column, pa.DataType, object, object, bool]] = [
    (WIDE, pa.int64(), 8 * 10**14, 8 * 10**14 + 3, True),  # the last bits of a position within 10^15
    (WIDE, pa.int64(), 8 * 10**14, 8 * 10**14 + 2 * 10**8, False),
    (IntervalColumn(name="visits", kind=Kind.INTEGER, lower=0, upper=50), pa.int64(), 7, 8, False),
    (IntervalColumn(name="born", kind=Kind.DATE, lower=-18_000, upper=20_000), pa.date32(), 100, 101, False),
    (IntervalColumn(name="cost", kind=Kind.NUMERIC, lower=0, upper=1_000), pa.float64(), 7.0, 7.0 + 1e-12, True),
    (IntervalColumn(name="cost", kind=Kind.NUMERIC, lower=0, upper=1_000), pa.float64(), 7.0, 7.001, False),
    (
        NominalColumn(name="city", kind=Kind.CATEGORICAL, levels=("north", "south")),
        pa.string(),
        "north",
        "south",
        False,
    ),
]


@pytest.mark.parametrize(("column", "kind", "drawn", "found", "agree"), COLUMNS)
def test_rounding_on_another_platform_agrees_and_another_value_does_not(
    column: Column, kind: pa.DataType, drawn: object, found: object, agree: bool
) -> None:
    tables = [pa.table({column.name: pa.array([value, drawn, None], kind)}) for value in (drawn, found)]
    schema = RecordSchema((column,))
    assert odd_cells(*tables, schema, exact=False) == {column.name: 0 if agree else 1}
    assert odd_cells(*tables, schema, exact=True) == {column.name: 1}


def test_a_cell_that_is_missing_in_one_table_alone_never_agrees() -> None:
    tables = [pa.table({"code": pa.array([value], pa.int64())}) for value in (0, None)]
    for exact in (True, False):
        assert odd_cells(*tables, RecordSchema((WIDE,)), exact=exact) == {"code": 1}


@pytest.mark.parametrize("found", [-(2**63), 2**63 - 1])
def test_a_whole_number_far_outside_the_bounds_never_agrees(found: int) -> None:
    """Its distance to a cell need not fit into 64 bits."""
    for drawn in (0, 1, 1000):
        tables = [pa.table({"code": pa.array([value], pa.int64())}) for value in (drawn, found)]
        assert odd_cells(*tables, RecordSchema((WIDE,)), exact=False) == {"code": 1}
