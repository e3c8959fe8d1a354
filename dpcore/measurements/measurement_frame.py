"""The measurement frame: a centre and a radius that reduce the noise relative to the points.

Noise is calibrated to the unit ball, and tables seldom fill it: their points lie around some
mean, at a distance far below 1. If (x - centre) / radius is measured instead, and the few points
beyond the radius are clipped to it, the noise shrinks by the square of the radius. Centre and radius are
public constants, or come from three small measurements, each made in the frame of the one before:
the mean squared length of all points, their mean, and the mean squared length around it.
Guarantee: a frame is public or released, and framed records are clipped like all others
(GUARANTEE.md, N1), so every sensitivity bound holds unchanged.

RON-Gauss's Algorithm 1 normalises records as well: features are scaled to one length, the mean is
subtracted, and they are scaled to that length again. `Directions` is that part of a frame (GUARANTEE.md, P5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import SMALLEST_RADIUS, whole_points
from dpcore.records.schema import Floats


@dataclass(frozen=True, slots=True)
class Directions:
    """Points whose features are scaled to one length, so that only their direction counts.

    `features` is the number of feature coordinates, which come first; a target is not scaled. `length` is the longest
    that features can be, and `typical` the released root of their mean squared length, at which rows are decoded.
    """

    features: int
    length: float
    typical: float

    @staticmethod
    def of(encoding: Encoding, squared_length: float) -> Directions:
        """Return the directions of numeric features whose mean squared length is given."""
        length = math.sqrt(encoding.feature_width) / encoding.scale
        return Directions(encoding.feature_width, length, min(length, math.sqrt(max(0.0, squared_length))))

    def around(self, centre: Floats, points: Floats) -> Floats:
        """Return points scaled to the length, relative to a centre, and scaled again; a target is only moved."""
        first, last = slice(None, self.features), slice(self.features, None)
        moved = (scaled_to(points[:, first], self.length) - centre[first]) / 2  # within [-1, 1]
        target = np.clip(points[:, last] - centre[last], -1.0, 1.0)
        return np.hstack([scaled_to(moved, self.length), target])

    def lifting(self, centre: Floats) -> tuple[Floats, Floats]:
        """Return the factors by which normalised points are stretched, and the centre, in encoded coordinates.

        Around the mean of points of one length, the mean squared length is that length's square less the mean's.
        """
        own = centre[: self.features] / self.length
        stretch, moved = np.ones(len(centre)), centre.copy()
        stretch[: self.features] = self.typical / self.length * math.sqrt(max(0.0, 1.0 - float(own @ own)))
        moved[: self.features] = own * self.typical
        return stretch, moved


def scaled_to(points: Floats, length: float) -> Floats:
    """Return points scaled to a length, by a pure function of each: squares of whole numbers are summed exactly.

    A point that is 0 on the grid 2^-20 has no direction and stays 0; NaN and coordinates outside [-1, 1] count as 0.
    """
    whole = whole_points(points)
    norms = np.sqrt(np.einsum("ij,ij->i", whole, whole))[:, None]
    scaled: Floats = whole / np.where(norms > 0, norms, 1.0) * length
    return scaled


@dataclass(frozen=True, slots=True)
class Frame:
    """A centre among encoded points and a radius around it; both public or released.

    `whole_mean` says whether the centre is the mean in every coordinate, rather than along a projection only;
    `deviation` is the standard deviation of the noise on each coordinate of the centre. With `directions`, centre
    and radius are those of normalised points.
    """

    centre: Floats
    radius: float
    whole_mean: bool = False
    deviation: float = 0.0
    directions: Directions | None = None

    def __post_init__(self) -> None:
        if not SMALLEST_RADIUS <= self.radius <= 1:
            raise ValueError("a radius must lie between 1/256 and 1")

    @staticmethod
    def around_middle(width: int, radius: float = 1.0) -> Frame:
        """Return a public frame centred at the middle of the bounds."""
        return Frame(np.zeros(width), radius)

    def centred(self, points: Floats) -> Floats:
        """Return the points relative to the centre; a pure function of each point."""
        if self.directions is not None:
            return self.directions.around(self.centre, points)
        return np.clip(points - self.centre, -1.0, 1.0)

    def to_encoded(self, framed: Floats) -> Floats:
        """Return framed points in encoded coordinates."""
        centre = self.centre if self.directions is None else self.directions.lifting(self.centre)[1]
        return framed * self.units + centre

    @property
    def units(self) -> Floats:
        """The length of one unit of each framed coordinate among encoded points."""
        stretch = np.ones(len(self.centre)) if self.directions is None else self.directions.lifting(self.centre)[0]
        return stretch * self.radius

    def scaled(self, factor: float) -> Frame:
        """Return the frame with its radius multiplied by `factor`, but at least `SMALLEST_RADIUS`."""
        return replace(self, radius=max(float(SMALLEST_RADIUS), self.radius * factor))
