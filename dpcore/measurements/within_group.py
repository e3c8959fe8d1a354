"""What is known inside a range of cells: post-processing of their released counts.

Inside the table a range is cut into halves, and halves of halves; one that is not surely more or
less than its width tells is taken to be as full as that. Towards a far bound, where cells may well
be empty, values become rarer: the nearest density of one hump, so that noise far out is averaged with
what lies before it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SURE = 3.0
"""Standard deviations by which a part must differ to be believed: they are many, and a false one far out is costly."""


FAR = 4.0
"""The same for where a tail ends, and for a single cell beside its hump: of these there are hundreds."""

WINDOWS = (1, 2, 4, 8, 16)
"""Cells that are looked at together for the end of a tail; wider ones would reach from values to far beyond them."""

ROUNDS = 3
"""How often the hump is fitted anew without the cells that differ from it."""

POINT = 1e-9
"""The width of a cell that is a single point, out of its range's."""


def shares_within(counts: Floats, edges: Floats, start: int, stop: int, deviation: float) -> Floats:
    """Share of each cell of the range from `start` to `stop` among the range."""
    part = counts[start:stop]
    widths = np.diff(edges[start : stop + 1])
    widths = np.maximum(widths, POINT * widths.sum())
    if _is_tail(edges, start, stop):
        if stop == len(edges) - 1:
            return _tail_shares(part, widths, deviation)
        return _tail_shares(part[::-1], widths[::-1], deviation)[::-1]
    return _bisected_shares(part, widths, deviation)


def _is_tail(edges: Floats, start: int, stop: int) -> bool:
    """Whether the range reaches to a bound from the side of 0, or does not hold 0: there cells may well be empty."""
    first, last = start == 0, stop == len(edges) - 1
    low, high = edges[start], edges[stop]
    if low <= 0 <= high:
        return bool((first and -low > high) or (last and high > -low))
    return first or last


def _bisected_shares(counts: Floats, widths: Floats, deviation: float) -> Floats:
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


def _tail_shares(counts: Floats, widths: Floats, deviation: float) -> Floats:
    """The nearest counts of one hump that are nowhere negative, as far out as they surely rise above their noise.

    Cells that by themselves surely differ from the hump, as round numbers do, keep their own counts. The last
    cell is the farthest out.
    """
    stop = _tail_end(counts, deviation)
    own, found = np.zeros(stop, dtype=bool), np.maximum(counts[:stop], 0.0)
    for _ in range(ROUNDS):
        hump = _fit_hump(~own, counts[:stop], widths[:stop])
        found = np.where(own, np.maximum(counts[:stop], 0.0), hump)
        more = own | (np.abs(counts[:stop] - hump) > FAR * deviation)
        if more.all() or np.array_equal(more, own):
            found = np.where(more, np.maximum(counts[:stop], 0.0), hump)
            break
        own = more
    shares = np.zeros(len(counts))
    shares[:stop] = found / found.sum() if found.sum() > 0 else widths[:stop] / widths[:stop].sum()
    return shares


def _tail_end(counts: Floats, deviation: float) -> int:
    """Where the farthest window of few cells ends whose counts surely rise above their noise."""
    sums, reach = np.concatenate([[0.0], np.cumsum(counts)]), 1
    for size in WINDOWS:
        if size <= len(counts):
            ends = np.flatnonzero(sums[size:] - sums[:-size] > FAR * deviation * math.sqrt(size)) + size
            reach = max(reach, int(ends.max(initial=1)))
    return reach


def _fit_hump(smooth: NDArray[np.bool_], counts: Floats, widths: Floats) -> Floats:
    """The hump through the smooth cells, and between them where others are."""
    density = _unimodal_density(counts[smooth] / widths[smooth], widths[smooth] ** 2)
    places = np.arange(len(counts))
    hump: Floats = np.maximum(np.interp(places, places[smooth], density), 0.0) * widths
    return hump


def _unimodal_density(density: Floats, weights: Floats) -> Floats:
    """The nearest density that rises to some cell and falls from there on; the nearest such cell is taken."""
    from scipy.optimize import isotonic_regression

    rising = [isotonic_regression(density[:peak], weights=weights[:peak]).x for peak in range(1, len(density))]
    falling = [
        isotonic_regression(density[peak:], weights=weights[peak:], increasing=False).x for peak in range(len(density))
    ]
    fits = [np.concatenate(parts) for parts in zip([np.zeros(0), *rising], falling, strict=True)]
    return min(fits, key=lambda fit: float(weights @ (density - fit) ** 2))
