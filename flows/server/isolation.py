"""Where a process takes code, settings and temporary files from: never from a folder that others can write to.

Python imports from the current folder, Prefect reads `.env` and `prefect.toml` there, and temporary folders
are shared by all accounts of a machine.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from dpcore.errors import RefusedError
from tasks.workspace.folders import Workspace

SAFE_PATH = {"PYTHONSAFEPATH": "1"}


def isolation_of(scratch: Path) -> dict[str, str]:
    """Variables of a process that imports nothing from its current folder and keeps its files in a private one."""
    return {**SAFE_PATH, "TMPDIR": str(scratch)}


@contextmanager
def isolate_process(workspace: Workspace, scratch: Path) -> Iterator[None]:
    """Isolate the present process and its children; to be entered before Prefect is imported."""
    with _environment(isolation_of(scratch)), chdir(workspace.prefect_home):
        tempfile.tempdir = None  # what was found before the variable was set
        try:
            yield
        finally:
            tempfile.tempdir = None


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def forbid_stored_results() -> None:
    """Let Prefect read no result from storage in this process: none of our flows keeps one there.

    Prefect unpickles the result of a finished run from the file that the run's state names, and whoever can write
    to the server can write a state that names a file of theirs.
    """
    from prefect.results import ResultStore

    for read in ("_from_metadata", "_read", "_aread"):  # all ways from a state to a file
        setattr(ResultStore, read, _refuse_stored_result)


def _refuse_stored_result(*_args: Any) -> NoReturn:
    raise RefusedError(
        "the state of a flow run refers to a stored result, but these flows store none",
        rule="stored-result",
        where="the orchestration server",
        hint="find out who wrote to the server",
    )
