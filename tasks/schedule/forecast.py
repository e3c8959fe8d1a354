"""When a population's budget is used up, if releases go on as the specification has them now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, pairwise
from statistics import median

from dpcore.accounting import Balance, Cost, Statement, month_number, release_statement
from tasks.ledger.state import LedgerState
from tasks.schedule.calendar import month_before
from tasks.schedule.coming import MOST_MONTHS, Standing, coming_months, next_month
from tasks.spec import ReleaseSpec
from tasks.spec.plan import plan_release, stated_guarantee

MONTHS_WITHOUT_END = 36
"""How many months are foreseen where releases fit without end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What fits under a cap and when, at one cost a release."""

    population: str
    name: str
    each: Statement
    """One release of the present specification by itself, at the delta of the lifetime."""
    stated: Mapping[str, float]
    """The epsilon and delta that one release states."""
    rho: float
    """What its Gaussian noise costs; such costs add as rho. 0 without any."""
    left: int | None
    """Further releases that fit; None if months that leave the window make room for new ones without end."""
    rhythm: str
    """Where the dates come from: the schedule, the gaps so far, or nothing yet."""
    steps: tuple[tuple[datetime, float], ...] = ()
    """The releases to come that fit, with the epsilon spent after each."""
    refused: datetime | None = None
    """The first release that no longer fits, where it can be dated."""

    @property
    def last(self) -> datetime | None:
        """The last release that fits, where it can be dated."""
        return self.steps[-1][0] if self.steps and self.refused else None


def forecast_of(spec: ReleaseSpec, state: LedgerState, *, past: Sequence[datetime], now: datetime) -> Forecast:
    """Go on with the present cost: on the schedule's days, else in the rhythm of the releases so far.

    A month is released once, so a schedule counts for one release a month; the month of the last
    firing, where it has none yet, counts as of now. Other specifications that share the population
    are not foreseen.
    Raises: SpecError where the specification cannot be planned.
    """
    plan, population = plan_release(spec), spec.privacy.population
    first = next_month(spec, state, now)
    standing = Standing.of(spec, state, plan, first)
    balance, left = standing.balance, standing.left(plan, first)
    rhythm, coming = _scheduled(spec, state, now, left) if spec.schedule.cron else _repeated(past, now)
    dates = list(islice(coming, MONTHS_WITHOUT_END if left is None else min(left, MOST_MONTHS) + 1))
    steps, refused = _steps(balance, standing.cost(plan), dates)
    return Forecast(
        population=population,
        name=spec.name,
        each=release_statement(plan.cost, delta=balance.cap.delta),
        stated=stated_guarantee(spec, plan),
        rho=float(plan.cost.rho),
        left=left,
        rhythm=rhythm,
        steps=tuple(steps),
        refused=refused,
    )


def _steps(
    balance: Balance, each: Cost, dates: Sequence[datetime]
) -> tuple[list[tuple[datetime, float]], datetime | None]:
    """The releases that fit with the epsilon after each, and the first that does not; each is of the month before."""
    steps: list[tuple[datetime, float]] = []
    for date in dates:
        balance = balance.adding(month_number(month_before(date.date())), each)
        if not balance.is_admitted:
            return steps, date
        steps.append((date, float(balance.statement.epsilon)))
    return steps, None


def _scheduled(
    spec: ReleaseSpec, state: LedgerState, now: datetime, left: int | None
) -> tuple[str, Iterator[datetime]]:
    """The schedule in words, and when it charges a month; a late month for which nothing is left has no date."""
    schedule = spec.schedule
    words = f"the first of each month that the schedule {schedule.cron!r} ({schedule.timezone}) meets"
    coming = [
        month for month in coming_months(spec, state, now) if not month.is_charged and (left != 0 or not month.is_late)
    ]
    if coming and coming[0].is_late:
        words += f", and now for {coming[0].period}, which has no release yet"
    return words, (month.due for month in coming)


def _repeated(past: Sequence[datetime], now: datetime) -> tuple[str, Iterator[datetime]]:
    """The rhythm of the releases so far in words, and the dates on which it goes on."""
    days = [(later - earlier).total_seconds() / 86400 for earlier, later in pairwise(past)]
    apart = [gap for gap in days if gap >= 1]
    if not apart:
        return "", iter(())
    gap = max(1, round(median(apart)))
    step = timedelta(days=gap)
    first = max(past[-1] + step, now)
    coming = (first + step * count for count in range(MOST_MONTHS * 31 // gap))
    return f"one every {gap} days, the median so far", coming
