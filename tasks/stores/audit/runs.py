"""Steps over the orchestrator's history: every release has its runs, every finished run its release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.stores.audit.checks import Check, check
from tasks.stores.audit.evidence import Evidence
from tasks.stores.ledger_state import Entry

Runs = Mapping[str, Mapping[str, Any]]


def runs_check(evidence: Evidence, runs: Runs) -> Check:
    """The flow runs that the ledger names are in the history, and the history names no release besides."""
    return check("flow runs", lambda: _run_faults(evidence, runs), lambda: _run_words(evidence, runs))


def _named(evidence: Evidence) -> list[tuple[Entry, str]]:
    """The entries that name a flow run of this workspace: reservations, spends and publications."""
    kinds = ("reserve", "spend", "publish")
    mine = [entry for entry in evidence.entries if entry.kind in kinds and evidence.is_own(entry)]
    named = [(entry, entry.facts.get("flow_run_id")) for entry in mine]  # spends of version 1 name none
    return [(entry, str(run_id)) for entry, run_id in named if run_id is not None]


def _beginning(runs: Runs) -> str:
    return min((str(run["start"]) for run in runs.values() if run.get("start")), default="9999")


def _run_faults(evidence: Evidence, runs: Runs) -> list[str]:
    first = _beginning(runs)
    found = []
    for entry, run_id in _named(evidence):
        run = runs.get(run_id)
        if run is None and entry.at >= first:
            found.append(f"the flow run of entry {entry.seq} is not in the history")
        elif run is not None and entry.release_id not in (run["name"], *run["tags"]):
            found.append(f"the flow run of entry {entry.seq} is about another release")
    return found + _runs_without_release(evidence, runs)


def _runs_without_release(evidence: Evidence, runs: Runs) -> list[str]:
    """Finished runs named after a release that the ledger does not have as published."""
    published = {r.release_id for r in evidence.state.releases.values() if r.published} | evidence.state.retired
    done = [str(run["name"]) for run in runs.values() if run["state"] == "COMPLETED" and run["name"] in run["tags"]]
    return [f"a run published {name}, which the ledger does not know" for name in sorted(set(done) - published)]


def _run_words(evidence: Evidence, runs: Runs) -> str:
    named = {run_id for _, run_id in _named(evidence)}
    older = len(named - runs.keys())
    words = f"{len(named & runs.keys())} runs of the ledger are in the history"
    return words + (f"; {older} are older than it" if older else "")
