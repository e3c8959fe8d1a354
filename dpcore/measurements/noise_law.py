"""The joint law of a measurement's noise: its covariance, and draws of it for post-processing.

The Wishart, Gaussian and nuclear laws are invariant under rotation, so a few coordinates of
the noise can be drawn without the others, however many were measured. Draws use floating point
and a public seed: they quantify the uncertainty of a released value and are never added to one.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dpcore.mechanisms.base import UNIT, GramEvent, Output
from dpcore.mechanisms.laplace_sums import LAPLACE_SUMS
from dpcore.mechanisms.registry import Event, gram_mechanism, mechanism_of, vector_mechanism
from dpcore.mechanisms.sensitivity import best_l1_weight
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.mechanisms.wishart import WISHART_DIFFERENCE
from dpcore.noise.sources import public_generator
from dpcore.records.schema import Floats, Neighbours

PURPOSE = "uncertainty"
SEED = "5eed"
"""The public seed of all draws: two readers of one release get the same figures."""

MOST_CELLS = 1 << 22
"""Most numbers held at once; large bases get fewer draws."""

ROTATION_INVARIANT = {
    "gaussian": True,
    "laplace": False,
    "nuclear-k-norm": True,
    "wishart-difference": True,
    "wishart-difference-trace": True,
}
"""Whether the noise on a Gram block has the same law in every orthonormal basis, for each mechanism."""


@dataclass(frozen=True, slots=True)
class NoiseCovariance:
    """Second moments of the noise on one measurement, in squared records; the mean is 0.

    `diagonal` and `off_diagonal` are the variances of an entry. Two diagonal entries have the covariance
    `diagonals_of_a_block` within a block, and `diagonals_of_two_blocks` across blocks (None if there is no
    closed form). All other pairs of different entries are uncorrelated.
    """

    diagonal: float
    off_diagonal: float
    diagonals_of_a_block: float
    diagonals_of_two_blocks: float | None

    @staticmethod
    def of(event: GramEvent) -> NoiseCovariance:
        """Return the covariance that an event's parameters imply.

        Raises: KeyError for a mechanism whose noise is not known here.
        """
        expected = gram_mechanism(event.mechanism).expected_error(event)
        diagonal, other = expected.diagonal_sd**2, expected.off_diagonal_sd**2
        together = diagonal - 2 * other if ROTATION_INVARIANT[event.mechanism] else 0.0
        if abs(together) < 1e-12 * diagonal:
            together = 0.0
        return NoiseCovariance(diagonal, other, together, _between_blocks(event, diagonal, together))


def _between_blocks(event: GramEvent, diagonal: float, together: float) -> float | None:
    """Return the covariance of diagonal entries in different blocks; only a shared trace factor makes it non-zero."""
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
    """Return the law of a measurement's noise for the release record: name, parameter and second moments, in records.

    The covariance holds the fields of `NoiseCovariance` for noisy blocks, the variances for numbers with independent
    noise, and is None for released directions, which are not the truth plus noise.
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
    """Draw Bᵀ Z B for the noise Z on every block and orthonormal columns B; shape (draws, blocks, d, d).

    Two calls with the same arguments return the same draws. Large bases get fewer draws than requested.
    Raises: KeyError for a mechanism whose noise is not known here: intervals from another law would be wrong.
    """
    size, rng = basis.shape[1], public_generator(SEED, PURPOSE)
    draws = max(2, min(draws, MOST_CELLS // (event.layout.blocks * size**2)))
    if event.mechanism == "laplace":
        support = np.flatnonzero(np.any(basis != 0, axis=1))  # entries are independent: other rows add nothing
        return _draw_laplace_gram(event, basis[support], draws, rng)
    if event.mechanism == "gaussian":
        return _draw_gaussian_gram(event, size, draws, rng)
    if event.mechanism == "nuclear-k-norm":
        return _draw_above_nuclear(event, size, draws, rng)
    with_trace_factor = {"wishart-difference": False, "wishart-difference-trace": True}[event.mechanism]
    return _draw_wishart_gram(event, size, draws, rng, trace_factor=with_trace_factor)


def _symmetric_from_upper(upper: Floats) -> Floats:
    """Return symmetric matrices with the given upper triangles."""
    upper = np.triu(upper)
    return upper + np.swapaxes(np.triu(upper, 1), -1, -2)


def _draw_gaussian_gram(event: GramEvent, size: int, draws: int, rng: np.random.Generator) -> Floats:
    scale = float(event.noise) / UNIT * np.where(np.eye(size, dtype=bool), 1.0, math.sqrt(0.5))
    return _symmetric_from_upper(rng.standard_normal((draws, event.layout.blocks, size, size)) * scale)


def _draw_laplace_gram(event: GramEvent, rows: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Draw the entries in the support of the basis, and project them onto it."""
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
    """Draw differences of two Wishart matrices with P + 1 degrees of freedom, by the Bartlett decomposition."""
    p, blocks, rate = event.layout.dimension, event.layout.blocks, float(event.noise)
    sides = [_draw_bartlett(p + 1, size, (draws, blocks), rng) / (2 * rate) for _ in range(2)]
    if trace_factor:
        n = blocks * p * (p + 1) / 2
        larger = rng.gamma(2 * n, 1 / (2 * rate), draws)
        smaller = larger * rng.random(draws) ** (1 / n)
        coin = rng.random(draws) < 0.5
        wanted = np.where(coin, larger, smaller), np.where(coin, smaller, larger)
        outside = blocks * (p - size) * (p + 1) / 2  # shape of the trace outside the basis
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
    """Draw Wishart-difference noise with at least the variances of the nuclear law, which has no fast sampler.

    Under replace-one the blocks' traces are dependent; the most that this adds to a contrast is included.
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
    """Draw the noise on separately measured counts and projected sums; shape (draws, blocks, 1 + d)."""
    rng, blocks = public_generator(SEED, f"{PURPOSE}, sums"), event.layout.blocks
    scale, weight = float(event.noise) / UNIT, float(event.layout.count_weight)
    support = np.flatnonzero(np.any(basis != 0, axis=1))
    counts = rng.laplace(scale=scale / weight**2, size=(draws, blocks, 1))
    sums = rng.laplace(scale=scale / weight, size=(draws, blocks, len(support))) @ basis[support]
    return np.concatenate([counts, sums], axis=2)


def draw_vector_noise(event: VectorEvent, numbers: int, draws: int) -> Floats:
    """Draw the noise on some numbers of a measured vector; shape (draws, numbers)."""
    rng, scale = public_generator(SEED, f"{PURPOSE}, vector"), float(event.noise) / event.query.unit
    shape = max(2, min(draws, MOST_CELLS // numbers)), numbers
    if event.mechanism == "histogram-gaussian":
        return scale * rng.standard_normal(shape)
    return rng.laplace(scale=scale, size=shape)
