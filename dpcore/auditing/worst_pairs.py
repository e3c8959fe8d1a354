"""Pairs of records that attain a sensitivity, or nearly do, for attacks."""

from __future__ import annotations

import math

import numpy as np

from dpcore.records.schema import Floats


def orthogonal_pair(dimension: int) -> tuple[Floats, Floats]:
    """Return (1, 1, 0, ...) and (1, -1, 0, ...): of full length for s = 1, at the largest nuclear distance."""
    x, y = np.zeros(dimension), np.zeros(dimension)
    x[:2], y[:2] = (1.0, 1.0), (1.0, -1.0)
    return x, y


def steep_pair(dimension: int, weight: float) -> tuple[Floats, Floats]:
    """Return orthonormal records whose second moments are far apart in the weighted L1 norm.

    They lie in the plane of two vectors that are constant on one half of the coordinates and 0 on the
    other, rotated by the angle that balances the blocks within the halves, A = 2 + (p - 2) w / 2, and
    across them, B = w sqrt(k m). The distance is sqrt(A² + B²): the Cauchy-Schwarz bound itself at
    p = 2, and for w = 2 at every even p; within 3 % of it otherwise.
    """
    k = (dimension + 1) // 2
    inside, across = 2 + (dimension - 2) * weight / 2, weight * math.sqrt(k * (dimension - k))
    half = math.atan2(across, inside) / 2
    one, two = np.zeros(dimension), np.zeros(dimension)
    one[:k] = 1 / math.sqrt(k)
    two[k:] = 1 / math.sqrt(dimension - k)
    c, s = math.cos(half), math.sin(half)
    return c * one + s * two, c * two - s * one
