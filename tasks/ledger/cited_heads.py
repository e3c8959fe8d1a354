"""Witnesses of the ledger: bundles, lineage and marks of retractions name entries that it must contain.

Every bundle names the ledger's head when it was made, and the lineage of every
measurement names its spend, published or not. Lineage and mark of a retracted release
name its retraction. A ledger that lacks such an entry was lost, rolled back or replaced;
what it says about the budget would be too little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.errors import LedgerError
from tasks.ledger.entries.bodies import Reconciliation
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.marks import marked_entry
from tasks.lineage.events import RETRACT, numbered_events
from tasks.lineage.facets import GUARANTEE, LEDGER, SPEND
from tasks.workspace.folders import Workspace
from tasks.workspace.reading import parse_json, read_text


@dataclass(frozen=True, slots=True)
class Witness:
    """Something that names an entry of the ledger, and what it says that the release cost."""

    what: str
    seq: int
    hash: str
    release_id: str
    epsilon: float


def missing_entries(workspace: Workspace, entries: Sequence[Entry]) -> list[str]:
    """The witnesses that name entries which are not among these, in words."""
    hashes = {entry.seq: entry.hash for entry in entries}
    return list(
        dict.fromkeys(witness.what + _fork(witness, hashes) for witness in missing_witnesses(workspace, entries))
    )


def _fork(witness: Witness, hashes: dict[int, str]) -> str:
    """A lost tail lacks the entry's number; a ledger that went on elsewhere has another entry there."""
    return f" (a fork: entry {witness.seq} is another one here)" if witness.seq in hashes else ""


def missing_witnesses(workspace: Workspace, entries: Sequence[Entry]) -> list[Witness]:
    """The witnesses of entries that are not among these, and were not answered for by a reconciliation."""
    known = {(entry.seq, entry.hash) for entry in entries}
    for entry in entries:
        if entry.is_a(Reconciliation):
            known |= set(entry.parse(Reconciliation).lost)
    return [
        witness
        for witness in [*map(_of_bundle, workspace.bundles()), *_of_marks(workspace), *_of_lineage(workspace)]
        if (witness.seq, witness.hash) not in known
    ]


def _of_lineage(workspace: Workspace) -> Iterator[Witness]:
    """The spends and retractions that the workspace's lineage tells of; a malformed event counts as one."""
    for number, event in numbered_events(workspace.lineage_path):
        try:
            yield from _of_event(event)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
            yield Witness(f"line {number} of the lineage (malformed)", 0, "", "", 0.0)


def _of_event(event: dict[str, Any]) -> list[Witness]:
    facets = event.get("run", {}).get("facets", {})
    stated = float(facets.get(GUARANTEE, {}).get("epsilon", 0))
    found = []
    for spend in (facet for name, facet in facets.items() if name.startswith(SPEND)):
        seq, whole = int(spend["ledgerEntry"]), float(spend.get("ofRelease", {}).get("epsilon", stated))
        found.append(Witness(f"the lineage of entry {seq}", seq, str(spend["ledgerHash"]), release_of(event), whole))
    return [*found, *_of_retraction(event)]


def _of_retraction(event: dict[str, Any]) -> Iterator[Witness]:
    if str(event.get("job", {}).get("name", "")).endswith(f".{RETRACT}"):
        for facet in (dataset["facets"].get(LEDGER) for dataset in event["outputs"] if "facets" in dataset):
            if facet:
                seq, digest = int(facet["ledgerEntry"]), str(facet["ledgerHash"])
                yield Witness(f"the lineage of entry {seq}", seq, digest, release_of(event), 0.0)


def release_of(event: dict[str, Any]) -> str:
    """The release that an event is about: from its tags, or, before there were any, from a dataset's name."""
    tags = event["run"].get("facets", {}).get("tags", {}).get("tags", [])
    named = [str(tag["value"]) for tag in tags if tag.get("key") == "release"]
    if named:
        return named[0]
    datasets = [*event.get("outputs", []), *event.get("inputs", [])]
    return str(datasets[0]["name"]).rpartition("/")[0] if datasets else ""


def _of_bundle(folder: Path) -> Witness:
    what = f"bundle {folder.name}"
    try:
        record = parse_json(read_text(folder / "record.json"))
        head, stated = record["ledger"], float(record["privacy"]["epsilon"])
        return Witness(what, int(head["entries"]), str(head["head"]), folder.name, stated)
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return Witness(what, 0, "", folder.name, 0.0)  # an unreadable record is no witness for this ledger


def _of_marks(workspace: Workspace) -> Iterator[Witness]:
    """The retractions that marks tell of; the audit reports a mark that cannot be read."""
    for mark in workspace.marks():
        if entry := marked_entry(mark):
            yield Witness(f"the mark {mark.name}", entry.seq, entry.hash, entry.release_id, 0.0)


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
            hint="the ledger was lost, rolled back, copied or replaced: restore the latest one and run "
            "`dprelease audit`; if it is gone for good, `dprelease ledger reconcile` charges what was lost",
        )
