"""The rows of a chunk while they are drawn, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpcore.records.schema import Codes
from dpcore.synthesis.copula.max_entropy import Singles
from dpcore.synthesis.even_points import Chunk

PARTS_BITS = 18
PARTS = 1 << PARTS_BITS
"""The number of parts into which a row's probabilities divide 1."""


class RowsSoFar:
    """The rows of a chunk while it is drawn: classes in order, and groups and values of the columns so far."""

    def __init__(self, chunk: Chunk, classes: Codes, sizes: Sequence[int], classes_count: int) -> None:
        self.chunk, self.classes, self.sizes = chunk, classes, sizes
        self.edges = np.searchsorted(classes, np.arange(classes_count + 1))
        """The rows of class k lie between edges k and k + 1."""
        self.groups = np.zeros((len(classes), len(sizes)), dtype=np.int64)
        self.indicators = np.zeros((len(classes), sum(sizes)), dtype=np.float32)
        self.values: dict[str, NDArray[np.generic]] = {}
        self.width, self.drawn = 0, 0

    @property
    def earlier(self) -> Singles:
        """The indicators of the groups so far."""
        return self.indicators[:, : self.width]

    def by_class(self) -> list[tuple[int, slice]]:
        """The classes with rows, and where their rows are."""
        return [(k, slice(int(a), int(b))) for k, (a, b) in enumerate(pairwise(self.edges)) if a < b]

    def add(self, groups: Codes) -> None:
        """Add a column's groups."""
        self.groups[:, self.drawn] = groups
        self.indicators[np.arange(len(groups)), self.width + groups] = 1.0
        self.width += self.sizes[self.drawn]
        self.drawn += 1
