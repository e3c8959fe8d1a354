"""Bundles as witnesses: each names the ledger's head when it was made.

A ledger that does not contain the head of some bundle beside it was lost, rolled back or
replaced; what it says about the budget would be too little.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpcore.errors import LedgerError
from tasks.stores.ledger_state import Entry
from tasks.stores.workspace import Workspace


def bundle_folders(workspace: Workspace) -> Iterator[Path]:
    """Every visible bundle of a workspace."""
    for folder in sorted(workspace.releases.glob("*/*")):
        if folder.is_dir() and not folder.name.startswith("."):
            yield folder


def unknown_bundles(workspace: Workspace, entries: Sequence[Entry]) -> list[str]:
    """The bundles whose ledger head these entries do not contain."""
    known = {(entry.seq, entry.hash) for entry in entries}
    return [folder.name for folder in bundle_folders(workspace) if _head(folder) not in known]


def _head(folder: Path) -> tuple[int, str]:
    try:
        head = json.loads((folder / "record.json").read_text())["ledger"]
        return int(head["entries"]), str(head["head"])
    except (ValueError, KeyError, TypeError, OSError):
        return 0, ""  # an unreadable record is no witness for this ledger


def require_known_bundles(workspace: Workspace, entries: Sequence[Entry]) -> None:
    """Refuse to release on a ledger that some bundle knows better than.

    Raises: LedgerError.
    """
    unknown = unknown_bundles(workspace, entries)
    if unknown:
        raise LedgerError(
            f"the ledger does not contain the entries that {unknown[0]} was made with",
            rule="ledger-older-than-bundles",
            where="ledger.db",
            hint="the ledger was lost, rolled back or replaced: restore the latest one, then run `dprelease audit`",
        )
