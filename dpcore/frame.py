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

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpcore.exactgram import GRID_BITS, SMALLEST_RADIUS, Layout, integer_records
from dpcore.expected_noise import entry_noise
from dpcore.measure import Encoded, Released
from dpcore.mechanisms.base import Gives
from dpcore.mechanisms.sums import LAPLACE_SUMS
from dpcore.names import CENTRE, RADIUS, SPREAD
from dpcore.registry import mechanism_of
from dpcore.schema import Cells

if TYPE_CHECKING:  # a projection has a frame
    from dpcore.projection import Projection

Floats = NDArray[np.float64]

ROOM = 1.3
"""The squared radius over the mean squared length: beyond that, points are drawn back."""


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

    def back(self, framed: Floats) -> Floats:
        """Encoded points again."""
        points: Floats = framed * self.radius + self.centre
        return points

    def narrowed(self, lengths: Released) -> Frame:
        """The same centre with the radius that squared lengths, measured in this frame, ask for."""
        known = _Lengths.of(lengths)
        return self._times(min(1.0, math.sqrt(ROOM * max(known.mean, known.deviation))))

    def moved(self, sums: Released, lengths: Released, projection: Projection) -> Frame:
        """The frame around the mean that was measured in it along a projection, `lengths` telling of how many points.

        The mean is drawn towards the old centre by the share of its squared length that is noise.
        """
        total, deviation = _sums_and_deviation(sums)
        count = _Lengths.of(lengths).count
        noise, squared = len(total) * (deviation / count) ** 2, float(np.sum((total / count) ** 2))
        kept = max(0.0, 1.0 - noise / max(squared, noise)) / max(1.0, math.sqrt(squared))
        offset = projection.basis() @ (total / count * (kept * self.radius))
        whole_mean = projection.columns is None
        return Frame(self.centre + offset, self.radius, whole_mean, self.radius * deviation / count)

    def seen_through(self, projection: Projection) -> Frame:
        """The frame for projected points: a random projection shortens all of them alike, on average."""
        return self._times(math.sqrt(projection.dimension / projection.width) if projection.kind == "ron" else 1.0)

    def _times(self, factor: float) -> Frame:
        return replace(self, radius=max(float(SMALLEST_RADIUS), self.radius * factor))


@dataclass(frozen=True, slots=True)
class SquaredLengths:
    """Encodes a record as the squared length of its projected point in its frame, between 0 and 1: one coordinate."""

    encoding: Encoded
    projection: Projection

    def encode(self, cells: Cells) -> Floats:
        """Squared lengths, one a row: sums of squares of whole numbers, hence the same in any order."""
        points, radius = self.projection.framed(self.encoding.encode(cells))
        whole = Layout(self.projection.dimension + 1, 1, Fraction(1))
        body = integer_records(points, self.projection.columns, whole, radius=radius)[:, 1:]
        squares: Floats = np.einsum("ij,ij->i", body, body)[:, None] / (1 << 2 * GRID_BITS)
        return squares

    def classes(self, cells: Cells) -> NDArray[np.int64]:
        """All in one block."""
        return self.encoding.classes(cells)


def bought_frame(
    projection: Projection, draw: Callable[[str, Projection], Released], *, whole_mean: bool
) -> Projection:
    """The projection with a frame out of three measurements, which `draw` makes by name in what it is given.

    With `whole_mean` the first two are those of whole points, so that every coordinate's mean is known.
    """
    everything = replace(projection, kind="none", dimension=projection.width, columns=None, centre=None)
    seen = everything if whole_mean else projection
    frame = Frame.around_middle(projection.width).seen_through(seen)
    lengths = draw(RADIUS, replace(seen, frame=frame))
    frame = frame.narrowed(lengths)
    frame = frame.moved(draw(CENTRE, replace(seen, frame=frame)), lengths, seen)
    frame = frame.seen_through(projection) if whole_mean else frame
    return projection.seen_in(frame.narrowed(draw(SPREAD, replace(projection, frame=frame))))


@dataclass(frozen=True, slots=True)
class _Lengths:
    """What was measured of squared lengths: how many, their mean, and the deviation of its noise."""

    count: float
    mean: float
    deviation: float

    @staticmethod
    def of(released: Released) -> _Lengths:
        event, block = released.event, released.matrices()[0]
        weight = float(event.layout.count_weight)
        count = max(1.0, float(block[0, 0]) / weight**2)
        noise = entry_noise(event) / weight / count
        return _Lengths(count, float(block[0, 1]) / weight / count, noise)


def _sums_and_deviation(released: Released) -> tuple[Floats, float]:
    """The sum of points in one block, and the deviation of the noise on a coordinate of it."""
    event, weight = released.event, float(released.event.layout.count_weight)
    if mechanism_of(event.mechanism).gives is Gives.SUMS:
        return released.counts_and_sums()[1][0], LAPLACE_SUMS.deviations(event)[1]
    noise = entry_noise(event)
    sums: Floats = released.matrices()[0][0, 1:] / weight
    return sums, noise / weight
