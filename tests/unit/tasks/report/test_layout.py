"""Plots of a figure: nothing that is written around them is cut off or covers something else."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tasks.report.canvas import figure_of
from tasks.report.layout import arrange

DOT = 1.0
"""Pixels that a glyph may reach beyond its measured box."""


def one_plot(figure: Figure) -> None:
    figure.add_subplot().barh(["a level with a long name", "b"], [1, 2])


def a_map(figure: Figure) -> None:
    axes = figure.add_subplot()
    axes.imshow([[0, 1], [1, 0]])
    axes.set_yticks([0, 1], ["first", "a longer name"])
    axes.set_xticks([0, 1], ["first", "a longer name"], rotation=90)


def an_overview(figure: Figure) -> None:
    for place in range(1, 8):
        axes = figure.add_subplot(2, 4, place)
        axes.set_title(f"plot {place}", loc="left")
        axes.barh(["north", "a far away place"] if place == 3 else ["x", "y"], [100, 200_000])
    figure.suptitle("the title of all")
    figure.legend(handles=[figure.axes[0].plot([], [], label="a line")[0]], loc="outside lower center")


def two_of_unlike_width(figure: Figure) -> None:
    wide, narrow = figure.subplots(1, 2, gridspec_kw={"width_ratios": [3, 2]})
    wide.set_ylabel("epsilon")
    narrow.set_xlabel("epsilon a release")


def drawn(draw: Callable[[Figure], None]) -> tuple[Figure, list[Any]]:
    """A figure, and the boxes of its parts once it is drawn."""
    with figure_of(720, 360, key="test") as figure:
        draw(figure)
        canvas = FigureCanvasAgg(figure)
        arrange(figure, canvas.get_renderer())
        canvas.draw()
        parts = [*figure.axes, *figure.texts, *figure.legends]
        return figure, [part.get_tightbbox(canvas.get_renderer()) for part in parts]


every_figure = pytest.mark.parametrize("draw", [one_plot, a_map, an_overview, two_of_unlike_width])


@every_figure
def test_nothing_is_cut_off(draw: Callable[[Figure], None]) -> None:
    figure, boxes = drawn(draw)
    for box in boxes:
        assert box.x0 > -DOT
        assert box.y0 > -DOT
        assert box.x1 < figure.bbox.width + DOT
        assert box.y1 < figure.bbox.height + DOT


@every_figure
def test_nothing_covers_something_else(draw: Callable[[Figure], None]) -> None:
    _, boxes = drawn(draw)
    for one, other in combinations(boxes, 2):
        assert one.x1 < other.x0 or other.x1 < one.x0 or one.y1 < other.y0 or other.y1 < one.y0


@every_figure
def test_the_plots_fill_their_figure(draw: Callable[[Figure], None]) -> None:
    figure, boxes = drawn(draw)
    assert max(box.y1 for box in boxes) - min(box.y0 for box in boxes) > 0.9 * figure.bbox.height


def test_plots_of_a_grid_have_one_size_and_stand_in_line() -> None:
    figure, _ = drawn(an_overview)
    frames = [axes.get_position() for axes in figure.axes]
    assert {(round(f.width, 9), round(f.height, 9)) for f in frames} == {
        (round(frames[0].width, 9), round(frames[0].height, 9))
    }
    assert len({round(frame.y0, 9) for frame in frames}) == 2
    assert len({round(frame.x0, 9) for frame in frames}) == 4


def test_widths_follow_the_ratios() -> None:
    figure, _ = drawn(two_of_unlike_width)
    wide, narrow = (axes.get_position().width for axes in figure.axes)
    assert wide / narrow == pytest.approx(1.5)
