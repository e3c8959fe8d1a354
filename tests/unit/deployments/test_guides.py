"""The documents are true: what they link to is there, every command in them runs, and prints what they show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import ROOT
from support.deployments.guides import GUIDES, Step, blocks_of, is_shown, steps_of
from support.links import broken_links, links

README = ROOT / "README.md"
DOCUMENTS = [README, *sorted(GUIDES.glob("*.md"))]
NOT_RUN = {
    "operator.md": [
        "systemctl enable --now dprelease-clinic",
        "journalctl -u dprelease-clinic -f",
        "python3 -m venv .venv",
        ".venv/bin/pip install --require-hashes --no-deps --only-binary :all: -r locks/extras.txt",
        ".venv/bin/pip install --no-index --no-deps --no-build-isolation -e .",
        "git pull && make release",
    ],
}
"""What a reader may do and a test may not."""
each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


# ---------------------------------------------------------------- what the documents hold


PEOPLE = {"steward", "analyst", "auditor", "operator"}
REFERENCE = {"formats", "specification", "commands", "glossary"}


def test_there_is_a_guide_for_everybody():
    assert {path.stem for path in GUIDES.glob("*.md")} == PEOPLE | REFERENCE


@each_document
def test_what_a_document_links_to_is_there(path: Path):
    assert links(path)
    assert broken_links(path) == []


def test_the_readme_links_to_every_guide():
    assert {f"deployments/guides/{name}.md" for name in PEOPLE | REFERENCE} <= set(links(README))


@each_document
def test_every_command_is_in_a_block_that_is_executed(path: Path):
    text = path.read_text()
    prompts = [line for line in text.splitlines() if line.startswith("$ ")]
    blocks = list(blocks_of(text))
    assert len(prompts) == sum(b.body.count("\n$ ") + b.body.startswith("$ ") for b in blocks if b.kind == "console")
    left_out = [
        line[2:] for b in blocks if b.note == "not run" for line in b.body.splitlines() if line.startswith("$ ")
    ]
    assert left_out == NOT_RUN.get(path.name, [])
    assert {b.note for b in blocks} <= {"", "file", "sql", "with", "instead", "not run"}


@each_document
def test_no_document_uses_the_port_that_people_use(path: Path):
    ports = [port for step in steps_of(path.read_text()) for port in re.findall(r"--port (\d+)", step.text)]
    assert "4200" not in ports


# ---------------------------------------------------------------- the glossary

GLOSSARY = GUIDES / "glossary.md"


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path != GLOSSARY], ids=lambda path: path.name)
def test_every_document_links_to_the_glossary(path: Path):
    assert "glossary.md" in {target.partition("#")[0].rpartition("/")[2] for target in links(path)}


def test_the_glossary_explains_each_term_once_in_order_and_briefly():
    _, *entries = re.split(r"^### ", GLOSSARY.read_text(), flags=re.MULTILINE)
    terms = [entry.partition("\n")[0] for entry in entries]
    assert len(terms) > 40
    assert terms == sorted(set(terms), key=str.lower)
    assert not [entry for entry in entries if not 5 < len(entry.partition("\n")[2].split()) < 75]


# ---------------------------------------------------------------- the README


def test_the_readme_shows_a_picture_that_is_small():
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README.read_text())
    assert 10_000 < (ROOT / picture).stat().st_size < 300_000


def test_the_readme_s_library_example_runs():
    (example,) = [block.body for block in blocks_of(README.read_text()) if block.kind == "python"]
    assert len(example.splitlines()) <= 6
    known: dict[str, Any] = {"X": np.linspace(-1, 1, 400).reshape(50, 8), "y": ["no", "yes"] * 25}
    exec(compile(example, str(README), "exec"), known)  # noqa: S102  our own page
    assert known["X_new"].shape == (10_000, 8)
    assert set(known["y_new"]) <= {"no", "yes"}
    assert known["model"].privacy_["epsilon"] == 1


# ---------------------------------------------------------------- the reader has teeth


@pytest.mark.parametrize(
    ("shown", "output", "same"),
    [
        (["a  b", "c"], "a b\nc\n", True),
        (["a b c"], "a b\nc\n", True),
        (["a ... c"], "a x y c", True),
        (["...", "c"], "a\nb\nc\n", True),
        (["a", "..."], "b\na\n", False),
        (["epsilon 1"], "epsilon 2", False),
        (["epsilon 1"], "epsilon 1\nrefused", False),
        (["a", "b"], "b\na\n", False),
        (["1.5"], "1x5", False),
    ],
)
def test_output_is_compared_but_for_line_breaks_and_ellipses(shown: list[str], output: str, same: bool):
    assert is_shown(shown, output) is same


def test_a_block_is_read_as_a_person_reads_it():
    text = (
        "x\n\n```console\n$ echo a \\\n> b\na b\n$ false   # exit 1\n```\n<!-- file: f.txt -->\n```yaml\nkey: 1\n```\n"
    )
    assert steps_of(text) == [
        Step(4, "run", "echo a \\\nb", 0, ("a b",)),
        Step(7, "run", "false", 1),
        Step(11, "file", "key: 1\n", name="f.txt"),
    ]
