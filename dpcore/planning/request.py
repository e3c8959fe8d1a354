"""What a specification asks of a release, and the error for a request that cannot be met."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from dpcore.records.exact_sums import SMALLEST_RADIUS
from dpcore.records.schema import Neighbours, PrivacyUnit, RecordSchema

AUTO = "auto"

PLANNED: Final = "planned"
"""A projection or a radius that the specification leaves out: the planner takes the one that suits the table."""

DFM = "dfm"
"""RON-Gauss's rule for the dimension of random projections, after the Diaconis-Freedman-Meckes effect."""

LDA = "lda"
"""The generator with class means and one covariance that all classes share."""

DIAGONAL = "diagonal"
"""The LDA generator with a count weight of 1, for tables whose covariance is hidden by the noise."""

COPULA = "copula"
"""The generator for mixed tables, which measures the marginals separately."""

SMALLEST_EPSILON, SMALLEST_DELTA = Fraction(1, 10**12), Fraction(1, 10**100)
"""The smallest epsilon and delta: below them a privacy statement is meaningless, and floats are too coarse."""


def readable_number(value: Fraction) -> str:
    """Return the fraction in short decimal form; one too large for a float is described in words."""
    return f"{value.numerator / value.denominator:g}" if abs(value) < 10**300 else "a number above 1e300"


class PlanError(ValueError):
    """A request that cannot be met; names the rule, the specification key and a remedy."""

    def __init__(self, message: str, *, rule: str, where: str, hint: str) -> None:
        super().__init__(message)
        self.rule, self.where, self.hint = rule, where, hint


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What the specification asks of a release; `auto` leaves the choice to the planner.

    A `projection` or a `radius` that is `planned` is left to `dpcore.planning.defaults`.
    `radius` is the radius of the ball around the middle of the bounds to which points are clipped before they are
    measured; with `auto`, a centre and a radius are measured with a part of the budget. With `normalise`, features
    are scaled to one length, moved by a measured mean, and scaled again, as in RON-Gauss. A `dimension` that is a
    `Fraction` is the share of the noisy variance that the kept principal components hold together.
    """

    schema: RecordSchema
    neighbours: Neighbours
    unit: PrivacyUnit
    epsilon: Fraction
    delta: Fraction
    expected_rows: int
    projection: str = "ron"
    projection_mechanism: str = AUTO
    dimension: int | str | Fraction = AUTO
    mechanism: str = AUTO
    generator: str = AUTO
    allocation: dict[str, Fraction] | None = None
    radius: Fraction | str = Fraction(1)
    normalise: bool = False
    pure_only: bool = False
    """The population's cap counts pure costs alone, so delta is left unused."""

    @property
    def variance_share(self) -> Fraction | None:
        """The share of the noisy variance that decides how many components are kept, if one does."""
        return self.dimension if isinstance(self.dimension, Fraction) else None

    def __post_init__(self) -> None:
        known = self.radius in (AUTO, PLANNED)
        if not known and not (isinstance(self.radius, Fraction) and SMALLEST_RADIUS <= self.radius <= 1):
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
