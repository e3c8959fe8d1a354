"""How a tree of Python modules is built: folders, lengths, statements, names.

    python -m benchmarks.program.code_metrics [FOLDER ...] [--before COMMIT]

The folder is dpcore unless others are named; several are one tree. With a commit, its figures stand
beside those of now. Counted are, without `__init__.py`, the modules of each folder; the longest module; statements,
docstrings left out; functions that act although their names begin with a participle; and top-level names of classes
and functions that several chapters define. A chapter is a folder or a single module directly below a FOLDER.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import shutil
import subprocess
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
Sources = Mapping[PurePosixPath, str]
Function = ast.FunctionDef | ast.AsyncFunctionDef

IRREGULAR = {
    "bent", "bought", "bound", "broken", "brought", "built", "caught", "chosen", "done", "drawn", "driven", "felt",
    "forgotten", "found", "frozen", "given", "gone", "grown", "heard", "held", "hidden", "kept", "known", "laid",
    "left", "lent", "lost", "made", "meant", "met", "paid", "said", "seen", "sent", "shown", "sold", "spent",
    "spoken", "sworn", "taken", "taught", "thought", "thrown", "told", "torn", "understood", "woven", "written",
}  # fmt: skip
"""Participles without -ed. Those that are imperatives too (cut, put, read, run, set, split) are left out."""

NO_PARTICIPLES = {"embed", "exceed", "feed", "need", "proceed", "red", "seed", "speed"}
"""Words in -ed that are none."""

MUTATING = {
    "add", "append", "clear", "close", "discard", "execute", "extend", "insert", "mkdir", "pop", "popitem", "put",
    "remove", "rename", "setdefault", "shuffle", "sort", "touch", "unlink", "update", "write", "write_bytes",
    "write_text",
}  # fmt: skip
"""Methods that change the object that they are called on, or something outside."""

EFFECTS = re.compile(r"\b(Noise|Generator|Callable)\b")
"""Types of parameters that a function draws from or calls back."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """The figures of one tree."""

    modules: dict[str, int]
    longest: tuple[str, int]
    statements: int
    imports: int
    functions: int
    participles: int
    acting: list[str]
    duplicates: dict[str, list[str]]


def sources_now(*folders: str, root: Path = ROOT) -> Sources:
    """Return the modules below some folders as they are on disk, by their paths."""
    paths = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    return {PurePosixPath(path.relative_to(root).as_posix()): path.read_text(encoding="utf-8") for path in paths}


def sources_of_commit(commit: str, *folders: str) -> Sources:
    """Return the modules below some folders as they were at a commit."""
    git = shutil.which("git") or "git"
    command = [git, "-C", str(ROOT), "archive", commit, *folders]
    return sources_of_archive(subprocess.run(command, check=True, capture_output=True).stdout)


def sources_of_archive(packed: bytes) -> Sources:
    """Return the modules in a tar archive."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        files = {member.name: archive.extractfile(member) for member in archive if member.name.endswith(".py")}
        return {PurePosixPath(name): file.read().decode() for name, file in files.items() if file is not None}


def measure(sources: Sources, *folders: str) -> Metrics:
    """Return the figures of a tree."""
    trees = {path: ast.parse(text) for path, text in sources.items()}
    named = {path: text for path, text in sources.items() if path.name != "__init__.py"}
    lengths = {str(path): len(text.splitlines()) for path, text in named.items()}
    functions = [(path, node) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, Function)]
    participles = [(path, node) for path, node in functions if begins_with_participle(node.name)]
    return Metrics(
        modules=dict(sorted(Counter(str(path.parent) for path in named).items())),
        longest=max(lengths.items(), key=lambda item: item[1], default=("", 0)),
        statements=sum(count_statements(tree) for tree in trees.values()),
        imports=sum(isinstance(n, ast.Import | ast.ImportFrom) for tree in trees.values() for n in ast.walk(tree)),
        functions=len(functions),
        participles=len(participles),
        acting=sorted(f"{path}: {node.name}" for path, node in participles if acts(node)),
        duplicates=duplicate_names(trees, folders),
    )


def count_statements(tree: ast.Module) -> int:
    """Return the number of statements, docstrings and other bare texts left out."""
    return sum(isinstance(node, ast.stmt) and not _is_text(node) for node in ast.walk(tree))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def begins_with_participle(name: str) -> bool:
    """Whether the first word of a name is a past participle."""
    word = name.strip("_").split("_")[0].lower()
    return word in IRREGULAR or (word.endswith("ed") and word not in NO_PARTICIPLES)


def acts(function: Function) -> bool:
    """Whether a function has an effect, as far as its own text shows.

    It returns nothing; or takes a source of randomness or a callback, changes one of its arguments, or trains a model.
    """
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    if any(EFFECTS.search(ast.unparse(argument.annotation)) for argument in arguments if argument.annotation):
        return True
    own = list(_own_nodes(function))
    gives = any((isinstance(n, ast.Return) and n.value) or isinstance(n, ast.Yield | ast.YieldFrom) for n in own)
    names = {argument.arg for argument in arguments}
    return not (gives or _is_stub(function)) or any(_changes(node, names) for node in own)


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function, those of functions inside it left out."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def _is_stub(function: Function) -> bool:
    """Whether it is a Protocol's or an overload's: text, ellipsis or pass."""
    return all(
        isinstance(n, ast.Pass) or (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
        for n in function.body
    )


def _changes(node: ast.AST, names: set[str]) -> bool:
    """Whether a node assigns to a part of an argument, calls a method that changes it, or trains a model."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "fit" or (node.func.attr in MUTATING and _root(node.func.value) in names)
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return _root(node) in names
    return False


def _root(node: ast.AST) -> str:
    """The name that a chain of attributes and subscripts begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def duplicate_names(trees: Mapping[PurePosixPath, ast.Module], folders: Sequence[str]) -> dict[str, list[str]]:
    """Return the names of classes and functions that several chapters define at the top level of a module."""
    places: dict[str, set[str]] = defaultdict(set)
    chapters: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("__"):
                places[node.name].add(str(path))
                chapters[node.name].add(_chapter(path, folders))
    return {name: sorted(places[name]) for name in sorted(places) if len(chapters[name]) > 1}


def _chapter(path: PurePosixPath, folders: Sequence[str]) -> PurePosixPath:
    """The folder or module directly below one of the folders that a module belongs to."""
    above = next(folder for folder in folders if path.is_relative_to(folder))
    return PurePosixPath(above, path.relative_to(above).parts[0])


def figures(metrics: Metrics) -> dict[str, str]:
    """Return the figures as lines of a table."""
    crowded, most = max(metrics.modules.items(), key=lambda item: item[1], default=("", 0))
    return {
        "modules": str(sum(metrics.modules.values())),
        "folders": str(len(metrics.modules)),
        "most crowded folder": f"{most} ({crowded})",
        "longest module": f"{metrics.longest[1]} lines ({metrics.longest[0]})",
        "statements": f"{metrics.statements:,}",
        "of these, imports": f"{metrics.imports:,}",
        "functions": f"{metrics.functions:,}",
        "names beginning with a participle": str(metrics.participles),
        "of these, functions that act": str(len(metrics.acting)),
        "names defined in several chapters": str(len(metrics.duplicates)),
    }


def show(metrics: Metrics, before: Metrics | None) -> None:
    """Print the figures, before and after, and what is behind them."""
    then, now = figures(before) if before else {}, figures(metrics)
    for name, value in now.items():
        print(f"{name:36}" + (f"{then[name]:48}" if then else "") + value)
    print("\nmodules per folder")
    for folder, count in metrics.modules.items():
        print(f"  {count:3} {folder}")
    print("\nfunctions that act although their names begin with a participle")
    print("\n".join(f"  {name}" for name in metrics.acting) or "  none")
    print("\nnames of classes and functions in several chapters")
    print("\n".join(f"  {name}: {', '.join(paths)}" for name, paths in metrics.duplicates.items()) or "  none")


def main() -> None:
    """Read the command line and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.program.code_metrics", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("folders", metavar="FOLDER", nargs="*", default=["dpcore"])
    parser.add_argument("--before", metavar="COMMIT", help="print the figures of this commit beside those of now")
    given = parser.parse_args()
    folders = [folder.rstrip("/") for folder in given.folders]
    before = measure(sources_of_commit(given.before, *folders), *folders) if given.before else None
    show(measure(sources_now(*folders), *folders), before)


if __name__ == "__main__":
    main()
