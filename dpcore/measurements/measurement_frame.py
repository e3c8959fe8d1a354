"""The measurement frame: a centre and a radius that reduce the noise relative to the points.

Noise is calibrated to the unit ball, and tables seldom fill it: their points lie around some
mean, at a distance far below 1. If (x - centre) / radius is measured instead, and the few points
beyond the radius are clipped to it, the noise shrinks by the square of the radius. Centre and radius are
public constants, or come from three small measurements, each made in the frame of the one before:
the mean squared length of all points, their mean, and the mean squared length around it.
Guarantee: a frame is public or released, and framed records are clipped like all others
(GUARANTEE.md, N1), so every sensitivity bound holds unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpcore.records.exact_sums import SMALLEST_RADIUS
from dpcore.records.schema import Floats


@dataclass(frozen=True, slots=True)
class Frame:
    """A centre among encoded points and a radius around it; both public or released.

    `whole_mean` says whether the centre is the mean in every coordinate, rather than along a projection only;
    `deviation` is the standard deviation of the noise on each coordinate of the centre.
    """

    centre: Floats
    radius: float
    whole_mean: bool = False
    deviation: float = 0.0

    def __post_init__(self) -> None:
        if not SMALLEST_RADIUS <= self.radius <= 1:
            raise ValueError("a radius must lie between 1/256 and 1")

    @staticmethod
    def around_middle(width: int, radius: float = 1.0) -> Frame:
        """Return a public frame centred at the middle of the bounds."""
        return Frame(np.zeros(width), radius)

    def centred(self, points: Floats) -> Floats:
        """Return the points relative to the centre; a pure function of each coordinate."""
        return np.clip(points - self.centre, -1.0, 1.0)

    def to_encoded(self, framed: Floats) -> Floats:
        """Return framed points in encoded coordinates."""
        return framed * self.radius + self.centre

    def scaled(self, factor: float) -> Frame:
        """Return the frame with its radius multiplied by `factor`, but at least `SMALLEST_RADIUS`."""
        return replace(self, radius=max(float(SMALLEST_RADIUS), self.radius * factor))
