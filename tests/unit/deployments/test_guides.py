"""The documents are true: what they link to is there, every command in them runs, and prints what they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import ROOT
from support.deployments.guides import GUIDES, Step, blocks_of, is_shown, section_of, steps_of

from flows.cli import app

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


def test_there_is_a_guide_for_everybody():
    assert {path.stem for path in GUIDES.glob("*.md")} == {"steward", "analyst", "auditor", "operator", "formats"}


@each_document
def test_what_a_document_links_to_is_there(path: Path):
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", path.read_text()) if "://" not in link]
    assert links
    assert not [link for link in links if not (path.parent / link).exists()]


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


def test_the_readme_names_every_command():
    names = [command.name for command in app.registered_commands] + [group.name for group in app.registered_groups]
    table = section_of(README.read_text(), "Commands")
    assert not [name for name in names if f"`{name}" not in table]


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
