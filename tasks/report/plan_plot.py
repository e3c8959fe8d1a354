"""The plot of a plan: the budget left after each coming release, and the error by epsilon."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from tasks.report.canvas import COLOURS, figure_of, png_of, svg_of
from tasks.schedule.outlook import Alternative, Outlook, readable_error
from tasks.spec.relations import at_most

MOST_TICKS = 13
_WIDTH, _HEIGHT = 820, 350
_MEASURES = {
    "mean_percent_of_range": "a mean, in % of its range",
    "share_points": "a share, in percentage points",
}
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
# As the report's style sheet has them, for readers whose screen is dark.
_DARK = {
    "synthetic": "#6d9ff0",
    "measured": "#f2a654",
    "ink": "#e8ecf2",
    "muted": "#a9b3c1",
    "rule": "#2c3643",
    "faint": "#77839a",
    "surface": "#181f29",
}


def plan_svg(outlook: Outlook) -> str:
    """Draw the plot as a self-contained SVG file with title and description, for light and dark screens."""
    with _drawn(outlook) as figure:
        return _standalone(svg_of(figure, _title(outlook)), _title(outlook), description(outlook))


def plan_png(outlook: Outlook) -> bytes:
    """Draw the plot as a PNG on white."""
    with _drawn(outlook) as figure:
        return png_of(figure)


def description(outlook: Outlook) -> str:
    """Describe the plot in words."""
    cap = f"a cap of epsilon {at_most(outlook.cap.epsilon)}"
    allowed = sum(step.allowed for step in outlook.year)
    ends = f"the cap is reached in {outlook.cap_reached}" if outlook.cap_reached else "the cap is not reached"
    others = "; ".join(
        f"epsilon {at_most(other.epsilon)}: {_left(other)} releases left, noise {_size(other)[1]:.2g}"
        for other in outlook.alternatives
    )
    return (
        f"Left: what remains of {cap} after each coming release; {allowed} of {len(outlook.year)} releases are "
        f"allowed, {ends}. Right: the largest standard deviation of the noise of {_size(outlook.present)[0]}, by "
        f"epsilon per release: {others}."
    )


def _left(other: Alternative) -> str:
    """How many more releases fit."""
    return "unlimited" if other.releases_left is None else str(other.releases_left)


def _title(outlook: Outlook) -> str:
    return f"Plan of {outlook.spec.name}: the next {outlook.months} months"


@contextmanager
def _drawn(outlook: Outlook) -> Iterator[Any]:
    with figure_of(_WIDTH, _HEIGHT, key="plan") as figure:
        burn, trade = figure.subplots(1, 2, gridspec_kw={"width_ratios": [3, 2]})
        _draw_burn_down(burn, outlook)
        _draw_trade(trade, outlook)
        yield figure


# -- the burn-down -----------------------------------------------------------------


def _draw_burn_down(axes: Any, outlook: Outlook) -> None:
    """Draw a bar of what is left after each release, in a frame as high as the cap; mark refused releases."""
    cap = float(outlook.cap.epsilon)
    places = range(len(outlook.year))
    left = [max(0.0, cap - float(step.spent.epsilon)) for step in outlook.year]
    axes.bar(places, [cap] * len(left), width=0.78, color=COLOURS["rule"])
    colours = [COLOURS["synthetic" if step.allowed else "faint"] for step in outlook.year]
    axes.bar(places, left, width=0.78, color=colours)
    axes.axhline(cap, color=COLOURS["measured"], linewidth=1.4, linestyle=(0, (4, 3)))
    axes.set_title("Budget left after each release", loc="left", color=COLOURS["ink"], weight="bold")
    axes.set_ylabel("epsilon", color=COLOURS["muted"])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylim(0, cap * 1.16)
    axes.set_xlim(-0.6, max(len(left), 1) - 0.4)
    axes.text(-0.5, cap * 1.025, f"cap {at_most(cap)}", color=COLOURS["measured"], va="bottom")
    _mark_refused(axes, outlook, cap)
    _label_months(axes, [step.period for step in outlook.year])


def _mark_refused(axes: Any, outlook: Outlook, cap: float) -> None:
    refused = [place for place, step in enumerate(outlook.year) if not step.allowed]
    frame = {"facecolor": "none", "edgecolor": COLOURS["measured"], "linewidth": 1.0, "hatch": "//"}
    for bar in axes.bar(refused, cap, width=0.78, **frame):
        bar.set_hatch_linewidth(0.5)
    if refused:
        first, early = refused[0], refused[0] < len(outlook.year) * 0.6
        style = {"color": COLOURS["measured"], "weight": "bold", "va": "bottom", "ha": "left" if early else "right"}
        axes.text(first + (-0.4 if early else 0.4), cap * 1.025, f"refused from {outlook.cap_reached} on", **style)


def _label_months(axes: Any, periods: list[str]) -> None:
    """Write the months below their bars, each year once."""
    every = max(1, -(-len(periods) // MOST_TICKS))
    shown = list(range(0, len(periods), every))
    before = ["", *(periods[place] for place in shown)]
    labels = [_month_label(period, same_year=last[:4] == period[:4]) for last, period in pairwise(before)]
    axes.set_xticks(shown, labels)


def _month_label(period: str, *, same_year: bool) -> str:
    name = _MONTHS[int(period[5:]) - 1]
    return name if same_year else f"{name}\n{period[:4]}"


# -- error against epsilon ---------------------------------------------------------


def _size(other: Alternative) -> tuple[str, float]:
    """What the error is of, and how large it is: of means, or of shares where there are no means."""
    error = readable_error(other.plan)
    name = next(name for name in _MEASURES if name in error)
    return _MEASURES[name], error[name]


def _draw_trade(axes: Any, outlook: Outlook) -> None:
    """The noise of every alternative, with the releases that it leaves; the present one stands out."""
    from matplotlib.ticker import NullLocator

    others = outlook.alternatives
    epsilons, sizes = [float(other.epsilon) for other in others], [_size(other)[1] for other in others]
    axes.plot(epsilons, sizes, color=COLOURS["synthetic"], linewidth=1.6, marker="o", markersize=5)
    axes.set_xscale("log")
    axes.set_title(f"Noise of {_size(outlook.present)[0]}", loc="left", color=COLOURS["ink"], weight="bold")
    axes.set_xlabel("epsilon per release", color=COLOURS["muted"])
    axes.set_ylim(0, max(sizes) * 1.2)
    axes.set_xlim(epsilons[0] / 1.2, epsilons[-1] * 1.5)
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(axis="y")
    for other, epsilon, size in zip(others, epsilons, sizes, strict=True):
        _label_alternative(axes, other, epsilon, size, now=other.epsilon == outlook.spec.privacy.epsilon)


def _label_alternative(axes: Any, other: Alternative, epsilon: float, size: float, *, now: bool) -> None:
    words = f"now: {_left(other)}\nreleases left" if now else _left(other)
    colour = COLOURS["measured" if now else "muted"]
    if now:
        axes.plot([epsilon], [size], "o", color=colour, markersize=9)
    axes.annotate(
        words, (epsilon, size), xytext=(5, 6), textcoords="offset points", color=colour, weight="bold" if now else None
    )


# -- the SVG file -------------------------------------------------------------


def _standalone(element: str, title: str, words: str) -> str:
    """Turn an SVG element into a file: with namespaces, size, colours, background and a description."""
    head, _, body = element.partition("</title>")
    opening = re.sub(r' aria-label="[^"]*"', "", head[: head.index("<title>")])
    names = ' xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    labels = ' aria-labelledby="plan-title" aria-describedby="plan-words"'
    opening = opening.replace("<svg", f'<svg{names} width="{_WIDTH}pt" height="{_HEIGHT}pt"{labels}', 1)
    described = f'<title id="plan-title">{html.escape(title)}</title><desc id="plan-words">{html.escape(words)}</desc>'
    ground = '<rect width="100%" height="100%" style="fill: var(--surface)"/>'
    return f'<?xml version="1.0" encoding="utf-8"?>\n{opening}{described}<style>{_style()}</style>{ground}{body}\n'


def _style() -> str:
    light, dark = ("".join(f"--{name}: {colour}; " for name, colour in colours.items()) for colours in (COLOURS, _DARK))
    return (
        f"svg {{ {light}font-family: system-ui, 'DejaVu Sans', sans-serif; }} "
        f"@media (prefers-color-scheme: dark) {{ svg {{ {dark}}} }} "
    )
