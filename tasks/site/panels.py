"""Small multiples: one released figure over the months, with its noise band and marked changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tasks.site.svg import Scale, path_of, svg_drawing, tag, text

WIDTH, LEFT = 300.0, 64.0
MOST_POINTS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Period, value and margin of every month, and the months whose change is marked."""

    points: Sequence[tuple[str, float, float]]
    marks: Mapping[str, str]
    words: Callable[[float], str]
    small: bool = False
    dated: bool = True
    """Whether the first and the last period are written below; only the lowest of stacked panels needs them."""


def panel_svg(panel: Panel, *, alt: str) -> Markup:
    """Draw a panel; if there are very many months, the oldest are left out."""
    points = panel.points[-MOST_POINTS:]
    height = (48.0 if panel.small else 102.0) + (26.0 if panel.dated else 6.0)
    floor = height - (26.0 if panel.dated else 6.0)
    low = min((value - margin for _, value, margin in points), default=0.0)
    high = max((value + margin for _, value, margin in points), default=1.0)
    x = Scale(0.0, max(len(points) - 1.0, 1.0), LEFT + 10, WIDTH - 12)
    y = Scale(low, high, floor, 10.0)
    parts = [*_axis(panel, points, x, y, height), *_band(points, x, y), *_dots(panel, points, x, y)]
    return svg_drawing(WIDTH, height, alt, parts, kind="panel")


def _axis(panel: Panel, points: Sequence[tuple[str, float, float]], x: Scale, y: Scale, height: float) -> Iterator[str]:
    for value in (y.low, y.high):
        yield tag("line", x1=LEFT, x2=WIDTH, y1=y(value), y2=y(value), class_="grid")
        yield text(LEFT - 6, y(value) + 4, panel.words(value), text_anchor="end")
    if points and panel.dated:
        yield text(x(0), height - 6, points[0][0], text_anchor="start" if len(points) > 1 else "middle")
    if len(points) > 1 and panel.dated:
        yield text(WIDTH, height - 6, points[-1][0], text_anchor="end")


def _band(points: Sequence[tuple[str, float, float]], x: Scale, y: Scale) -> Iterator[str]:
    upper = [(x(i), y(value + margin)) for i, (_, value, margin) in enumerate(points)]
    lower = [(x(i), y(value - margin)) for i, (_, value, margin) in enumerate(points)]
    if len(points) == 1:
        yield tag("path", d=path_of([upper[0], lower[0]]), class_="whisker-line")
        return
    yield tag("path", d=path_of([*upper, *reversed(lower)], closed=True), class_="noise-band")
    yield tag("path", d=path_of([(x(i), y(value)) for i, (_, value, _) in enumerate(points)]), class_="series")


def _dots(panel: Panel, points: Sequence[tuple[str, float, float]], x: Scale, y: Scale) -> Iterator[str]:
    for place, (period, value, _) in enumerate(points):
        mark = panel.marks.get(period)
        if mark == "drift":  # a distinct shape, for readers who do not see colours
            left, top = x(place) - 5.0, y(value) - 5.0
            turned = f"rotate(45 {x(place):.1f} {y(value):.1f})"
            yield tag("rect", x=left, y=top, width=10.0, height=10.0, class_="dot drift", transform=turned)
        else:
            radius = 5.0 if mark else (2.4 if len(points) <= 36 else 0.0)
            yield tag("circle", cx=x(place), cy=y(value), r=radius, class_=f"dot {mark or 'plain'}")
