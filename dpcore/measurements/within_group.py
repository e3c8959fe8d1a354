"""The distribution inside a range of cells: post-processing of their released counts.

A first guess is uniform in an inner range. In a range that reaches to a far bound, where cells may
well be empty, values become rarer: a unimodal density is fitted, so that noise far out is averaged
with the cells before it. Then the range is bisected recursively, and a half leaves the first guess as
far as its count differs from it by more than the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpcore.records.schema import Floats

SURE = 3.0
"""Standard deviations by which a half had to differ in the first releases, which then followed its count alone."""

UNSURE = 2.0
"""A half that differs by so many standard deviations of noise keeps the first guess; beyond, the guess fades with the
squared ratio. With 1 or 1.5, marginals of bank_marketing and credit_default are a little closer to their training
rows, but noise near 0, where cells are narrow, is too often taken for values."""


FAR = 4.0
"""Standard deviations for the end of a tail, and for single cells off the unimodal fit: there are hundreds."""

WINDOWS = (1, 2, 4, 8, 16)
"""Window sizes for the end of a tail, in cells; wider windows would extend it far beyond the last values."""

ROUNDS = 3
"""How often the unimodal fit is repeated without the cells that differ from it."""

LEAST_SHARE = 1e-12
"""The least share of a cell in a first guess, so that every part of a range has a share."""

POINT_WIDTH = 1e-9
"""The width of a single-point cell, as a share of its range's width."""


def shares_within(
    counts: Floats, edges: Floats, start: int, stop: int, deviation: float, *, gradual: bool = True
) -> Floats:
    """Return the share of each cell within the range from `start` to `stop`.

    The first releases did not leave the first guess gradually, and in tails not at all.
    """
    part = counts[start:stop]
    widths = np.diff(edges[start : stop + 1])
    guess = widths = np.maximum(widths, POINT_WIDTH * widths.sum())
    if _is_tail(edges, start, stop):
        ahead = slice(None) if stop == len(edges) - 1 else slice(None, None, -1)
        guess = _tail_shares(part[ahead], widths[ahead], deviation)[ahead]
        if not gradual:
            return guess
        guess = np.maximum(guess, LEAST_SHARE)
    return _bisected_shares(part, guess, deviation, _evidence if gradual else _certainty)


def _evidence(deviations: float) -> float:
    """Return how far a half follows its count that differs by so many standard deviations of noise."""
    return max(0.0, 1 - (UNSURE / max(deviations, UNSURE)) ** 2)


def _certainty(deviations: float) -> float:
    return float(deviations > SURE)


def _is_tail(edges: Floats, start: int, stop: int) -> bool:
    """Whether the range ends at a bound and lies mostly or wholly on that bound's side of 0."""
    first, last = start == 0, stop == len(edges) - 1
    low, high = edges[start], edges[stop]
    if low <= 0 <= high:
        return bool((first and -low > high) or (last and high > -low))
    return first or last


def _bisected_shares(counts: Floats, guess: Floats, deviation: float, weigh: Callable[[float], float]) -> Floats:
    """Return shares by recursive bisection: between the guess and the counts, as `weigh` decides for each half."""
    shares = np.zeros(len(counts))

    def split(start: int, stop: int, share: float) -> None:
        if stop - start == 1:
            shares[start] = share
            return
        middle = (start + stop) // 2
        left, right = float(counts[start:middle].sum()), float(counts[middle:stop].sum())
        fraction = float(guess[start:middle].sum() / guess[start:stop].sum())
        noise = deviation * math.hypot((1 - fraction) * math.sqrt(middle - start), fraction * math.sqrt(stop - middle))
        if left + right > 0:
            weight = weigh(abs(left - fraction * (left + right)) / max(noise, LEAST_SHARE))
            fraction = (1 - weight) * fraction + weight * min(max(left / (left + right), 0.0), 1.0)
        split(start, middle, share * fraction)
        split(middle, stop, share * (1 - fraction))

    split(0, len(counts), 1.0)
    return shares


def _tail_shares(counts: Floats, widths: Floats, deviation: float) -> Floats:
    """Return shares from the nearest non-negative unimodal counts, up to where counts surely exceed their noise.

    Cells that surely differ from the unimodal fit, as round numbers do, keep their own counts. The last cell is the
    farthest out.
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
    """Return the end of the farthest window of few cells whose count surely exceeds its noise."""
    sums, reach = np.concatenate([[0.0], np.cumsum(counts)]), 1
    for size in WINDOWS:
        if size <= len(counts):
            ends = np.flatnonzero(sums[size:] - sums[:-size] > FAR * deviation * math.sqrt(size)) + size
            reach = max(reach, int(ends.max(initial=1)))
    return reach


def _fit_hump(smooth: NDArray[np.bool_], counts: Floats, widths: Floats) -> Floats:
    """Return the unimodal fit to the smooth cells, interpolated at the others."""
    density = _unimodal_density(counts[smooth] / widths[smooth], widths[smooth] ** 2)
    places = np.arange(len(counts))
    return np.maximum(np.interp(places, places[smooth], density), 0.0) * widths


def _unimodal_density(density: Floats, weights: Floats) -> Floats:
    """Return the nearest unimodal density, over all positions of the mode."""
    from scipy.optimize import isotonic_regression

    rising = [isotonic_regression(density[:peak], weights=weights[:peak]).x for peak in range(1, len(density))]
    falling = [
        isotonic_regression(density[peak:], weights=weights[peak:], increasing=False).x for peak in range(len(density))
    ]
    fits = [np.concatenate(parts) for parts in zip([np.zeros(0), *rising], falling, strict=True)]
    return min(fits, key=lambda fit: float(weights @ (density - fit) ** 2))
