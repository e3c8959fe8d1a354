"""Links of Markdown pages, and whether what they point at is there."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path

FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
DEFINITION = re.compile(r"^\[[^\]]+\]: (\S+)$", re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
ELSEWHERE = ("http://", "https://", "mailto:")


def links(page: Path) -> list[str]:
    """Return the targets of all links of a page, inline or by reference, that point into the repository."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return [target for target in LINK.findall(text) + DEFINITION.findall(text) if not target.startswith(ELSEWHERE)]


def broken_links(page: Path) -> list[str]:
    """Return the targets whose file or anchor does not exist."""
    return [target for target in links(page) if not _exists(page, target)]


def _exists(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    return file.exists() and (not anchor or anchor in anchors(file))


@functools.cache
def anchors(file: Path) -> frozenset[str]:
    """Return the anchors of a file: slugs of a page's headings, names that a module defines at its top level."""
    if file.suffix == ".md":
        return frozenset(_heading_slugs(file))
    return frozenset(_top_level_names(file) if file.suffix == ".py" else ())


def _heading_slugs(page: Path) -> set[str]:
    """Return the anchors that GitHub makes: lower case, without punctuation, repeated ones numbered."""
    slugs, seen = set(), Counter[str]()
    for heading in HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        slug = re.sub(r"[^\w\- ]", "", LINK.sub("", heading).lower()).replace(" ", "-")
        slugs.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return slugs


def _top_level_names(module: Path) -> set[str]:
    names = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names
