"""Symmetric Gaussian noise, rounded without error: Analyze Gauss at its exact privacy curve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpcore.accounting import Budget, Rho
from dpcore.mechanisms.base import (
    UNIT,
    CertifiedNoise,
    ExpectedError,
    GramEvent,
    Output,
    Triangles,
    is_diagonal,
    require_budget,
)
from dpcore.mechanisms.sensitivity import gram_frobenius, root_above
from dpcore.noise.certified import NormalSums
from dpcore.noise.sources import Noise
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Neighbours


@dataclass(frozen=True, slots=True)
class GaussianMechanism(CertifiedNoise):
    """Normal noise of variance s² on the diagonal and s²/2 off it; the sum is rounded to the grid.

    Guarantee: that of continuous Gaussian noise with rho = (Frobenius sensitivity)² / (2 s²)
    (GUARANTEE.md, M3): the rounding is certified, hence post-processing.
    """

    name: str = "gaussian"
    output: Output = Output.GRAM

    def calibrate(self, layout: GramLayout, neighbours: Neighbours, budget: Budget) -> GramEvent:
        """The event that spends the whole rho, the scale rounded up."""
        rho = require_budget(self.name, budget, Rho)
        scale = root_above(_squared_sensitivity(layout, neighbours) / (2 * rho))
        return GramEvent(mechanism=self.name, neighbours=neighbours, layout=layout, noise=scale, step=1)

    def cost(self, event: GramEvent, neighbours: Neighbours | None = None) -> Budget:
        """rho = sensitivity² / (2 scale²)."""
        return Rho(_squared_sensitivity(event.layout, neighbours or event.neighbours) / (2 * event.noise**2))

    def draw(self, sums: Triangles, event: GramEvent, noise: Noise) -> Triangles:
        """Draw noisy triangles on the integer grid, rounded without error."""
        diagonal, other = event.noise**2, event.noise**2 / 2
        pattern = [diagonal if d else other for d in is_diagonal(event.layout.dimension)]
        return [NormalSums(len(block), noise).add_and_round(block, pattern) for block in sums]

    def expected_error(self, event: GramEvent) -> ExpectedError:
        """Exact root mean square Frobenius norm; the operator norm's semicircle limit."""
        p, scale = event.layout.dimension, float(event.noise) / UNIT
        frobenius = scale * math.sqrt(p + p * (p - 1) / 2)
        return ExpectedError(
            frobenius=frobenius,
            operator=min(2 * scale * math.sqrt(p / 2), frobenius),
            off_diagonal_sd=scale / math.sqrt(2),
            diagonal_sd=scale,
        )


def _squared_sensitivity(layout: GramLayout, neighbours: Neighbours) -> Fraction:
    return (gram_frobenius(neighbours, squared_norm=layout.squared_norm) * UNIT) ** 2


GAUSSIAN = GaussianMechanism()
