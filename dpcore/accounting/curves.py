"""Conversions between rho, epsilon and delta, each rounded to the safe side."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

INFINITE = math.inf


def float_above(value: Fraction) -> float:
    """A float at or above a fraction: the nearest one or its successor."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, INFINITE)


def float_below(value: Fraction) -> float:
    """A float at or below a fraction: the nearest one or its predecessor."""
    return -float_above(-value)


GAUSSIAN_MARGIN = 1e-10
"""Relative margin for the rounding of the two normal tails, which are computed in double precision."""

SMALLEST_TAIL = 2.0**-1000
"""Tail probabilities above this have full floating-point precision."""


def gaussian_delta(rho: float, *, epsilon: float) -> float:
    """The delta of Gaussian noise at an epsilon, rounded up: the exact curve (GUARANTEE.md, M3).

    With mu = sqrt(2 rho) it is Q(epsilon/mu - mu/2) - e^epsilon Q(epsilon/mu + mu/2), where Q is the
    upper tail of the normal law. Floats below `SMALLEST_TAIL` lose precision: there the second tail
    counts as 0 and the first as `SMALLEST_TAIL`, which errs upward.
    """
    mu = math.sqrt(2 * rho)
    inside = max(upper_tail(epsilon / mu - mu / 2), SMALLEST_TAIL)
    second = upper_tail(epsilon / mu + mu / 2)
    outside = math.exp(epsilon) * second if epsilon < 700 and second > SMALLEST_TAIL else 0.0
    return min(1.0, inside * (1 + GAUSSIAN_MARGIN) - outside * (1 - GAUSSIAN_MARGIN))


def upper_tail(x: float) -> float:
    """The probability that a standard normal number exceeds x."""
    return math.erfc(x / math.sqrt(2)) / 2


@functools.lru_cache(maxsize=256)  # planning repeats the same conversions
def gaussian_epsilon(rho: float, *, delta: float) -> float:
    """The smallest epsilon at which Gaussian noise meets a delta, rounded up; infinite when delta is 0."""
    return _least_epsilon(lambda epsilon: gaussian_delta(rho, epsilon=epsilon), rho, delta, margin=1e-9)


def _least_epsilon(curve: Callable[[float], float], rho: float, delta: float, *, margin: float) -> float:
    """The smallest epsilon at which a curve of deltas meets a delta; infinite when delta is 0.

    It is sought below zCDP's simple conversion, an upper bound, which the relative margin widens.
    """
    if not delta > 0 or not math.isfinite(rho):
        return INFINITE
    low, high = 0.0, (rho + 2 * math.sqrt(rho * math.log(1 / delta))) * (1 + margin)
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (low, middle) if curve(middle) <= delta else (middle, high)
    return high


def delta_of_rho(rho: float, *, epsilon: float) -> float:
    """The smallest delta of the zCDP conversion of Canonne, Kamath and Steinke (2020).

    delta = min over alpha > 1 of exp((alpha-1)(alpha rho - epsilon)) (1 - 1/alpha)^alpha / (alpha - 1).
    The logarithm is convex around its only minimum, which golden-section search finds;
    any alpha gives a valid delta, so an inexact minimum is only looser.
    """

    def log_delta(alpha: float) -> float:
        return (alpha - 1) * (alpha * rho - epsilon) + alpha * math.log1p(-1 / alpha) - math.log(alpha - 1)

    low, high = math.log(1e-10), math.log(max(4.0, (epsilon + 1) / rho + 2))
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(90):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if log_delta(1 + math.exp(left)) < log_delta(1 + math.exp(right)):
            high = right
        else:
            low = left
    return math.exp(min(0.0, log_delta(1 + math.exp((low + high) / 2))))  # at most 1, without overflow


@functools.lru_cache(maxsize=256)  # planning repeats the same conversions
def epsilon_of_rho(rho: float, *, delta: float) -> float:
    """An epsilon such that rho-zCDP implies (epsilon, delta)-DP; infinite when delta is 0."""
    least = _least_epsilon(lambda epsilon: delta_of_rho(rho, epsilon=epsilon), rho, delta, margin=0.0)
    return least * (1 + 1e-12)  # covers the rounding of the search itself


@functools.lru_cache(maxsize=256)  # planning repeats the same conversions
def rho_of_epsilon(epsilon: float, *, delta: float) -> Fraction:
    """The largest rho, to nine digits, of Gaussian noise that is (epsilon, delta)-differentially private.

    >>> rho = rho_of_epsilon(1.0, delta=1e-6)
    >>> 0.999 < gaussian_epsilon(float(rho), delta=1e-6) <= 1.0
    True
    >>> gaussian_epsilon(float(rho), delta=1e-6) < epsilon_of_rho(float(rho), delta=1e-6)  # zCDP's conversion is looser
    True
    """
    if not delta > 0:
        raise ValueError("Gaussian noise needs delta > 0")
    low, high = 0.0, 1.0
    while gaussian_epsilon(high, delta=delta) <= epsilon:
        high *= 2
    for _ in range(64):
        middle = (low + high) / 2
        fits = gaussian_epsilon(middle, delta=delta) <= epsilon * (1 - 1e-9)
        low, high = (middle, high) if fits else (low, middle)
    return Fraction(low)
