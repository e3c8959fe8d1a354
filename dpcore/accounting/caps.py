"""Lifetime caps: privacy filters, which hold however the costs of a population are chosen.

Guarantee: GUARANTEE.md, "Kinds of caps".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from dpcore.accounting.costs import Cost, times
from dpcore.accounting.curves import INFINITE, float_above, rho_of_epsilon
from dpcore.accounting.slots import slots_epsilon
from dpcore.accounting.statements import Statement, population_balance, release_statement, zcdp_balance


class CapKind(StrEnum):
    """What a cap admits, and by which rule it counts."""

    PURE = "pure"
    GAUSSIAN = "gaussian"
    ZCDP = "zcdp"
    SPLIT = "split"
    SLOTS = "slots"

    @staticmethod
    def of(cost: Cost) -> CapKind:
        """The kind that counts a cost: by what it consists of."""
        if not cost.rho:
            return CapKind.PURE
        return CapKind.ZCDP if cost.is_mixed else CapKind.GAUSSIAN


MOST_SLOTS = 10_000
"""More releases than a population ever makes."""

FIGURES_OF = {CapKind.SPLIT: {"pure", "rho"}, CapKind.SLOTS: {"slots", "each"}}
"""The figures that a cap of a kind has beside epsilon and the deltas."""


@dataclass(frozen=True, slots=True)
class Cap:
    """The lifetime limit on the privacy loss of a population.

    `thresholds` is the part of delta that is kept for thresholding; costs are converted at the rest. A cap of kind
    split admits `pure` of pure costs and `rho` of Gaussian noise; one of kind slots admits `slots` pure releases of
    at most `each`. A cap without a kind counts by what was used: see `population_balance`.

        >>> from dpcore.accounting import Epsilon
        >>> cap = Cap(epsilon=Fraction(3), delta=Fraction(0), delta_num=Fraction(0))
        >>> monthly = Cost.of(Epsilon(Fraction(1, 4)))
        >>> cap.releases_left(spent=Cost(), each=monthly)
        12
    """

    epsilon: Fraction
    delta: Fraction
    delta_num: Fraction
    kind: CapKind | None = None
    pure: Fraction | None = None
    rho: Fraction | None = None
    slots: int | None = None
    each: Fraction | None = None
    thresholds: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        needed = FIGURES_OF.get(self.kind, set()) if self.kind else set()
        given = {name for name in ("pure", "rho", "slots", "each") if getattr(self, name) is not None}
        if given != needed:
            raise ValueError(f"a cap of kind {self.kind} has the figures {sorted(needed)}, got {sorted(given)}")
        if not 0 <= self.thresholds <= self.delta:
            raise ValueError("the delta of thresholds is a part of the cap's delta")

    @staticmethod
    def split(
        epsilon: Fraction, delta: Fraction, delta_num: Fraction, *, pure: Fraction, thresholds: Fraction = Fraction(0)
    ) -> Cap:
        """A cap of kind split: `pure` for pure costs, and the Gaussian noise that the rest of epsilon buys."""
        if not 0 <= pure <= epsilon:
            raise ValueError("the epsilon of pure releases is a part of the cap's epsilon")
        rest = float_below(epsilon - pure)
        rho = rho_of_epsilon(rest, delta=float_below(delta - thresholds))
        return Cap(epsilon, delta, delta_num, CapKind.SPLIT, pure=pure, rho=rho, thresholds=thresholds)

    @staticmethod
    def of_slots(
        epsilon: Fraction, delta: Fraction, delta_num: Fraction, *, each: Fraction, thresholds: Fraction = Fraction(0)
    ) -> Cap:
        """A cap of kind slots: as many pure releases of at most `each` as compose to epsilon at delta."""
        low, high = 0, 1
        while high <= MOST_SLOTS and slots_epsilon(high, each, delta=delta - thresholds) <= epsilon:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            fits = slots_epsilon(middle, each, delta=delta - thresholds) <= epsilon
            low, high = (middle, high) if fits else (low, middle)
        return Cap(epsilon, delta, delta_num, CapKind.SLOTS, slots=low, each=each, thresholds=thresholds)

    @property
    def stated(self) -> Statement:
        """What the cap promises as a whole, if it is never changed.

        Without a kind its delta counts twice, because what earlier releases showed may decide whether pure costs
        follow Gaussian ones.
        """
        epsilon: Fraction | float = self.epsilon
        if self.kind is CapKind.SPLIT:
            epsilon = self._added(Cost(epsilon=self.pure or Fraction(0), rho=self.rho or Fraction(0)))
        if self.kind is CapKind.SLOTS:
            epsilon = slots_epsilon(self.slots or 0, self.each or Fraction(0), delta=self._converted_at)
        return Statement(epsilon, self.delta if self.kind else 2 * self.delta, self.delta_num)

    def takes(self, cost: Cost, *, releases: int = 1) -> bool:
        """Whether a cost, that of one release unless said otherwise, is of the cap's kind.

        For slots, every single release must pass: a sum cannot show that each cost at most `each`.
        """
        match self.kind:
            case CapKind.PURE:
                return not cost.rho
            case CapKind.GAUSSIAN:
                return not cost.epsilon and not cost.rho_of_pure
            case CapKind.SLOTS:
                return not cost.rho and cost.epsilon <= releases * (self.each or Fraction(0))
            case _:
                return True

    def balance(self, cost: Cost, *, releases: int = 0) -> Statement:
        """What the cap's rule states for a cost, which for slots is that of `releases` releases.

        A cost that the rule does not cover is infinite.
        """
        if cost.delta > self.thresholds or not self.takes(cost, releases=releases):
            return Statement(INFINITE, self.delta, cost.delta_num)
        converted = self._convert(replace(cost, delta=Fraction(0)), releases)
        return Statement(converted.epsilon, converted.delta + cost.delta, cost.delta_num)

    def _convert(self, cost: Cost, releases: int) -> Statement:
        """The statement for a cost of the cap's kind, without the delta of thresholds."""
        delta = self._converted_at
        if self.kind is CapKind.ZCDP:
            return zcdp_balance(cost, delta=delta)
        if self.kind is CapKind.SPLIT:
            within = cost.epsilon <= (self.pure or 0) and cost.rho <= (self.rho or 0) and self._keeps_its_word
            return Statement(self._added(cost) if within else INFINITE, delta, cost.delta_num)
        if self.kind is CapKind.SLOTS:
            within = releases <= (self.slots or 0) and self._keeps_its_word
            epsilon = slots_epsilon(releases, self.each or Fraction(0), delta=delta) if within else INFINITE
            return Statement(epsilon, delta, cost.delta_num)
        return population_balance(cost, delta=delta)

    def _added(self, cost: Cost) -> Fraction | float:
        """The pure costs and the epsilon of the Gaussian ones, added and rounded up."""
        return release_statement(replace(cost, rho_of_pure=Fraction(0)), delta=self._converted_at).epsilon

    @property
    def _converted_at(self) -> Fraction:
        return self.delta - self.thresholds

    @property
    def _keeps_its_word(self) -> bool:
        """Whether the figures of a split or of slots give no more than the cap's epsilon."""
        return self.stated.epsilon <= self.epsilon

    def admits(self, cost: Cost, *, releases: int = 0) -> bool:
        """Whether a population's total cost is within the cap, however its costs were chosen (a privacy filter)."""
        if cost.delta_num > self.delta_num or cost.delta > self.thresholds:
            return False
        if self.kind in (None, CapKind.PURE) and not cost.rho and cost.epsilon <= self.epsilon:
            return True  # saves the slow conversion
        return self.balance(cost, releases=releases).epsilon <= self.epsilon

    def admits_if_fixed(self, cost: Cost) -> bool:
        """Whether a cost fixed beforehand is within the cap: the rule of earlier versions, which is no filter."""
        fixed = release_statement(cost, delta=self.delta).epsilon <= self.epsilon
        return self.admits(cost) or (not self.kind and cost.delta_num <= self.delta_num and fixed)

    def releases_left(self, spent: Cost, each: Cost, *, limit: int = 100_000, releases: int = 0) -> int:
        """The largest number of further identical releases within the cap, at most `limit`, after `releases`."""

        def fits(count: int) -> bool:
            return self.admits(spent + times(each, count), releases=releases + count)

        if not self.takes(each):
            return 0
        low, high = 0, 1
        while high <= limit and fits(high):
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return min(low, limit)


def float_below(value: Fraction) -> float:
    """A float at or below a fraction."""
    return -float_above(-value)


def total_delta(caps: Iterable[Cap]) -> Fraction:
    """The delta of a population whose caps were in force one after another.

    Each counts that was in force when something was released under it; without a kind it counts twice.
    """
    return sum((cap.stated.delta for cap in caps), Fraction(0))
