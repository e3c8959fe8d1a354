"""The page of the papers' experiments: what it must name, and what it shows of results."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from benchmarks.papers import page
from benchmarks.papers.contents import PAPERS, PARTS

ITEMS = [item for paper in PAPERS for item in paper.items]
RESULTS = {
    "title": "one <table>",
    "methods": [
        {"name": "real data", "claims": "", "truly": "", "LR": {"mean": 0.9, "low": 0.8, "high": 1.0, "runs": 10}},
        {"name": "X, published, refuted", "claims": "1", "truly": "1.7", "LR": None},
    ],
    "printed": [{"where": "000, Table II", "method": "real data", "figure": ".286"}],
    "same_epsilon": [
        {
            "ours": "X, corrected",
            "theirs": "X, published, refuted",
            "score": "LR",
            "difference": {"mean": 0.1, "low": 0.05, "high": 0.15, "runs": 10},
            "verdict": "better",
        }
    ],
}


def test_every_part_is_a_module_and_is_shown() -> None:
    assert [part.name for part in PARTS if importlib.util.find_spec(part.command[0]) is None] == []
    shown = {item.part for item in ITEMS}
    assert {part.name for part in PARTS} - shown == set()
    assert shown - {part.name for part in PARTS} == {""}


def test_every_item_has_an_address_of_its_own() -> None:
    anchors = [item.anchor for item in ITEMS]
    assert len(set(anchors)) == len(anchors)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    monkeypatch.setattr(page, "FIGURES", tmp_path / "papers")
    (tmp_path / "papers").mkdir()
    return tmp_path


def test_the_page_shows_printed_figures_methods_and_comparisons(folder: Path) -> None:
    (folder / "papers" / "clustering.json").write_text(json.dumps(RESULTS))
    text = page.write_page({}).read_text()
    assert all(word in text for word in (".286", "0.900 ± 0.100", "+0.1000 [+0.0500, +0.1500]", "one &lt;table&gt;"))
    assert '<tr class="published">' in text


def test_what_has_no_results_is_said_to_have_none(folder: Path) -> None:
    text = page.write_page({}).read_text()
    assert text.count("No results yet.") == sum(bool(item.part) for item in ITEMS)
