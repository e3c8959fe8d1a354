"""What a specification says about a release, and how one that cannot be carried out is refused."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpcore.records.exact_sums import SMALLEST_RADIUS
from dpcore.records.schema import Neighbours, PrivacyUnit, RecordSchema

AUTO = "auto"
LDA = "lda"
"""The generator whose classes share a covariance."""

DIAGONAL = "diagonal"
"""The same with the whole weight on class means, where the noise hides the covariance."""

COPULA = "copula"
"""The generator for mixed tables, whose marginals are measured apart."""

SMALLEST_EPSILON, SMALLEST_DELTA = Fraction(1, 10**12), Fraction(1, 10**100)
"""Beyond these no statement is worth computing, and floating point could not."""


def readable_number(value: Fraction) -> str:
    """A fraction as a number that people read, whatever its size."""
    return f"{value.numerator / value.denominator:g}" if abs(value) < 10**300 else "a number above 1e300"


class PlanError(ValueError):
    """A choice that cannot be carried out; names the key, the rule and what to do."""

    def __init__(self, message: str, *, rule: str, where: str, hint: str) -> None:
        super().__init__(message)
        self.rule, self.where, self.hint = rule, where, hint


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What the specification says about a release; `auto` leaves a choice to the plan.

    `radius` is that of the ball around the middle of the bounds in which points are measured, longer ones
    being drawn back to it; `auto` buys a centre and a radius with a part of the budget.
    """

    schema: RecordSchema
    neighbours: Neighbours
    unit: PrivacyUnit
    epsilon: Fraction
    delta: Fraction
    expected_rows: int
    projection: str = "ron"
    projection_mechanism: str = AUTO
    dimension: int | str = AUTO
    mechanism: str = AUTO
    generator: str = AUTO
    allocation: dict[str, Fraction] | None = None
    radius: Fraction | str = Fraction(1)

    def __post_init__(self) -> None:
        if self.radius != AUTO and not (isinstance(self.radius, Fraction) and SMALLEST_RADIUS <= self.radius <= 1):
            raise ValueError(f"radius must be auto or a number from 1/256 to 1, got {self.radius}")
        if not self.epsilon > 0:
            raise ValueError(f"epsilon must be positive, got {self.epsilon}")
        if not SMALLEST_EPSILON <= self.epsilon <= 1 / SMALLEST_EPSILON:
            raise ValueError(f"epsilon must lie between 1e-12 and 1e12, got {readable_number(self.epsilon)}")
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta must lie in [0, 1), got {self.delta}")
        if 0 < self.delta < SMALLEST_DELTA:
            raise ValueError(f"delta must be 0 or at least 1e-100, got {readable_number(self.delta)}")
        if not self.expected_rows >= 1:
            raise ValueError(f"expected_rows must be at least 1, got {self.expected_rows}")
