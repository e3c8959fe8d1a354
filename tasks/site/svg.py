"""Building blocks for the site's SVG drawings: coloured by the page's style sheet, all text escaped."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from markupsafe import Markup

LETTER = 7.1
"""The approximate width of a letter in the drawings, in pixels."""

_MONTH_STEPS = (1, 2, 3, 6, 12, 24, 60, 120)
_DAY_STEPS = (1, 2, 5, 10)


def tag(name: str, inner: str = "", **attributes: Any) -> str:
    """Write an element; underscores in attribute names become hyphens, and attributes that are None are omitted."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    written = "".join(f' {key}="{html.escape(_attribute_text(value))}"' for key, value in given.items())
    return f"<{name}{written}>{inner}</{name}>"


def _attribute_text(value: Any) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def text(x: float, y: float, words: str, **attributes: Any) -> str:
    """Write a line of text."""
    return tag("text", html.escape(words), x=float(x), y=float(y), **attributes)


def svg_drawing(
    width: float, height: float, alt: str, parts: Iterable[str], *, kind: str, clickable: bool = False
) -> Markup:
    """Write a whole drawing: a labelled image, or a labelled group if it contains links."""
    name = html.escape(alt)
    role = "group" if clickable else "img"
    head = f'<svg class="drawing {kind}" role="{role}" aria-label="{name}" viewBox="0 0 {width:g} {height:g}">'
    return Markup(f"{head}{''.join(parts)}</svg>")  # noqa: S704  (built escaped)


def path_of(points: Sequence[tuple[float, float]], *, closed: bool = False) -> str:
    """Write a line through points as the `d` of a path."""
    moves = " ".join(f"{'L' if place else 'M'}{x:.1f} {y:.1f}" for place, (x, y) in enumerate(points))
    return moves + (" Z" if closed and points else "")


def staircase(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of a line that keeps each height until the next point."""
    corners = list(points[:1])
    for (_, before), (x, y) in pairwise(points):
        corners += [(x, before), (x, y)]
    return corners


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map from numbers to pixels."""

    low: float
    high: float
    first: float
    last: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a number; the middle if all numbers are the same."""
        span = self.high - self.low
        return self.first + (self.last - self.first) * ((value - self.low) / span if span else 0.5)


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most `most` round numbers between two numbers."""
    span = (high - low) or 1.0
    size = 10 ** math.floor(math.log10(span / most))
    step = next(step * size for step in (1, 2, 2.5, 5, 10, 20) if span / (step * size) <= most)
    return [n * step for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def day_number(moment: datetime) -> float:
    """Return a time on a continuous axis, in days."""
    return moment.timestamp() / 86400


def calendar_ticks(low: datetime, high: datetime, most: int) -> list[tuple[datetime, str, str]]:
    """Return days or first days of months between two times, their labels, and the year where it changes."""
    if (high - low).days <= 45:
        ticks, form = _days(low, high, most), "{0.day} {0:%b}"
    else:
        ticks, form = _months(low, high, most), "{0:%b}"
    labels, year = [], 0
    for tick in ticks:
        labels.append((tick, form.format(tick), f"{tick.year}" if tick.year != year else ""))
        year = tick.year
    return labels


def _days(low: datetime, high: datetime, most: int) -> list[datetime]:
    first = low.replace(hour=0, minute=0, second=0, microsecond=0)
    all_days = [first + timedelta(days=n) for n in range((high - first).days + 1)]
    inside = [day for day in all_days if low <= day <= high]
    step = next((step for step in _DAY_STEPS if len(inside) / step <= most), _DAY_STEPS[-1])
    return inside[::step]


def _months(low: datetime, high: datetime, most: int) -> list[datetime]:
    first, last = 12 * low.year + low.month - 1, 12 * high.year + high.month - 1
    step = next((step for step in _MONTH_STEPS if (last - first + 1) / step <= most), 240)
    found = [datetime(n // 12, n % 12 + 1, 1, tzinfo=UTC) for n in range(first, last + 1) if n % step == 0]
    return [month for month in found if low <= month <= high]
