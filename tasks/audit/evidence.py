"""The evidence of an audit: a workspace, or the files that an auditor received from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from dpcore.errors import RefusedError
from dpcore.measure import Measurement
from tasks.bundle.staging import CHECKSUMS
from tasks.keys.signing import PublicKey, read_public
from tasks.ledger.balances import History
from tasks.ledger.entries.entry import Entry
from tasks.ledger.releases import ReleaseState
from tasks.ledger.state import LedgerState
from tasks.workspace.folders import MARK_ENDING, Workspace
from tasks.workspace.reading import parse_json, read_text


@dataclass(frozen=True, slots=True)
class Shelf:
    """The folder that holds bundles, and the bundles in it."""

    root: Path
    found: tuple[Path, ...]
    marks: tuple[Path, ...] = ()
    """The marks of retractions beside the bundles."""

    def place(self, release: ReleaseState) -> Path:
        """The folder of a release's bundle: below the release's name, as in a workspace, or directly in the root."""
        nested = self.root / release.reservation.name / release.release_id
        flat = self.root / release.release_id
        if self.root.name == release.release_id and (self.root / CHECKSUMS).is_file():
            return self.root
        return flat if flat.is_dir() and not nested.is_dir() else nested


def workspace_shelf(workspace: Workspace) -> Shelf:
    """The bundles of a workspace."""
    return Shelf(workspace.releases, tuple(workspace.bundles()), tuple(workspace.marks()))


def given_shelf(root: Path) -> Shelf:
    """The bundles below a folder that an auditor was given.

    Raises: RefusedError if there is no such folder.
    """
    if not root.is_dir():
        raise RefusedError(
            "the folder of bundles does not exist",
            rule="bundles-missing",
            where="--bundles",
            hint="name the folder that holds the release folders",
        )
    names = (CHECKSUMS, "record.json")
    found = (folder for folder in _folders(root) if any((folder / name).exists() for name in names))
    marks = (mark for pattern in ("*", "*/*") for mark in sorted(root.glob(f"{pattern}{MARK_ENDING}")))
    return Shelf(root, tuple(found), tuple(marks))


def _folders(root: Path) -> Iterator[Path]:
    yield root
    for pattern in ("*", "*/*"):
        yield from (f for f in sorted(root.glob(pattern)) if f.is_dir() and not f.name.startswith("."))


@dataclass(frozen=True, slots=True)
class Redraw:
    """How many rows of each released table are redrawn, and the callback for progress."""

    rows: int | None = None
    """The least number of rows to redraw at random from each table; None redraws all."""
    on_progress: Callable[[str], None] = lambda _: None


EVERYTHING = Redraw()
"""Redraw all rows, without reports of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that the checks of an audit compare."""

    entries: list[Entry]
    state: LedgerState
    history: History
    shelf: Shelf
    now: datetime
    """The auditor's clock."""
    stored: Callable[[str, str], Measurement | None] | None = None
    """Returns a measurement from the ledger's database; an export has none."""
    log: list[str] | None = None
    """The lines of the workspace's lineage."""
    trusted: tuple[PublicKey, ...] = ()
    """The keys that the auditor gives."""
    own: tuple[PublicKey, ...] = ()
    """The keys that the audited workspace trusts."""
    runs: Mapping[str, Mapping[str, Any]] | None = None
    """The orchestrator's flow runs by id: name, tags, state, start."""
    known: frozenset[tuple[int, str]] = field(default_factory=frozenset)
    """Number and hash of every entry."""
    redraw: Redraw = EVERYTHING
    own_keys: frozenset[str] | None = None
    """The keys of the audited workspace if others share its ledger; None if every entry is its own."""

    @property
    def anchors(self) -> tuple[PublicKey, ...]:
        """The trust anchors of this audit: the auditor's keys, or else the workspace's."""
        return self.trusted or self.own

    def is_own(self, entry: Entry) -> bool:
        """Whether the audited workspace wrote an entry, so that it must have the bundle and the flow run."""
        return self.own_keys is None or not entry.key_id or entry.key_id in self.own_keys


def read_export(path: Path) -> list[Entry]:
    """The entries of a ledger export, one JSON line each.

    Raises: RefusedError if there is no such file; ValueError, TypeError if a line is not an entry.
    """
    if not path.is_file():
        raise RefusedError(
            "the ledger export does not exist",
            rule="export-missing",
            where="--export",
            hint="`dprelease ledger export` writes one",
        )
    entries = [Entry.from_json(parse_json(line)) for line in read_text(path).splitlines()]
    if not all(isinstance(entry.seq, int) and isinstance(entry.body, str) for entry in entries):
        raise TypeError("an entry's fields are of other types")
    return entries


def read_public_key(path: Path) -> PublicKey:
    """A public key, in PEM or as the ledger writes it.

    Raises: RefusedError.
    """
    hint = "give keys/signing.pub of the workspace, as its steward handed it to you"
    return read_public(lambda: read_text(path), where="--public-key", hint=hint)
