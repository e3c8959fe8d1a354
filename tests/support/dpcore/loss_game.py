"""The largest Pr[E] - e^epsilon Pr'[E] of somebody who watches the privacy loss of what was released so far.

Values are functions of the loss on a grid, computed backwards from the last release by a dynamic program. Each is a
lower bound, or an upper bound where that is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.stats import norm

from dpcore.accounting import rho_of_epsilon

Floats = NDArray[np.float64]


def growing(rho: float, count: int, factor: float) -> list[float]:
    """The rho of Gaussian releases, each `factor` times the one before, that together have nearly the whole rho."""
    sizes = np.array([factor**step for step in range(count)])
    return list(sizes / sizes.sum() * rho * 0.999)


def gaussian_rho(epsilon: float, delta: float) -> float:
    """The rho that the exact curve allows."""
    return float(rho_of_epsilon(epsilon, delta=delta))


def loss_masses(rho: float, step: float, *, upper: bool) -> tuple[int, Floats]:
    """The distribution of the loss of Gaussian noise on a grid, and the first grid index.

    The loss is normal with mean rho and variance 2 rho; under the other neighbour its mean is -rho. Rounding it
    down can only decrease a strategy's gain. Splitting it between its two neighbours on the grid, so that both laws
    keep their mass, can only increase the gain, because that is a convex function of the likelihood ratio.
    """
    deviation = math.sqrt(2 * rho)
    first, last = math.floor((rho - 9 * deviation) / step), math.ceil((rho + 9 * deviation) / step)
    edges = np.arange(first, last + 1) * step
    mass, other = (-np.diff(norm.sf((edges - mean) / deviation)) for mean in (rho, -rho))
    if not upper:
        return first, mass
    ratio = np.exp(-edges[:-1])
    above = np.clip((mass * ratio - other) / (ratio * -math.expm1(-step)), 0, mass)
    split = np.append(mass - above, 0.0)
    split[1:] += above
    return first, split


class LossGame:
    """Values at every loss of a grid around 0 that is wide enough for releases of a total rho."""

    def __init__(self, epsilon: float, rho: float, *, step: float, upper: bool) -> None:
        self.epsilon, self.step, self.upper = epsilon, step, upper
        self.half = int((epsilon + rho + 8 * math.sqrt(2 * rho)) / step) + 2
        self.losses = np.arange(-self.half, self.half + 1) * step

    def at_the_end(self) -> Floats:
        """What the best event gains when nothing more is released."""
        return self._gain(self.losses)

    def before_gaussian(self, value: Floats, rho: float) -> Floats:
        """The value before Gaussian noise of a rho, given the value after it."""
        first, masses = loss_masses(rho, self.step, upper=self.upper)
        low, high = max(0, -first) + 1, max(0, first + len(masses)) + 1
        padded = np.concatenate([np.full(low, value[0]), value, np.full(high, value[-1])])
        return fftconvolve(padded, masses[::-1], mode="valid")[low + first :][: len(value)]

    def before_pure(self, value: Floats, epsilon: float) -> Floats:
        """The value before a randomised response, the worst pure release of an epsilon."""
        up, down = (self._moved(value, side * epsilon) for side in (1, -1))
        return up / (1 + math.exp(-epsilon)) + down / (1 + math.exp(epsilon))

    def before_leak(self, value: Floats, delta: float) -> Floats:
        """The value before a release that shows everything with probability delta, and else nothing."""
        return delta + (1 - delta) * value

    def _moved(self, value: Floats, loss: float) -> Floats:
        """The value at a larger loss.

        It is convex in the likelihood ratio e^-loss: between two losses of the grid it lies below their chord. It
        lies above the value at the smaller loss, and above what is gained at once.
        """
        shift = math.floor(loss / self.step)
        at, beyond = (value[np.clip(np.arange(len(value)) + by, 0, len(value) - 1)] for by in (shift, shift + 1))
        if not self.upper:
            return np.maximum(at, self._gain(self.losses + loss))
        share = math.expm1(shift * self.step - loss) / math.expm1(-self.step)
        return (1 - share) * at + share * beyond

    def _gain(self, losses: Floats) -> Floats:
        return -np.expm1(np.minimum(self.epsilon - losses, 0))

    def best(self, rhos: Sequence[float], move: Callable[[float, Floats], Floats], *, goes_on: bool = False) -> float:
        """The value at the start of Gaussian releases among which a move may be made once, whenever it pays.

        A move is given the rho spent before and the value after it: that of the Gaussian releases still to come if
        the game goes on, else that of the end.
        """
        after = self.at_the_end()
        spent = [0.0, *accumulate(rhos)]
        value = move(spent[-1], after)
        for rho, before in zip(reversed(rhos), reversed(spent[:-1]), strict=True):
            after = self.before_gaussian(after, rho) if goes_on else after
            value = np.maximum(self.before_gaussian(value, rho), move(before, after))
        return float(value[self.half])
