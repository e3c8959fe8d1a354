"""The reference pages are current, and nothing is missing from them."""

from __future__ import annotations

import re

import pytest

from deployments.reference import GUIDES, PAGES, command_parts, commands, rewrite, specification_parts
from flows.cli import app
from tasks.spec import ReleaseSpec


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    text = (GUIDES / name).read_text(encoding="utf-8")
    assert rewrite(text, PAGES[name]()) == text, "run `python -m deployments.reference`"


def test_every_key_and_every_option_has_a_meaning() -> None:
    for part in (*specification_parts().values(), *command_parts().values()):
        rows = [re.split(r" (?<!\\)\| ", line) for line in part.splitlines() if line.startswith("| `")]
        assert rows
        assert not [row[0] for row in rows if not row[-1].removesuffix("|").strip()]


def test_every_key_of_the_specification_is_on_its_page() -> None:
    table = specification_parts()["release.yaml"]
    assert not [name for name in ReleaseSpec.model_fields if f"| `{name}` |" not in table]
    assert {"source.query", "privacy.lifetime", "columns[]", "model.projection", "approve"} <= set(
        specification_parts()
    )


def test_every_command_is_on_its_page() -> None:
    names = {command.name for command in app.registered_commands}
    for group in app.registered_groups:
        assert group.typer_instance is not None
        names |= {f"{group.name} {command.name}" for command in group.typer_instance.registered_commands}
    assert names <= {name for name, _ in commands()}
    page = (GUIDES / "commands.md").read_text(encoding="utf-8")
    assert not [name for name, _ in commands() if f"\n## {name}\n" not in page]


@pytest.mark.parametrize(
    "text", ["no part", "<!-- generated: b -->\n<!-- end -->", "<!-- generated: a -->\n<!-- end -->\n" * 2]
)
def test_a_page_without_its_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="parts"):
        rewrite(text, {"a": "table"})


def test_only_the_generated_part_of_a_page_is_replaced() -> None:
    text = "before\n<!-- generated: a -->\nold\n<!-- end -->\nafter\n"
    assert rewrite(text, {"a": "new"}) == "before\n<!-- generated: a -->\n\nnew\n<!-- end -->\nafter\n"
