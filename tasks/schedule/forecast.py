"""When a population's budget is used up, if releases go on as the specification has them now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import chain, pairwise
from statistics import median

from dpcore.accounting import Cap, Cost, Statement, population_balance, release_statement, times
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.state import LedgerState
from tasks.schedule.calendar import firings, month_before, periods_due
from tasks.spec import ReleaseSpec
from tasks.spec.plan import cap_of, plan_release, stated_guarantee

MONTHLY = "0 0 1 * *"
"""How a specification without a cron schedule is read where months are counted: a release of every month."""

LONGEST_WAIT = timedelta(days=366)
"""A firing that lies longer back is not waited for."""

FARTHEST = timedelta(days=366 * 40)
MOST_DATES = 480
"""Forty years of months: what lies beyond is not told as a date."""


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
    left: int
    """Further releases that fit."""
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


def overdue_period(spec: ReleaseSpec, state: LedgerState, now: datetime) -> str | None:
    """The month of the last firing, if the ledger has no release of it: it may still come, and costs as much."""
    schedule = spec.schedule
    fired = list(periods_due(schedule.cron or MONTHLY, schedule.timezone, now - LONGEST_WAIT, now))
    return fired[-1] if fired and not state.of_period(spec.name, fired[-1]) else None


def forecast_of(spec: ReleaseSpec, state: LedgerState, *, past: Sequence[datetime], now: datetime) -> Forecast:
    """Go on with the present cost: on the schedule's days, else in the rhythm of the releases so far.

    A month is released once, so a schedule counts for one release a month; the month of the last
    firing, where it has none yet, counts as of now. Other specifications that share the population
    are not foreseen.
    Raises: SpecError where the specification cannot be planned.
    """
    plan, population = plan_release(spec), spec.privacy.population
    known = state.populations.get(population)
    cap = known.cap if known else cap_of(spec)
    committed = state.committed(population)
    left = cap.releases_left(committed, plan.cost)
    rhythm, coming = _rhythm(spec, state, past, now, late=overdue_period(spec, state, now) if left else None)
    dates = [date for date, _ in zip(coming, range(min(left, MOST_DATES) + 1), strict=False)]
    return Forecast(
        population=population,
        name=spec.name,
        each=release_statement(plan.cost, delta=cap.delta),
        stated=stated_guarantee(spec, plan),
        rho=float(plan.cost.rho),
        left=left,
        rhythm=rhythm,
        steps=tuple(_steps(cap, committed, plan.cost, dates[:left])),
        refused=dates[left] if left < len(dates) else None,
    )


def _steps(cap: Cap, committed: Cost, each: Cost, dates: Sequence[datetime]) -> Iterator[tuple[datetime, float]]:
    for count, date in enumerate(dates, start=1):
        yield date, float(population_balance(committed + times(each, count), delta=cap.delta).epsilon)


def _rhythm(
    spec: ReleaseSpec, state: LedgerState, past: Sequence[datetime], now: datetime, *, late: str | None
) -> tuple[str, Iterator[datetime]]:
    schedule = spec.schedule
    if schedule.cron is not None:
        words = f"the first of each month that the schedule {schedule.cron!r} ({schedule.timezone}) meets"
        if late:
            words += f", and now for {late}, which has no release yet"
        due = (
            (date.astimezone(UTC), month_before(date.date()))
            for date in _scheduled(schedule.cron, schedule.timezone, now)
        )
        dates = (date for date, period in due if period != late and not _is_counted(spec, state, period))
        return words, chain([now.astimezone(UTC)] if late else [], dates)
    days = [(later - earlier).total_seconds() / 86400 for earlier, later in pairwise(past)]
    apart = [gap for gap in days if gap >= 1]
    if not apart:
        return "", iter(())
    gap = max(1, round(median(apart)))
    return f"one every {gap} days, the median so far", _repeated(past[-1], timedelta(days=gap), now)


def _scheduled(cron: str, timezone: str, now: datetime) -> Iterator[datetime]:
    """The first firing in each month to come, in the schedule's time zone."""
    start, end = now, now + FARTHEST
    while (firing := next(firings(cron, timezone, start, end), None)) is not None:
        yield firing
        start = _next_month(firing)


def _is_counted(spec: ReleaseSpec, state: LedgerState, period: str) -> bool:
    """Whether a period has its release, or a reservation that another run takes up: it is not charged again."""
    return any(release.status != ReleaseStatus.REFUSED for release in state.of_period(spec.name, period))


def _next_month(moment: datetime) -> datetime:
    first = (moment.date().replace(day=28) + timedelta(days=4)).replace(day=1)
    return datetime.combine(first, time(), moment.tzinfo)


def _repeated(last: datetime, gap: timedelta, now: datetime) -> Iterator[datetime]:
    date = max(last + gap, now)
    while date <= now + FARTHEST:
        yield date
        date += gap
