"""The rooms of the project and who imports whom, read from the sources."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

from support import ROOT

ROOMS = ("dpcore", "expectations", "tasks", "flows", "deployments")
"""From the bottom to the top."""


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""] if node.level == 0 else []
    return []


@functools.cache
def all_imports(path: Path) -> frozenset[str]:
    """Every module named by an import anywhere in a file."""
    return frozenset(module for node in ast.walk(tree(path)) for module in imported(node))
