"""Second moments as exact integers, independent of the order, chunks, threads and machines.

A record is rounded to whole numbers on the grid 2^-k by a pure function of that record
(GUARANTEE.md, N1). Products and sums of such numbers are exact in float64 while
they stay below 2^53, so BLAS computes them without error; chunks are added in
Python integers. The sum's sensitivity is therefore exact.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.records.schema import Codes, Floats

BigIntegers = NDArray[np.object_]
"""Python integers, which do not overflow."""

GRID_BITS = 16
"""Records enter the Gram matrix on the grid 2^-16."""

POINT_BITS = 20
"""Points are truncated to the grid 2^-20 before they are projected."""

PROJECTION_BITS = 20
"""Entries of the projection are whole multiples of 2^-20."""

EXACT = 1 << 53
"""Integers up to this are exact in float64."""

SMALLEST_RADIUS = Fraction(1, 256)
"""In a smaller ball the grid would be too coarse for the records."""

ROWS_AT_ONCE = 1 << 20
"""Rows per product; with squared norms up to 2 on the grid 2^-16 the sums stay within `EXACT`."""


class InexactProductError(RuntimeError):
    """This machine's matrix product does not give exact integers."""


@dataclass(frozen=True, slots=True)
class GramLayout:
    """Public shape of the Gram blocks: a record adds z zᵀ with z = (s, y) to the block of its class.

    `count_weight` is s and `dimension` that of z. With `labels` there is one block, and
    the position of s among that many coordinates of z = (0, ..., s, ..., 0, y) encodes the class. One
    privacy unit adds a positive semidefinite total of trace at most `squared_norm` to all blocks together.
    """

    dimension: int
    blocks: int
    count_weight: Fraction
    rows_per_unit: int = 1
    labels: int = 0

    def __post_init__(self) -> None:
        if (self.count_weight * (1 << GRID_BITS)).denominator != 1 or not 0 < self.count_weight <= 1:
            raise ValueError("count_weight must be a positive multiple of the grid, at most 1")
        if self.dimension <= self.heads or self.blocks < 1 or self.rows_per_unit < 1 or self.labels < 0:
            raise ValueError("a layout needs dimension >= 2, at least one block and one row per unit")
        if self.labels and self.blocks > 1:
            raise ValueError("classes are told apart by labels or by blocks, not by both")

    @property
    def heads(self) -> int:
        """The number of coordinates before the point: one, or one per label."""
        return max(1, self.labels)

    @property
    def classes(self) -> int:
        """The number of classes that are measured separately, by blocks or by labels."""
        return max(self.blocks, self.labels)

    @property
    def squared_norm(self) -> Fraction:
        """The largest trace that one privacy unit adds: (1 + s²) times its rows."""
        return (1 + self.count_weight**2) * self.rows_per_unit

    @property
    def weight_on_grid(self) -> int:
        """s as a whole multiple of the grid."""
        return int(self.count_weight * (1 << GRID_BITS))


def quantised_projection(matrix: Floats) -> Floats:
    """The entries of a public projection as whole multiples of 2^-20."""
    if matrix.shape[0] << (POINT_BITS + PROJECTION_BITS) > EXACT:
        raise ValueError(f"at most {EXACT >> (POINT_BITS + PROJECTION_BITS)} encoded coordinates are supported")
    return np.rint(matrix * (1 << PROJECTION_BITS))


def integer_records(
    points: Floats,
    projection: Floats | None,
    layout: GramLayout,
    shares: Floats | None = None,
    classes: Codes | None = None,
    radius: float = 1.0,
) -> Floats:
    """Records z = (s, y) as whole numbers on the grid, a pure function of each record.

    `projection` is quantised; None stands for the identity. `shares` are the weights 1/k of a
    person's k rows: z is scaled by their square roots. `classes` give the position of s
    in a layout with labels. Projected points are measured in units of the `radius`. Whatever values a
    record has, also NaN and infinity, its squared norm is at most (1 + s²) 4^k times its share;
    a record that clipping does not bring below this limit is replaced by (s, 0).
    """
    fine = whole_points(points.T)
    if projection is None:
        coarse = fine / (1 << (POINT_BITS - GRID_BITS))
    else:
        coarse = projection.T @ fine
        coarse /= 1 << (POINT_BITS + PROJECTION_BITS - GRID_BITS)
    share = np.ones(len(points)) if shares is None else shares
    root = np.where(share == 1, 1.0, np.nextafter(np.sqrt(share), 0.0))  # rounded down, so that the bound holds
    records = np.zeros((layout.heads + len(coarse), len(points)))
    records[classes if layout.labels else 0, np.arange(len(points))] = np.trunc(layout.weight_on_grid * root)
    _fill_body(records[layout.heads :], coarse, share, root, radius)
    return records.T


def whole_points(coordinates: Floats) -> Floats:
    """Coordinates truncated to the grid of points; coordinates outside [-1, 1] and NaN become 0."""
    inside = coordinates.min(initial=0.0) >= -1 and coordinates.max(initial=0.0) <= 1  # false if one is NaN
    whole: Floats = (coordinates if inside else np.where(np.abs(coordinates) <= 1, coordinates, 0.0)) * (
        1 << POINT_BITS
    )
    return np.trunc(whole, out=whole)


def _fill_body(body: Floats, coarse: Floats, share: Floats, root: Floats, radius: float) -> None:
    """Write the points' part of the records, one per column, in units of the radius and clipped to the unit ball."""
    one = float(1 << GRID_BITS)
    with np.errstate(all="ignore"):
        scaled = coarse if radius == 1 else coarse / radius
        largest = np.abs(scaled, out=body).max(axis=0, initial=one)  # dividing by it keeps sums of squares exact
    finite = np.isfinite(largest)
    if not finite.all():  # for any radius and basis
        scaled, largest = np.where(finite, scaled, 0.0), np.where(finite, largest, one)
    if np.any(largest > one):
        scaled = scaled * (one / largest)
    np.trunc(scaled * root if np.any(root < 1) else scaled, out=body)
    _clip_to_ball(body, share)


def _clip_to_ball(body: Floats, share: Floats) -> None:
    """Clip columns to squared norm at most share * 4^k; exact, since squares of whole numbers are summed."""
    limit = share * (1 << 2 * GRID_BITS)
    squared = _squared_norms(body)
    long = np.flatnonzero(squared > limit)
    if long.size:
        shrink = np.sqrt(limit[long] / squared[long]) * (1 - 2.0**-40)
        clipped = np.trunc(body[:, long] * shrink)
        clipped[:, _squared_norms(clipped) > limit[long]] = 0.0
        body[:, long] = clipped


def _squared_norms(body: Floats) -> Floats:
    """The squared norms of the columns, exact because they are whole numbers below 2^53."""
    squares: Floats = np.einsum("ij,ij->j", body, body)
    return squares


class GramSum:
    """The running sum of z zᵀ, one exact integer matrix per class block."""

    def __init__(self, layout: GramLayout) -> None:
        self.layout = layout
        shape = (layout.blocks, layout.dimension, layout.dimension)
        self.blocks: BigIntegers = np.full(shape, 0, dtype=object)

    def add(self, records: Floats, classes: Codes) -> None:
        """Add a chunk of integer records to the blocks of their classes."""
        for start in range(0, len(records), ROWS_AT_ONCE):
            chunk, labels = records[start : start + ROWS_AT_ONCE], classes[start : start + ROWS_AT_ONCE]
            for block in range(self.layout.blocks):
                columns = chunk.T if self.layout.blocks == 1 else chunk.T[:, np.flatnonzero(labels == block)]
                self.blocks[block] += (columns @ columns.T).astype(np.int64).astype(object)

    def with_sum(self, other: GramSum) -> GramSum:
        """The total of this sum and that of another part; the order does not matter."""
        both = GramSum(self.layout)
        both.blocks = self.blocks + other.blocks
        return both

    def upper_triangles(self) -> list[list[int]]:
        """The blocks' upper triangles, row by row."""
        rows, columns = upper_triangle(self.layout.dimension)
        return [block[rows, columns].tolist() for block in self.blocks]

    def __repr__(self) -> str:
        return "GramSum(<private>)"


@functools.cache
def upper_triangle(size: int) -> tuple[Codes, Codes]:
    """Row and column indices of a square matrix's upper triangle; cached, because audits use them often."""
    rows, columns = np.triu_indices(size)
    rows.flags.writeable = columns.flags.writeable = False
    return rows, columns


@functools.cache
def require_exact_product() -> None:
    """Refuse a machine whose matrix product is not exact on integers; checked once per process."""
    check_exact_product(np.matmul)


def check_exact_product(product: Callable[[Floats, Floats], Floats]) -> None:
    """Compare a floating-point product with integer arithmetic on sums that use all 53 bits.

    Raises: InexactProductError.
    """
    rows, columns = 4099, 33
    pattern = (np.arange(rows * columns, dtype=np.int64) * 2654435761 % ((1 << 20) - 3)).reshape(rows, columns)
    whole = pattern * np.where(np.arange(columns) % 2, 1, -1) | 1
    if not np.array_equal(product(whole.T.astype(float), whole.astype(float)), (whole.T @ whole).astype(float)):
        raise InexactProductError("the matrix product of this machine does not give exact integers")
