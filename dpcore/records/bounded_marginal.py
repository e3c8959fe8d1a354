"""Bounded distributions of an interval column's values with the measured mean and standard deviation.

A Gaussian that is clipped at the bounds concentrates its tails there and shifts its mean. A Beta
distribution between the bounds attains any mean and spread that bounded values can have; it is
close to the Gaussian if the bounds are far and skewed if one of them is near.
Post-processing: it depends on released moments only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcore.records.schema import Floats

STEPS = 100
NORMAL_SCORES = np.linspace(-6.0, 6.0, 12 * STEPS + 1)
"""Normal scores at which the quantiles are tabulated, `STEPS` per unit, with interpolation between them."""
MOST_SPREAD = 0.95
"""Largest share of the maximal variance at a mean that is fitted; above it nearly all values would be on the bounds."""

LEAST_SPREAD, BISECTIONS = 1e-6, 30


def _clipped_mean(place: float, spread: float) -> float:
    """The mean of a Gaussian that is clipped at -1 and 1."""
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
        """The Beta distribution on [-1, 1] with this mean and standard deviation, or a clipped Gaussian if none exists.

        Bounded values always have such a Beta distribution, but noisy moments may not: the mean may lie beyond
        the bounds, or the spread may be pooled over classes. A clipped Gaussian keeps both as far as possible.
        """
        from scipy.special import betaincinv, ndtr

        spread = max(spread, LEAST_SPREAD)
        middle, variance = (1 + mean) / 2, (spread / 2) ** 2
        room = middle * (1 - middle)
        if variance > MOST_SPREAD * room:
            return BoundedShape.clipped_gaussian(mean, spread)
        weight = room / variance - 1
        quantiles: Floats = 2 * betaincinv(middle * weight, (1 - middle) * weight, ndtr(NORMAL_SCORES)) - 1
        return BoundedShape(mean, spread, quantiles)

    @staticmethod
    def clipped_gaussian(mean: float, spread: float) -> BoundedShape:
        """A Gaussian of this spread, clipped at the bounds, with a location inside them that best keeps the mean.

        If classes share a pooled spread, the values of all classes are clipped alike: the classes then
        differ in location and not in shape.
        """
        spread = max(spread, LEAST_SPREAD)
        low, high = -1.0, 1.0
        for _ in range(BISECTIONS):
            place = (low + high) / 2
            low, high = (place, high) if _clipped_mean(place, spread) < mean else (low, place)
        return BoundedShape(mean, spread, np.clip((low + high) / 2 + spread * NORMAL_SCORES, -1.0, 1.0))

    def transform(self, positions: Floats) -> Floats:
        """The bounded positions of Gaussian positions."""
        place = positions - (self.mean + self.spread * NORMAL_SCORES[0])
        place *= STEPS / self.spread
        np.clip(place, 0.0, len(NORMAL_SCORES) - 1.0, out=place)
        before = np.minimum(place.astype(np.intp), len(NORMAL_SCORES) - 2)
        place -= before
        bent: Floats = np.diff(self.quantiles)[before]
        bent *= place
        bent += self.quantiles[before]
        return bent
