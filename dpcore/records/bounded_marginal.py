"""The shape of an interval column's values: bounded, with the measured mean and spread.

A Gaussian that is cut at the bounds piles its tails up there and shifts its mean. A Beta
distribution between the bounds has any mean and spread that bounded values can have, is
close to the Gaussian where the bounds are far, and skewed where one is near.
Post-processing: it sees released moments only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STEPS = 100
SCORES = np.linspace(-6.0, 6.0, 12 * STEPS + 1)
"""Normal scores at which the quantiles are tabulated, so many in a unit; between them they are interpolated."""
MOST_SPREAD = 0.95
"""Share of the largest variance that values with this mean can have; beyond it nearly all would sit on the bounds."""

LEAST_SPREAD, BISECTIONS = 1e-6, 30


def _cut_mean(place: float, spread: float) -> float:
    """The mean of a Gaussian that is cut at -1 and 1."""
    below, above = (-1 - place) / spread, (1 - place) / spread
    share = [math.erfc(-z / math.sqrt(2)) / 2 for z in (below, above)]
    height = [math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) for z in (below, above)]
    return (1 - share[1]) - share[0] + place * (share[1] - share[0]) + spread * (height[0] - height[1])


@dataclass(frozen=True, slots=True)
class BoundedShape:
    """Maps Gaussian positions of given mean and spread to positions in [-1, 1] with the same mean and spread."""

    mean: float
    spread: float
    quantiles: Floats

    @staticmethod
    def fit(mean: float, spread: float) -> BoundedShape:
        """The Beta distribution on [-1, 1] with this mean and standard deviation; a Gaussian cut at the bounds if none.

        Bounded values never have such moments, but noisy ones may: of a mean beyond the bounds, or of a
        spread that is another class's too. Neither is then known well enough to give up the other for it.
        """
        from scipy.special import betaincinv, ndtr

        spread = max(spread, LEAST_SPREAD)
        middle, variance = (1 + mean) / 2, (spread / 2) ** 2
        room = middle * (1 - middle)
        if variance > MOST_SPREAD * room:
            return BoundedShape.cut(mean, spread)
        weight = room / variance - 1
        quantiles: Floats = 2 * betaincinv(middle * weight, (1 - middle) * weight, ndtr(SCORES)) - 1
        return BoundedShape(mean, spread, quantiles)

    @staticmethod
    def cut(mean: float, spread: float) -> BoundedShape:
        """A Gaussian of this spread cut at the bounds, around a place inside them that leaves the mean as it can be.

        Where classes share a spread that is none of theirs, values of all of them are so cut alike,
        and what tells classes apart is where they lie and not how they were bent.
        """
        spread = max(spread, LEAST_SPREAD)
        low, high = -1.0, 1.0
        for _ in range(BISECTIONS):
            place = (low + high) / 2
            low, high = (place, high) if _cut_mean(place, spread) < mean else (low, place)
        return BoundedShape(mean, spread, np.clip((low + high) / 2 + spread * SCORES, -1.0, 1.0))

    def bend(self, positions: Floats) -> Floats:
        """The bounded positions."""
        place = positions - (self.mean + self.spread * SCORES[0])
        place *= STEPS / self.spread
        np.clip(place, 0.0, len(SCORES) - 1.0, out=place)
        before = np.minimum(place.astype(np.intp), len(SCORES) - 2)
        place -= before
        bent: Floats = np.diff(self.quantiles)[before]
        bent *= place
        bent += self.quantiles[before]
        return bent
