"""Histograms of columns over public cells, measured together: the marginals of a release.

A unit adds at most `rows_per_unit` times a column's weight to that column's counts (GUARANTEE.md, S7).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from dpcore.measurements.groups import GROUPING, cells_of_columns
from dpcore.mechanisms.queries import GRID, HistogramsQuery
from dpcore.mechanisms.vectors import PrivateVector
from dpcore.records.binning import UNCOUNTED, ColumnCells
from dpcore.records.schema import Cells, Column, Floats

MANY_CELLS = 5
FEW_WEIGHT = Fraction(1, 4)
"""Weight of a column with few cells: its histogram serves for centring only, since the Gram measures it again."""


def histograms_query(columns: Sequence[Column], rows_per_unit: int = 1) -> HistogramsQuery:
    """Return the query for the histograms of these columns."""
    cells = tuple(column.count for column in cells_of_columns(columns))
    weights = tuple(Fraction(1) if count > MANY_CELLS else FEW_WEIGHT for count in cells)
    return HistogramsQuery(cells, weights, rows_per_unit, GROUPING)


def exact_histograms(
    chunks: Iterable[tuple[Cells, Floats | None]], columns: Sequence[ColumnCells], query: HistogramsQuery
) -> PrivateVector:
    """Return the exact counts of a chunked table; each chunk holds its rows' shares of their persons, or None."""
    return PrivateVector(query, count_cells(chunks, columns, query))


def count_cells(
    chunks: Iterable[tuple[Cells, Floats | None]], columns: Sequence[ColumnCells], query: HistogramsQuery
) -> list[int]:
    """Return the counts behind `exact_histograms` as plain integers, for synthetic rows and for parts of a table."""
    totals = [np.full(column.count, 0, dtype=object) for column in columns]
    for cells, shares in chunks:
        for total, column, weight in zip(totals, columns, query.weights, strict=True):
            codes = column.codes(cells[column.column.name])
            known = codes != UNCOUNTED
            one = float(weight * GRID)
            weights = np.full(len(codes), one) if shares is None else np.trunc(shares * one)
            sums = np.bincount(codes[known], weights=weights[known], minlength=column.count)  # exact below 2^53
            total += sums.astype(np.int64).astype(object)
    return [int(number) for total in totals for number in total]
