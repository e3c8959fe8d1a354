"""The pages of dpcore lead where they say: every link has its file, and every anchor its heading, function or test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import ROOT
from support.links import anchors, broken_links, links

DPCORE = ROOT / "dpcore"
README, GUARANTEE = DPCORE / "README.md", DPCORE / "GUARANTEE.md"
TITLE = re.compile(r"^## (.+)$", re.MULTILINE)


@pytest.mark.parametrize("page", sorted(DPCORE.glob("*.md")), ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []
    assert len(links(page)) > 20, "the links were found"


def test_a_link_to_what_is_not_there_is_found(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("LIMIT: int = 1\n\n\ndef draw():\n    inner = 2\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Two words, and more\n\n## Again\n\n## Again\n\n"
        "[a](#two-words-and-more) [b](#again-1) [c](module.py#draw) [d](module.py#LIMIT) [e](https://example.org/x)\n"
        "[f](#again-2) [g](gone.py) [h](module.py#inner) [i](page.md#two-words)\n"
        "```python\nnot_a[link](gone.md)\n```\n"
        "[j][there] [k][nowhere]\n\n[there]: module.py\n[nowhere]: nowhere.py\n"
    )
    assert broken_links(page) == ["#again-2", "gone.py", "module.py#inner", "page.md#two-words", "nowhere.py"]


def sections() -> dict[str, str]:
    """Each section of the guarantee with its text."""
    _, *parts = TITLE.split(GUARANTEE.read_text(encoding="utf-8"))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_contents_list_every_section_in_its_order() -> None:
    contents, *others = sections()
    listed = re.findall(r"^- \[(.+?)\]", sections()[contents], re.MULTILINE)
    assert listed == others


NO_THEOREM = {"Contents", "Known limits"}


@pytest.mark.parametrize("title", sorted(set(sections()) - NO_THEOREM))
def test_every_section_that_states_something_names_code_and_a_test(title: str) -> None:
    """Labelled statements (S1, M1, N1, ...) have a line of their own in the section's table."""
    text = sections()[title]
    labels = re.findall(rf"^(?:- )?\*\*({title[0]}\d+),", text, re.MULTILINE) if title[1:2] == "." else []
    lines = [re.search(rf"^\| {label} \|.*$", text, re.MULTILINE) for label in labels]
    assert all(lines), labels
    for references in [line.group() for line in lines if line] or [text]:
        assert re.search(r"\]\([\w/.]+\.py(#\w+)?\)", references), references
        assert re.search(r"\]\(\.\./tests/[\w/]+/test_\w+\.py#test_\w+\)", references), references


def test_the_readme_has_a_paragraph_for_every_chapter() -> None:
    chapters = {path.stem for path in DPCORE.iterdir() if path.is_dir() or path.suffix == ".py"}
    chapters -= {"__init__", "__pycache__"}
    headings = anchors(README)
    assert {chapter for chapter in chapters if chapter not in headings} == set()
