"""Choice of a column's groups such that its tables with all earlier columns are about as expected.

The rows of a chunk are drawn in blocks, each an even sample of all rows. Before a block is drawn, every row's
probabilities are tilted against the surplus that the blocks before it left in all rows and in the row's pairs of
groups: a group that came too often with the row's earlier groups becomes a little less likely. The tilt is a linear
function of the surplus, whose expectation is 0, so that over all draws every row keeps the probabilities that the law
gives it. Where a tilt would make a probability negative, the row's whole tilt is reduced. Rows that a chunk contains
less than once may thereby become more likely, by at most about a hundredth of their probability in simulations.

Within a block, even points along the order of the rows decide the groups.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from dpcore.records.schema import Codes, Floats
from dpcore.synthesis.copula.rows_so_far import Flags
from dpcore.synthesis.copula.whole_chances import PARTS, chance_edges, chances_between, pick_groups
from dpcore.synthesis.even_points import GOLDEN, Words

BLOCK_SHARE = 1 / 4
"""Share of the remaining rows in the next block: the last blocks are small, and what they leave is all that remains."""

LEAST_BLOCK = 64
"""Rows of the smallest blocks."""

STIFFNESS = 0.3
"""How weakly the surplus of a pair of groups tilts probabilities, before it is shared by the tables of all columns."""

LEAST_ROWS = 2.0
"""Rows added to what a block expects. A single row too many of a rare group then tilts by a half for the group itself,
and by a half at most for all its pairs together, so that it does not forbid the next one."""

TILT_GRID = 2.0**-12
"""Unit of tilts: coarse enough for exact sums in any order."""

MOST_TILT = 2.0
"""Largest tilt by one earlier column."""


@functools.lru_cache(maxsize=4)  # all columns and nearly all chunks of a table have the same blocks
def even_blocks(rows: int) -> tuple[Codes, ...]:
    """Divide the places of an order into blocks, each of which is an even sample of them in ascending order."""
    sizes, left = [], rows
    while left:
        sizes.append(min(left, max(LEAST_BLOCK, int(left * BLOCK_SHARE))))
        left -= sizes[-1]
    lots = np.argsort(np.arange(rows, dtype=np.uint64) * GOLDEN)  # all words differ
    return tuple(np.sort(part) for part in np.split(lots, np.cumsum(sizes)[:-1]))


class PairBalance:
    """The surplus of every pair of groups while a column is drawn, block by block.

    `known` holds the indicators of the rows' classes, of which there are so many, and of the groups of earlier columns;
    `edges` are those of the rows' chances.
    """

    def __init__(self, known: Flags, edges: Floats, classes: int, columns: int) -> None:
        self._known, self._edges, self._chances = known, edges, chances_between(edges)
        self._classes, self._tables = classes, columns + 1
        self._surplus = np.zeros((known.shape[1], len(edges)))
        self._shares = self._chances.sum(axis=1) / (PARTS * len(known))
        self._portions = known.mean(axis=0, dtype=np.float64)

    def draw(self, block: slice, words: Words) -> Codes:
        """Draw the groups of a block at these points, and add it to the surplus."""
        chances, known = self._chances[:, block], self._known[block].astype(np.float64)
        edges = self._tilted(chances, known) if block.start else self._edges[:, block]
        groups = pick_groups(edges, words)
        excess = chances.T * (-1 / PARTS)
        excess[np.arange(len(groups)), groups] += 1.0
        self._surplus += known.T @ excess  # sums of whole parts are exact in any order
        return groups

    def _tilted(self, chances: Floats, known: Floats) -> Floats:
        """Return the edges of a block's chances after tilting them against the surplus."""
        tilt = np.ascontiguousarray((known @ self._weights(len(known))).T)
        tilt -= (chances * tilt).sum(axis=0) / PARTS
        tilt /= np.maximum(np.maximum(tilt.max(axis=0), -tilt.min(axis=0)), 1.0)
        tilt += 1.0
        tilt *= chances
        return chance_edges(tilt)

    def _weights(self, rows: int) -> Floats:
        """Return by how much each class and earlier group of a row tilts each group, in a block of so many rows.

        The surplus of a group by itself, which is part of its surplus in every table, counts once.
        """
        expected, in_all = rows * self._shares, self._surplus[: self._classes].sum(axis=0)
        in_pairs = self._surplus - np.outer(self._portions, in_all)
        softness = STIFFNESS * math.sqrt(self._tables) * np.outer(self._portions, expected)
        weights = -in_pairs / (softness + LEAST_ROWS * self._tables)
        weights[: self._classes] -= in_all / (expected + LEAST_ROWS)
        most = MOST_TILT / TILT_GRID
        on_grid: Floats = np.clip(np.rint(weights / TILT_GRID), -most, most) * TILT_GRID
        return on_grid
