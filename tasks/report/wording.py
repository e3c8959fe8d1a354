"""How the numbers, dates and hashes of a release record are written on a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tasks.spec.relations import at_least, at_most

ABSENT = "—"
DAYS_PER_UNIT = {"date": 1.0, "timestamp": 1 / 86_400e6}
"""Kinds of columns that count from 1970-01-01 UTC, with the days in one of their units."""

SMALL = 1e-3
"""Smaller numbers are written as a power of ten."""
_DIGITS_OF_POWERS = 3

LEAST_SHOWN = 5e-4
"""A smaller share of rows would be written as none of them."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SPANS = (("days", 1.0), ("hours", 1 / 24), ("minutes", 1 / 1440), ("seconds", 1 / 86_400))


def is_number(value: Any) -> bool:
    """Whether a value of the record is a finite number, not null and not a flag."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def number(value: Any, digits: int = 4) -> str:
    """Write a number with thousands separated, or as a power of ten if it is very small or very large."""
    if not is_number(value):
        return ABSENT if value is None or isinstance(value, float) else str(value)
    if value == 0:
        return "0"
    size = abs(value)
    if size < SMALL or size >= 1e15:
        return _power_of_ten(value)
    if isinstance(value, int) or size >= 10 ** (digits - 1):
        return _minus(f"{value:,.0f}")
    return _minus(f"{value:.{digits}g}")


def months_in_a_row(span: int | None) -> str:
    """Write the months that are protected together; nothing for all."""
    return "" if span is None else "one month" if span == 1 else f"{span} months in a row"


def further_releases(left: int | None) -> str:
    """Say how many more releases of one cost fit; None where months that leave the window make room for new ones."""
    return "one of this cost fits every month" if left is None else f"{left} more of this cost fit"


def rounded_up(value: Any, digits: int = 4) -> str:
    """Write a cost as `number` does, never smaller than it is."""
    return _toward(at_most, value, digits)


def rounded_down(value: Any, digits: int = 4) -> str:
    """Write a lower bound as `number` does, never larger than it is."""
    return _toward(at_least, value, digits)


def _toward(rounded: Callable[[float, int], str], value: Any, digits: int) -> str:
    if not is_number(value):
        return number(value, digits)
    shown = min(digits, _DIGITS_OF_POWERS) if abs(value) < SMALL else digits
    return number(float(rounded(value, shown)), digits)


def relation(figures: Mapping[str, float] | None) -> str:
    """Write the epsilon of a neighbour relation, rounded up, or that nothing is protected under it."""
    return "not protected" if figures is None else at_most(figures["epsilon"], 4)


def _power_of_ten(value: float) -> str:
    mantissa, exponent = f"{value:.{_DIGITS_OF_POWERS - 1}e}".split("e")
    factor = f"{float(mantissa):g}"
    power = "10" + str(int(exponent)).translate(_RAISED)
    return power if factor == "1" else _minus(f"{factor} × {power}")


def _minus(text: str) -> str:
    return text.replace("-", "−")


def share(value: Any, margin: Any = None) -> str:
    """Write a share, and its margin if there is one, as percentages with one decimal."""
    if not is_number(value):
        return ABSENT
    percent = f"{100 * value:.1f}" + (f" ± {100 * margin:.1f}" if is_number(margin) else "")
    return _minus(f"{percent} %")


def share_of_rows(value: float) -> str:
    """Write a share of rows with one decimal; what is neither none nor all of them is not written as if it were."""
    if 0 < value < LEAST_SHOWN:
        return f"less than {share(2 * LEAST_SHOWN)}"
    if 1 - LEAST_SHOWN < value < 1:
        return f"more than {share(1 - 2 * LEAST_SHOWN)}"
    return share(value)


def places(margin: Any) -> int | None:
    """Return the number of decimals that are meaningful beside a margin."""
    if not is_number(margin) or margin <= 0:
        return None
    return min(max(1 - math.floor(math.log10(margin)), 0), 8)


def quantity(value: Any, kind: str, decimals: int | None = None) -> str:
    """Write a value of an interval column: dates as dates, the time of day on a second line."""
    if not is_number(value):
        return ABSENT
    if kind not in DAYS_PER_UNIT:
        return number(value) if decimals is None else _minus(f"{value:,.{decimals}f}")
    try:
        moment = _EPOCH + timedelta(days=value * DAYS_PER_UNIT[kind])
    except OverflowError:
        return number(value)
    return f"{moment:%Y-%m-%d}" if kind == "date" else f"{moment:%Y-%m-%d}\n{moment:%H:%M} UTC"


def length(value: Any, kind: str, decimals: int | None = None) -> str:
    """Write the distance between two values of an interval column; for dates, in a suitable unit of time."""
    if kind not in DAYS_PER_UNIT or not is_number(value):
        return quantity(value, "numeric", decimals)
    days = value * DAYS_PER_UNIT[kind]
    unit, size = next((span for span in _SPANS if abs(days) >= span[1]), _SPANS[-1 if kind == "timestamp" else 0])
    return f"{number(days / size, 3)} {unit}"


def with_margin(value: Any, margin: Any, kind: str) -> str:
    """Write a measured value and its margin; for dates, the margin is on a line of its own."""
    text = quantity(value, kind, places(margin))
    if not (is_number(value) and is_number(margin)):
        return text
    return f"{text}{chr(10) if kind in DAYS_PER_UNIT else ' '}± {length(margin, kind, places(margin))}"


def calendar_labels(ticks: Sequence[datetime], *, days: float) -> list[str]:
    """Return labels for a calendar axis: what changes at each tick, and below it, once, what stays the same."""
    if days > 3 * 365:
        return [f"{tick.year}" for tick in ticks]
    upper, lower = ("{0:%H:%M}", "{0.day} {0:%b %Y}") if days <= 3 else ("{0.day} {0:%b}", "{0.year}")
    if days > 150:
        upper = "{0:%b}"
    labels, last = [], ""
    for tick in ticks:
        constant = lower.format(tick)
        labels.append(upper.format(tick) + (f"\n{constant}" if constant != last else ""))
        last = constant
    return labels


def moment(text: str) -> str:
    """Write an ISO 8601 time as people write it, in UTC."""
    try:
        parsed = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return text
    return f"{parsed.day} {parsed:%B %Y, %H:%M} UTC"


def short_hash(text: str | None) -> str:
    """Shorten a hash to its first twelve characters."""
    if not text:
        return ABSENT
    return text if len(text) <= 14 else text[:12] + "…"


def spaced(text: str) -> str:
    """Write a name from the record with spaces."""
    return text.replace("_", " ")


def plain_label(text: Any, most: int = 20) -> str:
    """Make a label that fits beside a plot: one printable line, cut if too long."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def finite_precision(privacy: Mapping[str, Any]) -> str:
    """Say what finite precision adds to a record's delta; for an approximate measurement this is not known."""
    proved = all(m["status"] == "proved" for m in privacy["measurements"])
    return (
        f"finite precision {at_most(privacy['delta_num'], 1)}" if proved else "approximate: neither of them is proved"
    )
