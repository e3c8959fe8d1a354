"""One page with the tables and figures of the papers' experiments, ordered by paper and figure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from benchmarks.common import RESULTS, Summary
from benchmarks.papers.contents import PAPERS, PARTS, Item

FIGURES = RESULTS / "papers"
"""Where the parts write their results and plots."""

COUNTED = frozenset({"name", "claims", "truly"})


def write_page(finished: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write the page from the results that are there; what is missing is named in its place."""
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = (Path(__file__).parent / "page.html.j2").read_text()
    papers = [
        {"key": paper.key, "title": paper.title, "items": [_section(item, finished) for item in paper.items]}
        for paper in PAPERS
    ]
    runs = [{"name": part.name, **finished[part.name]} for part in PARTS if part.name in finished]
    path = RESULTS / "papers.html"
    path.write_text(template.from_string(source).render(papers=papers, runs=runs))
    return path


def _section(item: Item, finished: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the page shows of one table or figure of a paper."""
    ending = finished.get(item.part, {}) if item.part else {}
    found = [json.loads(path.read_text()) for name in item.results if (path := FIGURES / f"{name}.json").is_file()]
    return {
        "anchor": item.anchor,
        "title": item.title,
        "text": item.text,
        "not_remade": not item.part,
        "ending": ending,
        "tables": [table for results in found for table in _tables(results)],
        "plots": [_picture(name) for name in item.plots if (FIGURES / f"{name}.png").is_file()],
    }


def _tables(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tables of a results file: printed figures, methods, comparisons at the same epsilon, or plain rows."""
    made = []
    if results.get("printed"):
        rows = [(p["where"], p["method"], p["figure"]) for p in results["printed"]]
        made.append(_table("Printed in the papers, on their data", ["where", "method", "figure"], rows))
    if "methods" in results:
        made.append(_methods(results["title"], results["methods"]))
    if results.get("same_epsilon"):
        rows = [
            (line["ours"], line["theirs"], line["score"], _interval(line["difference"]), line["verdict"])
            for line in results["same_epsilon"]
        ]
        columns = ["ours", "theirs", "score", "gain of ours, 95 %", "ours is"]
        made.append(_table("At the same true ε", columns, rows))
    if "rows" in results:
        made.append(_table(results["title"], results["columns"], results["rows"]))
    if made and results.get("notes"):
        made[-1]["notes"] = results["notes"]
    return made


def _methods(title: str, methods: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    scores = list(dict.fromkeys(name for method in methods for name in method if name not in COUNTED))
    rows = [(m["name"], m["claims"], m["truly"], *(_cell(m.get(score)) for score in scores)) for m in methods]
    return _table(title, ["method", "claims", "true ε", *scores], rows)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return a table; a row is marked by the kind of method that it names."""
    marked = [{"kind": _kind(str(row[0])), "cells": [_cell(cell) for cell in row]} for row in rows]
    return {"title": title, "columns": columns, "rows": marked, "notes": []}


def _kind(method: str) -> str:
    named = {"published": "published", "refuted": "published", "real": "real", "library": "library"}
    return next((kind for word, kind in named.items() if word in method), "")


def _cell(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == {"mean", "low", "high", "runs"}:
        return str(Summary(**value))
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


def _interval(value: Mapping[str, float]) -> str:
    return f"{value['mean']:+.4f} [{value['low']:+.4f}, {value['high']:+.4f}]"


def _picture(name: str) -> str:
    return "data:image/png;base64," + base64.b64encode((FIGURES / f"{name}.png").read_bytes()).decode()
