"""dpcore/PAPERS.md is complete and true: every item of the papers has a row, every link and name leads somewhere."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest
from support import ROOT

from dpcore.mechanisms.catalogue import ENTRIES
from dpcore.mechanisms.entry import Status

PAGE = ROOT / "dpcore" / "PAPERS.md"
TEXT = PAGE.read_text()
GUARANTEE = (ROOT / "dpcore" / "GUARANTEE.md").read_text()

INVENTORY: dict[str, dict[str, int]] = {
    "PCA-Gauss": {
        "Definition": 4, "Remark": 2, "Theorem": 7, "Proposition": 4, "Lemma": 2, "Algorithm": 3, "Table": 4,
        "Figure": 2,
    },
    "RON-Gauss": {"Definition": 2, "Remark": 3, "Theorem": 5, "Lemma": 6, "Algorithm": 5, "Table": 5, "Figure": 3},
    "Jiang et al.": {"Definition": 1, "Theorem": 3, "Lemma": 3, "Figure": 4},
    "Imtiaz and Sarwate": {"Theorem": 2, "Algorithm": 1, "Table": 1, "Figure": 2},
    "Xu et al.": {"Definition": 3, "Theorem": 4, "Lemma": 2, "Algorithm": 2, "Figure": 5},
}  # fmt: skip
"""How many items of each kind the papers number, from 1 without a gap."""

UNNUMBERED = {
    "PCA-Gauss": ("Lap-PCA", "AG-PCA", "Pub-PCA"),
    "Jiang et al.": ("PCA-based mechanism", "LDA-based mechanism", "Sampling", "Categorical variables in PCA"),
    "Imtiaz and Sarwate": ("AG", "PPM", "PPCA"),
}
"""Mechanisms and procedures that have no number in their paper."""

ROMAN = {"I": 1, "II": 2, "III": 3, "IV": 4}
COLUMNS = ["Item", "Code", "What was wrong", "Proof", "Tests", "Benchmark"]
each_paper = pytest.mark.parametrize("paper", INVENTORY)


class Link(NamedTuple):
    """The shown text of a link, the file that it leads to, and the heading in it."""

    shown: str
    file: Path
    anchor: str


def links_in(text: str) -> list[Link]:
    """Inline links, and references `[shown][name]` or `[name]` to the definitions at the end of the page."""
    defined = dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", TEXT, re.MULTILINE))
    body = re.sub(r"^\[[^\]]+\]: \S+$", "", text, flags=re.MULTILINE)
    found = []
    for shown, target, name in re.findall(r"\[([^\]]+)\](?:\(([^)]+)\)|\[([^\]]+)\])?", body):
        file, _, anchor = (target or defined[name or shown]).partition("#")
        found.append(Link(shown, (PAGE.parent / file).resolve(), anchor))
    return found


def anchor_of(heading: str) -> str:
    """What GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def headings(text: str) -> dict[str, str]:
    """The text below each heading, up to the next one, by anchor."""
    parts = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {anchor_of(heading): below for heading, below in zip(parts[1::2], parts[2::2], strict=True)}


def rows_of(paper: str) -> list[list[str]]:
    """The cells of a paper's table."""
    lines = [line for line in headings(TEXT)[anchor_of(paper)].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def module_of(link: Link) -> str:
    """The module that a link leads to, as Python imports it."""
    return ".".join(link.file.relative_to(ROOT).with_suffix("").parts)


LINKS = links_in(TEXT)
TESTS, BENCHMARKS, DPCORE = (
    [link for link in LINKS if link.file.suffix == ".py" and ROOT / room in link.file.parents]
    for room in ("tests", "benchmarks", "dpcore")
)
COMMANDS = [link for link in BENCHMARKS if "python -m" in link.shown]


@each_paper
def test_every_numbered_item_of_a_paper_has_one_row(paper: str) -> None:
    found: Counter[tuple[str, int]] = Counter()
    for item, *_ in rows_of(paper)[2:]:
        for kind, number in re.findall(r"\b([A-Z][a-z]+) (\d+|[IV]+)\b", item):
            found[kind, int(ROMAN.get(number, number))] += 1
    wanted = {(kind, number) for kind, count in INVENTORY[paper].items() for number in range(1, count + 1)}
    assert found == dict.fromkeys(wanted, 1)


@pytest.mark.parametrize("paper", UNNUMBERED)
def test_what_has_no_number_has_its_row_too(paper: str) -> None:
    items = [item for item, *_ in rows_of(paper)[2:]]
    assert not [name for name in UNNUMBERED[paper] if not any(item.startswith(f"{name} (") for item in items)]


@each_paper
def test_every_row_names_code_and_a_benchmark_or_says_why_there_is_none(paper: str) -> None:
    header, _, *rows = rows_of(paper)
    assert header == COLUMNS
    for row in rows:
        _, code, _, _, _, benchmark = row
        assert code.startswith(("[", "none: ")), row
        assert benchmark.startswith(("[", "none: ", "not remade: ")), row


def test_every_linked_file_and_heading_exists() -> None:
    assert not [link for link in LINKS if not link.file.exists()]
    assert not [link for link in LINKS if link.anchor and link.anchor not in headings(link.file.read_text())]


def test_every_name_is_that_of_something_in_the_linked_module() -> None:
    assert DPCORE
    for link in DPCORE:
        module = module_of(link)
        name = f"dpcore.{link.shown.strip('`')}"
        assert f"{name}.".startswith(f"{module}."), link
        found: object = import_module(module)
        for attribute in filter(None, name.removeprefix(module).split(".")):
            found = getattr(found, attribute)


def test_every_name_of_a_benchmark_is_defined_in_the_linked_module() -> None:
    for link in BENCHMARKS:
        if link not in COMMANDS:
            module, _, name = link.shown.strip("`").rpartition(".")
            assert module == module_of(link)
            assert re.search(rf"^(class|def) {name}\b", link.file.read_text(), re.MULTILINE), link


def test_every_linked_test_is_shown_by_its_name() -> None:
    assert TESTS
    assert not [link for link in TESTS if link.shown != f"`{link.file.stem}`"]


def test_every_benchmark_is_a_command_that_knows_its_arguments() -> None:
    assert COMMANDS
    for link in COMMANDS:
        _, _, module, *arguments = link.shown.strip("`").split()
        text = link.file.read_text()
        assert module == module_of(link)
        assert 'if __name__ == "__main__":' in text, link
        assert set(arguments) <= set(re.findall(r"\w+", text.split('"""')[1])), link


def test_every_cited_section_of_the_guarantee_stands_below_the_linked_heading() -> None:
    sections = headings(GUARANTEE)
    cited = [link for link in LINKS if link.anchor and re.fullmatch(r"[A-Z]\d+", link.shown)]
    assert cited
    for link in cited:
        heading = link.anchor.startswith(f"{link.shown.lower()}-")
        assert heading or re.search(rf"^(- )?\*\*{link.shown},", sections[link.anchor], re.MULTILINE), link


@each_paper
def test_every_cited_erratum_is_an_entry_on_that_paper_or_on_all(paper: str) -> None:
    errata = headings(GUARANTEE)[anchor_of("E. What the papers claim, and what is true")]
    parts = re.split(r"^\*\*(.+?)\*\*", errata, flags=re.MULTILINE)
    entries = dict(zip(parts[1::2], parts[2::2], strict=True))
    known = f"{entries[paper]} Experiments{entries['Experiments']}"
    cited = {link.shown.removeprefix("E: ") for row in rows_of(paper) for link in links_in(row[2])}
    assert cited
    assert not [name for name in cited if not re.search(rf"\b{re.escape(name)}\b", known)]


def test_every_refuted_calibration_is_named() -> None:
    refuted = {entry.name for entry in ENTRIES if entry.status is Status.REFUTED}
    assert set(re.findall(r"`(published-[\w-]+)`", TEXT.partition("\n## ")[2])) == refuted
