"""Demo workspaces: a specification and landing data to release from, all of it public.

    write_demo("clinic", folder)    # writes release.yaml and landing/... into the workspace

The data are invented (`clinic`) or long published (`digits`), so they come from a
fixed seed and every `init` gives the same tables. No mechanism uses this seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpcore.errors import WorkspaceError
from flows.demos import clinic, digits

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DEMOS", "Demo", "write_demo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """A demo: its specification, the names of its landing files and their tables, in the same order."""

    name: str
    summary: str
    file_names: tuple[str, ...]
    specification: Callable[[], str]
    tables: Callable[[np.random.Generator], Iterator[pa.Table]]


DEMOS: dict[str, Demo] = {
    demo.name: demo
    for demo in (
        Demo(
            name="clinic",
            summary="invented outpatient visits of patients who come back: mixed types, twelve monthly files",
            file_names=clinic.FILE_NAMES,
            specification=clinic.specification,
            tables=clinic.tables,
        ),
        Demo(
            name="digits",
            summary="scikit-learn's 1,797 handwritten digits: 64 pixels and a label",
            file_names=digits.FILE_NAMES,
            specification=digits.specification,
            tables=digits.tables,
        ),
    )
}


def write_demo(name: str, folder: Path) -> None:
    """Write the demo's release.yaml and landing files into an existing workspace folder.

    Raises:
        WorkspaceError: no demo has this name, the folder does not exist, or it
            already holds a file of the demo; then nothing is written.

    """
    demo = _demo_named(name)
    specification = folder / "release.yaml"
    files = [folder / "landing" / file_name for file_name in demo.file_names]
    _refuse_unless_free(folder, [specification, *files])
    (folder / "landing").mkdir(exist_ok=True)
    try:
        for path, table in zip(files, demo.tables(_public_generator()), strict=True):
            _write_parquet(table, path)
        with specification.open("x", encoding="utf-8") as sink:
            sink.write(demo.specification())
    except BaseException:
        for path in [specification, *files]:
            path.unlink(missing_ok=True)
        raise


def _public_generator() -> np.random.Generator:
    """A generator with a fixed, public seed: for invented data only, never for a mechanism."""
    return np.random.Generator(np.random.PCG64(20251101))


def _demo_named(name: str) -> Demo:
    """The demo of that name, or a refusal that lists the names."""
    if name not in DEMOS:
        raise WorkspaceError(
            f"there is no demo {name!r}",
            rule="a demo must be one of the built-in ones",
            where="--demo",
            hint=f"choose one of: {', '.join(DEMOS)}",
        )
    return DEMOS[name]


def _refuse_unless_free(folder: Path, paths: list[Path]) -> None:
    """Refuse a folder that is not there, or that already holds one of the paths (a dangling link counts)."""
    if not folder.is_dir():
        raise WorkspaceError(
            "the workspace folder does not exist",
            rule="a demo is written into an existing workspace",
            where=str(folder),
            hint="make the folder first, or use `dprelease init DIR --demo NAME`",
        )
    for path in paths:
        if path.exists() or path.is_symlink():
            raise WorkspaceError(
                "a file of the demo already exists in the workspace",
                rule="a demo never overwrites a file",
                where=str(path.relative_to(folder)),
                hint="choose an empty folder, or move the file away",
            )


def _write_parquet(table: pa.Table, path: Path) -> None:
    """Write the table to a new Parquet file."""
    import pyarrow.parquet as pq

    with path.open("xb") as sink:
        pq.write_table(table, sink, compression="zstd")
