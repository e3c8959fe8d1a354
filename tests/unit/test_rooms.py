"""Imports point downwards only, and each room keeps to what it may touch."""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from support import ROOT
from support.rooms import ROOMS, all_imports, imported, modules, tree

DPCORE_MAY_IMPORT = {"numpy", "scipy", "opendp", "randomgen", "flint", "sklearn", "threadpoolctl", "dpcore"}
OUTSIDE_WORLD = {
    "os", "pathlib", "io", "time", "datetime", "socket", "subprocess", "shutil", "tempfile", "glob", "logging",
    "sqlite3", "urllib", "http", "threading", "multiprocessing", "asyncio", "platform", "getpass", "ctypes",
}  # fmt: skip
RANDOMNESS = {"random", "secrets", "opendp", "randomgen", "uuid"}
OUTSIDE_CALLS = {"open", "input", "print", "exec", "eval", "breakpoint", "__import__"}
OUTSIDE_METHODS = {"read_text", "write_text", "getenv", "loadtxt", "savetxt", "fromfile", "tofile", "memmap"}
LAZY = {"great_expectations", "opendp"}

STAGES = "the stages of a release"
RECIPES = "the flows"
OWN = {"tasks": STAGES, "flows": RECIPES}
"""What the modules directly below these rooms are; in dpcore, each is a chapter by itself."""

CHAPTERS = {
    "dpcore": (
        "errors", "stats", "accounting", "noise", "records", "mechanisms", "measure", "measurements", "synthesis",
        "series", "evaluation", "planning", "inference", "auditing", "estimators",
    ),
    "tasks": (
        "workspace", "spec", "landing", "intake", "keys", "lineage", "ledger", "bundle", "release", "schedule",
        "report", "audit", "backup", "answers", "site", STAGES,
    ),
    "flows": ("server", RECIPES, "demos", "cli"),
}  # fmt: skip
"""The chapters of each room; a chapter imports only earlier ones and itself."""

MOST_MODULES = 15
"""In one folder of any room, of the benchmarks or of the tests."""

RANDOM = ROOT / "dpcore" / "noise" / "sources.py"
"""The only module that touches randomness."""


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


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


def roots(names: Iterable[str]) -> set[str]:
    return {module.partition(".")[0] for module in names}


ALL = [path for room in ROOMS for path in modules(room)]
DPCORE = modules("dpcore")


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def offenders(paths: list[Path], faults: Callable[[Path], object]) -> dict[str, object]:
    """The files that break a rule, each with how it does."""
    found = {name(path): faults(path) for path in paths}
    return {file: fault for file, fault in found.items() if fault}


def test_imports_point_downwards() -> None:
    def above(path: Path) -> set[str]:
        rooms_above = set(ROOMS[ROOMS.index(room_of(path)) + 1 :]) | {"tests", "benchmarks"}
        return roots(all_imports(path)) & rooms_above

    assert not offenders(ALL, above)


def test_no_relative_import_hides_from_that_rule() -> None:
    def relative(path: Path) -> list[int]:
        return [n.lineno for n in ast.walk(tree(path)) if isinstance(n, ast.ImportFrom) and n.level]

    assert not offenders(ALL, relative)


def may_use_prefect(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return parts[0] in ("flows", "deployments") or (parts[0] == "tasks" and len(parts) == 2)


def test_prefect_is_used_in_tasks_flows_and_deployments_only() -> None:
    assert not offenders(ALL, lambda path: not may_use_prefect(path) and "prefect" in roots(all_imports(path)))


def test_dpcore_imports_mathematics_only() -> None:
    known = set(sys.stdlib_module_names) | DPCORE_MAY_IMPORT
    assert not offenders(DPCORE, lambda path: roots(all_imports(path)) - known)


def calls(path: Path) -> list[str]:
    return [ast.unparse(node.func) for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]


def test_dpcore_reads_no_files_no_clock_and_no_environment() -> None:
    def outside(path: Path) -> list[str]:
        touched = [called for called in calls(path) if called in OUTSIDE_CALLS or last(called) in OUTSIDE_METHODS]
        return touched + sorted(roots(all_imports(path)) & OUTSIDE_WORLD)

    assert not offenders(DPCORE, outside)


def last(called: str) -> str:
    return called.rpartition(".")[2]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in ALL}
ENTRIES = ("dpcore", "flows.__main__")
"""They lead to the top of their rooms: to the estimators when they are asked for, and to the command line."""


def chapter_of(module: str) -> str:
    room, _, below = module.partition(".")
    chapter = below.partition(".")[0]
    return chapter if room not in OWN or ((ROOT / room / chapter).is_dir() and chapter) else OWN[room]


def own_imports(path: Path) -> set[str]:
    """The modules of our rooms that a file imports anywhere, also for its types or inside a function."""
    found = set()
    for node in ast.walk(tree(path)):
        for module in imported(node):
            below = [f"{module}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            found |= {name for name in below if name in MODULES} or {module}
    return {name for name in found if name.partition(".")[0] in ROOMS}


def test_every_chapter_imports_only_earlier_ones() -> None:
    def later(path: Path) -> set[str]:
        module, room = module_name(path), room_of(path)
        allowed = CHAPTERS[room][: CHAPTERS[room].index(chapter_of(module)) + 1]
        own = {name for name in own_imports(path) if name.partition(".")[0] == room}
        return {name for name in own if chapter_of(name) not in allowed}

    for room, chapters in CHAPTERS.items():
        paths = [path for path in modules(room) if module_name(path) not in ENTRIES]
        assert {chapter_of(module_name(path)) for path in paths} == set(chapters)
        assert not offenders(paths, later)


def test_no_modules_import_each_other() -> None:
    named = {module: path for module, path in MODULES.items() if module not in ENTRIES}
    order = graphlib.TopologicalSorter({module: own_imports(path) - {module} for module, path in named.items()})
    assert len(list(order.static_order())) >= len(named)


def test_no_folder_is_crowded() -> None:
    def crowd(folder: Path) -> int:
        return len([path for path in folder.glob("*.py") if not path.name.startswith("__")])

    folders = {path.parent for room in (*ROOMS, "benchmarks", "tests") for path in modules(room)}
    assert not {name(folder): crowd(folder) for folder in folders if crowd(folder) > MOST_MODULES}


def test_every_folder_of_a_room_is_installed() -> None:
    assert all((path.parent / "__init__.py").exists() for path in ALL)


def test_only_the_sources_of_noise_touch_randomness() -> None:
    """`np.random.Generator` may be named elsewhere as a type; nothing random may be made or imported."""
    prefixes = ("np.random", "numpy.random")

    def random_things(path: Path) -> list[str]:
        names = [ast.unparse(node) for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)]
        named = [n for n in names if n.startswith(prefixes) and n not in (*prefixes, "np.random.Generator")]
        made = [called for called in calls(path) if called.startswith(prefixes) or last(called) == "rvs"]
        modules_of = [m for m in all_imports(path) if m.startswith(("numpy.random", "scipy.stats.sampling"))]
        return named + made + modules_of + sorted(roots(all_imports(path)) & RANDOMNESS)

    assert not offenders([path for path in DPCORE if path != RANDOM], random_things)
    assert random_things(RANDOM), "the rule sees randomness where it is"


def test_dpcore_keeps_no_global_state() -> None:
    def global_names(path: Path) -> list[int]:
        return [n.lineno for n in ast.walk(tree(path)) if isinstance(n, ast.Global)]

    assert not offenders(DPCORE, global_names)


def test_slow_libraries_are_not_imported_at_module_level() -> None:
    """Great Expectations takes seconds and logs; expectations/custom.py subclasses it and is itself imported late."""

    def early(path: Path) -> set[str]:
        imports = top_level_imports(path)
        return roots(imports) & LAZY | imports & {"expectations.custom"}

    assert not offenders([path for path in ALL if name(path) != "expectations/custom.py"], early)


def test_the_rules_look_at_real_files() -> None:
    assert len(DPCORE) > 15
    assert len(ALL) > 50
    assert "dpcore.noise.sources" in own_imports(ROOT / "dpcore" / "measure.py")
    assert "opendp" in all_imports(RANDOM)
    assert "opendp" not in top_level_imports(RANDOM)
