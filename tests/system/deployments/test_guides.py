"""The reader of guides runs their commands in one shell, and finds what is not true; README and analyst's guide run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT
from support.deployments.guides import GUIDES, Reader, blocks_of, section_of, steps_of

README = ROOT / "README.md"


def test_make_release_does_what_the_test_does_in_its_place():
    done = subprocess.run(
        ["make", "--dry-run", "release", f"VENV={sys.prefix}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    instead = next(block.value for block in blocks_of(README.read_text()) if block.note == "instead")
    for command in instead.replace("-w demo", "--workspace demo").split(" && "):
        assert command in done.stdout


def follow(folder: Path, *commands: str) -> None:
    body = "\n".join(commands)
    Reader(folder / "folder", folder / "home", seconds=30).follow(steps_of(f"```console\n{body}\n```\n"))


def test_one_shell_serves_the_whole_document(tmp_path: Path):
    follow(
        tmp_path,
        "$ mkdir a; cd a; export B=c",
        "$ sleep 60 &",
        '$ echo "$B" > d',
        "$ cat d",
        "c",
        "$ kill %1; wait %1   # exit 143",
    )
    assert (tmp_path / "folder" / "a" / "d").read_text() == "c\n"


@pytest.mark.parametrize(
    ("commands", "fault"),
    [
        (["$ false"], "ended with 1, not 0"),
        (["$ true   # exit 2"], "ended with 0, not 2"),
        (["$ echo a", "b"], "shown"),
        (['$ echo "Traceback (most recent call last):"'], "Traceback"),
        (['$ echo "Traceback (most recent call last):" > serve.log'], "serve.log"),
        (["$ sleep 60 &"], "leaves behind"),
        (["$ exit 0"], "the shell ended"),
    ],
)  # fmt: skip
def test_a_document_that_is_not_true_is_caught(tmp_path: Path, commands: list[str], fault: str):
    with pytest.raises(AssertionError, match=fault):
        follow(tmp_path, *commands)


QUICK_START = "Quick start"


# ---------------------------------------------------------------- two documents, as a newcomer and an analyst read them


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_quick_start_runs(tmp_path: Path):
    reader = Reader(tmp_path / "checkout", tmp_path / "home")
    reader.folder.mkdir()
    (reader.folder / ".venv").symlink_to(sys.prefix)  # what `make release` makes
    reader.follow(steps_of(section_of(README.read_text(), QUICK_START)))
    assert (reader.folder / "demo" / "site" / "index.html").is_file()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_analyst_s_guide_runs(tmp_path: Path):
    Reader(tmp_path / "folder", tmp_path / "home").follow(steps_of((GUIDES / "analyst.md").read_text()))
