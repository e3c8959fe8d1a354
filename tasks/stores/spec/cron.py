"""Five-field cron expressions, in the plain dialect that every scheduler reads alike."""

from __future__ import annotations

import calendar
import re

from tasks.stores.spec.refusals import refuse, shown

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


def valid_cron(expression: str) -> str:
    """The expression, if it has five fields that can all be met."""
    fields = expression.lower().split()
    if len(fields) != len(_FIELDS):
        refuse("cron", f"{shown(expression)} has {len(fields)} fields instead of five", _HINT)
    met = [_values(text, *field) for text, field in zip(fields, _FIELDS, strict=True)]
    longest = max(calendar.monthrange(2024, month)[1] for month in met[3])  # 2024 is a leap year
    if fields[4] == "*" and min(met[2]) > longest:
        refuse("cron", f"{shown(expression)} never comes: no such day in these months", _HINT)
    return expression


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
