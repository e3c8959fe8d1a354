"""Lifetime caps: privacy filters, which hold however the costs of a population are chosen.

Guarantee: GUARANTEE.md, "Kinds of caps".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from dpcore.accounting.costs import Cost, times
from dpcore.accounting.curves import INFINITE, float_below, rho_of_epsilon
from dpcore.accounting.slots import slots_epsilon
from dpcore.accounting.statements import Statement, population_balance, release_statement, zcdp_balance

NOTHING = Fraction(0)


class CapKind(StrEnum):
    """Which costs a cap admits, and by which rule it counts them."""

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


FIGURES_OF = {CapKind.SPLIT: ("pure", "rho"), CapKind.SLOTS: ("slots", "each")}
"""The figures that a cap of a kind has beside epsilon and the deltas."""


@dataclass(frozen=True, slots=True)
class Cap:
    """The lifetime limit on the privacy loss of a population.

    `thresholds` is the part of delta that is kept for thresholding; costs are converted at the rest of it. A cap of
    kind split admits `pure` of pure costs and `rho` of Gaussian noise; one of kind slots admits `slots` pure
    releases of at most `each`. A cap without a kind counts by what was used: see `population_balance`.

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
    thresholds: Fraction = NOTHING

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in ("pure", "rho", "slots", "each")}
        needed = set(FIGURES_OF.get(self.kind, ())) if self.kind else set()
        if {name for name, figure in given.items() if figure is not None} != needed:
            raise ValueError(f"a cap of kind {self.kind} has exactly these figures: {sorted(needed)}")
        if any(figure < 0 for figure in given.values() if figure is not None):
            raise ValueError("the figures of a cap are not negative")
        if not 0 <= self.thresholds <= self.delta:
            raise ValueError("the delta of thresholding is a part of the cap's delta")

    @staticmethod
    def split(
        epsilon: Fraction, delta: Fraction, delta_num: Fraction, *, pure: Fraction, thresholds: Fraction = NOTHING
    ) -> Cap:
        """A cap of kind split: `pure` for pure costs, and the Gaussian noise that the rest of epsilon buys."""
        if not 0 <= pure < epsilon:
            raise ValueError("the epsilon of pure costs is a part of the cap's epsilon")
        rho = rho_of_epsilon(float_below(epsilon - pure), delta=float_below(delta - thresholds))
        cap = Cap(epsilon, delta, delta_num, CapKind.SPLIT, pure=pure, rho=rho, thresholds=thresholds)
        if not cap._is_covered:
            raise ValueError("too little epsilon is left for Gaussian noise")
        return cap

    @staticmethod
    def of_slots(
        epsilon: Fraction, delta: Fraction, delta_num: Fraction, *, each: Fraction, thresholds: Fraction = NOTHING
    ) -> Cap:
        """A cap of kind slots: as many releases of at most `each` as epsilon buys.

        >>> tenth, millionth = Fraction(1, 10), Fraction(1, 10**6)
        >>> Cap.of_slots(Fraction(2), millionth, Fraction(0), each=tenth).slots
        24
        """
        if not 0 < each <= epsilon:
            raise ValueError("the epsilon of each release is a part of the cap's epsilon")
        low, high = 1, 2
        while slots_epsilon(high, each, delta=delta - thresholds) <= epsilon:
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
            epsilon = self._added(Cost(epsilon=self._figure(self.pure), rho=self._figure(self.rho)))
        if self.kind is CapKind.SLOTS:
            epsilon = slots_epsilon(self.slots or 0, self._figure(self.each), delta=self._converted_at)
        return Statement(epsilon, self.delta if self.kind else 2 * self.delta, self.delta_num)

    def takes(self, cost: Cost, *, releases: int = 1) -> bool:
        """Whether a cost, that of one release unless said otherwise, is of the cap's kind.

        Every single release under a cap of kind slots must pass, those before the cap was written too: no sum shows
        that each cost at most `each`.
        """
        match self.kind:
            case CapKind.PURE:
                return not cost.rho
            case CapKind.GAUSSIAN:
                return not cost.epsilon and not cost.rho_of_pure
            case CapKind.SLOTS:
                return not cost.rho and cost.epsilon <= releases * self._figure(self.each)
            case _:
                return True

    def balance(self, cost: Cost, *, releases: int = 0) -> Statement:
        """What the cap's rule states for a cost, which for slots is that of `releases` releases.

        A cost that the rule does not cover is infinite.
        """
        if cost.delta > self.thresholds or not self.takes(cost, releases=releases):
            return Statement(INFINITE, self.delta, cost.delta_num)
        converted = self._converted(replace(cost, delta=NOTHING), releases)
        return replace(converted, delta=converted.delta + cost.delta)

    def _converted(self, cost: Cost, releases: int) -> Statement:
        """The statement for a cost of the cap's kind without thresholding."""
        delta = self._converted_at
        match self.kind:
            case CapKind.ZCDP:
                return zcdp_balance(cost, delta=delta)
            case CapKind.SPLIT:
                within = cost.epsilon <= self._figure(self.pure) and cost.rho <= self._figure(self.rho)
                return Statement(self._added(cost) if within and self._is_covered else INFINITE, delta, cost.delta_num)
            case CapKind.SLOTS:
                within = releases <= (self.slots or 0) and self._is_covered
                epsilon = slots_epsilon(releases, self._figure(self.each), delta=delta) if within else INFINITE
                return Statement(epsilon, delta, cost.delta_num)
            case _:
                return population_balance(cost, delta=delta)

    def _added(self, cost: Cost) -> Fraction | float:
        """The pure costs and the epsilon of the Gaussian ones, added and rounded up."""
        return release_statement(replace(cost, rho_of_pure=NOTHING), delta=self._converted_at).epsilon

    @staticmethod
    def _figure(figure: Fraction | None) -> Fraction:
        return NOTHING if figure is None else figure

    @property
    def _converted_at(self) -> Fraction:
        return self.delta - self.thresholds

    @property
    def _is_covered(self) -> bool:
        """Whether the figures of a split or of slots give no more than the cap's epsilon."""
        return self.stated.epsilon <= self.epsilon

    def admits(self, cost: Cost, *, releases: int = 0) -> bool:
        """Whether a population's total cost is within the cap, however its costs were chosen (a privacy filter).

        For slots it is the cost of `releases` releases, each of which `takes` has passed.
        """
        if cost.delta_num > self.delta_num or cost.delta > self.thresholds:
            return False
        by_sum = self.kind in (None, CapKind.PURE, CapKind.ZCDP) and not cost.rho and cost.epsilon <= self.epsilon
        return by_sum or self.balance(cost, releases=releases).epsilon <= self.epsilon  # the conversion is slow

    def admits_if_fixed(self, cost: Cost) -> bool:
        """Whether a cost fixed beforehand is within the cap: the rule of earlier versions, which is no filter."""
        fixed = release_statement(cost, delta=self.delta).epsilon <= self.epsilon
        within = cost.delta_num <= self.delta_num and cost.delta <= self.thresholds
        return self.admits(cost) or (not self.kind and within and fixed)

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
