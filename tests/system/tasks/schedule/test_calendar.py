"""Firings and due months against Prefect's own schedule, which is what will fire."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from tasks.schedule.calendar import firings, month_before, periods_due
from tasks.spec.cron import valid_cron

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Santiago")
ONE_YEAR = timedelta(days=365)


def prefect_firings(cron: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """What Prefect will schedule; it gives at most about a thousand dates, so the window must be short.

    On days when clocks skip an hour it depends on Python's version: those are left out, here and in `ours`.
    """
    from prefect.server.schemas.schedules import CronSchedule

    dates = asyncio.run(CronSchedule(cron=cron, timezone=zone).get_dates(start=start, end=end))
    assert len(dates) < 1000, "the oracle stops counting there"
    return without_skips([datetime.fromtimestamp(date.timestamp(), UTC) for date in dates], zone)


def ours(cron: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    return without_skips([firing.astimezone(UTC) for firing in firings(cron, zone, start, end)], zone)


def without_skips(moments: list[datetime], zone: str) -> list[datetime]:
    """Those around which the clocks do not go forward."""

    def offset(moment: datetime) -> timedelta:
        return moment.astimezone(ZoneInfo(zone)).utcoffset() or timedelta(0)

    hours = timedelta(hours=3)
    return [moment for moment in moments if offset(moment + hours) <= offset(moment - hours)]


PLAIN = {
    "six in the morning of every first": "0 6 1 * *",
    "either kind of day": "30 2 13 * fri",
    "a stepped day beside a weekday": "0 0 */10 * 1",
    "every day of the month beside a weekday": "0 0 1-31 * mon",
    "every weekday beside a day": "0 0 15 * 0-6",
    "every day of the month beside a starred weekday": "0 0 1-31 * */2",
    "a star among others": "0 0 *,1 * mon",
    "Sunday as 7": "0 12 * * 7",
    "a range up to Sunday as 7": "0 12 * * 5-7",
    "stepped weekdays": "15 3 * * */3",
    "quarters": "0 6 2 jan,apr,jul,oct *",
    "leap days": "0 0 29 2 *",
    "in the hour that clocks skip or repeat": "30 2 * * *",
    "around midnight": "0,59 0,23 * * *",
}


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.parametrize("case", PLAIN)
def test_a_schedule_fires_when_prefect_fires(case: str, zone: str) -> None:
    start = datetime(2027, 6, 10, 11, 30, tzinfo=UTC)
    days = 5 * 365 if case == "leap days" else 160
    end = start + timedelta(days=days)
    expected = prefect_firings(PLAIN[case], zone, start, end)
    assert expected
    assert ours(PLAIN[case], zone, start, end) == expected


def listed(most: int, size: int) -> st.SearchStrategy[str]:
    return st.lists(st.integers(0, most), min_size=1, max_size=size).map(lambda values: ",".join(map(str, values)))


minutes = st.one_of(st.just("*/20"), listed(59, 3))
hours = st.one_of(st.just("*/12"), listed(23, 2))
days = st.sampled_from(["*", "1", "31", "*/9", "28-31", "1,15", "2-20/6", "1-31"])
months = st.sampled_from(["*", "*/3", "3,10", "nov-dec", "2"])
weekdays = st.sampled_from(["*", "0", "7", "mon-wed", "*/2", "0-6", "1-7/2", "sat,sun"])
crons = st.builds(lambda *fields: " ".join(fields), minutes, hours, days, months, weekdays)


@given(cron=crons, zone=st.sampled_from(ZONES), offset=st.integers(0, 366 * 24 * 60))
def test_any_schedule_fires_when_prefect_fires(cron: str, zone: str, offset: int) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=offset)
    if start.astimezone(ZoneInfo(zone)).fold:  # Prefect forgets which of two equal hours it starts in
        start += timedelta(hours=1)
    end = start + timedelta(days=60)
    try:
        valid_cron(cron)
    except PydanticCustomError:
        return
    assert ours(cron, zone, start, end) == prefect_firings(cron, zone, start, end)


@given(cron=crons, zone=st.sampled_from(ZONES), offset=st.integers(0, 366 * 24 * 60))
def test_due_periods_are_the_months_before_all_firings_each_once(cron: str, zone: str, offset: int) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=offset)
    end = start + ONE_YEAR
    every = [month_before(firing.date()) for firing in firings(cron, zone, start, end)]
    assert list(periods_due(cron, zone, start, end)) == list(dict.fromkeys(every))


def test_a_time_that_clocks_skip_comes_later_and_one_that_comes_twice_fires_once() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    spring, autumn = datetime(2027, 3, 28, tzinfo=berlin), datetime(2027, 10, 31, tzinfo=berlin)
    day = timedelta(days=1)
    late = list(firings("30 2 * * *", "Europe/Berlin", spring, spring + day))
    assert [(f.hour, f.minute) for f in late] == [(3, 30)]
    assert len(list(firings("30 2,3 * * *", "Europe/Berlin", spring, spring + day))) == 1
    once = list(firings("30 2 * * *", "Europe/Berlin", autumn, autumn + day))
    assert [f.utcoffset() for f in once] == [timedelta(hours=2)]


@pytest.mark.parametrize("zone", [*ZONES, "Pacific/Apia", "America/St_Johns", "America/Havana", "Asia/Beirut"])
def test_firings_rise_and_stay_in_their_window_whatever_the_clocks_do(zone: str) -> None:
    start, end = datetime(2011, 1, 1, 0, 7, tzinfo=UTC), datetime(2012, 1, 2, 13, 1, tzinfo=UTC)
    found = ours("*/13 * * * *", zone, start, end)
    assert start <= found[0]
    assert found[-1] <= end
    assert all(earlier < later for earlier, later in pairwise(found))
    assert all(f.astimezone(ZoneInfo(zone)).minute % 13 == 0 for f in found if f.date() < datetime(2011, 3, 1).date())


def test_both_ends_of_the_window_belong_to_it() -> None:
    start, end = datetime(2026, 9, 1, 4, tzinfo=UTC), datetime(2026, 10, 1, 4, tzinfo=UTC)
    assert ours("0 6 1 * *", "Europe/Berlin", start, end) == [start, end]
    second = timedelta(seconds=1)
    assert ours("0 6 1 * *", "Europe/Berlin", start + second, end - second) == []


def test_a_period_is_the_last_complete_month_in_the_schedules_zone() -> None:
    """Half past midnight on the first of September in Auckland is still August in UTC."""
    window = datetime(2026, 8, 20, tzinfo=UTC), datetime(2026, 9, 5, tzinfo=UTC)
    assert list(periods_due("30 0 1 * *", "Pacific/Auckland", *window)) == ["2026-08"]
    assert list(periods_due("30 23 31 8 *", "Pacific/Auckland", *window)) == ["2026-07"]


def test_a_schedule_of_every_minute_is_not_counted_minute_by_minute() -> None:
    before = time.process_time()
    window = datetime(2000, 1, 9, tzinfo=UTC), datetime(2050, 1, 9, tzinfo=UTC)
    periods = list(periods_due("* * * * *", "Europe/Berlin", *window))
    assert time.process_time() - before < 2  # 26 million minutes take far longer
    assert (len(periods), periods[0], periods[-1]) == (601, "1999-12", "2049-12")
