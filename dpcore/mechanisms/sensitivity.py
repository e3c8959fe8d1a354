"""Every sensitivity bound, with the section of GUARANTEE.md that proves it.

The bounds on Gram blocks are for sums over records z with squared Euclidean norm at most r, where
a record adds z zᵀ to the block of its class and to no other. All bounds are exact
fractions, or rational upper bounds of roots, so that scaling them to the integer grid
is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from dpcore.records.schema import Neighbours

ROOT_BITS = 64
"""Binary places to which a root is rounded up."""


def root_above(value: Fraction) -> Fraction:
    """The square root, rounded up to `ROOT_BITS` binary places."""
    shift = 1 << ROOT_BITS
    scaled = value * shift * shift
    whole = math.isqrt(math.ceil(scaled))
    return Fraction(whole if Fraction(whole) ** 2 >= scaled else whole + 1, shift)


def gram_nuclear(neighbours: Neighbours, *, squared_norm: Fraction) -> Fraction:
    """Sensitivity in nuclear norm, summed over the class blocks (GUARANTEE.md, S1): r or 2r.

    Attained under replace-one by orthogonal records of full length, and by records
    of full length in two different classes.
    """
    return squared_norm if neighbours is Neighbours.ADD_REMOVE else 2 * squared_norm


def gram_frobenius(neighbours: Neighbours, *, squared_norm: Fraction) -> Fraction:
    """Sensitivity in Frobenius norm over all class blocks together (GUARANTEE.md, S2): r or sqrt(2) r."""
    return squared_norm if neighbours is Neighbours.ADD_REMOVE else root_above(2 * squared_norm**2)


def gram_weighted_l1(
    neighbours: Neighbours, *, squared_norm: Fraction, dimension: int, blocks: int, weight: Fraction
) -> Fraction:
    """L1 sensitivity of the upper triangles with weighted off-diagonal entries (GUARANTEE.md, S3).

    Add-remove: r (1 + (p-1) w/2). Replace-one: twice that by the triangle inequality;
    in a single block the two records share their entries, and r sqrt(2p + p(p-1) w²/2)
    by Cauchy-Schwarz is smaller from p = 2 on.
    """
    p, w = dimension, weight
    one_record = squared_norm * (1 + (p - 1) * w / 2)
    if neighbours is Neighbours.ADD_REMOVE:
        return one_record
    if blocks > 1:
        return 2 * one_record
    return min(2 * one_record, squared_norm * root_above(2 * p + p * (p - 1) * w**2 / 2))


def top_eigenvalues_l1(neighbours: Neighbours, *, squared_norm: Fraction, components: int) -> Fraction:
    """L1 sensitivity of the P largest eigenvalues of one block (GUARANTEE.md, S5): r, or min(P, 2) r under replace-one.

    Attained by a record of full length in an empty table; under replace-one by a record that
    is parallel to all others and becomes orthogonal to them.
    """
    return squared_norm if neighbours is Neighbours.ADD_REMOVE else min(components, 2) * squared_norm


def record_sums_l1(neighbours: Neighbours, *, count_weight: Fraction, points: int, rows: int, blocks: int) -> Fraction:
    """L1 sensitivity of the blocks' first rows: count times s² and sum of points times s (GUARANTEE.md, S6).

    One record adds at most s² + s sqrt(p). Under replace-one in a single block the
    counts lie in [0, s²] and cancel in part, so only the sums count twice.
    """
    s, length = count_weight, count_weight * root_above(Fraction(points))
    one_record = s**2 + length
    if neighbours is Neighbours.ADD_REMOVE:
        return rows * one_record
    return rows * (s**2 + 2 * length if blocks == 1 else 2 * one_record)


def best_l1_weight(neighbours: Neighbours) -> Fraction:
    """The off-diagonal weight that minimises weighted Laplace noise: about sqrt 2, or 2^(1/3)."""
    return Fraction(17, 12) if neighbours is Neighbours.REPLACE_ONE else Fraction(5, 4)


def jiang_moments_l1(neighbours: Neighbours, *, numeric: int, categorical: int, classes: int) -> Fraction:
    """L1 sensitivity of class counts, class sums and the upper triangle of x xᵀ together (GUARANTEE.md, M9).

    x has `numeric` coordinates in [0, 1] and a one-hot indicator for each of `categorical`
    columns. Add-remove: attained by x with all coordinates 1. Replace-one: attained by
    coordinates that change from 1 to t, with every category changed, and the class if there are two.
    """
    p, q = numeric, categorical
    if neighbours is Neighbours.ADD_REMOVE:
        return 1 + p + q + Fraction((p + q) * (p + q + 1), 2)
    moved = 2 if classes > 1 else 0  # a changed class moves two counts, and the sums of both records in full
    slope = q - 1 + moved
    t = min(Fraction(1), max(Fraction(0), Fraction(slope, p + 1)))
    gain = p * (slope * t - (p + 1) * t**2 / 2)
    return moved + p * (q + 1) + Fraction(p * (p + 1), 2) + gain + q * (q + 3)


def histograms_l1(neighbours: Neighbours, *, weights: Sequence[Fraction], rows: int) -> Fraction:
    """L1 sensitivity of weighted histograms of several columns (GUARANTEE.md, S7); doubled under replace-one."""
    return sum(weights, Fraction(0)) * rows * (1 if neighbours is Neighbours.ADD_REMOVE else 2)


def histograms_l2_squared(neighbours: Neighbours, *, weights: Sequence[Fraction], rows: int) -> Fraction:
    """Squared L2 sensitivity of weighted histograms of several columns (GUARANTEE.md, S7).

    Attained by a unit whose rows fall into the same cells.
    """
    squares = sum((weight**2 for weight in weights), Fraction(0))
    return squares * rows**2 * (1 if neighbours is Neighbours.ADD_REMOVE else 2)


def score_sum_l1(neighbours: Neighbours, *, rows: int) -> Fraction:
    """L1 sensitivity of a sum of scores between 0 and 1 (GUARANTEE.md, S8): one per row, under either relation.

    A unit contributes between 0 and its number of rows, whether it is added, removed or replaced.
    """
    return Fraction(rows)


def rows_l1(*, dimension: int) -> Fraction:
    """L1 diameter of the unit ball in k coordinates (GUARANTEE.md, M10): 2 sqrt(k), between opposite diagonals."""
    return root_above(Fraction(4 * dimension))
