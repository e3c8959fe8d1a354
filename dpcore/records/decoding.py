"""Rules that decode the points of a class to cells.

Post-processing: they are derived from released values and applied to sampled points, never to rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dpcore.records.bounded_marginal import BoundedShape
from dpcore.records.schema import Codes, Floats


@dataclass(frozen=True, slots=True)
class LevelRule:
    """Choose the level with the largest score plus offset."""

    offsets: tuple[float, ...]

    def choose(self, scores: Floats) -> Codes:
        """Index of the chosen level, one per row of scores."""
        best = scores[:, 0] + self.offsets[0]
        chosen = np.zeros(len(scores), dtype=np.int64)
        for level, offset in enumerate(self.offsets[1:], start=1):
            other = scores[:, level] + offset
            chosen[other > best] = level
            np.maximum(best, other, out=best)
        return chosen


@dataclass(frozen=True, slots=True)
class PresentValues:
    """Mean position and share of the present values of a column whose missing cells have their own level.

    A missing cell encodes to position 0 with indicator 1, so position and indicator are
    correlated: the slope of position on indicator is minus the present values' mean.
    """

    mean: float
    share: float

    def restore(self, position: Floats, indicator: Floats) -> Floats:
        """Sampled positions as if every cell were present: that slope is removed and the spread restored."""
        deviation = position + self.mean * indicator - self.mean
        restored: Floats = self.mean + deviation / np.sqrt(self.share)
        return restored


@dataclass(frozen=True, slots=True)
class ClassRules:
    """The rules that decode the points of one class: the class itself, choices of levels, and shapes."""

    class_index: int
    levels: Mapping[str, LevelRule]
    present: Mapping[str, PresentValues]
    shapes: Mapping[str, BoundedShape] = field(default_factory=dict)
