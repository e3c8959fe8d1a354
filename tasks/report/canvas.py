"""Figures without pyplot, files or clocks, and their rendering as SVG and PNG.

Plots are drawn in the colours of one palette. In SVG they become CSS variables of the
page, so that the same plot is readable on light and dark screens; in PNG they are fixed.
Text is never read as mathematics and never leaves the SVG unescaped.
"""

from __future__ import annotations

import functools
import gc
import html
import io
import json
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from tasks.report.layout import arrange

P = ParamSpec("P")

COLOURS = {
    "synthetic": "#2f68c5",
    "measured": "#b3500a",
    "ink": "#1b2430",
    "muted": "#566173",
    "rule": "#dfe3ea",
    "faint": "#828d9d",
    "surface": "#fefefe",
}

_VARIABLES = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
_PNG_COLOURS, _PNG_DPI = 128, 110
_drawing = threading.Lock()  # matplotlib's settings are shared by all threads


@contextmanager
def figure_of(width: float, height: float, *, key: str) -> Iterator[Any]:
    """Yield an empty figure of a size in points; `key` makes the identifiers in its SVG unique."""
    from matplotlib import rc_context, rcdefaults, rcParams
    from matplotlib.figure import Figure

    with _drawing, _uncollected(), warnings.catch_warnings(), rc_context():
        rcdefaults()  # a `matplotlibrc` in the current folder must not change a page
        rcParams.update(_settings(key))
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the page's own fonts draw it
        yield Figure(figsize=(width / 72, height / 72))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Suspend garbage collection: a figure has many objects, all in use until it is drawn."""
    wanted = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if wanted:
            gc.enable()


def _settings(key: str) -> dict[str, Any]:
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": key,
        "text.parse_math": False,
        "font.family": ["sans-serif"],
        "font.size": 11.0,
        "axes.titlesize": 11.5,
        "axes.edgecolor": COLOURS["faint"],
        "axes.axisbelow": True,
        "axes.spines.left": False,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.facecolor": "none",
        "grid.color": COLOURS["rule"],
        "grid.linewidth": 0.8,
        "text.color": COLOURS["muted"],
        "xtick.color": COLOURS["faint"],
        "ytick.color": COLOURS["faint"],
        "xtick.labelcolor": COLOURS["muted"],
        "ytick.labelcolor": COLOURS["muted"],
        "xtick.major.pad": 5,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "axes.titley": 1.0,  # otherwise it is computed anew at every measurement
    }


def png_of(figure: Any) -> bytes:
    """Render the figure as a PNG on white, without date or creator; few colours keep it small."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    figure.set(dpi=_PNG_DPI, facecolor="white")
    canvas, small = FigureCanvasAgg(figure), io.BytesIO()
    arrange(figure, canvas.get_renderer())
    canvas.draw()
    drawn = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba(), "raw", "RGBA", 0, 1)
    few = drawn.convert("RGB").quantize(_PNG_COLOURS, method=Image.Quantize.FASTOCTREE)
    few.save(small, format="png")
    return small.getvalue()


def svg_of(figure: Any, alt: str) -> str:
    """Render the figure as an SVG element for a page: labelled, scalable, without references to other files."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.StringIO()
    arrange(figure, FigureCanvasAgg(figure).get_renderer())
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    drawn = buffer.getvalue()
    body = re.sub(r"<[^>]+>", _page_tag, _inner(drawn))
    name = html.escape(alt)
    points_wide, points_high = figure.get_size_inches() * 72
    head = f'<svg class="plot" role="img" aria-label="{name}" viewBox="0 0 {points_wide:g} {points_high:g}">'
    return f"{head}<title>{name}</title>{body}</svg>"


@dataclass(frozen=True)
class _Call:
    """A call of a drawing function; two calls are equal if their arguments are the same JSON."""

    name: str
    arguments: str
    draw: Callable[[], str] = field(compare=False)


@functools.lru_cache(maxsize=256)
def draw_or_reuse(call: _Call) -> str:
    """Draw the plot of a call, or reuse it: report, audit and site show the same plots, and drawing is slow."""
    return call.draw()


def draw_cached(draw: Callable[P, str]) -> Callable[P, str]:
    """Decorate a plot that is a function of its JSON-serialisable arguments: equal plots are drawn once."""

    @functools.wraps(draw)
    def once(*args: P.args, **kwargs: P.kwargs) -> str:
        return draw_or_reuse(
            _Call(draw.__qualname__, json.dumps([args, kwargs]), functools.partial(draw, *args, **kwargs))
        )

    return once


def _inner(drawn: str) -> str:
    """Return what is between the outer SVG tags, without matplotlib's style sheet, which would apply to the page."""
    inside = drawn[drawn.index(">", drawn.index("<svg")) + 1 : drawn.rindex("</svg>")]
    without_style = re.sub(r"<style[^>]*>.*?</style>", "", inside, count=1, flags=re.DOTALL)
    return re.sub(r"\s*\n\s*", "\n", without_style)


def _page_tag(tag: re.Match[str]) -> str:
    """Give one tag the colours and font of the page, and remove identifiers that nothing refers to."""
    text = re.sub(r"#[0-9a-f]{6}(?=[;\"])", lambda colour: _VARIABLES.get(colour[0], colour[0]), tag[0])
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    if not text.startswith("<image"):  # a picture keeps its exact size
        text = re.sub(r"(\.\d\d)\d+", r"\1", text)
    return re.sub(r'^<g id="[^"]*"', "<g", text)
