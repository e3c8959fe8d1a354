"""Probabilities as whole numbers, so that a draw by them is the same on every machine."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dpcore.records.schema import Codes, Floats
from dpcore.synthesis.even_points import Words

PARTS_BITS = 30
PARTS = 1 << PARTS_BITS
"""The number of parts into which a row's probabilities divide 1."""


def chance_edges(mass: Floats) -> Floats:
    """Turn masses of shape (groups, rows), in place, into upper edges of the groups' parts: whole numbers to `PARTS`.

    A group has about its share of the parts, and none if its mass is 0.
    """
    for below, above in pairwise(mass):  # faster than `cumsum`
        above += below
    mass *= PARTS / mass[-1]
    np.floor(mass, out=mass)
    mass[-1] = PARTS
    return mass


def chances_between(edges: Floats) -> Floats:
    """Return the parts of each group, by their upper edges."""
    chances = edges.copy()
    chances[1:] -= edges[:-1]
    return chances


def pick_groups(edges: Floats, words: Words) -> Codes:
    """Return the group at a point of each row, which is given in units of 2^-64."""
    points = (words >> np.uint64(64 - PARTS_BITS)).astype(np.float64)
    groups = np.zeros(len(points), dtype=np.int64)
    for edge in edges[:-1]:
        groups += edge <= points
    return groups
