"""Noisy eigenvalues, released without their eigenvectors."""

from __future__ import annotations

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
    points_matrix,
    require_budget,
)
from dpcore.mechanisms.sensitivity import top_eigenvalues_l1
from dpcore.noise.sources import Noise
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Neighbours

FIRST_BITS = 128
"""Working precision of the first attempt at the eigenvalues."""


@dataclass(frozen=True, slots=True)
class EigenvalueMechanism(SaturatingNoise):
    """Discrete Laplace noise of one scale on the largest eigenvalues of the points' second moments.

    Guarantee: pure epsilon = (L1 sensitivity of the rounded eigenvalues) / scale
    (GUARANTEE.md, M6); PCA-Gauss's Algorithm 1 without its unnecessary noise on the
    off-diagonal entries.
    """

    name: str = "eigenvalues-only"
    output: Output = Output.SPECTRUM

    def calibrate(self, layout: GramLayout, neighbours: Neighbours, budget: Budget, *, components: int) -> GramEvent:
        """The event that spends the whole epsilon, the scale rounded up.

        Raises: ValueError for classes measured separately, or more components than coordinates.
        """
        epsilon = require_budget(self.name, budget, Epsilon)
        scale = integer_scale(self.name, self._sensitivity(layout, neighbours, components) / epsilon)
        return GramEvent(
            mechanism=self.name, neighbours=neighbours, layout=layout, noise=scale, step=1, components=components
        )

    def cost(self, event: GramEvent, neighbours: Neighbours | None = None) -> Budget:
        """Epsilon = sensitivity / scale."""
        return Epsilon(self._sensitivity(event.layout, neighbours or event.neighbours, event.components) / event.noise)

    def draw(self, sums: Triangles, event: GramEvent, noise: Noise) -> list[list[int]]:
        """Draw the noisy eigenvalues on the integer grid, in descending order of the exact ones."""
        exact = rounded_eigenvalues(points_matrix(sums[0], event.layout))[: event.components]
        added = noise.discrete_laplace(float_above(event.noise), event.components)
        return [[value + extra for value, extra in zip(exact, added, strict=True)]]

    def _sensitivity(self, layout: GramLayout, neighbours: Neighbours, components: int) -> Fraction:
        """The L1 sensitivity on the integer grid; rounding adds at most one to the change of each eigenvalue."""
        if layout.blocks > 1 or layout.labels:
            raise ValueError(f"{self.name} measures one table as a whole, not classes apart")
        width = layout.dimension - layout.heads
        if not 1 <= components <= width:
            raise ValueError(f"components must be between 1 and {width}, got {components}")
        points = Fraction(layout.rows_per_unit)  # squared norm without the head
        return top_eigenvalues_l1(neighbours, squared_norm=points, components=components) * UNIT + components


def rounded_eigenvalues(matrix: list[list[int]]) -> list[int]:
    """All eigenvalues of a symmetric integer matrix, largest first, each rounded to the nearest whole number.

    They are certified roots of the characteristic polynomial. A half-integer is no root of a monic
    polynomial with integer coefficients, so every rounding is decided at some precision.
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
