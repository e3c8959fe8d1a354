"""Public histogram cells of a column, which do not depend on the data.

The cells of a nominal column are its levels. An interval column has one cell per whole
number if there are few, else a grid that is fine around 0, where amounts concentrate, and
nowhere coarser than a 64th of the distance between the bounds. Cells of amounts begin at round
numbers: people record round amounts and ask about them, and a value at an edge lies in the cell
above it. Missing values have their own cell if the column says so. The cell of a value is found
by comparisons alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import count

import numpy as np
from numpy.typing import NDArray

from dpcore.records.encoding import level_of
from dpcore.records.schema import MISSING, Codes, Column, Floats, IntervalColumn, Kind, NominalColumn

MOST_WHOLE_CELLS = 128
"""The largest number of whole numbers that have one cell each."""

EQUAL_CELLS = 64
"""Cells of equal width between the bounds."""

CELLS_PER_OCTAVE, OCTAVES = 8, 16
"""Cells between an amount and its double where edges are not round, and how often the largest amount is halved."""

ROUND_STEPS = (5, 2, 1)
"""Widths of cells of about equal width, times a power of ten."""

ROUND_AMOUNTS = (10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 25, 28, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 90)
"""Edges of the cells of amounts, times a power of ten: an amount is told to a sixth."""

UNCOUNTED = -1
"""The code of a value that falls into no cell and is not counted."""


@dataclass(frozen=True)  # no slots: the edges are cached
class ColumnCells:
    """The histogram cells of one column."""

    column: Column
    round_edges: bool = True
    """Whether edges are round numbers, as in all but the first releases."""

    @cached_property
    def edges(self) -> Floats:
        """The lower edges of an interval column's cells, and the upper edge of the last."""
        assert isinstance(self.column, IntervalColumn)  # noqa: S101  nominal columns have levels
        return _cell_edges(self.column, round_edges=self.round_edges)

    @cached_property
    def breaks(self) -> set[int]:
        """The cells of an interval column that begin at a public break."""
        assert isinstance(self.column, IntervalColumn)  # noqa: S101  nominal columns have levels
        return set(np.searchsorted(self.edges, _as_edges(self.column)).tolist())

    @property
    def count(self) -> int:
        """The number of cells."""
        if isinstance(self.column, NominalColumn):
            return self.column.level_count
        return len(self.edges) - 1 + self.column.missing_level

    @property
    def counts_all(self) -> bool:
        """Whether every record falls into some cell, whatever its value."""
        return isinstance(self.column, IntervalColumn) or self.column.other is not None

    def codes(self, cells: NDArray[np.generic]) -> Codes:
        """The cell of each value; `UNCOUNTED` for a nominal value that maps to no level."""
        column = self.column
        if isinstance(column, NominalColumn):
            return level_of(np.asarray(cells, dtype=np.int64), column)
        values = np.asarray(cells, dtype=np.float64)
        missing = np.isnan(values)
        stand_in = column.middle if column.impute is None or column.missing_level else column.impute
        inside = np.clip(np.where(missing, stand_in, values), column.lower, column.upper)
        last = len(self.edges) - 2
        found = np.clip(np.searchsorted(self.edges, inside, side="right") - 1, 0, last)
        return np.where(missing & column.missing_level, last + 1, found).astype(np.int64)

    def values(self, codes: Codes, generator: np.random.Generator) -> NDArray[np.generic]:
        """Draw a value of each cell, uniformly inside it."""
        if isinstance(self.column, NominalColumn):
            return self.values_at(codes, np.zeros(0))
        return self.values_at(codes, generator.random(len(codes)))

    def values_at(self, codes: Codes, positions: Floats) -> NDArray[np.generic]:
        """Return the value at a position from 0 to below 1 inside each cell; a level has no positions."""
        column = self.column
        if isinstance(column, NominalColumn):
            return np.where(codes < len(column.levels), codes, MISSING)
        missing = codes >= len(self.edges) - 1
        known = np.where(missing, 0, codes)
        low, high = self.edges[known], self.edges[known + 1]
        drawn = np.minimum(low + positions * (high - low), np.nextafter(high, low))  # half-open
        if column.is_whole:
            drawn = np.clip(np.floor(drawn), math.ceil(column.lower), math.floor(column.upper))
        return np.where(missing, np.nan, np.clip(drawn, column.lower, column.upper))

    def positions(self) -> tuple[Floats, Floats]:
        """Mean and mean square of the values in each cell, as positions between the bounds in [-1, 1]."""
        column = self.column
        assert isinstance(column, IntervalColumn)  # noqa: S101  nominal columns have no positions
        one = 1 / column.half_width if column.is_whole else 0.0
        low = (self.edges[:-1] - column.middle) / column.half_width
        width = np.diff(self.edges) / column.half_width - one  # from a cell's first to its last value
        mean = low + width / 2
        return mean, mean**2 + (width + 2 * one) * width / 12


def _cell_edges(column: IntervalColumn, *, round_edges: bool) -> Floats:
    """Edges of half-open cells; for whole numbers they are whole and the last is one above the upper bound."""
    low, high = column.lower, column.upper
    if column.is_whole:
        low = float(math.ceil(low))
        high = max(low, float(math.floor(high)))  # one cell if no whole number lies within the bounds
        if high - low < MOST_WHOLE_CELLS:
            return np.arange(low, high + 2)
    if round_edges and column.kind in (Kind.NUMERIC, Kind.INTEGER):
        inner = _round_edges(column, low, high)
    else:
        inner = np.concatenate([np.linspace(low, high, EQUAL_CELLS + 1), *_edges_around_zero(column, low, high)])
    if column.is_whole:
        inner = np.ceil(inner)
    inner = np.concatenate([inner, _as_edges(column)])
    inside = np.unique(inner[(inner > low) & (inner < high)])
    last = [high, high + 1] if column.is_whole else [high]
    return np.concatenate([[low], inside, last])


def _as_edges(column: IntervalColumn) -> Floats:
    """Return the breaks as edges of cells: whole ones for whole numbers."""
    breaks = np.asarray(column.breaks, dtype=np.float64)
    return np.ceil(breaks) if column.is_whole else breaks


def _round_edges(column: IntervalColumn, low: float, high: float) -> Floats:
    """Return round numbers: multiples of a step, amounts on both sides of 0, and the edges of 0 itself."""
    lower, upper = Fraction(low), Fraction(high)
    step = _round_step((upper - lower) / EQUAL_CELLS)
    multiples = [number * step for number in range(math.ceil(lower / step), math.floor(upper / step) + 1)]
    largest = max(abs(lower), abs(upper))
    least = max(largest / 2**OCTAVES, Fraction(column.is_whole))
    powers = range(_power_of_ten(least) - 2, _power_of_ten(largest) + 1)
    amounts = [number * Fraction(10) ** power for power in powers for number in ROUND_AMOUNTS]
    amounts = [amount for amount in amounts if least <= amount <= largest]
    zero = [0.0, 1.0 if column.is_whole else np.nextafter(0.0, 1.0)]
    return np.array([*map(float, [*multiples, *amounts, *(-amount for amount in amounts)]), *zero])


def _round_step(widest: Fraction) -> Fraction:
    """Return the largest round number that is not above `widest`."""
    powers = count(_power_of_ten(widest) + 1, -1)
    steps = (number * Fraction(10) ** power for power in powers for number in ROUND_STEPS)
    return next(step for step in steps if step <= widest)


def _power_of_ten(number: Fraction) -> int:
    """Return the power of ten below a number, or one beside it where logarithms are rounded."""
    return math.floor(math.log10(number.numerator) - math.log10(number.denominator))


def _edges_around_zero(column: IntervalColumn, low: float, high: float) -> tuple[Floats, ...]:
    """Edges that approach 0 geometrically from both sides, with one cell for 0 itself; none for dates."""
    if column.kind not in (Kind.NUMERIC, Kind.INTEGER):
        return ()
    largest = max(abs(low), abs(high))
    least = 1.0 if column.is_whole else largest * 2.0**-OCTAVES
    amounts = largest * 2.0 ** (-np.arange(CELLS_PER_OCTAVE * OCTAVES) / CELLS_PER_OCTAVE)
    amounts = amounts[amounts >= least]
    return amounts, -amounts, np.array([0.0, 1.0 if column.is_whole else np.nextafter(0.0, 1.0), least])
