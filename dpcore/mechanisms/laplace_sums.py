"""Counts and sums with discrete Laplace noise: the mean that PCA-Gauss and RON-Gauss measure separately."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpcore.accounting import Budget, Epsilon, float_above
from dpcore.mechanisms.base import (
    UNIT,
    GramEvent,
    Output,
    SaturatingNoise,
    Triangles,
    integer_scale,
    require_budget,
)
from dpcore.mechanisms.sensitivity import record_sums_l1
from dpcore.noise.sources import Noise
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Neighbours


@dataclass(frozen=True, slots=True)
class LaplaceSums(SaturatingNoise):
    """Discrete Laplace noise on the first row of every block: the count times s² and the sum of points times s.

    Guarantee: pure epsilon = (L1 sensitivity of the row) / scale (GUARANTEE.md, S6 and M4).
    """

    name: str = "laplace-sums"
    output: Output = Output.SUMS

    def calibrate(self, layout: GramLayout, neighbours: Neighbours, budget: Budget) -> GramEvent:
        """The event that spends the whole epsilon, the scale rounded up."""
        epsilon = require_budget(self.name, budget, Epsilon)
        scale = integer_scale(self.name, _sums_sensitivity(layout, neighbours) / epsilon)
        return GramEvent(mechanism=self.name, neighbours=neighbours, layout=layout, noise=scale, step=1)

    def cost(self, event: GramEvent, neighbours: Neighbours | None = None) -> Budget:
        """Epsilon = sensitivity / scale."""
        return Epsilon(_sums_sensitivity(event.layout, neighbours or event.neighbours) / event.noise)

    def draw(self, sums: Triangles, event: GramEvent, noise: Noise) -> list[list[int]]:
        """Draw noisy first rows on the integer grid."""
        size = event.layout.dimension
        drawn = iter(noise.discrete_laplace(float_above(event.noise), size * len(sums)))
        return [[cell + next(drawn) for cell in block[:size]] for block in sums]

    def deviations(self, event: GramEvent) -> tuple[float, float]:
        """Standard deviations of the noise on a count and on a coordinate of the sum, in records."""
        deviation, weight = math.sqrt(2) * float(event.noise) / UNIT, float(event.layout.count_weight)
        return deviation / weight**2, deviation / weight


def _sums_sensitivity(layout: GramLayout, neighbours: Neighbours) -> Fraction:
    if layout.labels:
        raise ValueError("laplace-sums: classes are told apart by blocks, not by labels")
    return UNIT * record_sums_l1(
        neighbours,
        count_weight=layout.count_weight,
        points=layout.dimension - layout.heads,
        rows=layout.rows_per_unit,
        blocks=layout.blocks,
    )


LAPLACE_SUMS = LaplaceSums()
