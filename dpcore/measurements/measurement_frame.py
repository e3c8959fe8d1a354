"""Where points are measured: around a centre and in units of a radius, so that the noise is no larger than they need.

Noise is calibrated to the unit ball, and tables seldom fill it: their points lie around some
mean, at a distance far below 1. Measured as (x - centre) / radius, with the few points beyond the
radius drawn back to it, the same noise is smaller by the square of the radius. Centre and radius are public
constants, or come out of three small measurements, each made in the frame that the one before it
left: the mean squared length of all points, their mean, and the mean squared length around it.
Guarantee: a frame is public or released, and framed records are clipped like any others
(GUARANTEE.md, N1), so that every bound holds as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpcore.records.exact_sums import SMALLEST_RADIUS

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Frame:
    """A centre among encoded points and a radius around it; both public or released.

    `whole_mean` says whether the centre is the mean in every coordinate, and not along a projection only;
    `deviation` is that of the noise on each of the centre's coordinates.
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
        """A public frame around the middle of the bounds."""
        return Frame(np.zeros(width), radius)

    def centred(self, points: Floats) -> Floats:
        """Points seen from the centre; a pure function of each, coordinate by coordinate."""
        offsets: Floats = np.clip(points - self.centre, -1.0, 1.0)
        return offsets

    def to_encoded(self, framed: Floats) -> Floats:
        """Encoded points again."""
        points: Floats = framed * self.radius + self.centre
        return points

    def scaled(self, factor: float) -> Frame:
        """The same centre with a radius so many times as large, but never too small to measure in."""
        return replace(self, radius=max(float(SMALLEST_RADIUS), self.radius * factor))
