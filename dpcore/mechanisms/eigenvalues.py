"""Noisy eigenvalues alone: the directions that they belong to are never released."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpcore.accounting import Budget, Epsilon, float_above
from dpcore.mechanisms.base import (
    UNIT,
    GramEvent,
    Output,
    Triangles,
    integer_scale,
    points_matrix,
    require_budget,
    saturation_delta,
)
from dpcore.mechanisms.sensitivity import top_eigenvalues_l1
from dpcore.noise.sources import Noise
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Neighbours

FIRST_BITS = 128
"""Working precision at which the eigenvalues are tried first."""


@dataclass(frozen=True, slots=True)
class EigenvalueMechanism:
    """Adds integers of one scale to the largest eigenvalues of the points' second moments.

    Guarantee: pure epsilon = (L1 sensitivity of the rounded eigenvalues) / scale
    (GUARANTEE.md, M6); PCA-Gauss's Algorithm 1 without the noise that it wastes on
    entries off the diagonal.
    """

    name: str = "eigenvalues-only"
    output: Output = Output.SPECTRUM

    def calibrate(self, layout: GramLayout, neighbours: Neighbours, budget: Budget, *, components: int) -> GramEvent:
        """The event that spends the whole epsilon, the scale rounded up.

        Raises: ValueError for classes measured apart, or more components than coordinates.
        """
        epsilon = require_budget(self.name, budget, Epsilon)
        scale = integer_scale(self.name, self._sensitivity(layout, neighbours, components) / epsilon)
        return GramEvent(
            mechanism=self.name, neighbours=neighbours, layout=layout, noise=scale, step=1, components=components
        )

    def cost(self, event: GramEvent, neighbours: Neighbours | None = None) -> Budget:
        """Epsilon = sensitivity / scale."""
        relation = neighbours or event.neighbours
        return Epsilon(self._sensitivity(event.layout, relation, event.components) / event.noise)

    def draw(self, sums: Triangles, event: GramEvent, noise: Noise) -> list[list[int]]:
        """The largest eigenvalues on the integer grid, largest first before the noise."""
        exact = rounded_eigenvalues(points_matrix(sums[0], event.layout))[: event.components]
        added = noise.discrete_laplace(float_above(event.noise), event.components)
        return [[value + extra for value, extra in zip(exact, added, strict=True)]]

    def delta_num(self, event: GramEvent) -> Fraction:
        """The chance that 64-bit noise saturates, times (1 + e^epsilon)."""
        return saturation_delta(event)

    def _sensitivity(self, layout: GramLayout, neighbours: Neighbours, components: int) -> Fraction:
        """On the integer grid; rounding moves each eigenvalue's change by less than one, so by at most one."""
        if layout.blocks > 1 or layout.labels:
            raise ValueError(f"{self.name} measures one table as a whole, not classes apart")
        width = layout.dimension - layout.heads
        if not 1 <= components <= width:
            raise ValueError(f"components must be between 1 and {width}, got {components}")
        points = Fraction(layout.rows_per_unit)  # squared norm without the head
        return top_eigenvalues_l1(neighbours, squared_norm=points, components=components) * UNIT + components


def rounded_eigenvalues(matrix: list[list[int]]) -> list[int]:
    """All eigenvalues of a symmetric integer matrix, largest first, each rounded to the nearest whole number.

    They are certified roots of the characteristic polynomial. A whole number and a half
    is no root of a polynomial with leading coefficient 1, so enough precision always decides.
    """
    from flint import ctx, fmpz_mat

    polynomial, bits = fmpz_mat(matrix).charpoly(), FIRST_BITS
    while True:
        with ctx.workprec(bits):
            roots = [((root.real + 0.5).floor().unique_fmpz(), count) for root, count in polynomial.complex_roots()]
        if all(whole is not None for whole, _ in roots):
            return sorted((int(whole) for whole, count in roots for _ in range(count)), reverse=True)
        bits *= 2


EIGENVALUES = EigenvalueMechanism()
