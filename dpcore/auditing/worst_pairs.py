"""Pairs of records that attain a sensitivity, or come close: where attacks look first."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def orthogonal_pair(dimension: int) -> tuple[Floats, Floats]:
    """(1, 1, 0, ...) and (1, -1, 0, ...): of full length in the layout with s = 1, farthest in nuclear norm."""
    x, y = np.zeros(dimension), np.zeros(dimension)
    x[:2], y[:2] = (1.0, 1.0), (1.0, -1.0)
    return x, y


def steep_pair(dimension: int, weight: float) -> tuple[Floats, Floats]:
    """Orthonormal records that lie far apart in weighted L1 norm of their second moments.

    In the plane of two flat halves, turned by the angle that balances the blocks inside
    the halves, A = 2 + (p - 2) w / 2, and across them, B = w sqrt(k m). The norm is
    sqrt(A² + B²): the bound of Cauchy and Schwarz itself at p = 2, and for w = 2 at every
    even p; within 3 % of it otherwise.
    """
    k = (dimension + 1) // 2
    inside, across = 2 + (dimension - 2) * weight / 2, weight * math.sqrt(k * (dimension - k))
    half = math.atan2(across, inside) / 2
    one, two = np.zeros(dimension), np.zeros(dimension)
    one[:k] = 1 / math.sqrt(k)
    two[k:] = 1 / math.sqrt(dimension - k)
    c, s = math.cos(half), math.sin(half)
    return c * one + s * two, c * two - s * one
