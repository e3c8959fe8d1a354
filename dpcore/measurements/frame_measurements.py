"""The measurements that determine a frame: squared lengths, the mean, and squared lengths around it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpcore.measure import RecordEncoder, Released
from dpcore.measurements.measurement_frame import Directions, Frame
from dpcore.measurements.projection import Projection, feature_projection, no_projection
from dpcore.mechanisms.base import Output
from dpcore.mechanisms.expected_noise import entry_noise
from dpcore.mechanisms.laplace_sums import LAPLACE_SUMS
from dpcore.mechanisms.names import CENTRE, RADIUS, SPREAD
from dpcore.mechanisms.registry import mechanism_of
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GRID_BITS, GramLayout, integer_records
from dpcore.records.schema import Cells, Codes, Floats

ROOM = 1.3
"""Ratio of the squared radius to the mean squared length; points beyond the radius are clipped."""

ONE_COORDINATE = Projection("none", 1, 1, None)
"""The identity projection of a single coordinate, such as a squared length."""


@dataclass(frozen=True, slots=True)
class SquaredLengths:
    """Encodes a record as one coordinate in [0, 1]: the squared length of its projected point in the frame."""

    encoding: RecordEncoder
    projection: Projection

    def encode(self, cells: Cells) -> Floats:
        """Return the squared lengths, one per row: sums of squares of integers, so their order does not matter."""
        points, radius = self.projection.framed(self.encoding.encode(cells))
        whole = GramLayout(self.projection.dimension + 1, 1, Fraction(1))
        body = integer_records(points, self.projection.columns, whole, radius=radius)[:, 1:]
        squares: Floats = np.einsum("ij,ij->i", body, body)[:, None] / (1 << 2 * GRID_BITS)
        return squares

    def classes(self, cells: Cells) -> Codes:
        """Return the class of each row, as the encoding has it."""
        return self.encoding.classes(cells)


def measure_frame(
    projection: Projection, draw: Callable[[str, Projection], Released], *, whole_mean: bool
) -> Projection:
    """Make three measurements and return the projection with the frame that they determine.

    `draw` makes the measurement of a given name in the projection it is given, and releases it. With
    `whole_mean` the first two measure unprojected points, so that the mean of every coordinate is known.
    """
    everything = replace(projection, kind="none", dimension=projection.width, columns=None, centre=None)
    seen = everything if whole_mean else projection
    frame = scale_to_projection(Frame.around_middle(projection.width), seen)
    lengths = draw(RADIUS, replace(seen, frame=frame))
    frame = fit_radius(frame, lengths)
    frame = fit_centre(frame, draw(CENTRE, replace(seen, frame=frame)), lengths, seen)
    frame = scale_to_projection(frame, projection) if whole_mean else frame
    return projection.with_frame(fit_radius(frame, draw(SPREAD, replace(projection, frame=frame))))


def measure_directions(
    encoding: Encoding, projection: Projection, draw: Callable[[str, Projection], Released], *, radius: float | None
) -> Projection:
    """Measure what normalised points need, and return the projection with their frame.

    The mean squared length of the features is the length at which rows are decoded; the mean of all normalised
    coordinates is the centre. The radius is given, or fitted to a third measurement if it is None.
    """
    lengths = draw(RADIUS, feature_projection(encoding))
    known = _LengthSummary.of(lengths)
    frame = replace(
        Frame.around_middle(encoding.width), directions=Directions.of(encoding, max(known.mean, known.deviation))
    )
    everything = replace(no_projection(encoding), frame=frame)
    frame = fit_centre(frame, draw(CENTRE, everything), lengths, everything)
    if radius is not None:
        return projection.with_frame(replace(frame, radius=radius))
    frame = scale_to_projection(frame, projection)
    return projection.with_frame(fit_radius(frame, draw(SPREAD, replace(projection, frame=frame))))


def measurement_inputs(name: str, encoding: Encoding, projection: Projection) -> tuple[RecordEncoder, Projection]:
    """Return the encoding and projection that the named measurement uses: of points, or of squared lengths."""
    if name in (RADIUS, SPREAD):
        return SquaredLengths(encoding, projection), ONE_COORDINATE
    return encoding, projection


def fit_radius(frame: Frame, lengths: Released) -> Frame:
    """Return the frame with its radius fitted to squared lengths that were measured in it."""
    known = _LengthSummary.of(lengths)
    return frame.scaled(min(1.0, math.sqrt(ROOM * max(known.mean, known.deviation))))


def fit_centre(frame: Frame, sums: Released, lengths: Released, projection: Projection) -> Frame:
    """Return the frame moved to the mean, whose `sums` were measured in it along a projection.

    `lengths` gives the noisy number of points. The mean is shrunk towards the old centre by the share of its
    squared length that noise explains.
    """
    total, deviation = _sums_and_deviation(sums)
    count = _LengthSummary.of(lengths).count
    noise, squared = len(total) * (deviation / count) ** 2, float(np.sum((total / count) ** 2))
    kept = max(0.0, 1.0 - noise / max(squared, noise)) / max(1.0, math.sqrt(squared))
    offset = projection.basis() @ (total / count * (kept * frame.radius))
    whole_mean = projection.columns is None
    centre, noise = frame.centre + offset, frame.radius * deviation / count
    return replace(frame, centre=centre, whole_mean=whole_mean, deviation=noise)


def scale_to_projection(frame: Frame, projection: Projection) -> Frame:
    """Return the frame for projected points: a random projection shortens all points alike, on average."""
    return frame.scaled(math.sqrt(projection.dimension / projection.width) if projection.kind == "ron" else 1.0)


@dataclass(frozen=True, slots=True)
class _LengthSummary:
    """The noisy number of squared lengths, their mean, and the standard deviation of its noise."""

    count: float
    mean: float
    deviation: float

    @staticmethod
    def of(released: Released) -> _LengthSummary:
        event, block = released.event, released.matrices()[0]
        weight = float(event.layout.count_weight)
        count = max(1.0, float(block[0, 0]) / weight**2)
        return _LengthSummary(count, float(block[0, 1]) / weight / count, entry_noise(event) / weight / count)


def _sums_and_deviation(released: Released) -> tuple[Floats, float]:
    """Return the noisy sum of the points in one block, and the standard deviation of each coordinate's noise."""
    event, weight = released.event, float(released.event.layout.count_weight)
    if mechanism_of(event.mechanism).output is Output.SUMS:
        return released.counts_and_sums()[1][0], LAPLACE_SUMS.deviations(event)[1]
    sums: Floats = released.matrices()[0][0, 1:] / weight
    return sums, entry_noise(event) / weight
