"""Positions of the rows of each class, and random classes for rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpcore.records.schema import Codes, Floats


def rows_by_class(classes: Codes) -> Iterator[tuple[int, slice | Codes]]:
    """Yield each class that occurs with the positions of its rows: a slice (a view, no copy) if they are contiguous."""
    for index in np.flatnonzero(np.bincount(classes)):
        mine = np.flatnonzero(classes == index)
        together = mine[-1] - mine[0] == len(mine) - 1
        yield int(index), slice(int(mine[0]), int(mine[-1]) + 1) if together else mine


def draw_classes(rows: int, weights: Floats, generator: np.random.Generator) -> Codes:
    """Draw the classes of independent rows with these shares; the result is sorted by class."""
    return np.repeat(np.arange(len(weights)), generator.multinomial(rows, weights))
