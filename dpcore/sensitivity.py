"""Every sensitivity bound, with the section of GUARANTEE.md that proves it.

All bounds are for sums over records z with squared Euclidean norm at most r, where
a record adds z zᵀ to the block of its class and to no other. They are exact
fractions, or rational upper bounds where a root is involved, so that nothing is
lost when they are multiplied up to the integer grid.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dpcore.schema import Neighbours

ROOT_BITS = 64
"""Binary places to which a root is rounded up."""


def root_above(value: Fraction) -> Fraction:
    """The square root, rounded up to `ROOT_BITS` binary places."""
    shift = 1 << ROOT_BITS
    scaled = value * shift * shift
    whole = math.isqrt(math.ceil(scaled))
    return Fraction(whole if Fraction(whole) ** 2 >= scaled else whole + 1, shift)


def gram_nuclear(neighbours: Neighbours, *, squared_norm: Fraction) -> Fraction:
    """Nuclear norm, summed over the class blocks (GUARANTEE.md, S1): r or 2r.

    Attained under replace-one by orthogonal records of full length, and by records
    of full length in two different classes.
    """
    return squared_norm if neighbours is Neighbours.ADD_REMOVE else 2 * squared_norm


def gram_frobenius(neighbours: Neighbours, *, squared_norm: Fraction) -> Fraction:
    """Frobenius norm over all class blocks together (GUARANTEE.md, S2): r or sqrt(2) r."""
    return squared_norm if neighbours is Neighbours.ADD_REMOVE else root_above(2 * squared_norm**2)


def gram_weighted_l1(
    neighbours: Neighbours, *, squared_norm: Fraction, dimension: int, blocks: int, weight: Fraction
) -> Fraction:
    """Entrywise L1 norm of the upper triangles, off-diagonal entries weighted (GUARANTEE.md, S3).

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


def best_l1_weight(neighbours: Neighbours) -> Fraction:
    """The off-diagonal weight that makes weighted Laplace noise smallest: about sqrt 2, or 2^(1/3)."""
    return Fraction(17, 12) if neighbours is Neighbours.REPLACE_ONE else Fraction(5, 4)
