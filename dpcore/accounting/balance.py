"""What a population's cap leaves: costs by month, held against the most expensive window of months."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from dpcore.accounting.caps import Cap
from dpcore.accounting.costs import Cost, times
from dpcore.accounting.curves import INFINITE
from dpcore.accounting.months import Months
from dpcore.accounting.statements import Statement

MOST_FURTHER = 100_000
"""The largest number of further releases that is looked for."""


@dataclass(frozen=True, slots=True)
class Balance:
    """Costs under one neighbouring relation against the cap of their population.

    `span` is the number of consecutive months of a unit that are protected together, None for all. `months` is None
    if the cost of something under this relation is not known: then nothing is admitted. `former_delta` belongs to
    caps of other kinds that were in force before.
    """

    cap: Cap
    span: int | None
    months: Months | None
    former_delta: Fraction = Fraction(0)

    @property
    def cost(self) -> Cost:
        """The cost of the most expensive window, every figure by itself.

        Raises: ValueError if it is not known.
        """
        if self.months is None:
            raise ValueError("the cost of a measurement under this relation is not known")
        return self.months.largest(self.span)

    @property
    def statement(self) -> Statement:
        """The privacy loss within any window of months, as the cap's rule composes it."""
        if self.months is None:
            return Statement(INFINITE, self.cap.delta, self.cap.delta_num)
        cost = self.cost
        now = self.cap.balance(cost, releases=int(cost.releases))
        return replace(now, delta=now.delta + self.former_delta)

    @property
    def is_admitted(self) -> bool:
        """Whether every window is within the cap."""
        if self.months is None:
            return False
        cost = self.cost
        return self.cap.admits(cost, releases=int(cost.releases))

    @property
    def was_admitted(self) -> bool:
        """Whether every window is within the cap by this rule, or by the one of earlier versions."""
        return self.is_admitted or (self.months is not None and self.cap.admits_if_fixed(self.cost))

    def adding(self, month: int | None, cost: Cost) -> Balance:
        """The balance after a further cost; one without a month counts in every window."""
        kept = month if self.span else None
        return replace(self, months=None if self.months is None else self.months.adding(kept, cost))

    def adding_each(self, months: Iterable[int], cost: Cost) -> Balance:
        """The balance after the same further cost in each of these months."""
        balance = self
        for month in months:
            balance = balance.adding(month, cost)
        return balance

    def releases_left(self, each: Cost, *, first: int | None = None, limit: int = MOST_FURTHER) -> int | None:
        """How many further identical releases fit: in all, or one a month from the month `first` on under a span.

        Without `first` these are the months after the last one that has a cost of its own.
        None means that there is no end: with each month that a window gains, it loses one.
        """
        each = replace(each, releases=1)
        if self.span is None:
            return self._fitting(each, limit)
        if self.months is None:
            return 0
        after = max(self.months.by_month, default=-1) + 1
        return self._fitting_months(each, after if first is None else first, self.span)

    def _fitting(self, each: Cost, limit: int) -> int:
        low, high = 0, 1
        while high <= limit and self.adding(None, times(each, high)).is_admitted:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.adding(None, times(each, middle)).is_admitted else (low, middle)
        return min(low, limit)

    def _fitting_months(self, each: Cost, first: int, span: int) -> int | None:
        held = self.months.by_month if self.months else {}
        balance = self
        # beyond these, a window holds new months alone, like the last one that was tried
        for count in range(max(0, max(held, default=first) + 1 - first) + span):
            balance = balance.adding(first + count, each)
            if not balance.is_admitted:
                return count
        return None
