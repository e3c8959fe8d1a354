"""Checks of the orchestrator's history: every release has its runs, and every finished run its release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tasks.audit.checks import Check, check
from tasks.audit.evidence import Evidence
from tasks.ledger.entries.bodies import Reconciliation, Refusal, Reservation, Restore, SealedBundle, Spend
from tasks.ledger.entries.entry import Entry

Runs = Mapping[str, Mapping[str, Any]]

NAMING = (Reservation, Spend, SealedBundle, Refusal)
"""The kinds of entries that name their flow run; earlier entries and a person's refusal name none."""

ENDINGS = (" (again)", " (refused)")
"""The endings of the names of runs that released nothing."""

ENTRY_TAG = "ledger-entry:"


def runs_check(evidence: Evidence, runs: Runs) -> Check:
    """The history contains the flow runs that the ledger names, and names no other release or entry."""
    return check("flow runs", lambda: _run_faults(evidence, runs), lambda: _run_words(evidence, runs))


def _named(evidence: Evidence) -> list[tuple[Entry, str]]:
    """The entries of this workspace that name a flow run."""
    mine = (entry for entry in evidence.entries if entry.is_a(*NAMING) and evidence.is_own(entry))
    named = [(entry, entry.flow_run_id) for entry in mine]
    return [(entry, run_id) for entry, run_id in named if run_id is not None]


def _run_faults(evidence: Evidence, runs: Runs) -> list[str]:
    own = [run for run in runs.values() if run.get("own", True)]  # a server may serve several workspaces
    first = min((str(run["start"]) for run in own if run.get("start")), default="9999")
    found = []
    for entry, run_id in _named(evidence):
        run = runs.get(run_id)
        if run is None and entry.at >= first:
            found.append(f"the flow run of entry {entry.seq} is not in the history")
        elif run is not None and entry.release_id not in (_release_of(run), *run["tags"]):
            found.append(f"the flow run of entry {entry.seq} is about another release")
    return found + _runs_without_release(evidence, own) + list(_runs_without_entry(evidence, own))


def _release_of(run: Mapping[str, Any]) -> str:
    """The release that a run is named after."""
    name = str(run["name"])
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)


def _runs_without_release(evidence: Evidence, runs: list[Mapping[str, Any]]) -> list[str]:
    """Finished runs of releases that, by the ledger, are neither published nor waiting for approval."""
    made = {entry.release_id for entry in evidence.entries if entry.is_a(SealedBundle)}
    done = {str(run["name"]) for run in runs if run["state"] == "COMPLETED" and run["name"] in run["tags"]}
    return [
        f"a run published {name}, which the ledger does not know"
        for name in sorted(done - made - evidence.state.retired)
    ]


def _runs_without_entry(evidence: Evidence, runs: list[Mapping[str, Any]]) -> Iterator[str]:
    """Entries in the tags of runs that the ledger lacks, because it was rolled back or forked.

    The reconciliation after a restored backup accounts for the entries that the backup lacks.
    """
    restored = max((entry.at for entry in evidence.entries if entry.is_a(Restore, Reconciliation)), default="")
    known = {(entry.seq, entry.release_id) for entry in evidence.entries}
    for run in runs:
        tagged = [str(tag).removeprefix(ENTRY_TAG) for tag in run["tags"] if str(tag).startswith(ENTRY_TAG)]
        written = {(int(number), _release_of(run)) for number in tagged if number.isdecimal()}
        if str(run.get("start") or "") >= restored[:19]:
            yield from (
                f"a run wrote entry {seq} of {name}, which is not there" for seq, name in sorted(written - known)
            )


def _run_words(evidence: Evidence, runs: Runs) -> str:
    named = {run_id for _, run_id in _named(evidence)}
    there, older = len(named & runs.keys()), len(named - runs.keys())
    words = "1 run of the ledger is" if there == 1 else f"{there} runs of the ledger are"
    return f"{words} in the history" + (f"; {older} {'is' if older == 1 else 'are'} older than it" if older else "")
