"""The interface of mechanisms on the Gram matrix, and the public event that describes one draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, NoReturn, Protocol

from dpcore.accounting import Budget, float_above
from dpcore.noise.sources import Noise
from dpcore.records.exact_sums import GRID_BITS, GramLayout
from dpcore.records.schema import Neighbours

UNIT = 1 << 2 * GRID_BITS
"""One, on the grid of products of records: all integers below count multiples of 4^-k."""

Triangles = list[list[int]]
"""Upper triangles, row by row, one per block."""


class PrivateValue:
    """A value that can only be measured: it is not shown when printed, and not serialised."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<private>)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("private values are not serialised")


class Output(StrEnum):
    """The part of the Gram matrix that a mechanism releases: all of it, directions, eigenvalues, or counts and sums."""

    GRAM = "gram"
    BASIS = "basis"
    SPECTRUM = "spectrum"
    SUMS = "sums"


@dataclass(frozen=True, slots=True, kw_only=True)
class GramEvent:
    """The public parameters of one measurement and its noise; the cost follows from them.

    `noise` is the mechanism's only parameter (Wishart: the rate c; Gaussian and
    Laplace: the scale on the diagonal, on the integer grid); `step` is the public step, on the
    integer grid, to which the noisy sum is rounded. Mechanisms that do not release the whole
    matrix release `components` directions or eigenvalues, after `iterations` noisy steps.
    """

    mechanism: str
    neighbours: Neighbours
    layout: GramLayout
    noise: Fraction
    step: int
    components: int = 0
    iterations: int = 0

    def as_json(self) -> dict[str, Any]:
        """The event as stored in ledger and record; fractions are text, so that they stay exact."""
        optional = {"labels": self.layout.labels, "components": self.components, "iterations": self.iterations}
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
        } | {name: number for name, number in optional.items() if number}

    @staticmethod
    def from_json(body: dict[str, Any]) -> GramEvent:
        """The event that `as_json` wrote."""
        if body["grid_bits"] != GRID_BITS:
            raise ValueError(f"grid_bits must be {GRID_BITS}")
        layout = GramLayout(
            body["dimension"],
            body["blocks"],
            Fraction(body["count_weight"]),
            body["rows_per_unit"],
            body.get("labels", 0),
        )
        return GramEvent(
            mechanism=body["mechanism"],
            neighbours=Neighbours(body["neighbours"]),
            layout=layout,
            noise=Fraction(body["noise"]),
            step=body["step"],
            components=body.get("components", 0),
            iterations=body.get("iterations", 0),
        )


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """Size of the noise on one block, in records: root mean square Frobenius norm, operator norm, entries."""

    frobenius: float
    operator: float
    off_diagonal_sd: float
    diagonal_sd: float


class Mechanism(Protocol):
    """The interface of every mechanism on Gram blocks."""

    @property
    def name(self) -> str:
        """The name in the registry."""

    @property
    def output(self) -> Output:
        """The part of the Gram matrix that is released."""

    def cost(self, event: GramEvent, neighbours: Neighbours | None = None) -> Budget:
        """The cost of an event under its own or another neighbouring relation (GUARANTEE.md, R)."""

    def draw(self, sums: Triangles, event: GramEvent, noise: Noise) -> list[list[int]]:
        """Draw the released whole numbers: noisy upper triangles in steps of `event.step`, or what `output` says."""

    def delta_num(self, event: GramEvent) -> Fraction:
        """The increase of delta by finite precision (GUARANTEE.md, N3)."""


class GramMechanism(Mechanism, Protocol):
    """Noise for whole Gram blocks, calibrated to a budget."""

    def calibrate(self, layout: GramLayout, neighbours: Neighbours, budget: Budget) -> GramEvent:
        """The event that spends the whole budget."""

    def expected_error(self, event: GramEvent) -> ExpectedError:
        """Size of the noise, from public constants."""


class ComponentMechanism(Mechanism, Protocol):
    """Noisy directions or eigenvalues of the points' second moments, calibrated to a budget."""

    def calibrate(self, layout: GramLayout, neighbours: Neighbours, budget: Budget, *, components: int) -> GramEvent:
        """The event that spends the whole budget."""


def triangle_size(dimension: int) -> int:
    """The number of entries of an upper triangle."""
    return dimension * (dimension + 1) // 2


def points_matrix(triangle: Sequence[int], layout: GramLayout) -> list[list[int]]:
    """The second moments of the points without the record's head, as a square matrix of whole numbers."""
    size, cells = layout.dimension, iter(triangle)
    square = [[0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i, size):
            square[i][j] = square[j][i] = next(cells)
    return [row[layout.heads :] for row in square[layout.heads :]]


def is_diagonal(dimension: int) -> list[bool]:
    """Whether each entry of an upper triangle, row by row, is on the diagonal."""
    return [i == j for i in range(dimension) for j in range(i, dimension)]


def require_budget(mechanism: str, budget: Budget, kind: type[Budget]) -> Fraction:
    """Return the budget's value, or raise ValueError if it is not of the kind that the mechanism spends."""
    if not isinstance(budget, kind):
        raise ValueError(f"{mechanism} spends {kind.__name__}, not {type(budget).__name__}")
    return budget.value


STEP_SHARE_BITS = 10
"""The output step of continuous noise is at most 2^-10 of the noise's standard deviation."""

LARGEST_SCALE = 1 << 54
"""Discrete noise is drawn in 64-bit integers, which contain its tail up to this scale."""


def integer_scale(mechanism: str, scale: Fraction) -> Fraction:
    """Return the scale rounded up to a float, or raise ValueError if 64-bit noise could saturate."""
    if scale > LARGEST_SCALE:
        raise ValueError(f"{mechanism}: the budget is too small for this many columns (scale above 2^54)")
    return Fraction(float_above(scale))


class CertifiedNoise:
    """Noise of which every decision and rounding is certified."""

    __slots__ = ()

    def delta_num(self, event: object) -> Fraction:
        """Zero: the output is that of exact real arithmetic."""
        return Fraction(0)


class SaturatingNoise:
    """Discrete noise on Gram blocks, drawn in 64-bit integers."""

    __slots__ = ()

    def delta_num(self, event: GramEvent) -> Fraction:
        """The probability that 64-bit noise saturates, times (1 + e^epsilon)."""
        return saturation_delta(event.layout.blocks * triangle_size(event.layout.dimension), event.noise)


def saturation_delta(numbers: int, scale: Fraction) -> Fraction:
    """The increase of delta by the probability that 64-bit noise on any of some numbers saturates.

    A number saturates with probability at most 2 exp(-2^63/scale) <= 2^(1 - 2^63/scale)
    (the Gaussian's tail is lighter), counted as 2^-1000 at the least; the factor 2^150
    covers 1 + e^epsilon for every epsilon that a specification may ask for.
    """
    return numbers * Fraction(1 << 151, 1 << min(1000, int((1 << 63) / scale)))
