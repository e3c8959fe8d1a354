"""Records encoded by the indicators of their groups, centred and scaled by released histograms.

A column of L groups takes L - 1 coordinates: the indicators of its groups, minus the released
shares, in an orthonormal basis of the complement of the constant. After centring, a common
value lies near 0 and typical records are much shorter than the longest possible one. Points are
therefore divided by the length of a typical record, and longer ones are clipped to the unit ball
(N1). The number of coordinates is public; coordinates that no group uses are 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from dpcore.measurements.groups import ColumnGroups
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Cells, Codes, Floats, RecordSchema

NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(12)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
"""Nodes and weights of the Gauss-Hermite quadrature for a normal law."""


def contrasts(size: int) -> Floats:
    """Return `size` - 1 orthonormal rows orthogonal to the constant (Helmert contrasts)."""
    rows = np.zeros((size - 1, size))
    for i in range(1, size):
        rows[i - 1, :i], rows[i - 1, i] = 1.0, -i
        rows[i - 1] /= math.sqrt(i * (i + 1))
    return rows


class GroupedEncoding:
    """The map from cells to points in a unit ball of public dimension."""

    def __init__(self, schema: RecordSchema, groups: Sequence[ColumnGroups], width: int, *, room: float) -> None:
        self.schema, self.groups, self.width = schema, list(groups), width
        self.portions = [column.portions for column in groups]
        self.contrasts = [contrasts(column.size) for column in groups]
        self.corners = [(np.eye(len(p)) - p) @ h.T for p, h in zip(self.portions, self.contrasts, strict=True)]
        stops = np.cumsum([0, *(column.size - 1 for column in groups)])
        if stops[-1] > width:
            raise ValueError(f"the groups need {stops[-1]} coordinates, {width} were planned")
        self.slices = [slice(int(a), int(b)) for a, b in pairwise(stops)]
        self.typical = sum(1 - float(p @ p) for p in self.portions)
        """Mean squared length of a record whose columns have the released shares."""
        self.radius = math.sqrt(room * max(self.typical, 1e-9))
        self._plain = Encoding(schema)

    def encode(self, cells: Cells) -> Floats:
        """Return the points, one per record; an unknown cell is encoded at the centre of its column."""
        rows = len(next(iter(cells.values())))
        points = np.zeros((rows, self.width))
        for column, corners, place in zip(self.groups, self.corners, self.slices, strict=True):
            points[:, place] = np.vstack([corners, np.zeros(corners.shape[1])])[column.codes(cells)]
        points /= self.radius
        longest = np.abs(points).max(axis=1, initial=1.0)  # `integer_records` enforces the exact bound on lengths
        clipped: Floats = points / longest[:, None]
        return clipped

    def clipping_factors(self, *columns: int) -> tuple[Floats, Floats]:
        """Return the mean factors by which clipping scales a record and its square, for each group of some columns.

        The sum of the other columns' squared lengths is taken as normal, which it nearly is for independent columns.
        """
        lengths = [(corners**2).sum(axis=1) for corners in self.corners]
        known = np.zeros(())
        for column in columns:
            known = known[..., None] + lengths[column]
        others = [c for c in range(len(lengths)) if c not in columns]
        means = [float(self.portions[c] @ lengths[c]) for c in others]
        spread = sum(float(self.portions[c] @ (lengths[c] - mean) ** 2) for c, mean in zip(others, means, strict=True))
        squared = known[..., None] + sum(means) + math.sqrt(spread) * NODES
        left = np.minimum(1.0, self.radius / np.sqrt(np.maximum(squared, 1e-12)))
        return left @ NODE_WEIGHTS, left**2 @ NODE_WEIGHTS

    def classes(self, cells: Cells) -> Codes:
        """Return the class of each record."""
        return self._plain.classes(cells)
