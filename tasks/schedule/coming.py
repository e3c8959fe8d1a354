"""The months that a specification is still to release, as every forecast counts them."""

from __future__ import annotations

import calendar
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from dpcore.accounting import Balance, Cost, Months, month_number, total
from dpcore.mechanisms.registry import cost_under
from dpcore.planning.plan import Plan
from dpcore.records.schema import Neighbours
from tasks.ledger.state import LedgerState
from tasks.schedule.calendar import month_before, monthly_firings, periods_due
from tasks.spec import ReleaseSpec
from tasks.spec.plan import cap_of, windows_of

MONTHLY = "0 0 1 * *"
"""How a specification without a cron schedule is read where months are counted: a release of every month."""

LONGEST_DELAY = timedelta(days=366)
"""A month whose firing lies longer back is not expected any more."""

MOST_MONTHS = 600
"""Fifty years: forecasts do not look further ahead."""


@dataclass(frozen=True, slots=True)
class ComingMonth:
    """A month that the schedule will release, or that it should have released at its last firing."""

    period: str
    due: datetime
    """When it is released, in UTC: at its firing, or now if it is late."""
    is_charged: bool = False
    """The ledger holds its cost: it is published, reserved, or a person refused or retracted it. No run charges it."""
    is_late: bool = False


def coming_months(
    spec: ReleaseSpec, state: LedgerState, now: datetime, months: int = MOST_MONTHS
) -> Iterator[ComingMonth]:
    """Return the months that are released within so many months from now, each once and in order.

    The month of the last firing comes first if the ledger has no release of it: it may still come,
    and costs as much.
    """
    return islice(_late_and_scheduled(spec, state, now, months), months)


def _late_and_scheduled(spec: ReleaseSpec, state: LedgerState, now: datetime, months: int) -> Iterator[ComingMonth]:
    cron, timezone = spec.schedule.cron or MONTHLY, spec.schedule.timezone
    start = now.astimezone(ZoneInfo(timezone))
    fired = list(periods_due(cron, timezone, start - LONGEST_DELAY, start))
    late = fired[-1] if fired and not state.of_period(spec.name, fired[-1]) else None
    if late:
        yield ComingMonth(late, now.astimezone(UTC), is_late=True)
    for firing, period in monthly_firings(cron, timezone, start, _months_later(start, months)):
        if period != late:
            yield ComingMonth(period, firing.astimezone(UTC), bool(state.of_period(spec.name, period)))


def _months_later(moment: datetime, months: int) -> datetime:
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    return moment.replace(year=year, month=month + 1, day=min(moment.day, calendar.monthrange(year, month + 1)[1]))


@dataclass(frozen=True, slots=True)
class Standing:
    """What is spent and reserved against a population's cap, under the relation that leaves the least room."""

    balance: Balance
    relation: Neighbours

    @staticmethod
    def of(spec: ReleaseSpec, state: LedgerState, plan: Plan, first: int) -> Standing:
        """The standing for a plan whose next release is of the month `first`.

        Before the first release the cap is the specification's. The cap binds every relation that a release declared.
        """
        known = state.populations.get(spec.privacy.population)
        if known is None:
            return Standing(Balance(cap_of(spec), windows_of(spec).span, Months()), spec.neighbours)
        relations = sorted(known.declared | {spec.neighbours}, key=lambda one: one is not spec.neighbours)
        return min((Standing(known.balance(one), one) for one in relations), key=lambda one: one.room(plan, first))

    def cost(self, plan: Plan) -> Cost:
        """What a release of a plan costs under the relation."""
        costs = (cost_under(event, self.relation) for event in plan.events.values())
        return replace(total(cost for cost in costs if cost is not None), releases=1)

    def left(self, plan: Plan, first: int) -> int | None:
        """How many further releases of a plan fit, from the month `first` on."""
        return self.balance.releases_left(self.cost(plan), first=first)

    def room(self, plan: Plan, first: int) -> float:
        """The same as a number; infinite where there is no end."""
        left = self.left(plan, first)
        return math.inf if left is None else left


def next_month(spec: ReleaseSpec, state: LedgerState, now: datetime) -> int:
    """The number of the first coming month that is not charged yet."""
    coming = (month.period for month in coming_months(spec, state, now) if not month.is_charged)
    return month_number(next(coming, month_before(now.date())))
