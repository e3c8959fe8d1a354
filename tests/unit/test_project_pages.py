"""The pages and settings for contributors say what holds: links, versions and commands lead to what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT
from support.links import broken_links, links
from support.rooms import ROOMS

PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def settings(path: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / path).read_text())
    return content


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    assert broken_links(ROOT / page) == []
    assert links(ROOT / page), "the links were found"


@pytest.mark.parametrize("topic", ["mechanism", "check", "stage", "page", "command"])
def test_what_is_added_most_often_has_five_steps_that_lead_to_files(topic: str) -> None:
    _, _, rest = (ROOT / "CONTRIBUTING.md").read_text().partition(f"\n## Add a {topic}\n")
    section = rest.partition("\n## ")[0]
    assert re.findall(r"^(\d)\. \*\*", section, re.MULTILINE) == ["1", "2", "3", "4", "5"]
    assert len(re.findall(r"\]\([\w/.]+(?:#\w+)?\)", section)) >= 5


def test_files_in_the_drawings_of_the_architecture_exist() -> None:
    drawings = "".join(
        re.findall(r"^```text\n(.*?)^```", (ROOT / "ARCHITECTURE.md").read_text(), re.DOTALL | re.MULTILINE)
    )
    named = re.findall(r"\w+/\w+\.py", drawings)
    assert len(named) > 8
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_citation_has_what_its_format_requires_and_what_the_project_states() -> None:
    citation = settings("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert str(citation["version"]) == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]


def test_the_citation_names_the_five_papers_as_the_page_on_papers_does() -> None:
    papers = " ".join((ROOT / "dpcore" / "PAPERS.md").read_text().split())
    references = settings("CITATION.cff")["references"]
    assert len(references) == 5
    for paper in references:
        assert {"type", "title", "authors", "year"} <= set(paper)
        assert f"*{paper['title']}*" in papers
        assert all(f"{one['given-names']} {one['family-names']}" in papers for one in paper["authors"])


def test_the_changelog_describes_this_version() -> None:
    assert re.search(rf"^## .*{re.escape(PROJECT['version'])}", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_hooks_and_workflow_run_what_the_repository_has() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (local,) = settings(".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    for hook in local["hooks"]:
        program = hook["entry"].split()[0]
        assert f"$(BIN)/{Path(program).name}" in makefile
        assert program.startswith(".venv/bin/")
    steps = settings(".github/workflows/check.yml")["jobs"]["check"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    assert commands
    assert [command for command in commands if not (ROOT / command).is_file()] == []
    versions = [step["with"]["python-version"] for step in steps if "python-version" in step.get("with", {})]
    assert versions == [PROJECT["requires-python"].removeprefix(">=")]


def test_every_package_says_that_it_is_typed() -> None:
    assert [room for room in ROOMS if not (ROOT / room / "py.typed").is_file()] == []
