"""Choosing levels for sampled points so that their shares match the measured ones.

Post-processing: it sees sampled points and released shares, never rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpcore.shapes import BoundedShape

Floats = NDArray[np.float64]

SWEEPS = 30
CLOSE = 1e-3
"""Sweeps end when every share is met to this distance."""


@dataclass(frozen=True, slots=True)
class LevelRule:
    """Choose the level with the largest score plus offset."""

    offsets: tuple[float, ...]

    def choose(self, scores: Floats) -> NDArray[np.int64]:
        """Index of the chosen level, one a row of scores."""
        best = scores[:, 0] + self.offsets[0]
        chosen = np.zeros(len(scores), dtype=np.int64)
        for level, offset in enumerate(self.offsets[1:], start=1):
            other = scores[:, level] + offset
            chosen[other > best] = level
            np.maximum(best, other, out=best)
        return chosen


@dataclass(frozen=True, slots=True)
class Present:
    """Where the present values of a column lie whose missing cells have a level of their own.

    A missing cell encodes to position 0 with indicator 1, so position and indicator are
    correlated: the slope of position on indicator is minus the present values' mean.
    """

    mean: float
    share: float

    def restore(self, position: Floats, indicator: Floats) -> Floats:
        """Sampled positions as if every cell were present: that slope taken out, the spread put back."""
        deviation = position + self.mean * indicator - self.mean
        restored: Floats = self.mean + deviation / np.sqrt(self.share)
        return restored


@dataclass(frozen=True, slots=True)
class ClassRules:
    """How points of one class become cells: rules for levels and shapes, and the class itself."""

    class_index: int
    levels: Mapping[str, LevelRule]
    present: Mapping[str, Present]
    shapes: Mapping[str, BoundedShape] = field(default_factory=dict)


def fit_level_rule(scores: Floats, shares: Floats) -> LevelRule:
    """The rule under which a sample's levels have the given shares.

    The offsets minimise the convex function E max_j(score_j + offset_j) - sum_j
    share_j offset_j, whose gradient is (chosen share - wanted share): the dual of a
    transport problem. Each step solves one coordinate exactly, by a quantile.
    A level of share 0 is never chosen.
    """
    live = np.flatnonzero(shares > 0)
    offsets = np.full(len(shares), -np.inf)
    offsets[live] = 0.0
    for _ in range(SWEEPS if len(live) > 1 else 0):
        for j in live[1:]:  # one offset is free: only differences count
            others = [i for i in live if i != j]
            lead = np.max(scores[:, others] + offsets[others], axis=1) - scores[:, j]
            offsets[j] = np.quantile(lead, shares[j])
        chosen = np.bincount(np.argmax(scores + offsets, axis=1), minlength=len(shares)) / len(scores)
        if np.max(np.abs(chosen - shares)) <= CLOSE:
            break
    return LevelRule(tuple(float(x) for x in offsets))
