"""Costs by the month of the data they were spent on, and the most that any window of months holds.

Guarantee: GUARANTEE.md, "Spans".
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate

from dpcore.accounting.costs import FIGURES, Cost, total

MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")


def month_number(name: str) -> int:
    """The number of a month: consecutive months have consecutive numbers.

    >>> month_number("2027-01") - month_number("2026-11")
    2
    """
    if not MONTH.fullmatch(name):
        raise ValueError("a month is written as YYYY-MM")
    year, month = name.split("-")
    return 12 * int(year) + int(month) - 1


def month_name(number: int) -> str:
    """The month of a number, the inverse of `month_number`.

    >>> month_name(month_number("2026-11") + 2)
    '2027-01'
    """
    year, month = divmod(number, 12)
    if not 0 <= year <= 9999:
        raise ValueError("the years of months are 0 to 9999")
    return f"{year:04}-{month + 1:02}"


def most_in_a_window(counts: Mapping[int, int], span: int | None) -> int:
    """The largest sum of counts, none negative, over `span` consecutive months; None: the sum of all.

    >>> most_in_a_window({0: 3, 1: 4, 5: 6}, span=2)
    7
    """
    return int(_most(counts, span))


def _most(by_month: Mapping[int, Fraction | int], span: int | None) -> Fraction | int:
    """The same for amounts: a largest window may begin with a month that has one."""
    if span is None:
        return sum(by_month.values())
    if span < 1:
        raise ValueError("a span is a positive number of months")
    months = sorted(by_month)
    sums = list(accumulate((by_month[month] for month in months), initial=Fraction(0)))
    ends = [bisect_left(months, month + span) for month in months]
    return max((sums[end] - sums[start] for start, end in enumerate(ends)), default=0)


@dataclass(frozen=True, slots=True)
class Months:
    """What was spent on the data of each month, by its number, and on data of no single month.

    `always` counts in every window. No figure is negative.
    """

    by_month: Mapping[int, Cost] = field(default_factory=dict)
    always: Cost = field(default_factory=Cost)
    _whole: Cost | None = field(default=None, compare=False, repr=False)
    """The sum of all, where it is known already: a ledger asks for it after every entry."""

    def adding(self, month: int | None, cost: Cost) -> Months:
        """With a cost more, of a month or of no single one."""
        whole = self.largest(None) + cost
        if month is None:
            return Months(self.by_month, self.always + cost, whole)
        return Months({**self.by_month, month: self.by_month.get(month, Cost()) + cost}, self.always, whole)

    def __add__(self, other: Months) -> Months:
        """Both together, month by month."""
        added = dict(self.by_month)
        for month, cost in other.by_month.items():
            added[month] = added.get(month, Cost()) + cost
        return Months(added, self.always + other.always, self.largest(None) + other.largest(None))

    def largest(self, span: int | None) -> Cost:
        """The most that any `span` consecutive months hold, figure by figure; None: the sum of all.

        The figures may belong to different windows.

        >>> months = Months().adding(0, Cost(epsilon=Fraction(1))).adding(2, Cost(rho=Fraction(3)))
        >>> months.largest(span=2) == Cost(epsilon=Fraction(1), rho=Fraction(3))
        True
        """
        if span is None:
            return total([self.always, *self.by_month.values()]) if self._whole is None else self._whole
        figures = [{month: getattr(cost, name) for month, cost in self.by_month.items()} for name in FIGURES]
        return self.always + Cost(*(Fraction(_most(figure, span)) for figure in figures))
