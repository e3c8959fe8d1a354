"""What a Gram mechanism is, and the public event that one draw leaves behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from dpcore.accounting import Budget, float_above
from dpcore.exactgram import GRID_BITS, Layout
from dpcore.noise import Noise
from dpcore.schema import Neighbours

UNIT = 1 << 2 * GRID_BITS
"""One, on the grid of products of records: all integers below are multiples of 4^-k."""

Triangles = list[list[int]]
"""Upper triangles, row by row, one a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GramEvent:
    """What was measured and with how much noise: all public, nothing about its cost.

    `noise` is the mechanism's one parameter (Wishart: the rate c; Gaussian and
    Laplace: the diagonal's scale on the integer grid); `step` the public step to which
    the noisy sum is rounded, on the integer grid.
    """

    mechanism: str
    neighbours: Neighbours
    layout: Layout
    noise: Fraction
    step: int

    def as_json(self) -> dict[str, Any]:
        """The event for ledger and record; fractions as text, so that they stay exact."""
        return {
            "mechanism": self.mechanism,
            "neighbours": self.neighbours.value,
            "dimension": self.layout.dimension,
            "blocks": self.layout.blocks,
            "count_weight": str(self.layout.count_weight),
            "rows_per_unit": self.layout.rows_per_unit,
            "grid_bits": GRID_BITS,
            "noise": str(self.noise),
            "step": self.step,
        }

    @staticmethod
    def from_json(body: dict[str, Any]) -> GramEvent:
        """The event that `as_json` wrote."""
        if body["grid_bits"] != GRID_BITS:
            raise ValueError(f"grid_bits must be {GRID_BITS}")
        layout = Layout(body["dimension"], body["blocks"], Fraction(body["count_weight"]), body["rows_per_unit"])
        return GramEvent(
            mechanism=body["mechanism"],
            neighbours=Neighbours(body["neighbours"]),
            layout=layout,
            noise=Fraction(body["noise"]),
            step=body["step"],
        )


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """Size of the noise on one block, in records: root mean square Frobenius norm, operator norm, one entry."""

    frobenius: float
    operator: float
    off_diagonal_sd: float
    diagonal_sd: float


class GramMechanism(Protocol):
    """Noise for Gram blocks, calibrated to a budget."""

    @property
    def name(self) -> str:
        """The name in the registry."""

    def calibrate(self, layout: Layout, neighbours: Neighbours, budget: Budget) -> GramEvent:
        """The event that spends the whole budget."""

    def cost(self, event: GramEvent) -> Budget:
        """What an event costs, recomputed from its parameters alone."""

    def draw(self, sums: Triangles, event: GramEvent, noise: Noise) -> Triangles:
        """Noisy upper triangles in whole steps of `event.step`."""

    def expected_error(self, event: GramEvent) -> ExpectedError:
        """Size of the noise, from public constants."""

    def delta_num(self, event: GramEvent) -> Fraction:
        """What finite precision adds to delta (GUARANTEE.md, N3)."""


def triangle_size(dimension: int) -> int:
    """Entries of an upper triangle."""
    return dimension * (dimension + 1) // 2


def is_diagonal(dimension: int) -> list[bool]:
    """For each entry of an upper triangle, row by row, whether it is on the diagonal."""
    return [i == j for i in range(dimension) for j in range(i, dimension)]


def add_scaled_noise(
    sums: Triangles, dimension: int, on_diagonal: Sequence[int], off_diagonal: Sequence[int]
) -> Triangles:
    """Add diagonal and off-diagonal noise, entry by entry in reading order."""
    diagonal, other = iter(on_diagonal), iter(off_diagonal)
    pattern = is_diagonal(dimension)
    return [[s + next(diagonal if d else other) for s, d in zip(block, pattern, strict=True)] for block in sums]


def require_budget(mechanism: str, budget: Budget, kind: type[Budget]) -> Fraction:
    """The budget's value, if it is of the kind that the mechanism spends."""
    if not isinstance(budget, kind):
        raise ValueError(f"{mechanism} spends {kind.__name__}, not {type(budget).__name__}")
    return budget.value


LARGEST_SCALE = 1 << 54
"""Discrete noise is drawn in 64-bit integers; up to this scale its tail stays inside them."""


def integer_scale(mechanism: str, scale: Fraction) -> Fraction:
    """The scale as an exact float, rounded up; refused where 64-bit noise could saturate."""
    if scale > LARGEST_SCALE:
        raise ValueError(f"{mechanism}: the budget is too small for this many columns (scale above 2^54)")
    return Fraction(float_above(scale))


def saturation_delta(event: GramEvent) -> Fraction:
    """What the chance that 64-bit noise saturates adds to delta.

    An entry saturates with probability at most 2 exp(-2^63/scale) <= 2^(1 - 2^63/scale)
    (the Gaussian's tail is lighter), counted as 2^-1000 at the least; the factor 2^150
    covers 1 + e^epsilon for every epsilon that a specification may ask for.
    """
    entries = event.layout.blocks * triangle_size(event.layout.dimension)
    places = min(1000, int((1 << 63) / event.noise))
    return entries * Fraction(1 << 151, 1 << places)
