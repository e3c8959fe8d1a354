"""The files that a specification's source.path matches, and the month in a file name.

File names are private: no error in this module contains one.
"""

from __future__ import annotations

import os
import re
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

from dpcore.errors import LandingError
from tasks.spec.operations import without_file_scheme
from tasks.workspace.redaction import ErrorBoundary

PERIOD = re.compile(r"(?!0000|9999)[0-9]{4}-(0[1-9]|1[0-2])")  # only months with a previous and a next one
ENDINGS = (".parquet", ".csv")
PARTITION = re.compile(r"(?P<column>[^=]+)=(?P<cell>.*)")
NO_CELL = "__HIVE_DEFAULT_PARTITION__"
"""The marker of a missing cell in a partition's name."""
APART = ("quarantine", "verdicts")
"""Folders of landing/ that hold no landing data."""


def matching_files(root: Path, pattern: str) -> list[Path]:
    """The data files that a pattern matches, each once, without hidden files and files in quarantine.

    Raises: LandingError if one of them is neither Parquet nor CSV.
    """
    files = matching_names(root, pattern)
    for file in files:
        require_landable(file, "source.path")
    return files


def matching_names(root: Path, pattern: str) -> list[Path]:
    """The same, including files of another format that the pattern names; a folder stands for its data files."""
    if "://" in pattern:
        return elsewhere(pattern)
    base, rest = _split_pattern(root, pattern)
    with ErrorBoundary(ValueError, IndexError, NotImplementedError, refusal=lambda _: _no_pattern(rest)):
        paths = sorted(base.glob(rest))
    files = [file for path in paths for file in ([path] if _is_data(path) else data_files(path))]
    apart = [root / "landing" / name for name in APART]
    wanted = [f for f in files if not f.name.startswith(".") and not any(f.is_relative_to(part) for part in apart)]
    return list({file.resolve(): file for file in wanted}.values())  # a link and its target count as one file


def absolute(text: str) -> str:
    """The absolute form of a path; a URL is returned unchanged, except that of a file on this machine."""
    here = without_file_scheme(text)
    return here if "://" in here else str(Path(here).resolve())


def elsewhere(url: str, where: str = "source.path") -> list[Path]:
    """The data files that the URL of a store matches, sorted by name; a folder stands for its data files.

    Address and credentials come from the settings of the store's client (environment, configuration files).
    Raises: LandingError if the store cannot be queried.
    """
    from fsspec.core import url_to_fs
    from upath import UPath

    with ErrorBoundary(Exception, refusal=lambda _: _unreachable_store(where)):  # its client may raise anything
        store, pattern = url_to_fs(url)
        store.invalidate_cache()
        paths: Any = [
            UPath(store.unstrip_protocol(path), **store.storage_options) for path in sorted(store.glob(pattern))
        ]
        found = [file for path in paths for file in ([path] if path.is_file() else data_files(path))]
    return [file for file in found if not file.name.startswith((".", "_"))]


def would_match(pattern: str, relative: Path) -> bool:
    """Whether the pattern would match a file of that name; the same rule is tried on an empty file elsewhere.

    Raises: LandingError if the file would match and be refused.
    """
    with TemporaryDirectory() as folder:
        trial = Path(folder) / relative
        trial.parent.mkdir(parents=True, exist_ok=True)
        trial.touch()
        return bool(matching_files(Path(folder), pattern))


def folder_of(root: Path, pattern: str) -> Path:
    """The folder that contains every file that a pattern can match."""
    base, rest = _split_pattern(root, pattern)
    parts = Path(rest).parts
    fixed = list(takewhile(lambda part: not set(part) & set("*?["), parts))
    folder = base.joinpath(*fixed)
    if len(fixed) == len(parts) and folder.suffix.lower() in ENDINGS and not folder.is_dir():
        folder = folder.parent
    return Path(os.path.normpath(folder))


def relative_pattern(root: Path, pattern: str) -> str | None:
    """The pattern relative to the workspace; None if it matches files outside."""
    inside = Path(os.path.normpath(root / pattern))
    return str(inside.relative_to(root)) if inside.is_relative_to(root) else None


def _split_pattern(root: Path, pattern: str) -> tuple[Path, str]:
    """The folder in which to search, and the pattern relative to it."""
    given = Path(pattern)
    if given.is_absolute():
        return Path(given.anchor), str(given.relative_to(given.anchor))
    return root, pattern


def _no_pattern(pattern: str) -> LandingError:
    return LandingError(
        f"source.path {pattern!r} is not a pattern for files",
        rule="path-malformed",
        where="source.path",
        hint="write a file, a folder, or a pattern such as landing/*.parquet",
    )


def _unreachable_store(where: str) -> LandingError:
    return LandingError(
        "the store of the landing data cannot list its files",
        rule="source-unreachable",
        where=where,
        hint="check the address, the network and the credentials, and that the client for this kind of URL is "
        "installed (s3fs for s3://)",
    )


def data_files(path: Path) -> list[Path]:
    """The data files of a folder and of its partitions, in the order of their names; none if there is no such folder.

    A partition is a folder whose name gives a column's value to all rows in it, such as year=2026.
    """
    candidates = sorted(path.iterdir()) if path.is_dir() else []
    found = [data_files(p) if PARTITION.fullmatch(p.name) and p.is_dir() else [p] for p in candidates]
    return [p for files in found for p in files if p.suffix.lower() in ENDINGS and _is_data(p)]


def _is_data(path: Path) -> bool:
    """Whether a path counts as data: a file, or something that will be refused later, such as a pipe."""
    return path.is_file() or (path.exists() and not path.is_dir())


def partition_of(path: Path) -> tuple[tuple[str, str | None], ...]:
    """The columns and cells that the names of a file's folders define for all of its rows."""
    matches = [PARTITION.fullmatch(name) for name in _partition_folders(path)]
    cells = [(unquote(match["column"]), unquote(match["cell"])) for match in matches if match]
    return tuple((column, None if cell == NO_CELL else cell) for column, cell in cells)


def _partition_folders(path: Path) -> list[str]:
    """The names of the partition folders directly above a file, the outermost first."""
    return [folder.name for folder in takewhile(lambda f: PARTITION.fullmatch(f.name), path.parents)][::-1]


def require_landable(path: Path, where: str) -> None:
    """Check the extension, and that the path is a regular file: reading a pipe or a device may never end.

    Raises: LandingError.
    """
    if path.suffix.lower() not in ENDINGS:
        raise LandingError(
            "the landing file is neither .parquet nor .csv",
            rule="format-unknown",
            where=where,
            hint="land Parquet or CSV, with that ending",
        )
    if not path.is_file():
        raise LandingError(
            "a landing file is not a regular file",
            rule="file-irregular",
            where=where,
            hint="land the data as a file; pipes, sockets and devices are not read",
        )


def period_of(path: Path, pattern: str | None) -> str | None:
    """The month in a file's name, which includes the names of its partition folders; None if there is none.

    Raises: LandingError if the matched text is not a month.
    """
    match = re.search(pattern, "/".join([*_partition_folders(path), path.name])) if pattern else None
    period = match.group("period") if match else None
    if period is not None and not PERIOD.fullmatch(period):
        raise LandingError(
            "the period in a landing file's name is not a month",
            rule="period-malformed",
            where="source.period",
            hint="let the pattern's group `period` match a month such as 2026-11, and nothing else",
        )
    return period


def require_period(pattern: str | None, period: str | None) -> None:
    """Refuse a file whose name contains no month if the specification declares that names contain it.

    Raises: LandingError; the release of a month would ignore such a file.
    """
    if pattern and period is None:
        raise LandingError(
            "a landing file's name contains no period",
            rule="period-missing",
            where="source.period",
            hint="give it a name that matches the pattern, or remove source.period from the specification",
        )
