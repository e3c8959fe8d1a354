"""Discrete Laplace noise on the upper triangle, calibrated to the true sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpcore.accounting import Budget, Epsilon, float_above
from dpcore.mechanisms.base import (
    UNIT,
    ExpectedError,
    GramEvent,
    Output,
    SaturatingNoise,
    Triangles,
    integer_scale,
    is_diagonal,
    require_budget,
)
from dpcore.mechanisms.sensitivity import best_l1_weight, gram_weighted_l1
from dpcore.noise.sources import Noise
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Neighbours


@dataclass(frozen=True, slots=True)
class LaplaceMechanism(SaturatingNoise):
    """Discrete Laplace noise of scale b on the diagonal and b/w off it, drawn once for both symmetric entries.

    Guarantee: pure epsilon = (weighted L1 sensitivity) / b (GUARANTEE.md, M4); the
    corrected form of the noise of PCA-Gauss, RON-Gauss and LIP.
    """

    name: str = "laplace"
    output: Output = Output.GRAM

    def calibrate(self, layout: GramLayout, neighbours: Neighbours, budget: Budget) -> GramEvent:
        """The event that spends the whole epsilon, the scale rounded up."""
        epsilon = require_budget(self.name, budget, Epsilon)
        sensitivity = _weighted_sensitivity(layout, neighbours, best_l1_weight(neighbours))
        scale = integer_scale(self.name, sensitivity / epsilon)
        return GramEvent(mechanism=self.name, neighbours=neighbours, layout=layout, noise=scale, step=1)

    def cost(self, event: GramEvent, neighbours: Neighbours | None = None) -> Budget:
        """Epsilon = weighted sensitivity / scale, with the weight with which the noise was drawn."""
        weight = best_l1_weight(event.neighbours)
        return Epsilon(_weighted_sensitivity(event.layout, neighbours or event.neighbours, weight) / event.noise)

    def draw(self, sums: Triangles, event: GramEvent, noise: Noise) -> Triangles:
        """Draw noisy triangles on the integer grid."""
        p, blocks = event.layout.dimension, len(sums)
        off_scale = float_above(event.noise / best_l1_weight(event.neighbours))
        diagonal = iter(noise.discrete_laplace(float_above(event.noise), blocks * p))
        other = iter(noise.discrete_laplace(off_scale, blocks * p * (p - 1) // 2))
        pattern = is_diagonal(p)
        return [[s + next(diagonal if d else other) for s, d in zip(block, pattern, strict=True)] for block in sums]

    def expected_error(self, event: GramEvent) -> ExpectedError:
        """Exact root mean square Frobenius norm; the operator norm's semicircle limit."""
        p, diagonal = event.layout.dimension, math.sqrt(2) * float(event.noise) / UNIT
        other = diagonal / float(best_l1_weight(event.neighbours))
        frobenius = math.sqrt(p * diagonal**2 + p * (p - 1) * other**2)
        return ExpectedError(
            frobenius=frobenius,
            operator=min(2 * other * math.sqrt(p), frobenius),
            off_diagonal_sd=other,
            diagonal_sd=diagonal,
        )


def _weighted_sensitivity(layout: GramLayout, neighbours: Neighbours, weight: Fraction) -> Fraction:
    return UNIT * gram_weighted_l1(
        neighbours,
        squared_norm=layout.squared_norm,
        dimension=layout.dimension,
        blocks=layout.blocks,
        weight=weight,
    )


LAPLACE = LaplaceMechanism()
