"""What is known inside a range of cells: post-processing of their released counts.

A range is cut into halves, and halves of halves. Inside the table a half that is not surely
more or less than its width tells is taken to be as full as that; towards a far bound, where
cells may well be empty, one that does not surely rise above its noise is empty.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SURE = 3.0
"""Standard deviations by which a part must differ to be believed: they are many, and a false one far out is costly."""


def shares_within(counts: Floats, edges: Floats, start: int, stop: int, deviation: float) -> Floats:
    """Share of each cell of the range from `start` to `stop` among the range."""
    part = counts[start:stop]
    if _is_tail(edges, start, stop):
        return _above_noise(part, deviation)
    return _by_width(part, np.diff(edges[start : stop + 1]), deviation)


def _is_tail(edges: Floats, start: int, stop: int) -> bool:
    """Whether the range reaches to a bound from the side of 0, or does not hold 0: there cells may well be empty."""
    first, last = start == 0, stop == len(edges) - 1
    low, high = edges[start], edges[stop]
    if low <= 0 <= high:
        return bool((first and -low > high) or (last and high > -low))
    return first or last


def _by_width(counts: Floats, widths: Floats, deviation: float) -> Floats:
    shares = np.zeros(len(counts))

    def part(start: int, stop: int, share: float) -> None:
        if stop - start == 1:
            shares[start] = share
            return
        middle = (start + stop) // 2
        left, right = float(counts[start:middle].sum()), float(counts[middle:stop].sum())
        fraction = float(widths[start:middle].sum() / widths[start:stop].sum())
        noise = deviation * math.hypot((1 - fraction) * math.sqrt(middle - start), fraction * math.sqrt(stop - middle))
        if left + right > 0 and abs(left - fraction * (left + right)) > SURE * noise:
            fraction = min(max(left / (left + right), 0.0), 1.0)
        part(start, middle, share * fraction)
        part(middle, stop, share * (1 - fraction))

    part(0, len(counts), 1.0)
    return shares


def _above_noise(counts: Floats, deviation: float) -> Floats:
    shares = np.zeros(len(counts))

    def part(start: int, stop: int, share: float) -> None:
        if stop - start == 1:
            shares[start] = share
            return
        middle = (start + stop) // 2
        left, right = (
            total if total > SURE * deviation * math.sqrt(size) else 0.0
            for total, size in (
                (float(counts[start:middle].sum()), middle - start),
                (float(counts[middle:stop].sum()), stop - middle),
            )
        )
        if not left and not right:
            shares[start:stop] = share / (stop - start)
            return
        if left:
            part(start, middle, share * left / (left + right))
        if right:
            part(middle, stop, share * right / (left + right))

    part(0, len(counts), 1.0)
    return shares
