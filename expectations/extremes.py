"""The few cells that decide every rule about single cells, however many rows there are.

A rule that bounds a cell, forbids a missing one or forbids the code `MISSING` holds for all
cells of a column exactly if it holds for the least, the largest and a missing one. So a suite of
such rules gives on these cells the verdicts that it would give on the whole table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.records.schema import MISSING

if TYPE_CHECKING:
    import pandas as pd


class Extremes:
    """The extreme cells of all rows added so far, column by column, in memory that does not grow.

    Numbers are floats, NaN where a cell is missing; codes are integers, `MISSING` where one is.
    """

    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}

    def add(self, columns: Mapping[str, NDArray[np.generic]]) -> None:
        """Takes in a batch of rows: an array of each column, always under the same names."""
        self._fold({name: _Column.of(cells) for name, cells in columns.items()})

    def merge(self, other: Extremes) -> None:
        """Takes in all rows that another one has seen; the order of merges makes no difference."""
        if other._columns:
            self._fold(other._columns)

    @property
    def is_empty(self) -> bool:
        """Whether there was no row yet."""
        return not any(column.cells for column in self._columns.values())

    def frame(self) -> pd.DataFrame:
        """A few rows with the extreme cells of every column, in float64 and int64; none if there was no row."""
        import pandas as pd

        return pd.DataFrame({name: column.array() for name, column in self._columns.items()})

    def _fold(self, found: Mapping[str, _Column]) -> None:
        if not self._columns:
            self._columns = dict(found)
            return
        if found.keys() != self._columns.keys():
            raise ValueError("every batch must have the same columns")
        self._columns = {name: column.with_cells_of(found[name]) for name, column in self._columns.items()}


@dataclass(frozen=True, slots=True)
class _Column:
    """The extremes of one column: none, or as many as every other column that has seen a row."""

    is_float: bool
    cells: tuple[float | int, ...] = ()

    @classmethod
    def of(cls, cells: NDArray[np.generic]) -> Self:
        if cells.dtype.kind == "f":
            return cls(True, _extreme_numbers(cells))
        if cells.dtype.kind in "iub":
            return cls(False, _extreme_codes(cells))
        raise TypeError(f"cells must be numbers or codes, not {cells.dtype}")

    def with_cells_of(self, other: _Column) -> _Column:
        if self.is_float != other.is_float:
            raise TypeError("a column must be numbers in every batch, or codes in every batch")
        both = np.array(self.cells + other.cells, dtype=self.array().dtype)
        return _Column.of(both)

    def array(self) -> NDArray[np.generic]:
        return np.array(self.cells, dtype=np.float64 if self.is_float else np.int64)


def _extreme_numbers(cells: NDArray[np.generic]) -> tuple[float, ...]:
    """Least, largest, and NaN if there is one (the largest again if not)."""
    if cells.size == 0:
        return ()
    least = float(cells.min())  # NaN if any is
    if not math.isnan(least):
        largest = float(cells.max())
        return least, largest, largest
    return float(np.fmin.reduce(cells)), float(np.fmax.reduce(cells)), least


def _extreme_codes(cells: NDArray[np.generic]) -> tuple[int, ...]:
    """Least, largest, and `MISSING` if there is one (the largest again if not)."""
    if cells.size == 0:
        return ()
    least, largest = int(cells.min()), int(cells.max())
    # Only below MISSING is it hidden behind another code.
    has_missing = least <= MISSING <= largest and (least == MISSING or bool((cells == MISSING).any()))
    return least, largest, MISSING if has_missing else largest
