"""Privacy costs of measurements, and the (epsilon, delta) statements they compose to.

An event says what was measured; its `Cost`, pure or of Gaussian noise, follows from its
mechanism. Two functions turn costs into a statement: `release_statement` for the costs of
one release, which its specification fixes beforehand, and `population_balance` for all
costs of a population, which may be chosen adaptively. Pure costs are exact fractions.
The module fails closed: a cost that cannot be stated is infinite.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

INFINITE = math.inf

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
    """The composed cost of a set of events: pure epsilon, rho of Gaussian noise, and the finite-precision delta.

    `rho_of_pure` is the zCDP cost of the pure events, epsilon²/2 each.
    """

    epsilon: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    rho_of_pure: Fraction = Fraction(0)
    delta_num: Fraction = Fraction(0)

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
        )

    @property
    def is_mixed(self) -> bool:
        """Whether both pure and Gaussian events contribute."""
        return bool(self.rho and (self.epsilon or self.rho_of_pure))


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of costs under sequential composition."""
    return sum(costs, Cost())


@dataclass(frozen=True, slots=True)
class Statement:
    """(epsilon, delta)-differential privacy in exact arithmetic, and delta_num for finite precision."""

    epsilon: Fraction | float
    delta: Fraction
    delta_num: Fraction

    def as_json(self) -> dict[str, float]:
        """The three figures as floats."""
        return {"epsilon": float(self.epsilon), "delta": float(self.delta), "delta_num": float(self.delta_num)}


def release_statement(cost: Cost, *, delta: Fraction) -> Statement:
    """The smaller valid statement at a given delta for costs that were fixed beforehand.

    Either the pure costs are added to the epsilon of Gaussian noise of the whole rho, or
    every cost is counted as zCDP (a pure epsilon is epsilon²/2 of rho) and converted once.
    Without Gaussian costs, delta is claimed only if it buys a smaller epsilon.
    This is no bound for mixed costs that are chosen adaptively: see `population_balance`.

        >>> twice = Cost.of(Epsilon(Fraction(1, 2))) + Cost.of(Epsilon(Fraction(1, 2)))
        >>> release_statement(twice, delta=Fraction(0)).as_json()
        {'epsilon': 1.0, 'delta': 0.0, 'delta_num': 0.0}
        >>> release_statement(Cost.of(Rho(Fraction(1, 100))), delta=Fraction(0)).epsilon
        inf
    """
    added: Fraction | float = cost.epsilon
    if cost.rho:
        gaussian = gaussian_epsilon(float_above(cost.rho), delta=float(delta))
        rounded_up = math.nextafter(float_above(cost.epsilon) + gaussian, INFINITE)
        added = rounded_up if cost.epsilon else gaussian
    converted = _as_zcdp(cost, delta) if cost.rho_of_pure else INFINITE
    if converted < added:
        return Statement(converted, delta, cost.delta_num)
    return Statement(added, delta if cost.rho else Fraction(0), cost.delta_num)


def population_balance(cost: Cost, *, delta: Fraction) -> Statement:
    """The privacy loss of a population at a given delta, valid also for adaptively chosen costs.

    Pure costs alone give the smaller of their sum and their zCDP conversion; Gaussian costs alone give the exact
    curve of the whole rho. Mixed costs are counted as zCDP and converted once. Adding the two conversions would be
    no bound: an analyst could spend the remaining budget purely whenever the noise of small Gaussian releases
    happened to be large.
    Guarantee: GUARANTEE.md, "The statement".
    """
    if not cost.is_mixed:
        return release_statement(cost, delta=delta)
    return Statement(_as_zcdp(cost, delta), delta, cost.delta_num)


def _as_zcdp(cost: Cost, delta: Fraction) -> float:
    """The epsilon of all costs counted as zCDP; infinite if a pure cost lacks its rho."""
    if cost.epsilon and not cost.rho_of_pure:
        return INFINITE
    return epsilon_of_rho(float_above(cost.rho + cost.rho_of_pure), delta=float(delta))


@dataclass(frozen=True, slots=True)
class Cap:
    """The lifetime limit on the privacy loss of a population.

    >>> cap = Cap(epsilon=Fraction(3), delta=Fraction(0), delta_num=Fraction(0))
    >>> monthly = Cost.of(Epsilon(Fraction(1, 4)))
    >>> cap.releases_left(spent=Cost(), each=monthly)
    12
    """

    epsilon: Fraction
    delta: Fraction
    delta_num: Fraction

    def admits(self, cost: Cost) -> bool:
        """Whether a population's total cost is within the cap, however its costs were chosen (a privacy filter)."""
        if cost.delta_num > self.delta_num:
            return False
        pure = not cost.rho and cost.epsilon <= self.epsilon  # saves the slow conversion
        return pure or population_balance(cost, delta=self.delta).epsilon <= self.epsilon

    def admits_if_fixed(self, cost: Cost) -> bool:
        """Whether a cost fixed beforehand is within the cap: the rule of earlier versions, which is no filter."""
        fixed = release_statement(cost, delta=self.delta).epsilon <= self.epsilon
        return self.admits(cost) or (cost.delta_num <= self.delta_num and fixed)

    def releases_left(self, spent: Cost, each: Cost, *, limit: int = 100_000) -> int:
        """The largest number of further identical releases within the cap, at most `limit`."""
        low, high = 0, 1
        while high <= limit and self.admits(spent + times(each, high)):
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.admits(spent + times(each, middle)) else (low, middle)
        return min(low, limit)


def times(cost: Cost, count: int) -> Cost:
    """The cost of `count` identical events."""
    return Cost(cost.epsilon * count, cost.rho * count, cost.rho_of_pure * count, cost.delta_num * count)


def float_above(value: Fraction) -> float:
    """A float at or above a fraction: the nearest one or its successor."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, INFINITE)


GAUSSIAN_MARGIN = 1e-10
"""Relative margin for the rounding of the two normal tails, which are computed in double precision."""

SMALLEST_TAIL = 2.0**-1000
"""Tail probabilities above this have full floating-point precision."""


def gaussian_delta(rho: float, *, epsilon: float) -> float:
    """The delta of Gaussian noise at an epsilon, rounded up: the exact curve (GUARANTEE.md, M3).

    With mu = sqrt(2 rho) it is Q(epsilon/mu - mu/2) - e^epsilon Q(epsilon/mu + mu/2), where Q is the
    upper tail of the normal law. Floats below `SMALLEST_TAIL` lose precision: there the second tail
    counts as 0 and the first as `SMALLEST_TAIL`, which errs upward.
    """
    mu = math.sqrt(2 * rho)
    inside = max(_upper_tail(epsilon / mu - mu / 2), SMALLEST_TAIL)
    second = _upper_tail(epsilon / mu + mu / 2)
    outside = math.exp(epsilon) * second if epsilon < 700 and second > SMALLEST_TAIL else 0.0
    return min(1.0, inside * (1 + GAUSSIAN_MARGIN) - outside * (1 - GAUSSIAN_MARGIN))


def _upper_tail(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


@functools.lru_cache(maxsize=256)  # planning repeats the same conversions
def gaussian_epsilon(rho: float, *, delta: float) -> float:
    """The smallest epsilon at which Gaussian noise meets a delta, rounded up; infinite when delta is 0."""
    return _least_epsilon(lambda epsilon: gaussian_delta(rho, epsilon=epsilon), rho, delta, margin=1e-9)


def _least_epsilon(curve: Callable[[float], float], rho: float, delta: float, *, margin: float) -> float:
    """The smallest epsilon at which a curve of deltas meets a delta; infinite when delta is 0.

    It is sought below zCDP's simple conversion, an upper bound, which the relative margin widens.
    """
    if not delta > 0 or not math.isfinite(rho):
        return INFINITE
    low, high = 0.0, (rho + 2 * math.sqrt(rho * math.log(1 / delta))) * (1 + margin)
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (low, middle) if curve(middle) <= delta else (middle, high)
    return high


def loss_tail(cost: Cost, *, epsilon: Fraction, gaussian_draws: int) -> float:
    """The probability that the privacy loss of all measurements exceeds epsilon, rounded up.

    It bounds the probability that a reader of the noisy measurements, starting from even odds between two neighbours,
    becomes surer of the truth than 1 / (1 + e^-epsilon); delta is smaller. Pure measurements lose at most
    their epsilon. The loss of one Gaussian draw exceeds the remaining x with probability Q(x/mu - mu/2), which the
    worst neighbours attain. For several draws, whose distances may depend on earlier outcomes, the loss is a Brownian
    motion with drift 1/2, stopped before time mu²: its maximum exceeds x with probability
    Q(x/mu - mu/2) + e^x Q(x/mu + mu/2).
    Guarantee: GUARANTEE.md, "How sure a reader may become".
    """
    rest = _epsilon_left(cost, epsilon)
    if not cost.rho and rest >= 0:
        return 0.0
    bounds = [1.0, loss_tail_of_views(cost, epsilon=epsilon)]
    rho = float_above(cost.rho + cost.rho_of_pure)
    if epsilon > rho:  # Chernoff bound with all costs as zCDP
        bounds.append(math.exp(-((float(epsilon) - rho) ** 2) / (4 * rho)) * (1 + GAUSSIAN_MARGIN))
    if cost.rho and rest > 0:
        mu = math.sqrt(2 * float_above(cost.rho))
        tail, second = (max(_upper_tail(rest / mu + side * mu / 2), SMALLEST_TAIL) for side in (-1, 1))
        later = min(tail, math.exp(min(rest, 700.0)) * second) if gaussian_draws > 1 else 0.0
        bounds.append((tail + later) * (1 + GAUSSIAN_MARGIN))
    return min(bounds)


def loss_tail_of_views(cost: Cost, *, epsilon: Fraction) -> float:
    """The probability that the privacy loss of any function of the measurements exceeds epsilon, rounded up.

    Post-processing may increase it: outcomes of high and of moderate loss that become equal count together.
    The event V of too high a loss has Pr[V] > e^epsilon Pr'[V]; with Pr[V] <= e^x Pr'[V] + delta(x) for every
    x below epsilon this gives Pr[V] <= delta(x) / (1 - e^(x - epsilon)).
    """
    rest = _epsilon_left(cost, epsilon)
    if not cost.rho and rest >= 0:
        return 0.0
    whole, gaussian = float_above(cost.rho + cost.rho_of_pure), float_above(cost.rho)
    top = rest if rest > 0 else float(epsilon)

    def bound(x: float) -> float:
        delta = gaussian_delta(gaussian, epsilon=x) if rest > 0 else delta_of_rho(whole, epsilon=x)
        return delta * (1 + GAUSSIAN_MARGIN) / -math.expm1(x - top)

    return min(1.0, *(bound(top * step / 1000) for step in range(1000)))


def group_delta(cost: Cost, *, epsilon: Fraction, size: int) -> float:
    """The delta at `size` times epsilon for a group of `size` units, rounded up.

    Each unit moves a measurement by at most its sensitivity, so the group's pure costs are larger by the factor
    `size` and its rho by `size`².
    """
    rest = _epsilon_left(cost, epsilon)
    if not cost.rho and rest >= 0:
        return 0.0
    whole = delta_of_rho(float_above((cost.rho + cost.rho_of_pure) * size**2), epsilon=float(epsilon) * size)
    return min(whole, gaussian_delta(float_above(cost.rho * size**2), epsilon=rest * size)) if rest >= 0 else whole


def _epsilon_left(cost: Cost, epsilon: Fraction) -> float:
    """An epsilon minus the pure costs, rounded down."""
    return -float_above(cost.epsilon - epsilon)


def delta_of_rho(rho: float, *, epsilon: float) -> float:
    """The smallest delta of the zCDP conversion of Canonne, Kamath and Steinke (2020).

    delta = min over alpha > 1 of exp((alpha-1)(alpha rho - epsilon)) (1 - 1/alpha)^alpha / (alpha - 1).
    The logarithm is convex around its only minimum, which golden-section search finds;
    any alpha gives a valid delta, so an inexact minimum is only looser.
    """

    def log_delta(alpha: float) -> float:
        return (alpha - 1) * (alpha * rho - epsilon) + alpha * math.log1p(-1 / alpha) - math.log(alpha - 1)

    low, high = math.log(1e-10), math.log(max(4.0, (epsilon + 1) / rho + 2))
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(90):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if log_delta(1 + math.exp(left)) < log_delta(1 + math.exp(right)):
            high = right
        else:
            low = left
    return math.exp(min(0.0, log_delta(1 + math.exp((low + high) / 2))))  # at most 1, without overflow


@functools.lru_cache(maxsize=256)  # planning repeats the same conversions
def epsilon_of_rho(rho: float, *, delta: float) -> float:
    """An epsilon such that rho-zCDP implies (epsilon, delta)-DP; infinite when delta is 0."""
    least = _least_epsilon(lambda epsilon: delta_of_rho(rho, epsilon=epsilon), rho, delta, margin=0.0)
    return least * (1 + 1e-12)  # covers the rounding of the search itself


@functools.lru_cache(maxsize=256)  # planning repeats the same conversions
def rho_of_epsilon(epsilon: float, *, delta: float) -> Fraction:
    """The largest rho, to nine digits, of Gaussian noise that is (epsilon, delta)-differentially private.

    >>> rho = rho_of_epsilon(1.0, delta=1e-6)
    >>> 0.999 < gaussian_epsilon(float(rho), delta=1e-6) <= 1.0
    True
    >>> gaussian_epsilon(float(rho), delta=1e-6) < epsilon_of_rho(float(rho), delta=1e-6)  # zCDP's conversion is looser
    True
    """
    if not delta > 0:
        raise ValueError("Gaussian noise needs delta > 0")
    low, high = 0.0, 1.0
    while gaussian_epsilon(high, delta=delta) <= epsilon:
        high *= 2
    for _ in range(64):
        middle = (low + high) / 2
        fits = gaussian_epsilon(middle, delta=delta) <= epsilon * (1 - 1e-9)
        low, high = (middle, high) if fits else (low, middle)
    return Fraction(low)
