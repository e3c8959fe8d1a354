"""The tolerances within which a recomputed cell or figure counts as the published one.

If the libraries and the platform are those that the record names, everything must be identical. Otherwise
the last bits of sums of products differ, and the tolerances below apply. They are wide compared with
rounding, which moves a cell by about 1e-12 of its range, and narrow compared with data: a table in which
1 in 100 rows is not the model's exceeds them tenfold.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpcore.records.schema import Column, IntervalColumn, RecordSchema
from tasks.report.wording import is_number
from tasks.workspace.build_identity import platform_facts, software_versions

RELATIVE_DISTANCE = 1e-7
"""The tolerance for interval columns, relative to their range: five orders of magnitude above rounding."""

ODD_SHARE = 1e-3
"""The share of a column's cells that may differ arbitrarily: if a draw falls on the border of two levels, classes or
whole numbers, rounding decides between them. In tables with fewer than a thousand rows no cell may differ."""

FIGURE_DISTANCE = 1e-6
"""The tolerance for figures, which are sums over many cells, relative to their size or to 1."""

LIBRARIES = ("numpy", "scipy", "randomgen", "pyarrow", "scikit-learn")
"""The libraries that compute rows and figures."""


def other_versions(record: dict[str, Any]) -> list[str]:
    """The libraries whose versions differ from the record's, and `platform` if it differs."""
    here = software_versions()
    found = [name for name in LIBRARIES if record["software"].get(name) != here.get(name)]
    return found + (["platform"] if record["code"].get("platform") != platform_facts() else [])


def odd_cells(drawn: pa.Table, found: pa.Table, schema: RecordSchema, *, exact: bool) -> dict[str, int]:
    """The number of cells of each column that differ from the redrawn ones."""
    return {
        column.name: int(_odd(drawn[column.name], found[column.name], column, exact=exact).sum())
        for column in schema.columns
    }


def _odd(drawn: pa.ChunkedArray, found: pa.ChunkedArray, column: Column, *, exact: bool) -> NDArray[np.bool_]:
    """Which cells differ: only one is present, or both are present and unequal."""
    missing = [cells.is_null().to_numpy() for cells in (drawn, found)]
    if isinstance(column, IntervalColumn):
        numbers = [_numbers(cells) for cells in (drawn, found)]
        if exact:  # bit for bit: 0 and -0 are two cells
            apart = numbers[0].view(np.int64) != numbers[1].view(np.int64)
        else:  # whole numbers and days of a range below 1e7 must be equal
            distance = np.abs((numbers[0] - numbers[1]).astype(np.float64))  # as integers, |-2**63| is negative
            apart = ~(distance <= RELATIVE_DISTANCE * (column.upper - column.lower))
    else:
        apart = pc.fill_null(pc.not_equal(drawn, found), False).to_numpy()
    odd: NDArray[np.bool_] = np.where(missing[0] | missing[1], missing[0] != missing[1], apart)
    return odd


def _numbers(cells: pa.ChunkedArray) -> NDArray[Any]:
    """Numbers, days or microseconds; 0 if a cell is missing."""
    if pa.types.is_date32(cells.type):
        cells = cells.cast(pa.int32())
    whole = cells if pa.types.is_floating(cells.type) else cells.cast(pa.int64())
    numbers: NDArray[Any] = pc.fill_null(whole, 0).to_numpy()
    return numbers


def may_be_odd(odd: int, cells: int, *, exact: bool) -> bool:
    """Whether `odd` of a column's cells may differ."""
    return odd == 0 if exact else odd <= math.floor(ODD_SHARE * cells)


def same_figures(stated: Any, due: Any, *, exact: bool) -> bool:
    """Whether a document states exactly the figures that are due, and nothing else."""
    if isinstance(due, dict):
        return (
            isinstance(stated, dict)
            and list(stated) == list(due)
            and all(same_figures(stated[key], value, exact=exact) for key, value in due.items())
        )
    if isinstance(due, list | tuple):
        return (
            isinstance(stated, list)
            and len(stated) == len(due)
            and all(same_figures(one, other, exact=exact) for one, other in zip(stated, due, strict=True))
        )
    if exact or not is_number(due) or not is_number(stated):
        return type(stated) is type(due) and bool(stated == due)
    return math.isclose(stated, due, rel_tol=FIGURE_DISTANCE, abs_tol=FIGURE_DISTANCE)
