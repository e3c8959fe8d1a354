"""Isolation of processes: code, settings and temporary files never come from a folder that others can write to.

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
    """The environment of a process that imports nothing from its current folder and keeps its files private."""
    return {**SAFE_PATH, "TMPDIR": str(scratch)}


@contextmanager
def isolate_process(workspace: Workspace, scratch: Path) -> Iterator[None]:
    """Isolate this process and its children; must be entered before Prefect is imported."""
    with _environment(isolation_of(scratch)), chdir(workspace.prefect_home):
        tempfile.tempdir = None  # forget the folder that was found before the variable was set
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
    """Prevent Prefect from reading results from storage in this process; our flows store none.

    Prefect unpickles the result of a finished run from the file that the run's state names. Anybody who can
    write to the server could write a state that names a file of their own.
    """
    from prefect.results import ResultStore

    for read in ("_from_metadata", "_read", "_aread"):  # all methods that lead from a state to a file
        setattr(ResultStore, read, _refuse_stored_result)


def _refuse_stored_result(*_args: Any) -> NoReturn:
    raise RefusedError(
        "the state of a flow run refers to a stored result, but these flows store none",
        rule="stored-result",
        where="the orchestration server",
        hint="find out who wrote to the server",
    )
