"""Budgets, and what measurements cost together: exact fractions that add."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from fractions import Fraction

LARGEST_FIGURE = 10**12
"""The upper limit of costs and caps: larger ones promise nothing."""


@dataclass(frozen=True, slots=True)
class _PositiveFigure:
    """A positive figure, named by its class."""

    value: Fraction

    def __post_init__(self) -> None:
        if not self.value > 0:
            raise ValueError(f"{type(self).__name__.lower()} must be positive, got {self.value}")


@dataclass(frozen=True, slots=True)
class Epsilon(_PositiveFigure):
    """A pure privacy cost; costs add."""


@dataclass(frozen=True, slots=True)
class Rho(_PositiveFigure):
    """The cost of Gaussian noise, (sensitivity / scale)² / 2, which is also its zCDP cost; costs add."""


Budget = Epsilon | Rho


@dataclass(frozen=True, slots=True)
class Cost:
    """The composed cost of a set of events: pure epsilon, rho of Gaussian noise, and two deltas.

    `rho_of_pure` is the zCDP cost of the pure events, epsilon²/2 each; `delta_num` comes of finite precision and
    `delta` of thresholding. `releases` is how many releases the events make up, for caps that count these.
    """

    epsilon: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    rho_of_pure: Fraction = Fraction(0)
    delta_num: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    releases: int | Fraction = field(default=0, compare=False)

    @staticmethod
    def of(budget: Budget, delta_num: Fraction = Fraction(0)) -> Cost:
        """The cost of one event."""
        if isinstance(budget, Epsilon):
            return Cost(epsilon=budget.value, rho_of_pure=budget.value**2 / 2, delta_num=delta_num)
        return Cost(rho=budget.value, delta_num=delta_num)

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.epsilon + other.epsilon,
            self.rho + other.rho,
            self.rho_of_pure + other.rho_of_pure,
            self.delta_num + other.delta_num,
            self.delta + other.delta,
            self.releases + other.releases,
        )

    @property
    def is_mixed(self) -> bool:
        """Whether both pure and Gaussian events contribute."""
        return bool(self.rho and (self.epsilon or self.rho_of_pure))


FIGURES = tuple(figure.name for figure in fields(Cost))
"""The names of a cost's figures, in the order of its fields."""


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of costs under sequential composition."""
    return sum(costs, Cost())


def times(cost: Cost, count: int) -> Cost:
    """The cost of `count` identical events."""
    return Cost(*(getattr(cost, name) * count for name in FIGURES))
