"""When a schedule fires, and which months its firings release: pure, from the cron expression alone.

Wall-clock times are those of the schedule's time zone, read as Prefect reads them: one that
the clocks skip comes as much later as they skip, one that comes twice fires the first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from tasks.spec.cron import CronFields, cron_fields

_DAY = timedelta(days=1)


def firings(cron: str, timezone: str, start: datetime, end: datetime) -> Iterator[datetime]:
    """Every firing from `start` to `end`, both included, in order and in the schedule's time zone."""
    fields, zone = cron_fields(cron), ZoneInfo(timezone)
    last = start.astimezone(UTC) - timedelta(microseconds=1)
    day = start.astimezone(zone).date()
    if _clocks_change(day - _DAY, zone):  # a time that they skipped may come on this day
        day -= _DAY
    while day <= end.astimezone(zone).date():
        if fields.fires_on(day):
            for moment in _instants(fields, day, zone):
                if moment > end:
                    return
                if moment > last:
                    yield moment.astimezone(zone)
                    last = moment
        day += _DAY


def periods_due(cron: str, timezone: str, start: datetime, end: datetime) -> Iterator[str]:
    """The months that the firings from `start` to `end` release, in order, each once."""
    return (period for _, period in monthly_firings(cron, timezone, start, end))


def monthly_firings(cron: str, timezone: str, start: datetime, end: datetime) -> Iterator[tuple[datetime, str]]:
    """The first firing for each month that is released from `start` to `end`, with that month, in order.

    A firing releases the last month that is complete in the schedule's time zone. Only the
    first firing of each month is looked for, so a schedule of every minute costs no more.
    """
    latest = ""
    while (firing := next(firings(cron, timezone, start, end), None)) is not None:
        period = month_before(firing.date())
        if period > latest:  # where clocks are set back over the end of a month, it begins twice
            yield firing, period
            latest = period
        next_month = (firing.date().replace(day=28) + timedelta(days=4)).replace(day=1)
        start = datetime.combine(next_month, time(), firing.tzinfo)


def month_before(day: date) -> str:
    """The month that was complete on a day, as periods are written."""
    return f"{day.replace(day=1) - _DAY:%Y-%m}"


def _instants(fields: CronFields, day: date, zone: ZoneInfo) -> Iterator[datetime]:
    """The firings that a day's wall-clock times stand for, in UTC and in order.

    Skipped times fall among later ones, so a day on which the clocks change is sorted; any
    other day is not built whole, which would make a schedule of every minute slow.
    """
    wall = (datetime.combine(day, time(hour, minute), zone) for hour in fields.hours for minute in fields.minutes)
    moments = (moment.astimezone(UTC) for moment in wall)
    return iter(sorted(set(moments))) if _clocks_change(day, zone) else moments


def _clocks_change(day: date, zone: ZoneInfo) -> bool:
    midnight = datetime.combine(day, time(), zone)
    return midnight.utcoffset() != (midnight + _DAY).utcoffset()
