"""Plots of a release record: what is drawn, and how."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tasks.report.canvas import COLOURS, draw_cached, figure_of, png_of, svg_of
from tasks.report.wording import DAYS_PER_UNIT, calendar_labels, is_number, plain_label

MOST_COLUMNS = 24
"""The most columns that the page and the overview draw; the rest are only counted."""

MOST_LEVELS = 12
MOST_BLOCKS = 12
MOST_LABELS = 30
MOST_NAMES = 128
"""The most rows of a correlation map; a larger image would add bytes but no information."""

_OVERVIEW_LEVELS = 10
_STEPS = [1, 2, 2.5, 5, 10]  # between ticks, up to a power of ten
_POSITIVE = (0x7F, 0x46, 0xD0)
_NEGATIVE = (0x0F, 0x8F, 0x66)
_UNKNOWN = (0x80, 0x80, 0x80, 0x60)

_FIRST_DAY, _LAST_DAY = -719_162.0, 2_932_896.0  # the years 1 and 9999, beyond which no calendar axis goes


# -- what is drawn -----------------------------------------------------------------


def shown_columns(columns: Sequence[dict[str, Any]], most: int = MOST_COLUMNS) -> list[dict[str, Any]]:
    """Return the columns to plot: all, or the label, the target and the first features."""
    by_weight = sorted(range(len(columns)), key=lambda i: columns[i].get("role", "feature") == "feature")
    return [columns[i] for i in sorted(by_weight[:most])]


def shown_levels(column: dict[str, Any], most: int = MOST_LEVELS) -> list[int]:
    """Return the indices of the levels to draw: all, or those with the largest synthetic share."""
    shares = column["synthetic"]["shares"]
    largest = sorted(range(len(shares)), key=lambda i: -_scaled(shares[i]))
    return sorted(largest[:most])


def is_nominal(column: dict[str, Any]) -> bool:
    """Whether a column of the record is a list of levels."""
    return "levels" in column


# -- whole plots ----------------------------------------------------------------------


@draw_cached
def column_svg(column: dict[str, Any], *, key: str, alt: str) -> str:
    """Draw one column: the synthetic rows and what was measured."""
    height = 42 + 28 * len(shown_levels(column)) if is_nominal(column) else 168
    with figure_of(300, height, key=key) as figure:
        _draw_column(figure.add_subplot(), column)
        return svg_of(figure, alt)


@draw_cached
def correlation_svg(names: Sequence[str], matrix: Sequence[Sequence[float | None]], *, key: str, alt: str) -> str:
    """Draw a correlation matrix as a map; strength is opacity, so it is readable on any background."""
    with figure_of(420, 400, key=key) as figure:
        axes = figure.add_subplot()
        axes.imshow(_correlation_pixels([row[:MOST_NAMES] for row in matrix[:MOST_NAMES]]), interpolation="none")
        _label_map(axes, names[:MOST_NAMES])
        return svg_of(figure, alt)


@draw_cached
def spectrum_svg(
    eigenvalues: Sequence[float], noise_level: float | None, limits: tuple[float, float], *, key: str, alt: str
) -> str:
    """Draw the eigenvalues of one class block, largest first, with the noise level."""
    with figure_of(300, 178, key=key) as figure:
        draw_spectrum(figure.add_subplot(), eigenvalues, noise_level, limits)
        return svg_of(figure, alt)


def utility_plot(record: dict[str, Any]) -> bytes:
    """Draw all marginals as one PNG: the synthetic rows and the noisy measurements."""
    columns = shown_columns(record["utility"]["columns"])
    across = min(4, len(columns))
    down = math.ceil(len(columns) / across)
    with figure_of(max(240 * across, 460), 84 + 176 * down, key="overview") as figure:
        for place, column in enumerate(columns, start=1):
            axes = figure.add_subplot(down, across, place)
            axes.set_title(_overview_title(column), loc="left", color=COLOURS["ink"], weight="bold")
            _draw_column(axes, column, most_levels=_OVERVIEW_LEVELS, longest=12)
        _title_overview(figure, record, shown=len(columns))
        return png_of(figure)


def spectrum_limits(blocks: Sequence[dict[str, Any]], noise_level: float | None) -> tuple[float, float]:
    """Return one vertical range for all class blocks, so that they can be compared."""
    values = [value for block in blocks for value in block["eigenvalues"] if is_number(value)]
    top = max([*values, 2 * (noise_level or 0.0), 0.0])
    bottom = min([*values, 0.0])
    return bottom * 1.15, top * 1.4 or 1.0


# -- marginals ---------------------------------------------------------------------


def _draw_column(axes: Any, column: dict[str, Any], most_levels: int = MOST_LEVELS, longest: int = 18) -> None:
    """Draw a column; names of levels are cut to `longest` characters."""
    if is_nominal(column):
        _draw_levels(axes, column, shown_levels(column, most_levels), longest)
    else:
        _draw_interval(axes, column)


def _draw_interval(axes: Any, column: dict[str, Any]) -> None:
    """Draw a histogram with the measured mean, its noise band and one standard deviation to either side."""
    unit = DAYS_PER_UNIT.get(column["kind"], 1.0)
    edges = [edge * unit for edge in column["synthetic"]["edges"]]
    shares = [_scaled(value) for value in column["synthetic"]["shares"]]
    _draw_bars(axes, edges, shares)
    top = max([*shares, 0.0]) or 1.0
    _draw_measured_mean(axes, column.get("measured") or {}, unit, top)
    axes.set_ylim(0, top * 1.3)
    axes.set_xlim(*_horizontal_limits(edges, column, unit))
    _style_interval_axes(axes, column["kind"])


def _draw_bars(axes: Any, edges: Sequence[float], heights: Sequence[float]) -> None:
    """Draw all bars of a histogram as one shape: one object per bar would be slow."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    bars = [
        [(left, 0.0), (left, height), (right, height), (right, 0.0), (left, 0.0)]
        for (left, right), height in zip(pairwise(edges), heights, strict=True)
    ]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    shape = Path([corner for bar in bars for corner in bar], codes * len(bars))
    colours = {"facecolor": COLOURS["synthetic"], "edgecolor": COLOURS["surface"]}
    axes.add_patch(PathPatch(shape, linewidth=0.7, **colours))


def _draw_measured_mean(axes: Any, measured: dict[str, Any], unit: float, top: float) -> None:
    if not is_number(measured.get("mean")):
        return
    mean, margin, sd = (_scaled(measured.get(name), unit) for name in ("mean", "mean_margin", "sd"))
    height = top * 1.17
    axes.axvspan(mean - margin, mean + margin, color=COLOURS["measured"], alpha=0.28, linewidth=0)
    axes.plot([mean, mean], [0, height], color=COLOURS["surface"], linewidth=3.6, solid_capstyle="butt")
    axes.plot([mean, mean], [0, height], color=COLOURS["measured"], linewidth=1.8, solid_capstyle="butt")
    if sd > 0:
        axes.errorbar(mean, height, xerr=sd, color=COLOURS["measured"], linewidth=1.4, capsize=3.5, capthick=1.4)
    axes.plot([mean], [height], "o", color=COLOURS["measured"], markersize=5)


def _scaled(value: Any, unit: float = 1.0) -> float:
    """Return a number in the unit of the axis; null and non-finite values count as 0."""
    return value * unit if is_number(value) else 0.0


def _horizontal_limits(edges: Sequence[float], column: dict[str, Any], unit: float) -> tuple[float, float]:
    """Return the public bounds, widened by at most half if noise moves the mean outside."""
    low, high = edges[0], edges[-1]
    room = (high - low) / 2
    measured = column.get("measured") or {}
    if is_number(measured.get("mean")):
        mean = _scaled(measured["mean"], unit)
        low, high = max(min(low, mean - room / 10), low - room), min(max(high, mean + room / 10), high + room)
    if column["kind"] in DAYS_PER_UNIT:
        return max(low, _FIRST_DAY), min(high, _LAST_DAY)
    return low, high


def _style_interval_axes(axes: Any, kind: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(3, steps=_STEPS))
    axes.yaxis.set_major_formatter(FuncFormatter(_percent))
    axes.grid(axis="y")
    if kind in DAYS_PER_UNIT:
        _style_calendar(axes)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=_STEPS))
        axes.xaxis.set_major_formatter(FuncFormatter(_tick))


def _style_calendar(axes: Any) -> None:
    from matplotlib.dates import AutoDateLocator, num2date

    low, high = axes.get_xlim()
    ticks = AutoDateLocator(minticks=3, maxticks=5).tick_values(num2date(low), num2date(high))
    inside = [tick for tick in ticks if low <= tick <= high]
    axes.set_xticks(inside, calendar_labels([num2date(tick) for tick in inside], days=high - low))


def _percent(value: float, _position: int | None = None) -> str:
    return f"{100 * value:g} %".replace("-", "−")


def _tick(value: float, _position: int | None = None) -> str:
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):g}{letter}".replace("-", "−")
    return f"{value:g}".replace("-", "−")


def _draw_levels(axes: Any, column: dict[str, Any], levels: Sequence[int], longest: int) -> None:
    """Draw a bar for the synthetic share of each level, and beside it the measured share with its margin."""
    places = list(range(len(levels)))
    shares = [_scaled(column["synthetic"]["shares"][i]) for i in levels]
    axes.barh([place - 0.13 for place in places], shares, height=0.42, color=COLOURS["synthetic"])
    _draw_measured_shares(axes, column.get("measured") or {}, levels)
    axes.axvline(0, color=COLOURS["faint"], linewidth=1)
    axes.set_yticks(places, [plain_label(column["levels"][i], longest) for i in levels], color=COLOURS["ink"])
    axes.set_ylim(len(levels) - 0.4, -0.6)
    _style_share_axis(axes)


def _draw_measured_shares(axes: Any, measured: dict[str, Any], levels: Sequence[int]) -> None:
    shares, margins = (_at(measured.get(name), levels) for name in ("shares", "margins"))
    points = [
        (place + 0.24, share, margin or 0.0)
        for place, (share, margin) in enumerate(zip(shares, margins, strict=True))
        if share is not None
    ]
    if points:
        places, centres, reach = zip(*points, strict=True)
        axes.errorbar(centres, places, xerr=reach, fmt="o", color=COLOURS["measured"], markersize=4.5, capsize=2.5)


def _at(values: Sequence[float | None] | None, levels: Sequence[int]) -> list[float | None]:
    """Return the finite values of some levels, None for those that are absent."""
    known = values or []
    return [known[i] if i < len(known) and is_number(known[i]) else None for i in levels]


def _style_share_axis(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.0), max(high, 0.02))
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=_STEPS))
    axes.xaxis.set_major_formatter(FuncFormatter(_percent))
    axes.grid(axis="x")
    axes.spines["bottom"].set_visible(False)


# -- correlation and spectrum ------------------------------------------------------


def _correlation_pixels(matrix: Sequence[Sequence[float | None]]) -> Any:
    import numpy as np

    return np.array([[_correlation_pixel(value) for value in row] for row in matrix], dtype=np.uint8)


def _correlation_pixel(value: float | None) -> tuple[int, int, int, int]:
    if value is None or not is_number(value):
        return _UNKNOWN
    return (*(_POSITIVE if value > 0 else _NEGATIVE), round(255 * min(abs(value), 1.0)))


def _label_map(axes: Any, names: Sequence[str]) -> None:
    """Label the rows and columns of a map if there is room."""
    for spine in axes.spines.values():
        spine.set(visible=True, color=COLOURS["rule"])
    if len(names) > MOST_LABELS:
        axes.set(xticks=[], yticks=[])
        return
    size = 10.5 if len(names) <= 16 else 8.5
    labels = [plain_label(name, 18) for name in names]
    axes.set_yticks(range(len(names)), labels, fontsize=size)
    axes.set_xticks(
        range(len(names)), labels, fontsize=size, rotation=90, rotation_mode="anchor", ha="right", va="center"
    )


def draw_spectrum(
    axes: Any,
    eigenvalues: Sequence[float],
    noise_level: float | None,
    limits: tuple[float, float],
    *,
    kept: int | None = None,
) -> None:
    """Draw bars for eigenvalues, largest first; those above the noise, or those that were kept, in colour."""
    values = [_scaled(value) for value in eigenvalues]
    floor = noise_level or 0.0
    strong = [value > floor if kept is None else place < kept for place, value in enumerate(values)]
    colours = [COLOURS["synthetic" if holds else "faint"] for holds in strong]
    axes.bar(range(1, len(values) + 1), values, width=0.72, color=colours)
    axes.axhline(0, color=COLOURS["faint"], linewidth=1)
    if floor > 0:
        axes.axhline(floor, color=COLOURS["measured"], linewidth=1.6, linestyle=(0, (4, 3)))
    step = max(1, math.ceil(len(values) / 5))
    axes.set_xticks(sorted({1, *range(step, len(values) + 1, step)}))
    axes.set_xlim(0.3, max(len(values), 8) + 0.7)
    _style_spectrum_axes(axes, floor, limits)


def _style_spectrum_axes(axes: Any, floor: float, limits: tuple[float, float]) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    if floor > 0:  # logarithmic above the noise, linear below it, so that negative values can be shown
        axes.set_yscale("symlog", linthresh=floor, linscale=0.7)
        axes.set_yticks(_decades(floor, limits[1]))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(_tick))
    axes.set_ylim(*limits)
    axes.grid(axis="y")
    axes.spines["bottom"].set_visible(False)


def _decades(floor: float, top: float) -> list[float]:
    first, last = math.ceil(math.log10(floor)), math.floor(math.log10(top))
    step = max(1, math.ceil((last - first + 1) / 4))
    return [0.0, *(10.0**power for power in range(first, last + 1, step))]


# -- the overview -----------------------------------------------------------------


def _overview_title(column: dict[str, Any]) -> str:
    count = len(column.get("levels", []))
    part = f" ({_OVERVIEW_LEVELS} of {count})" if count > _OVERVIEW_LEVELS else ""
    return plain_label(column["name"], 22 - len(part)) + part


def _title_overview(figure: Any, record: dict[str, Any], shown: int) -> None:
    """Add title and legend, and say how many columns are left out."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    title = f"{plain_label(record['name'], 40)} · {plain_label(record['period'], 20)}"
    count = len(record["utility"]["columns"])
    part = "" if shown == count else f" · {shown} of {count} columns"
    figure.suptitle(title + part, color=COLOURS["ink"], weight="bold", fontsize=14)
    handles = [
        Patch(color=COLOURS["synthetic"], label="synthetic rows"),
        Line2D([], [], color=COLOURS["measured"], marker="o", label="measured, with its noise"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
