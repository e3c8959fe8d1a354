"""Which files a specification's source.path means, and the month that a file name carries.

File names are private: no error here carries one.
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

PERIOD = re.compile(r"(?!0000|9999)[0-9]{4}-(0[1-9]|1[0-2])")  # months that have one before and one after
ENDINGS = (".parquet", ".csv")
PARTITION = re.compile(r"(?P<column>[^=]+)=(?P<cell>.*)")
NO_CELL = "__HIVE_DEFAULT_PARTITION__"
"""What stands in a partition's name for a missing cell."""
APART = ("quarantine", "verdicts")
"""Folders of landing/ that hold no landing data."""


def matching_files(root: Path, pattern: str) -> list[Path]:
    """The data files that a pattern finds: no hidden ones, none that were put apart, each once.

    Raises: LandingError if one of them is neither Parquet nor CSV.
    """
    files = matching_names(root, pattern)
    for file in files:
        require_landable(file, "source.path")
    return files


def matching_names(root: Path, pattern: str) -> list[Path]:
    """The same, but also those of another format that the pattern names; a folder stands for its data files."""
    if "://" in pattern:
        return elsewhere(pattern)
    base, rest = _split_pattern(root, pattern)
    with ErrorBoundary(ValueError, IndexError, NotImplementedError, refusal=lambda _: _no_pattern(rest)):
        paths = sorted(base.glob(rest))
    files = [file for path in paths for file in ([path] if _is_data(path) else data_files(path))]
    apart = [root / "landing" / name for name in APART]
    wanted = [f for f in files if not f.name.startswith(".") and not any(f.is_relative_to(part) for part in apart)]
    return list({file.resolve(): file for file in wanted}.values())  # a link beside its target counts once


def absolute(text: str) -> str:
    """A path that is the same wherever it is read from; a URL stays as it is, but for that of a file here."""
    here = without_file_scheme(text)
    return here if "://" in here else str(Path(here).resolve())


def elsewhere(url: str, where: str = "source.path") -> list[Path]:
    """The data files that a URL of some store finds, in the order of their names; a folder stands for its data files.

    Where the store is and who may read it comes from its client's own settings (environment, configuration files).
    Raises: LandingError if it cannot be asked.
    """
    from fsspec.core import url_to_fs
    from upath import UPath

    with ErrorBoundary(Exception, refusal=lambda _: _unreachable_store(where)):  # its client raises what it likes
        store, pattern = url_to_fs(url)
        store.invalidate_cache()
        paths: Any = [
            UPath(store.unstrip_protocol(path), **store.storage_options) for path in sorted(store.glob(pattern))
        ]
        found = [file for path in paths for file in ([path] if path.is_file() else data_files(path))]
    return [file for file in found if not file.name.startswith((".", "_"))]


def would_match(pattern: str, relative: Path) -> bool:
    """Whether a file of that name would be found; tried on an empty one elsewhere, so that the rule is the same.

    Raises: LandingError if it would be found and refused.
    """
    with TemporaryDirectory() as folder:
        trial = Path(folder) / relative
        trial.parent.mkdir(parents=True, exist_ok=True)
        trial.touch()
        return bool(matching_files(Path(folder), pattern))


def folder_of(root: Path, pattern: str) -> Path:
    """The folder under which every file lies that a pattern can find."""
    base, rest = _split_pattern(root, pattern)
    parts = Path(rest).parts
    fixed = list(takewhile(lambda part: not set(part) & set("*?["), parts))
    folder = base.joinpath(*fixed)
    if len(fixed) == len(parts) and folder.suffix.lower() in ENDINGS and not folder.is_dir():
        folder = folder.parent
    return Path(os.path.normpath(folder))


def relative_pattern(root: Path, pattern: str) -> str | None:
    """The pattern as seen from the workspace; None if it finds files outside."""
    inside = Path(os.path.normpath(root / pattern))
    return str(inside.relative_to(root)) if inside.is_relative_to(root) else None


def _split_pattern(root: Path, pattern: str) -> tuple[Path, str]:
    """The folder from which to search, and what to search for."""
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
    """Whether a path stands for data: a file, or something in its place that will be refused, such as a pipe."""
    return path.is_file() or (path.exists() and not path.is_dir())


def partition_of(path: Path) -> tuple[tuple[str, str | None], ...]:
    """The columns and cells that the names of a file's folders give to all of its rows."""
    matches = [PARTITION.fullmatch(name) for name in _partition_folders(path)]
    cells = [(unquote(match["column"]), unquote(match["cell"])) for match in matches if match]
    return tuple((column, None if cell == NO_CELL else cell) for column, cell in cells)


def _partition_folders(path: Path) -> list[str]:
    """The names of the folders right above a file that are partitions, the outermost first."""
    return [folder.name for folder in takewhile(lambda f: PARTITION.fullmatch(f.name), path.parents)][::-1]


def require_landable(path: Path, where: str) -> None:
    """Check a file's ending, and that it is a file: reading a pipe or a device may never end.

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
    """The month in a file's name, with those of its partition folders before it; None if they carry none.

    Raises: LandingError if what they carry is no month.
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
    """Refuse a file whose name carries no month where the specification says that names do.

    Raises: LandingError; a release of a month would pass such a file by.
    """
    if pattern and period is None:
        raise LandingError(
            "a landing file's name contains no period",
            rule="period-missing",
            where="source.period",
            hint="give it a name that matches the pattern, or remove source.period from the specification",
        )
