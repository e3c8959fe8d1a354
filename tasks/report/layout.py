"""The layout of a figure's plots: side by side, with room for the text around them.

Everything is measured once. Tick labels here do not depend on the size of their plot, so placing
a plot changes nothing; matplotlib's own layout engines measure repeatedly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

POINTS = 72.0
PAD, WIDE_PAD = 3.6, 7.0
"""Points around a plot; more if it is not the only one in its figure."""


class _Margins(NamedTuple):
    """Pixels that one plot needs around its frame."""

    left: float
    right: float
    bottom: float
    top: float


def arrange(figure: Any, renderer: Any) -> None:
    """Place a figure's plots in their grid, under its title and above its legend; nothing is cut off or overlaps."""
    alone = len(figure.axes) == 1 and not figure.texts
    pad = (PAD if alone else WIDE_PAD) * figure.dpi / POINTS
    places = [_grid_position(axes) for axes in figure.axes]
    needed = [_margins(axes, renderer) for axes in figure.axes]
    below, above = _legend_height(figure, renderer, pad), _title_height(figure, renderer, pad)
    width, height = figure.bbox.width, figure.bbox.height
    grid = figure.axes[0].get_gridspec()
    sides, ends = [[(0.0, 0.0)] * grid.ncols, [(0.0, 0.0)] * grid.nrows]
    for (row, column), margins in zip(places, needed, strict=True):
        sides[column] = max(sides[column][0], margins.left), max(sides[column][1], margins.right)
        ends[row] = max(ends[row][0], margins.top), max(ends[row][1], margins.bottom)
    across = _spans(width, sides, grid.get_width_ratios(), pad)
    down = _spans(height - below - above, ends, grid.get_height_ratios(), pad)
    for axes, (row, column) in zip(figure.axes, places, strict=True):
        (left, wide), (top, high) = across[column], down[row]
        bottom = height - above - top - high
        axes.set_position((left / width, bottom / height, wide / width, high / height))


def _grid_position(axes: Any) -> tuple[int, int]:
    spec = axes.get_subplotspec()
    return spec.rowspan.start, spec.colspan.start


def _margins(axes: Any, renderer: Any) -> _Margins:
    outer = axes.get_tightbbox(renderer, for_layout_only=True)
    inner = axes.get_window_extent(renderer)
    return _Margins(inner.x0 - outer.x0, outer.x1 - inner.x1, inner.y0 - outer.y0, outer.y1 - inner.y1)


def _legend_height(figure: Any, renderer: Any, pad: float) -> float:
    return max((legend.get_window_extent(renderer).height + pad for legend in figure.legends), default=0.0)


def _title_height(figure: Any, renderer: Any, pad: float) -> float:
    """Put the title at the top, and return the height that it takes."""
    for title in figure.texts:
        title.set_y(1 - pad / figure.bbox.height)
    return max((title.get_window_extent(renderer).height + 2 * pad for title in figure.texts), default=0.0)


def _spans(
    size: float, margins: Sequence[tuple[float, float]], ratios: Sequence[float], pad: float
) -> list[tuple[float, float]]:
    """Return start and length of each plot's frame in one direction; the ratios divide what the margins leave."""
    free = size - sum(map(sum, margins)) - 2 * pad * len(margins)
    spans, start = [], 0.0
    for (before, after), ratio in zip(margins, ratios, strict=True):
        length = max(free, 1.0) * ratio / sum(ratios)
        spans.append((start + pad + before, length))
        start += 2 * pad + before + length + after
    return spans
