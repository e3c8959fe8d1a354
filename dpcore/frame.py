"""Where points are measured: around a centre and in units of a radius, so that the noise is no larger than they need.

Noise is calibrated to the unit ball, and tables seldom fill it: their points lie around some
mean, at a distance far below 1. Measured as (x - centre) / radius, with the few points beyond the
radius drawn back to it, the same noise is smaller by the square of the radius. Centre and radius are public
constants, or come out of earlier measurements: the mean squared length of all points, and then
their mean. Either takes a small part of the budget.
Guarantee: a frame is public or released, and framed records are clipped like any others
(GUARANTEE.md, N1), so that every bound holds as it stands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpcore.exactgram import GRID_BITS, Layout, integer_records
from dpcore.measure import Encoded, Released
from dpcore.mechanisms.base import Gives
from dpcore.mechanisms.sums import LAPLACE_SUMS
from dpcore.registry import gram_mechanism, mechanism_of
from dpcore.schema import Cells
from dpcore.wishes import SMALLEST_RADIUS

if TYPE_CHECKING:  # a projection has a frame
    from dpcore.projection import Projection

Floats = NDArray[np.float64]

ONE = Fraction(1)

ROOM = 1.3
"""The squared radius over the mean squared length: beyond that, points are drawn back."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A centre among encoded points and a radius around it; both public or released."""

    centre: Floats
    radius: float

    def centred(self, points: Floats) -> Floats:
        """Points seen from the centre; a pure function of each, coordinate by coordinate."""
        offsets: Floats = np.clip(points - self.centre, -1.0, 1.0)
        return offsets

    def back(self, framed: Floats) -> Floats:
        """Encoded points again."""
        points: Floats = framed * self.radius + self.centre
        return points


@dataclass(frozen=True, slots=True)
class SquaredLengths:
    """Encodes a record as the squared length of its projected point in its frame, between 0 and 1: one coordinate."""

    encoding: Encoded
    projection: Projection

    def encode(self, cells: Cells) -> Floats:
        """Squared lengths, one a row: sums of squares of whole numbers, hence the same in any order."""
        points, radius = self.projection.framed(self.encoding.encode(cells))
        whole = Layout(self.projection.dimension + 1, 1, ONE)
        body = integer_records(points, self.projection.columns, whole, radius=radius)[:, 1:]
        squares: Floats = np.einsum("ij,ij->i", body, body)[:, None] / (1 << 2 * GRID_BITS)
        return squares

    def classes(self, cells: Cells) -> NDArray[np.int64]:
        """All in one block."""
        return self.encoding.classes(cells)


def public_frame(projection: Projection, radius: float) -> Projection:
    """The projection with a frame around the middle of the bounds, of a public radius."""
    return replace(projection, frame=Frame(np.zeros(projection.width), radius))


def expected_frame(projection: Projection) -> Projection:
    """The projection with the frame in which lengths are measured: a random one shortens all points alike."""
    shortened = math.sqrt(projection.dimension / projection.width) if projection.kind == "ron" else 1.0
    return public_frame(projection, shortened)


def frame_of_lengths(projection: Projection, lengths: Released) -> Projection:
    """The projection with a frame around the middle of the bounds, as large as the lengths in the expected one say."""
    known = _Lengths.of(lengths)
    expected = _frame(expected_frame(projection)).radius
    return public_frame(projection, expected * _radius(max(known.mean, known.deviation)))


def frame_of_sums(projection: Projection, lengths: Released, sums: Released) -> Projection:
    """The projection with a frame around the measured mean, and the smaller radius there.

    `sums` were measured in the frame of `lengths`. The mean is drawn towards its
    centre by the share of its squared length that is noise.
    """
    expected, old = _frame(expected_frame(projection)), _frame(frame_of_lengths(projection, lengths))
    known, unit = _Lengths.of(lengths), old.radius / expected.radius
    total, deviation = _sums_and_deviation(sums)
    mean, noise = total / known.count * unit, len(total) * (deviation / known.count * unit) ** 2
    squared = min(max(float(mean @ mean) - noise, 0.0), known.mean)  # of the true mean
    kept = squared / max(squared + noise, float(SMALLEST_RADIUS) ** 2)
    left = known.mean - squared + kept * noise
    doubt = math.hypot(known.deviation, 2 * math.sqrt(squared * noise / len(total)))
    centre = projection.basis() @ (mean * (kept * expected.radius))
    radius = min(expected.radius * _radius(max(left, doubt)), old.radius)
    return replace(projection, frame=Frame(centre, radius))


def _frame(projection: Projection) -> Frame:
    assert projection.frame is not None  # noqa: S101  said by what made it
    return projection.frame


def _radius(squared: float) -> float:
    return min(1.0, max(float(SMALLEST_RADIUS), math.sqrt(ROOM * max(squared, 0.0))))


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
        noise = gram_mechanism(event.mechanism).expected_error(event).off_diagonal_sd / weight / count
        return _Lengths(count, min(max(float(block[0, 1]) / weight / count, 0.0), 1.0), noise)


def _sums_and_deviation(released: Released) -> tuple[Floats, float]:
    """The sum of points in one block, and the deviation of the noise on a coordinate of it."""
    event, weight = released.event, float(released.event.layout.count_weight)
    if mechanism_of(event.mechanism).gives is Gives.SUMS:
        return released.counts_and_sums()[1][0], LAPLACE_SUMS.deviations(event)[1]
    noise = gram_mechanism(event.mechanism).expected_error(event).off_diagonal_sd
    sums: Floats = released.matrices()[0][0, 1:] / weight
    return sums, noise / weight
