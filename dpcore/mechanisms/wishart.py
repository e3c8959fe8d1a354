"""Wishart-difference noise: pure epsilon, the main mechanism of this project."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpcore.accounting import Budget, Epsilon
from dpcore.mechanisms.base import (
    STEP_SHARE_BITS,
    UNIT,
    CertifiedNoise,
    ExpectedError,
    GramEvent,
    Output,
    Triangles,
    require_budget,
)
from dpcore.mechanisms.sensitivity import gram_nuclear
from dpcore.noise.sources import Noise
from dpcore.noise.wishart import WishartDifference
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Neighbours

FREE_EDGE = 3.33
"""Edge of the spectrum of a difference of two free Marchenko-Pastur laws of ratio 1.

It is the minimum of 2z/(1-z²) + 1/z on (0, 1), at z⁴ + 4z² = 1.
"""


@dataclass(frozen=True, slots=True)
class WishartMechanism(CertifiedNoise):
    """Noise on every block that is the difference of two Wishart matrices.

    Guarantee: pure epsilon = c times the nuclear sensitivity (GUARANTEE.md, M1). With
    `trace_factor` (M2) the noise is smaller at the same epsilon, under replace-one
    only.
    """

    name: str
    trace_factor: bool
    output: Output = Output.GRAM

    def calibrate(self, layout: GramLayout, neighbours: Neighbours, budget: Budget) -> GramEvent:
        """The event that spends the whole epsilon."""
        epsilon = require_budget(self.name, budget, Epsilon)
        rate = epsilon / self._sensitivity(neighbours, layout)
        return GramEvent(
            mechanism=self.name, neighbours=neighbours, layout=layout, noise=rate, step=_wishart_step(layout, rate)
        )

    def cost(self, event: GramEvent, neighbours: Neighbours | None = None) -> Budget:
        """Epsilon = c times the sensitivity; with the trace factor it is the same under either relation."""
        relation = event.neighbours if self.trace_factor else neighbours or event.neighbours
        return Epsilon(event.noise * self._sensitivity(relation, event.layout))

    def draw(self, sums: Triangles, event: GramEvent, noise: Noise) -> Triangles:
        """Draw noisy triangles in whole steps, rounded without error."""
        source = WishartDifference(
            dimension=event.layout.dimension,
            blocks=event.layout.blocks,
            rate=event.noise,
            trace_factor=self.trace_factor,
            noise=noise,
        )
        return source.add_and_round(sums, unit=UNIT, step=event.step)

    def expected_error(self, event: GramEvent) -> ExpectedError:
        """Exact root mean square Frobenius norm; the operator norm's large-dimension limit."""
        p, rate = event.layout.dimension, float(event.noise)
        squared, off_diagonal = _mean_squares(p, event.layout.blocks, rate, self.trace_factor)
        return ExpectedError(
            frobenius=math.sqrt(squared),
            operator=min(FREE_EDGE * p / (2 * rate), math.sqrt(squared)),
            off_diagonal_sd=math.sqrt(off_diagonal),
            diagonal_sd=math.sqrt((squared - p * (p - 1) * off_diagonal) / p),
        )

    def _sensitivity(self, neighbours: Neighbours, layout: GramLayout) -> Fraction:
        if self.trace_factor and neighbours is not Neighbours.REPLACE_ONE:
            raise ValueError(f"{self.name} holds under replace-one only")
        return gram_nuclear(neighbours, squared_norm=layout.squared_norm)


def _wishart_step(layout: GramLayout, rate: Fraction) -> int:
    """The output step: a power of two that is small relative to the off-diagonal standard deviation."""
    deviation = Fraction(math.isqrt((layout.dimension + 1) // 2 or 1)) / rate * UNIT
    return max(1, 1 << max(0, math.floor(deviation).bit_length() - 1 - STEP_SHARE_BITS))


def _mean_squares(p: int, blocks: int, rate: float, trace_factor: bool) -> tuple[float, float]:
    """Means of one block's squared Frobenius norm and of one squared off-diagonal entry.

    With the trace factor, A = tr(A) Â with Â independent of the trace, so E|Z|² =
    E(tr A² + tr B²) E|Â|² - 2 E(tr A tr B) |EÂ|², and the moments of the traces follow
    from their sampler.
    """
    if not trace_factor:
        return p * (p + 1) ** 2 / (2 * rate**2), (p + 1) / (2 * rate**2)
    n = blocks * p * (p + 1) / 2
    larger_squared = 2 * n * (2 * n + 1) / (2 * rate) ** 2
    squares = larger_squared * (1 + n / (n + 2)) / (n * (n + 1))
    product = larger_squared * n / (n + 1)
    return squares * p * (p + 1) ** 2 / 2 - 2 * product / (p * blocks**2), squares * (p + 1) / 4


WISHART_DIFFERENCE = WishartMechanism("wishart-difference", trace_factor=False)
WISHART_DIFFERENCE_TRACE = WishartMechanism("wishart-difference-trace", trace_factor=True)
