"""The lineage of a release as a drawing with links: stages from top to bottom, each beside what it wrote.

The privacy line is drawn below the last stage that reads rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

from markupsafe import Markup

from tasks.lineage.events import DESCRIPTIONS
from tasks.lineage.graph import Graph, spends_in_words
from tasks.report.wording import plain_label
from tasks.site.svg import LETTER, svg_drawing, tag, text

PRIVATE_STAGES = ("estimate", "score")
"""Stages that read raw rows; no later stage does."""
ROW, BOX = 62.0, 36.0
NOTE_LINE, NOTE_WIDTH = 16.0, 76
"""The height of a line of notes in pixels, and its characters."""
Href = Callable[[dict[str, Any]], str | None]
STATES = {"COMPLETE": "done", "FAIL": "broken", "ABORT": "broken"}


@dataclass(frozen=True, slots=True)
class Columns:
    """The positions of stages, datasets and notes, and the width of the drawing."""

    stage: tuple[float, float]
    dataset: tuple[float, float]
    notes: float | None
    width: float


WIDE = Columns(stage=(6, 150), dataset=(300, 190), notes=520, width=1010)
NARROW = Columns(stage=(2, 96), dataset=(172, 154), notes=None, width=330)


@dataclass(slots=True)
class Layout:
    """The row of every node."""

    stages: list[dict[str, Any]]
    rows: dict[str, float] = field(default_factory=dict)
    datasets: list[dict[str, Any]] = field(default_factory=list)
    line: float | None = None
    height: float = 0.0


def lineage_svg(graph: Graph, href: Href, *, columns: Columns, alt: str) -> Markup:
    """Draw the lineage; `href` returns the page or file that a node links to."""
    layout = _lay_out(graph, columns)
    parts = [
        *_privacy_line(layout, columns),
        *(_edge(layout, columns, edge["from"], edge["to"]) for edge in graph["edges"]),
        *(part for node in layout.stages for part in _stage(layout, columns, node, href)),
        *(part for node in layout.datasets for part in _dataset(layout, columns, node, href)),
    ]
    return svg_drawing(columns.width, layout.height, alt, parts, kind="lineage", clickable=True)


# ---------------------------------------------------------------- layout


def _lay_out(graph: Graph, columns: Columns) -> Layout:
    """Give each stage a row; put datasets beside the stage that wrote them, inputs beside their first reader."""
    layout = Layout([node for node in graph["nodes"] if node["kind"] == "stage"])
    wrote = {edge["to"]: edge["from"] for edge in reversed(graph["edges"])}
    read = {edge["from"]: edge["to"] for edge in reversed(graph["edges"])}
    last_private = [stage["id"] for stage in layout.stages if stage["name"] in PRIVATE_STAGES][-1:]
    y = 8.0
    for stage in layout.stages:
        mine = [n for n in graph["nodes"] if n["kind"] == "dataset" and _home(n["id"], wrote, read) == stage["id"]]
        layout.rows[stage["id"]] = y
        for place, dataset in enumerate(mine):
            layout.rows[dataset["id"]] = y + place * (BOX + 10)
            layout.datasets.append(dataset)
        notes = NOTE_LINE * len(_note_lines(stage)) if columns.notes is not None else 0.0
        y += max(ROW + max(len(mine) - 1, 0) * (BOX + 10), notes + 24)
        if [stage["id"]] == last_private:
            layout.line = y - 2
            y += 26
    layout.height = y - (ROW - BOX) + 10
    return layout


def _home(dataset: str, wrote: dict[str, str], read: dict[str, str]) -> str | None:
    return wrote.get(dataset) or read.get(dataset)


# ---------------------------------------------------------------- parts


def _privacy_line(layout: Layout, columns: Columns) -> Iterator[str]:
    if layout.line is None:
        return
    y = layout.line
    yield tag("line", x1=0.0, x2=columns.width, y1=y, y2=y, class_="privacy")
    words = "privacy line: no raw rows are read below" if columns.notes else "no raw rows below"
    yield text(columns.width - 2, y - 7, words, text_anchor="end", class_="privacy-label")


def _edge(layout: Layout, columns: Columns, source: str, target: str) -> str:
    """Draw an arrow from a stage to what it wrote, or from data to a stage that read them."""
    if source not in layout.rows or target not in layout.rows:
        return ""
    right, left = columns.stage[0] + columns.stage[1], columns.dataset[0]
    if source.startswith("job:"):
        y = layout.rows[source] + BOX / 2 - 6
        end = layout.rows[target] + BOX / 2 - 6
        return _arrow(right, y, left - 2, end)
    return _arrow(left, layout.rows[source] + BOX / 2 + 7, right + 2, layout.rows[target] + BOX / 2 + 7)


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    bend = (x1 + x2) / 2
    curve = f"M{x1:.1f} {y1:.1f} C{bend:.1f} {y1:.1f} {bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    back = 6 if x1 < x2 else -6
    head = f"M{x2 - back:.1f} {y2 - 4:.1f} L{x2:.1f} {y2:.1f} L{x2 - back:.1f} {y2 + 4:.1f}"
    return tag("path", d=curve, class_="edge") + tag("path", d=head, class_="edge")


def _stage(layout: Layout, columns: Columns, node: dict[str, Any], href: Href) -> Iterator[str]:
    y, (x, width) = layout.rows[node["id"]], columns.stage
    state = STATES.get(node.get("state", ""), "open")
    words = f"{'✕ ' if state == 'broken' else ''}{node['name']}"
    box = tag("rect", x=x, y=y, width=width, height=BOX, rx=18.0, class_=f"stage {state}")
    inside = box + text(x + width / 2, y + BOX / 2 + 4.5, plain_label(words, 14), text_anchor="middle", class_="ink")
    yield _link_if_any(inside, href(node), f"stage {node['name']}, {state}")
    if columns.notes is not None:
        lines = _note_lines(node)
        top = y + max(BOX / 2 + 4.5 - NOTE_LINE / 2 * (len(lines) - 1), 10.0)
        for place, line in enumerate(lines):
            yield text(columns.notes, top + NOTE_LINE * place, plain_label(line, NOTE_WIDTH), class_="note-text")


def _note_lines(node: dict[str, Any]) -> list[str]:
    return [line for note in _notes(node) for line in wrap(note, NOTE_WIDTH, break_on_hyphens=False)]


def _notes(node: dict[str, Any]) -> Iterator[str]:
    """Yield what a stage does, guarantees and spends."""
    if node["name"] in DESCRIPTIONS:
        yield DESCRIPTIONS[node["name"]]
    yield from spends_in_words(node)


def _dataset(layout: Layout, columns: Columns, node: dict[str, Any], href: Href) -> Iterator[str]:
    y, (x, width) = layout.rows[node["id"]], columns.dataset
    private = node["name"] == "landing"
    target = None if private else href(node)
    box = tag("rect", x=x, y=y, width=width, height=BOX, rx=7.0, class_="dataset private" if private else "dataset")
    label = plain_label(str(node["name"]).replace("-", " "), int(width / LETTER) - 2)
    place = {"text_anchor": "middle", "class_": "ink" if target is None else "link"}
    yield _link_if_any(box + text(x + width / 2, y + BOX / 2 + 4.5, label, **place), target, f"data: {node['name']}")


def _link_if_any(inside: str, target: str | None, label: str) -> str:
    return inside if target is None else tag("a", inside, href=target, aria_label=label)
