"""Symmetric discrete Gaussian noise: zero-concentrated differential privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpcore.accounting import Budget, Rho, float_above
from dpcore.exactgram import Layout
from dpcore.mechanisms.base import (
    UNIT,
    ExpectedError,
    Gives,
    GramEvent,
    Triangles,
    add_scaled_noise,
    integer_scale,
    require_budget,
    saturation_delta,
)
from dpcore.noise import Noise
from dpcore.schema import Neighbours
from dpcore.sensitivity import gram_frobenius, root_above


@dataclass(frozen=True, slots=True)
class GaussianMechanism:
    """Adds integers of variance s² on the diagonal and s²/2 off it.

    Guarantee: rho = (Frobenius sensitivity)² / (2 s²) (GUARANTEE.md, M3).
    """

    name: str = "gaussian"
    gives: Gives = Gives.GRAM

    def calibrate(self, layout: Layout, neighbours: Neighbours, budget: Budget) -> GramEvent:
        """The event that spends the whole rho, the scale rounded up."""
        rho = require_budget(self.name, budget, Rho)
        scale = root_above(_squared_sensitivity(layout, neighbours) / (2 * rho))
        exact = integer_scale(self.name, scale)
        return GramEvent(mechanism=self.name, neighbours=neighbours, layout=layout, noise=exact, step=1)

    def cost(self, event: GramEvent) -> Budget:
        """rho = sensitivity² / (2 scale²)."""
        return Rho(_squared_sensitivity(event.layout, event.neighbours) / (2 * event.noise**2))

    def draw(self, sums: Triangles, event: GramEvent, noise: Noise) -> Triangles:
        """Noisy triangles on the integer grid."""
        p, blocks, scale = event.layout.dimension, len(sums), event.noise
        diagonal = noise.discrete_gaussian(float_above(scale), blocks * p)
        other = noise.discrete_gaussian(float_above(root_above(scale**2 / 2)), blocks * p * (p - 1) // 2)
        return add_scaled_noise(sums, p, diagonal, other)

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

    def delta_num(self, event: GramEvent) -> Fraction:
        """The chance that 64-bit noise saturates, times (1 + e^epsilon)."""
        return saturation_delta(event)


def _squared_sensitivity(layout: Layout, neighbours: Neighbours) -> Fraction:
    return (gram_frobenius(neighbours, squared_norm=layout.squared_norm) * UNIT) ** 2


GAUSSIAN = GaussianMechanism()
