"""Witnesses of the ledger: bundles and lineage name entries that it must contain.

Every bundle names the ledger's head when it was made, and the lineage of every
measurement names its spend, published or not. A ledger that lacks such an entry was
lost, rolled back or replaced; what it says about the budget would be too little.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpcore.errors import LedgerError
from tasks.stores.ledger_state import Entry
from tasks.stores.lineage import events_of
from tasks.stores.workspace import Workspace


def bundle_folders(workspace: Workspace) -> Iterator[Path]:
    """Every visible bundle of a workspace."""
    for folder in sorted(workspace.releases.glob("*/*")):
        if folder.is_dir() and not folder.name.startswith("."):
            yield folder


def missing_entries(workspace: Workspace, entries: Sequence[Entry]) -> list[str]:
    """The witnesses that name entries which are not among these, in words."""
    known = {(entry.seq, entry.hash) for entry in entries}
    bundles = [f"bundle {folder.name}" for folder in bundle_folders(workspace) if _head(folder) not in known]
    spends = [f"the lineage of entry {seq}" for seq, digest in _spends(workspace) if (seq, digest) not in known]
    return [*bundles, *dict.fromkeys(spends)]


def _spends(workspace: Workspace) -> Iterator[tuple[int, str]]:
    """The spends that the workspace's lineage tells of."""
    for event in events_of(workspace.lineage_path):
        facet = event.get("run", {}).get("facets", {}).get("dp_spend")
        if facet:
            yield int(facet["ledgerEntry"]), str(facet["ledgerHash"])


def _head(folder: Path) -> tuple[int, str]:
    try:
        head = json.loads((folder / "record.json").read_text())["ledger"]
        return int(head["entries"]), str(head["head"])
    except (ValueError, KeyError, TypeError, OSError):
        return 0, ""  # an unreadable record is no witness for this ledger


def require_complete_ledger(workspace: Workspace, entries: Sequence[Entry]) -> None:
    """Refuse to release on a ledger that some witness knows better than.

    Raises: LedgerError.
    """
    missing = missing_entries(workspace, entries)
    if missing:
        raise LedgerError(
            f"the ledger lacks entries that {missing[0]} names",
            rule="ledger-incomplete",
            where="ledger.db",
            hint="the ledger was lost, rolled back or replaced: restore the latest one, then run `dprelease audit`",
        )
