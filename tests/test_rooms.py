"""Imports point downwards only, and each room keeps to what it may touch (design.md, rooms)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("dpcore", "expectations", "tasks", "flows", "deployments")
"""From the bottom to the top."""

DPCORE_MAY_IMPORT = {"numpy", "scipy", "opendp", "randomgen", "flint", "sklearn", "threadpoolctl", "dpcore"}
OUTSIDE_WORLD = {
    "os", "pathlib", "io", "time", "datetime", "socket", "subprocess", "shutil", "tempfile", "glob", "logging",
    "sqlite3", "urllib", "http", "threading", "multiprocessing", "asyncio", "platform", "getpass", "ctypes",
}  # fmt: skip
RANDOMNESS = {"random", "secrets", "opendp", "randomgen", "uuid"}
LAZY = {"great_expectations", "opendp"}


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""] if node.level == 0 else []
    return []


def all_imports(path: Path) -> set[str]:
    """Every module named by an import anywhere in a file."""
    return {module for node in ast.walk(tree(path)) for module in imported(node)}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def statements_run_on_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements at module level, and inside its if, try, with and class blocks; not those for type checkers."""
    for node in body:
        if is_type_checking(node):
            continue
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for field in ("body", "orelse", "finalbody"):
                yield from statements_run_on_import(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from statements_run_on_import(handler.body)


def top_level_imports(path: Path) -> set[str]:
    return {module for node in statements_run_on_import(tree(path).body) for module in imported(node)}


def roots(names: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in names}


ALL = [(room, path) for room in ROOMS for path in modules(room)]
by_path = pytest.mark.parametrize("path", [p for _, p in ALL], ids=name)
dpcore_path = pytest.mark.parametrize("path", modules("dpcore"), ids=name)


@pytest.mark.parametrize(("room", "path"), ALL, ids=[name(p) for _, p in ALL])
def test_imports_point_downwards(room: str, path: Path) -> None:
    above = set(ROOMS[ROOMS.index(room) + 1 :]) | {"tests", "benchmarks"}
    assert not roots(all_imports(path)) & above


@by_path
def test_no_relative_import_hides_from_that_rule(path: Path) -> None:
    assert not [n for n in ast.walk(tree(path)) if isinstance(n, ast.ImportFrom) and n.level]


def may_use_prefect(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return parts[0] in ("flows", "deployments") or (parts[0] == "tasks" and len(parts) == 2)


@by_path
def test_prefect_is_used_in_tasks_flows_and_deployments_only(path: Path) -> None:
    assert may_use_prefect(path) or "prefect" not in roots(all_imports(path))


@dpcore_path
def test_dpcore_imports_mathematics_only(path: Path) -> None:
    foreign = roots(all_imports(path)) - set(sys.stdlib_module_names) - DPCORE_MAY_IMPORT
    assert not foreign


@dpcore_path
def test_dpcore_reads_no_files_no_clock_and_no_environment(path: Path) -> None:
    assert not roots(all_imports(path)) & OUTSIDE_WORLD
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"open", "input", "print", "exec", "eval", "breakpoint", "__import__"}, called
            assert called.rpartition(".")[2] not in {
                "read_text",
                "write_text",
                "getenv",
                "loadtxt",
                "savetxt",
                "fromfile",
                "tofile",
                "memmap",
            }


@dpcore_path
def test_only_the_noise_module_touches_randomness(path: Path) -> None:
    """`np.random.Generator` may be named elsewhere as a type; nothing random may be made or imported."""
    if path.name == "noise.py":
        return
    assert not roots(all_imports(path)) & RANDOMNESS
    assert not {module for module in all_imports(path) if module.startswith(("numpy.random", "scipy.stats.sampling"))}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith(("np.random.", "numpy.random.")):
            assert ast.unparse(node) == "np.random.Generator"
        if isinstance(node, ast.Call):
            assert not ast.unparse(node.func).startswith(("np.random", "numpy.random"))
            assert ast.unparse(node.func).rpartition(".")[2] != "rvs"


@dpcore_path
def test_dpcore_keeps_no_global_state(path: Path) -> None:
    assert not [n for n in ast.walk(tree(path)) if isinstance(n, ast.Global)]


@by_path
def test_slow_libraries_are_not_imported_at_module_level(path: Path) -> None:
    """Great Expectations takes seconds and logs; expectations/custom.py subclasses it and is itself imported late."""
    if name(path) == "expectations/custom.py":
        return
    assert not roots(top_level_imports(path)) & LAZY
    assert "expectations.custom" not in top_level_imports(path)


def test_the_rules_look_at_real_files() -> None:
    assert len(modules("dpcore")) > 15
    assert len(ALL) > 50
    assert "dpcore.noise" in all_imports(ROOT / "dpcore" / "measure.py")
    assert "opendp.prelude" in all_imports(ROOT / "dpcore" / "noise.py")
    assert "opendp.prelude" not in top_level_imports(ROOT / "dpcore" / "noise.py")
