"""The joint law of a measurement's noise: its covariance in figures, and draws of it for post-processing.

Noise of the Wishart, Gaussian and nuclear laws is the same in every orthonormal frame, so
that a few coordinates of it can be drawn without the others, however many were measured.
Draws come in floating point from a public seed: they say how uncertain a released value is
and are never added to anything.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.mechanisms.base import UNIT, GramEvent, Output
from dpcore.mechanisms.laplace_sums import LAPLACE_SUMS
from dpcore.mechanisms.registry import Event, gram_mechanism, mechanism_of, vector_mechanism
from dpcore.mechanisms.sensitivity import best_l1_weight
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.mechanisms.wishart import WISHART_DIFFERENCE
from dpcore.noise.sources import public_generator
from dpcore.records.schema import Neighbours

Floats = NDArray[np.float64]

PURPOSE = "uncertainty"
SEED = "5eed"
"""The public stream of all draws: two readers of one release get the same figures."""

MOST_CELLS = 1 << 22
"""Numbers held at once; where frames are large there are fewer draws."""


@dataclass(frozen=True, slots=True)
class NoiseCovariance:
    """Second moments of the noise on one measurement, in squared records; the mean is 0.

    `diagonal` and `off_diagonal` are variances of an entry; two entries of one diagonal have the
    covariance `diagonals_of_a_block`, two of different blocks' `diagonals_of_two_blocks` (None where it is
    not known in closed form). All other pairs of different entries are uncorrelated.
    """

    diagonal: float
    off_diagonal: float
    diagonals_of_a_block: float
    diagonals_of_two_blocks: float | None

    @staticmethod
    def of(event: GramEvent) -> NoiseCovariance:
        """The covariance that an event's parameters imply.

        Raises: ValueError for a mechanism that gives no noisy copy of the blocks.
        """
        expected = gram_mechanism(event.mechanism).expected_error(event)
        diagonal, other = expected.diagonal_sd**2, expected.off_diagonal_sd**2
        together = 0.0 if event.mechanism == "laplace" else diagonal - 2 * other  # no direction is special
        if abs(together) < 1e-12 * diagonal:
            together = 0.0
        return NoiseCovariance(diagonal, other, together, _between_blocks(event, diagonal, together))


def _between_blocks(event: GramEvent, diagonal: float, together: float) -> float | None:
    """Covariance of two diagonal entries in different blocks: only a factor on the whole trace ties blocks."""
    p, blocks = event.layout.dimension, event.layout.blocks
    if blocks == 1:
        return 0.0
    if event.mechanism == "nuclear-k-norm" and event.neighbours is Neighbours.REPLACE_ONE:
        return None
    if event.mechanism != "wishart-difference-trace":
        return 0.0
    n, rate = blocks * p * (p + 1) / 2, float(event.noise)
    whole = 2 * n * (2 * n + 1) / (2 * rate) ** 2 * (1 - 2 * n / (n + 1) + n / (n + 2))  # of (tr A - tr B)²
    alone = p * diagonal + p * (p - 1) * together
    return (whole / blocks - alone) / (p**2 * (blocks - 1))


def noise_facts(event: Event) -> dict[str, Any]:
    """The law of a measurement's noise for the record: its name, parameter and second moments, in records.

    The covariance is that of `NoiseCovariance` for noisy blocks; where every number has noise of its own, the
    variances; None for directions, which are not the truth plus noise.
    """
    covariance: dict[str, float | None] | None = None
    if isinstance(event, VectorEvent):
        unit = event.query.unit
        covariance = {"number": (vector_mechanism(event.mechanism).deviation(event) / unit) ** 2}
        return {"law": event.mechanism, "parameter": float(event.noise) / unit, "covariance": covariance}
    output = mechanism_of(event.mechanism).output
    if output is Output.GRAM:
        covariance = asdict(NoiseCovariance.of(event))
    elif output is Output.SUMS:
        count, coordinate = LAPLACE_SUMS.deviations(event)
        covariance = {"count": count**2, "sum": coordinate**2}
    on_grid = output is Output.SUMS or event.mechanism in ("gaussian", "laplace")
    return {
        "law": event.mechanism,
        "parameter": float(event.noise) / (UNIT if on_grid else 1),
        "covariance": covariance,
    }


def draw_gram_noise(event: GramEvent, basis: Floats, draws: int) -> Floats:
    """Draws of Fᵀ Z F for the noise Z on every block and orthonormal columns F; shape (draws, blocks, d, d).

    Two calls with the same arguments give the same draws; fewer than asked for where they would be many.
    """
    size, rng = basis.shape[1], public_generator(SEED, PURPOSE)
    draws = max(2, min(draws, MOST_CELLS // (event.layout.blocks * size**2)))
    if event.mechanism == "laplace":
        support = np.flatnonzero(np.any(basis != 0, axis=1))  # entries are independent: the others do not matter
        return _draw_laplace_gram(event, basis[support], draws, rng)
    if event.mechanism == "gaussian":
        return _draw_gaussian_gram(event, size, draws, rng)
    if event.mechanism == "nuclear-k-norm":
        return _draw_above_nuclear(event, size, draws, rng)
    return _draw_wishart_gram(event, size, draws, rng, trace_factor=event.mechanism == "wishart-difference-trace")


def _symmetric_from_upper(upper: Floats) -> Floats:
    """Square matrices from what is on and above their diagonals."""
    upper = np.triu(upper)
    return upper + np.swapaxes(np.triu(upper, 1), -1, -2)


def _draw_gaussian_gram(event: GramEvent, size: int, draws: int, rng: np.random.Generator) -> Floats:
    scale = float(event.noise) / UNIT * np.where(np.eye(size, dtype=bool), 1.0, math.sqrt(0.5))
    return _symmetric_from_upper(rng.standard_normal((draws, event.layout.blocks, size, size)) * scale)


def _draw_laplace_gram(event: GramEvent, rows: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Every entry that the frame touches, brought into the basis."""
    support = len(rows)
    other = 1 / float(best_l1_weight(event.neighbours))
    scale = float(event.noise) / UNIT * np.where(np.eye(support, dtype=bool), 1.0, other)
    result = np.empty((draws, event.layout.blocks, rows.shape[1], rows.shape[1]))
    step = max(1, MOST_CELLS // (event.layout.blocks * support**2))
    for start in range(0, draws, step):
        part = result[start : start + step]
        part[:] = rows.T @ _symmetric_from_upper(rng.laplace(size=(*part.shape[:2], support, support)) * scale) @ rows
    return result


def _draw_wishart_gram(
    event: GramEvent, size: int, draws: int, rng: np.random.Generator, *, trace_factor: bool
) -> Floats:
    """Difference of two Wishart matrices with P + 1 degrees of freedom, each by Bartlett's triangular factor."""
    p, blocks, rate = event.layout.dimension, event.layout.blocks, float(event.noise)
    sides = [_draw_bartlett(p + 1, size, (draws, blocks), rng) / (2 * rate) for _ in range(2)]
    if trace_factor:
        n = blocks * p * (p + 1) / 2
        larger = rng.gamma(2 * n, 1 / (2 * rate), draws)
        smaller = larger * rng.random(draws) ** (1 / n)
        coin = rng.random(draws) < 0.5
        wanted = np.where(coin, larger, smaller), np.where(coin, smaller, larger)
        outside = blocks * (p - size) * (p + 1) / 2  # shape of the trace that the frame does not see
        for side, trace in zip(sides, wanted, strict=True):
            hidden = rng.gamma(outside, 1 / rate, draws) if outside else 0.0
            side *= (trace / (np.einsum("nkii->n", side) + hidden))[:, None, None, None]
    return sides[0] - sides[1]


def _draw_bartlett(freedom: int, size: int, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    lower = np.tril(rng.standard_normal((*shape, size, size)), -1)
    for i in range(size):
        lower[..., i, i] = np.sqrt(rng.chisquare(freedom - i, shape))
    return lower @ np.swapaxes(lower, -1, -2)


def _draw_above_nuclear(event: GramEvent, size: int, draws: int, rng: np.random.Generator) -> Floats:
    """Wishart-difference noise with at least the nuclear law's variances: that law has no quick sampler.

    Under replace-one the blocks' traces are tied; the most that this adds to a contrast is counted in.
    """
    p, blocks = event.layout.dimension, event.layout.blocks
    ours, plain = (
        mechanism.expected_error(event) for mechanism in (gram_mechanism(event.mechanism), WISHART_DIFFERENCE)
    )
    share = max(ours.diagonal_sd / plain.diagonal_sd, ours.off_diagonal_sd / plain.off_diagonal_sd)
    tied = event.neighbours is Neighbours.REPLACE_ONE and blocks > 1
    ties = 1 + 1 / (p * (blocks - 1)) if tied else 1.0
    return share * math.sqrt(ties) * _draw_wishart_gram(event, size, draws, rng, trace_factor=False)


def draw_sums_noise(event: GramEvent, basis: Floats, draws: int) -> Floats:
    """Draws of the noise on counts and framed sums that were measured apart; shape (draws, blocks, 1 + d)."""
    rng, blocks = public_generator(SEED, f"{PURPOSE}, sums"), event.layout.blocks
    scale, weight = float(event.noise) / UNIT, float(event.layout.count_weight)
    support = np.flatnonzero(np.any(basis != 0, axis=1))
    counts = rng.laplace(scale=scale / weight**2, size=(draws, blocks, 1))
    sums = rng.laplace(scale=scale / weight, size=(draws, blocks, len(support))) @ basis[support]
    return np.concatenate([counts, sums], axis=2)


def draw_vector_noise(event: VectorEvent, numbers: int, draws: int) -> Floats:
    """Draws of the noise on some numbers of a measured vector; shape (draws, numbers)."""
    rng, scale = public_generator(SEED, f"{PURPOSE}, vector"), float(event.noise) / event.query.unit
    shape = max(2, min(draws, MOST_CELLS // numbers)), numbers
    if event.mechanism == "histogram-gaussian":
        return scale * rng.standard_normal(shape)
    return rng.laplace(scale=scale, size=shape)
