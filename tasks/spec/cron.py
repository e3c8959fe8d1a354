"""Five-field cron expressions, in the plain dialect that every scheduler reads alike."""

from __future__ import annotations

import calendar
import functools
import re
from dataclasses import dataclass
from datetime import date

from tasks.spec.refusals import refuse, shown

_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_FIELDS: list[tuple[str, int, int, dict[str, int]]] = [
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
]
_TERM = re.compile(r"(?:(?P<star>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>[0-9]{1,4}))?")
_HINT = 'minute, hour, day of month, month, day of week; "0 6 1 * *" is six in the morning of every first'


@dataclass(frozen=True, slots=True)
class CronFields:
    """What the five fields stand for, in order; weekdays as cron counts them, 0 for Sunday."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def fires_on(self, day: date) -> bool:
        """Whether a day is met; where both kinds of day are restricted, either will do, as cron has it."""
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        either = not (self.any_day or self.any_weekday)
        return day.month in self.months and (by_day or by_weekday if either else by_day and by_weekday)


def valid_cron(expression: str) -> str:
    """The expression, if it has five fields that can all be met."""
    fields = cron_fields(expression)
    longest = max(calendar.monthrange(2024, month)[1] for month in fields.months)  # 2024 is a leap year
    if min(fields.days) > longest:  # beside a weekday too: Prefect then finds no date at all
        refuse("cron", f"{shown(expression)} never occurs: these months have no such day", _HINT)
    return expression


@functools.lru_cache(maxsize=64)  # a year of firings asks for the same again and again
def cron_fields(expression: str) -> CronFields:
    """The numbers that each of an expression's fields stands for."""
    texts = expression.lower().split()
    if len(texts) != len(_FIELDS):
        refuse("cron", f"{shown(expression)} has {len(texts)} fields instead of five", _HINT)
    minutes, hours, days, months, weekdays = (_values(text, *field) for text, field in zip(texts, _FIELDS, strict=True))
    return CronFields(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(days),
        frozenset(months),
        frozenset(day % 7 for day in weekdays),
        any_day=_is_open(texts[2], texts[4], all_met=len(days) == 31),
        any_weekday=_is_open(texts[4], texts[2], all_met=len({day % 7 for day in weekdays}) == 7),
    )


def _is_open(text: str, other: str, *, all_met: bool) -> bool:
    """Whether a kind of day restricts nothing: a plain star, or as good as one beside a star (so Prefect reads it)."""
    return "*" in text.split(",") or (all_met and "*" in other)


def _values(text: str, field: str, lowest: int, highest: int, names: dict[str, int]) -> set[int]:
    """The numbers that one field stands for."""
    values: set[int] = set()
    for term in text.split(","):
        match = _TERM.fullmatch(term)
        if match is None or (match["step"] and match["first"] and not match["last"]):
            refuse("cron", f"{shown(text)} is not a {field}", _HINT)
        first = lowest if match["star"] else _number(match["first"], names)
        last = highest if match["star"] else _number(match["last"] or match["first"], names)
        step = int(match["step"] or 1)
        if not (lowest <= first <= last <= highest and step >= 1):
            refuse("cron", f"{shown(text)} is not a {field} between {lowest} and {highest}", _HINT)
        values.update(range(first, last + 1, step))
    return values


def _number(text: str, names: dict[str, int]) -> int:
    """The number of a name or a numeral; -1, which no field allows, for anything else."""
    return names.get(text, int(text) if re.fullmatch(r"[0-9]{1,4}", text) else -1)
