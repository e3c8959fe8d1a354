"""The noisy power method: every multiplication with the second moments gets Gaussian noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpcore.accounting import Budget, Rho
from dpcore.mechanisms.base import UNIT, CertifiedNoise, GramEvent, Output, Triangles, require_budget
from dpcore.mechanisms.components.orthonormal import (
    FRAME_UNIT,
    Integers,
    contraction,
    orthonormal,
    points_width,
    pooled_points,
    require_components,
)
from dpcore.mechanisms.sensitivity import gram_frobenius, root_above
from dpcore.noise.certified import NormalSums
from dpcore.noise.sources import Noise
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Floats, Neighbours

ITERATIONS = 6
"""Noisy multiplications, a public constant.

Each step reduces the variance not yet captured by the ratio of neighbouring eigenvalues, and
the scale of the noise grows with the square root of the number of steps. On spectra with ratios of 0.7
or 0.9, 8 to 64 coordinates and 10^3 to 10^5 rows, four to eight steps captured most.
"""


@dataclass(frozen=True, slots=True)
class PowerMechanism(CertifiedNoise):
    """Directions of the points' second moments G by L steps of X <- orthonormal(G X + noise).

    Every iterate is a function of earlier noisy products, hence public for the next step.
    Guarantee: that of continuous Gaussian noise with rho = L (sensitivity of one product)² / (2 s²),
    where s is the scale on every entry (GUARANTEE.md, M7): Hardt and Price's method at the true
    sensitivity of a row. The rounding of the noisy product is certified, hence post-processing.
    Dominated: adding noise to G once costs one step instead of L and captures more variance
    at the same rho. It is kept for comparison.
    """

    name: str = "noisy-power-method"
    output: Output = Output.BASIS

    def calibrate(self, layout: GramLayout, neighbours: Neighbours, budget: Budget, *, components: int) -> GramEvent:
        """The event that spends the whole rho, the scale rounded up.

        Raises: ValueError for a budget that is no rho, or more directions than coordinates.
        """
        rho = require_budget(self.name, budget, Rho)
        require_components(self.name, layout, components)
        squared = product_sensitivity(layout, neighbours, components) ** 2
        scale = root_above(ITERATIONS * squared / (2 * rho))
        return GramEvent(
            mechanism=self.name,
            neighbours=neighbours,
            layout=layout,
            noise=scale,
            step=1,
            components=components,
            iterations=ITERATIONS,
        )

    def cost(self, event: GramEvent, neighbours: Neighbours | None = None) -> Budget:
        """rho = iterations sensitivity² / (2 scale²)."""
        require_components(self.name, event.layout, event.components)
        squared = product_sensitivity(event.layout, neighbours or event.neighbours, event.components) ** 2
        return Rho(event.iterations * squared / (2 * event.noise**2))

    def draw(self, sums: Triangles, event: GramEvent, noise: Noise) -> list[list[int]]:
        """Draw the last iterate on the grid of projections, one list per direction."""
        *_, (_, product) = self.draw_transcript(sums, event, noise)
        return [[int(cell) for cell in column] for column in contraction(orthonormal(product)).T]

    def draw_transcript(self, sums: Triangles, event: GramEvent, noise: Noise) -> Iterator[tuple[Integers, Floats]]:
        """Draw every step's frame and noisy product; the cost covers all of them, though only the last is released."""
        moments = pooled_points(sums, event.layout)
        shape = (points_width(event.layout), event.components)
        product = noise.generator().standard_normal(shape)
        for _ in range(event.iterations):
            frame = contraction(orthonormal(product))
            product = draw_noisy_product(moments, frame, event.noise, noise)
            yield frame, product


def product_sensitivity(layout: GramLayout, neighbours: Neighbours, components: int) -> Fraction:
    """L2 sensitivity of one product, on the integer grid (GUARANTEE.md, M7).

    |D X| <= |D| |X| with the Frobenius norm of D and the operator norm of X, at most 1. For a
    single direction the operator norm of D suffices, at most r under either relation.
    """
    r = Fraction(layout.rows_per_unit)
    moved = gram_frobenius(neighbours, squared_norm=r) if components > 1 else r
    return moved * UNIT


def exact_product(moments: list[list[int]], frame: Integers) -> list[list[int]]:
    """The product in exact integers, on the grid of the moments times that of the frame."""
    from flint import fmpz_mat

    product = fmpz_mat(moments) * fmpz_mat([[int(cell) for cell in row] for row in frame])
    return [[int(cell) for cell in row] for row in product.tolist()]


def draw_noisy_product(moments: list[list[int]], frame: Integers, scale: Fraction, noise: Noise) -> Floats:
    """Draw one step's measurement: the exact product with normal noise on every entry, rounded without error."""
    cells = [cell for row in exact_product(moments, frame) for cell in row]
    noisy = NormalSums(len(cells), noise).add_and_round(cells, [(scale * FRAME_UNIT) ** 2] * len(cells))
    return np.array(noisy, dtype=np.float64).reshape(frame.shape)


POWER = PowerMechanism()
