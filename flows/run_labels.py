"""What an auditor finds in the orchestrator's history: names and tags of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prefect.runtime import flow_run

from dpcore.errors import LandingError, RefusedError
from tasks.artifacts import Board
from tasks.ledger.entries.entry import Entry
from tasks.release.context import ReleaseRun
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace

ENTRY_TAG = "ledger-entry:"
"""What a tag begins with that names a ledger entry."""

AGAIN, REFUSED = " (again)", " (refused)"


def label_again(run: ReleaseRun, release_id: str) -> None:
    """Name a run after the release that was finished before it came."""
    board = Board(run.flow_run_id)
    name, words = release_id + AGAIN, tags_of(run, release_id, [])
    board.attempt("the run's name", lambda: board.label(name=name, tags=words))


def tags_of(run: ReleaseRun, release_id: str, entries: Sequence[Entry]) -> list[str]:
    """Dataset, period, release id and ledger entries, beside the tags that the run came with."""
    own = [run.planned.spec.name, run.planned.period, release_id, *(f"{ENTRY_TAG}{entry.seq}" for entry in entries)]
    return list(dict.fromkeys([*(flow_run.tags or []), *own]))


@contextmanager
def name_early(workspace: Workspace, flow_run_id: str, period: str | None) -> Iterator[None]:
    """Name a run after its month before it reads anything, and mark the name if the run is refused that early."""
    label = _early_label(workspace, period)
    _name(flow_run_id, label)
    try:
        yield
    except RefusedError as error:
        keep_verdict(workspace, label, error)
        _name(flow_run_id, label + REFUSED)
        raise


def _name(flow_run_id: str, name: str) -> None:
    board = Board(flow_run_id)
    board.attempt("the run's name", lambda: board.label(name=name, tags=list(flow_run.tags or [])))


def _early_label(workspace: Workspace, period: str | None) -> str:
    try:
        dataset = load_spec(workspace.spec_path).name
    except RefusedError:
        dataset = "release"
    return f"{dataset}-{period}" if period else dataset


def keep_verdict(workspace: Workspace, label: str, error: RefusedError) -> None:
    """Store for the operator which rule the landing data broke, and where; the orchestrator does not receive this.

    A run from the command line prints it as well; a run that a server started has no terminal.
    """
    if isinstance(error, LandingError):
        workspace.keep_verdicts(label, [{**error.as_json(), "ok": False}])
