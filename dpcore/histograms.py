"""Histograms of columns over public cells, measured together: the marginals of a release.

One unit adds at most 1 to the cells of each column, in all: that alone bounds what it moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dpcore.cells import NOTHING_KNOWN, ColumnCells
from dpcore.queries import GRID, HistogramsQuery
from dpcore.schema import Cells
from dpcore.vectors import PrivateVector

Floats = NDArray[np.float64]


def exact_histograms(
    chunks: Iterable[tuple[Cells, Floats | None]], columns: Sequence[ColumnCells], query: HistogramsQuery
) -> PrivateVector:
    """The exact counts of a table that comes in chunks, each row with its share of its person or None."""
    return PrivateVector(query, counted(chunks, columns))


def counted(chunks: Iterable[tuple[Cells, Floats | None]], columns: Sequence[ColumnCells]) -> list[int]:
    """The counts behind `exact_histograms`, in the open: for invented rows only."""
    totals = [np.full(column.count, 0, dtype=object) for column in columns]
    for cells, shares in chunks:
        for total, column in zip(totals, columns, strict=True):
            codes = column.codes(cells[column.column.name])
            known = codes != NOTHING_KNOWN
            weights = np.full(len(codes), float(GRID)) if shares is None else np.trunc(shares * GRID)
            sums = np.bincount(codes[known], weights=weights[known], minlength=column.count)  # exact below 2^53
            total += sums.astype(np.int64).astype(object)
    return [int(number) for total in totals for number in total]
