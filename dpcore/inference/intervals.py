"""Confidence intervals for quotients of noisy sums and for regression coefficients, from draws of the noise.

An interval for top / bottom holds every value θ for which top - θ bottom is within the margin of noise
and sampling error (Fieller). If the bottom cannot be distinguished from 0, the interval is unbounded.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from dpcore.measurements.noise_law import PURPOSE, SEED
from dpcore.noise.sources import public_generator
from dpcore.records.schema import Floats

CLEAR = 0.95
"""Products are clearly positive definite if they exceed their noise in this share of the draws."""

LOOKED_AT = 512
"""Number of draws for that decision."""


class Estimand(StrEnum):
    """The target of an interval: the value in the measured table, or in the population behind it."""

    TABLE = "table"
    POPULATION = "population"


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its confidence interval.

    `noise_share` is the share of the squared width due to the privacy noise. `remark` says why
    an interval is unbounded, and what would help.

        >>> share = Interval(0.02, -0.01, 0.05, 0.95, Estimand.TABLE, noise_share=1.0)
        >>> share.within(0.0, 1.0).low
        0.0
        >>> share.scaled(100.0, 0.0).high
        5.0
    """

    estimate: float
    low: float
    high: float
    confidence: float
    estimand: Estimand
    noise_share: float
    remark: str = ""

    @property
    def width(self) -> float:
        """The distance between the ends."""
        return self.high - self.low

    @property
    def is_bounded(self) -> bool:
        """Whether the interval is bounded, so that the release is informative."""
        return not self.remark

    def scaled(self, factor: float, offset: float) -> Interval:
        """Return the interval in other units; the factor must be positive."""
        return replace(
            self,
            estimate=offset + factor * self.estimate,
            low=offset + factor * self.low,
            high=offset + factor * self.high,
        )

    def within(self, lowest: float, highest: float) -> Interval:
        """Return the interval clipped to the possible values.

        An estimate beyond a bound is moved to the bound and keeps its distance to the inner end, so that large noise
        does not make the interval look precise.
        """
        if not self.is_bounded:
            return replace(self, low=lowest, high=highest)
        estimate = min(max(self.estimate, lowest), highest)
        moved = estimate - self.estimate
        low, high = self.low + min(moved, 0.0), self.high + max(moved, 0.0)
        return replace(self, estimate=estimate, low=max(low, lowest), high=min(high, highest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotient:
    """A quotient top / bottom, with centred draws of the noise on both.

    `spread` is the sampling covariance of (top, bottom), as far as top - θ bottom needs it at the true θ; `shift` is
    the most by which rounding before the noise changed each of them.

        >>> noise = np.array([-1.0, 1.0])  # draws of noise of standard deviation 1 on the sum, and none on the count
        >>> mean = Quotient(
        ...     top=50.0, bottom=100.0, noise_top=noise, noise_bottom=0 * noise, spread=np.zeros((2, 2))
        ... ).interval(Estimand.TABLE, 0.95)
        >>> mean.estimate, round(mean.low, 6), round(mean.high, 6)
        (0.5, 0.49, 0.51)
    """

    top: float
    bottom: float
    noise_top: Floats
    noise_bottom: Floats
    spread: Floats
    shift: tuple[float, float] = (0.0, 0.0)

    def interval(self, estimand: Estimand | str, confidence: float) -> Interval:
        """Return the confidence interval: with noise only for the table, with sampling error too for the population."""
        if not 0 < confidence < 1:
            raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
        estimand = Estimand(estimand)
        if self.bottom <= 0:
            return unbounded_interval(estimand, confidence, DROWNED)
        estimate = float(self.top / self.bottom)
        along, pair = np.array([1.0, -estimate]), np.stack([self.noise_top, self.noise_bottom])
        noise, drawn = pair @ pair.T / pair.shape[1], along @ pair
        chance = max(0.0, float(along @ self.spread @ along)) if estimand is Estimand.POPULATION else 0.0
        covariance = noise + self.spread if chance else noise
        if chance:
            drawn = drawn + math.sqrt(chance) * _standard_normal(len(drawn))
        rounding = self.shift[0] + abs(estimate) * self.shift[1]  # in the worst case all of one sign
        reach = float(np.quantile(np.abs(drawn + rounding), confidence)) ** 2 / float(np.mean(drawn**2))
        ends = _fieller_bounds(float(self.top), float(self.bottom), reach * covariance)
        if ends is None:
            return unbounded_interval(estimand, confidence, DROWNED)
        share = float(along @ noise @ along / (along @ covariance @ along))
        return Interval(estimate, *ends, confidence, estimand, share)


DROWNED = "what is divided by, a count or a variance, does not stand out of the noise"


def unbounded_interval(estimand: Estimand, confidence: float, remark: str) -> Interval:
    """Return the unbounded interval, with the reason."""
    return Interval(math.nan, -math.inf, math.inf, confidence, estimand, 1.0, remark)


@functools.lru_cache(maxsize=2)
def _standard_normal(draws: int) -> Floats:
    return public_generator(SEED, f"{PURPOSE}, chance").standard_normal(draws)


def _fieller_bounds(top: float, bottom: float, reach: Floats) -> tuple[float, float] | None:
    """Return the bounds of the θ with (top - θ bottom)² <= (1, -θ) reach (1, -θ)ᵀ; None if they are unbounded."""
    a, b, c = bottom**2 - float(reach[1, 1]), top * bottom - float(reach[0, 1]), top**2 - float(reach[0, 0])
    if a <= 0:
        return None
    root = math.sqrt(max(b**2 - a * c, 0.0))
    return (b - root) / a, (b + root) / a


def coefficients(
    noisy: Floats, noise: Floats, *, rows_per_unit: int, estimand: Estimand | str, confidence: float
) -> list[Interval]:
    """Return an interval for the coefficient of every regressor, from noisy sums of products of every two terms.

    The terms are the regressors, with the constant first, followed by the response.
    """
    count, estimand = len(noisy) - 1, Estimand(estimand)
    per_row = rows_per_unit / max(noisy[0, 0] - count, 1.0)
    all_clear = _is_clear(noisy, noise, list(range(count)))
    intervals = []
    for j in range(count):
        others = [i for i in range(count) if i != j]
        if all_clear or _is_clear(noisy, noise, others):
            intervals.append(_coefficient(noisy, noise, j, others, per_row).interval(estimand, confidence))
        else:
            intervals.append(unbounded_interval(estimand, confidence, UNCLEAR))
    return intervals


UNCLEAR = (
    "the products of the other regressors do not stand out of the noise: leave out features, or ask for a release "
    "with more rows, a larger epsilon or fewer columns"
)


def _coefficient(noisy: Floats, noise: Floats, j: int, others: list[int], per_row: float) -> Quotient:
    """Return one coefficient as a quotient of residual products (Frisch-Waugh-Lovell).

    Let f and r be the true residuals of the regressor and of the response on the other regressors R. The noise E moves
    the product of f and r by exactly E_fr - E_fR G⁻¹ E_Rr, where G holds the others' noisy products. The mean of the
    second part is subtracted.
    """
    size, pair = len(noisy), [j, len(noisy) - 1]
    inverse = np.linalg.inv(noisy[np.ix_(others, others)])
    left = np.zeros((size, 2))
    left[pair, [0, 1]] = 1.0
    left[others] = -inverse @ noisy[np.ix_(others, pair)]
    moved = (noise.reshape(-1, size) @ left).reshape(-1, size, 2)
    own, response = (moved[:, others, side] for side in (0, 1))
    back = own @ inverse
    drawn = np.stack([moved[:, :, side] @ left[:, side] for side in (0, 1)])  # of f with f, and of r with r
    drawn[0] -= np.einsum("ni,ni->n", back, own)
    drawn[1] -= np.einsum("ni,ni->n", response @ inverse, response)
    across = moved[:, :, 1] @ left[:, 0] - np.einsum("ni,ni->n", back, response)
    means = np.array([[drawn[0].mean(), across.mean()], [across.mean(), drawn[1].mean()]])
    rest = left.T @ noisy @ left - means
    return Quotient(
        top=rest[0, 1],
        bottom=rest[0, 0],
        noise_top=across - means[0, 1],
        noise_bottom=drawn[0] - means[0, 0],
        spread=max(rest[0, 0], 0.0) * per_row * rest[::-1, ::-1],
    )


def _is_clear(noisy: Floats, noise: Floats, terms: list[int]) -> bool:
    """Whether these terms' products are clearly positive definite: larger than the noise in every direction."""
    values, vectors = np.linalg.eigh(noisy[np.ix_(terms, terms)])
    if values[0] <= 0:
        return False
    whiten = vectors / np.sqrt(values)
    shares = np.linalg.eigvalsh(whiten.T @ noise[:LOOKED_AT][:, terms][:, :, terms] @ whiten)
    return bool(np.quantile(np.abs(shares).max(axis=1), CLEAR) < 1)
