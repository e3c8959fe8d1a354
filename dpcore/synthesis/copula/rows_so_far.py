"""The rows of a chunk while they are drawn, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpcore.records.schema import Codes

Singles = NDArray[np.float32]
Flags = NDArray[np.uint8]


class RowsSoFar:
    """The rows of a chunk while it is drawn, by class: groups and values of the columns so far."""

    def __init__(self, classes: Codes, class_count: int, sizes: Sequence[int]) -> None:
        self.classes, self.sizes = classes, tuple(sizes)
        self.class_count, self._width = class_count, class_count
        self._edges = np.searchsorted(classes, np.arange(class_count + 1))  # class k lies between edges k and k + 1
        self._indicators = np.zeros((len(classes), sum(sizes)), dtype=np.float32)
        self._flags = np.zeros((len(classes), class_count + sum(sizes)), dtype=np.uint8)
        self._flags[np.arange(len(classes)), classes] = 1
        self.groups = np.zeros((len(classes), len(sizes)), dtype=np.int64)
        self.values: dict[str, NDArray[np.generic]] = {}
        self.drawn = 0
        """The number of columns whose groups are drawn."""

    @property
    def earlier(self) -> Singles:
        """The indicators of the groups so far."""
        return self._indicators[:, : self._width - self.class_count]

    def known(self, columns: Sequence[int]) -> Flags:
        """The indicators of the classes and of the groups of some of the columns so far."""
        if len(columns) == self.drawn:
            return self._flags[:, : self._width]
        edges = self.class_count + np.cumsum([0, *self.sizes])
        places = [np.arange(edges[column], edges[column + 1]) for column in columns]
        found: Flags = self._flags[:, np.concatenate([np.arange(self.class_count), *places])]
        return found

    def by_class(self) -> list[tuple[int, slice]]:
        """The classes with rows, and where their rows are."""
        return [(k, slice(int(a), int(b))) for k, (a, b) in enumerate(pairwise(self._edges)) if a < b]

    def add(self, groups: Codes) -> None:
        """Add a column's groups."""
        rows = np.arange(len(groups))
        self.groups[:, self.drawn] = groups
        self._indicators[rows, self._width - self.class_count + groups] = 1.0
        self._flags[rows, self._width + groups] = 1
        self._width += self.sizes[self.drawn]
        self.drawn += 1
