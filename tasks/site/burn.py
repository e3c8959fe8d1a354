"""A drawing of the budget over time: epsilon spent, the cap, and the forecast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup

from tasks.report.wording import number, rounded_up
from tasks.site.svg import (
    LETTER,
    Scale,
    calendar_ticks,
    day_number,
    path_of,
    round_ticks,
    staircase,
    svg_drawing,
    tag,
    text,
)

Line = Sequence[tuple[datetime, float]]
MOST_POINTS = 600
WIDE, NARROW = 1010, 330
"""Widths in pixels for large and small screens: text has the same size on both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    """The lines of the drawing: steps of epsilon over time."""

    spent: Line
    caps: Line
    coming: Line = ()
    refused: Line = ()
    """When the budget refused a release, and the cap at that time."""
    now: datetime

    @property
    def moments(self) -> list[datetime]:
        """All times on the drawing."""
        lines = (self.spent, self.caps, self.coming, self.refused)
        return [moment for line in lines for moment, _ in line] + [self.now]

    @property
    def top(self) -> float:
        """The largest figure on the drawing."""
        return max([value for line in (self.spent, self.caps, self.coming) for _, value in line], default=1.0) or 1.0


@dataclass(frozen=True, slots=True)
class Axes:
    """The positions of times and figures on the drawing."""

    width: float
    height: float
    low: datetime
    high: datetime
    x: Scale
    y: Scale

    @staticmethod
    def of(burn: Burn, width: float, height: float) -> Axes:
        """Choose axes that contain everything, with room for labels."""
        low, high = min(burn.moments), max(burn.moments)
        room = max((high - low) * 0.03, timedelta(days=2))
        low, high = low - room, high + room
        left, bottom = 44.0, height - 44.0
        across = Scale(day_number(low), day_number(high), left, width - 10)
        return Axes(width, height, low, high, across, Scale(0.0, burn.top * 1.16, bottom, 14.0))

    def at(self, moment: datetime, value: float) -> tuple[float, float]:
        """Return the position of a figure."""
        return self.x(day_number(moment)), self.y(value)


def burn_svg(burn: Burn, *, width: float, alt: str) -> Markup:
    """Draw the budget at the given width."""
    height = 320.0 if width > 600 else 250.0
    axes = Axes.of(burn, width, height)
    parts = [*_grid(axes), *_coming(burn, axes), *_spent(burn, axes), *_cap(burn, axes), *_refusals(burn, axes)]
    return svg_drawing(width, height, alt, parts, kind="burn")


def _grid(axes: Axes) -> Iterator[str]:
    floor = axes.y(0.0)
    for value in round_ticks(0.0, axes.y.high, 5):
        y = axes.y(value)
        yield tag("line", x1=axes.x.first, x2=axes.x.last, y1=y, y2=y, class_="axis" if value == 0 else "grid")
        yield text(axes.x.first - 8, y + 4, number(value, 3), text_anchor="end")
    for moment, label, year in calendar_ticks(axes.low, axes.high, max(3, round(axes.width / 66))):
        x = axes.x(day_number(moment))
        yield tag("line", x1=x, x2=x, y1=floor, y2=floor + 5, class_="axis")
        yield text(x, floor + 19, label, text_anchor="middle")
        if year:
            yield text(x, floor + 35, year, text_anchor="middle", class_="faint")


def _thin(line: Line) -> Line:
    """Reduce the steps of a long line, keeping the first and the last."""
    step = max(1, len(line) // MOST_POINTS)
    return [*line[:-1:step], *line[-1:]]


def _spent(burn: Burn, axes: Axes) -> Iterator[str]:
    if not burn.spent:
        return
    known = [*_thin(burn.spent), (burn.now, burn.spent[-1][1])]
    corners = staircase([axes.at(*point) for point in known])
    floor = axes.y(0.0)
    outline = [(corners[0][0], floor), *corners, (corners[-1][0], floor)]
    yield tag("path", d=path_of(outline, closed=True), class_="area")
    yield tag("path", d=path_of([(corners[0][0], floor), *corners]), class_="spent")


def _coming(burn: Burn, axes: Axes) -> Iterator[str]:
    x, top = axes.x(day_number(burn.now)), axes.y.last
    if burn.coming:
        start = burn.spent[-1][1] if burn.spent else 0.0
        corners = staircase([axes.at(*point) for point in [(burn.now, start), *_thin(burn.coming)]])
        yield tag("path", d=path_of(corners), class_="coming")
    yield tag("line", x1=x, x2=x, y1=top, y2=axes.y(0.0), class_="now")
    outside = x > axes.x.last - 60
    yield text(x + (-6 if outside else 6), top + 10, "today", text_anchor="end" if outside else "start", class_="faint")


def _cap(burn: Burn, axes: Axes) -> Iterator[str]:
    """Draw the cap with its changes, and its figure above the line at each level."""
    if not burn.caps:
        return
    end = max(burn.moments) + timedelta(days=1)
    corners = staircase([axes.at(*point) for point in [*burn.caps, (end, burn.caps[-1][1])]])
    yield tag("path", d=path_of(corners), class_="cap")
    last = -1e9
    for moment, value in burn.caps:
        x, y = axes.at(moment, value)
        words = f"cap ε {rounded_up(value)}"
        if x - last > LETTER * len(words):
            yield text(x + 4, y - 8, words, class_="cap-label")
            last = x


def _refusals(burn: Burn, axes: Axes) -> Iterator[str]:
    for moment, cap in burn.refused:
        x, y = axes.at(moment, cap)
        yield tag("path", d=f"M{x - 5:.1f} {y - 5:.1f} l10 10 m0 -10 l-10 10", class_="refused")
