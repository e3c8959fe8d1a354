"""Frames for basis mechanisms: orthonormal directions, one per column, on the grid of projections."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpcore.mechanisms.base import Triangles, points_matrix
from dpcore.records.exact_sums import PROJECTION_BITS, GramLayout
from dpcore.records.schema import Floats

Integers = NDArray[np.int64]

FRAME_UNIT = 1 << PROJECTION_BITS
"""One, on the grid of a frame's entries."""


def points_width(layout: GramLayout) -> int:
    """The number of coordinates of a point, without the record's head."""
    return layout.dimension - layout.heads


def require_components(mechanism: str, layout: GramLayout, components: int) -> None:
    """Refuse a number of directions below 1 or above the number of the points' coordinates.

    Raises: ValueError.
    """
    if not 1 <= components <= points_width(layout):
        raise ValueError(f"{mechanism}: components must be between 1 and {points_width(layout)}, got {components}")


def pooled_points(sums: Triangles, layout: GramLayout) -> list[list[int]]:
    """The exact second moments of the points over all classes together, on the grid of products.

    One unit adds a positive semidefinite total of trace at most `rows_per_unit` to this
    sum of blocks: the head's part of `squared_norm` is left out.
    """
    blocks = [points_matrix(triangle, layout) for triangle in sums]
    return [[sum(cells) for cells in zip(*rows, strict=True)] for rows in zip(*blocks, strict=True)]


def orthonormal(matrix: Floats) -> Floats:
    """An orthonormal basis of the matrix's column space; for a standard normal matrix that space is uniform."""
    return np.linalg.qr(matrix)[0]


def on_grid(frame: Floats) -> Integers:
    """Entries rounded to whole multiples of 2^-20."""
    return np.rint(frame * FRAME_UNIT).astype(np.int64)


def contraction(frame: Floats) -> Integers:
    """The frame X on the grid, shrunk until exact integers show that its operator norm is at most 1.

    Guarantee: |D X| <= |D| in Frobenius norm for every D. The frame is public, so shrinking
    it is post-processing; the first step shrinks it by a millionth.
    """
    shrink = 0.0
    while True:
        whole = on_grid((1 - shrink) * frame)
        if squared_norm_above(whole) <= FRAME_UNIT**2:
            return whole
        shrink = max(2 * shrink, 1 / FRAME_UNIT)


def squared_norm_above(whole: Integers) -> int:
    """A bound on the squared operator norm: the largest absolute row sum of XᵀX, in exact integers."""
    return int(np.abs(whole.T @ whole).sum(axis=1).max())
