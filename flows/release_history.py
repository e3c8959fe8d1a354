"""One release as the ledger, the orchestrator and its bundle tell it, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dpcore.accounting import Cost
from flows.run_history import Runs, recorded_runs
from flows.server.connection import Server, known_server
from tasks.bundle.staging import Staging, faults
from tasks.ledger.access import require_trusted
from tasks.ledger.entries.bodies import Approval, Refusal, Retraction, SealedBundle, Void
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.next_command import next_command
from tasks.ledger.opening import has_ledger, readable_ledger, trust_anchors
from tasks.ledger.releases import ReleaseState
from tasks.ledger.state import LedgerState
from tasks.workspace.folders import Workspace
from tasks.workspace.reading import parse_json, read_text

Row = dict[str, Any]


@dataclass(frozen=True)  # no slots: what is looked up is kept
class Joined:
    """A workspace's ledger, beside what the orchestrator's history has of it."""

    workspace: Workspace
    entries: Sequence[Entry]
    runs: Runs
    server: Server | None = None

    @staticmethod
    def of(workspace: Workspace) -> Joined:
        """Read both; before the first run both are empty."""
        entries: list[Entry] = []
        if has_ledger(workspace):
            with closing(readable_ledger(workspace)) as ledger:
                entries = ledger.entries()
        return Joined(workspace, entries, recorded_runs(workspace) or {}, known_server(workspace))

    @cached_property
    def state(self) -> LedgerState:
        """What the entries say.

        Raises: LedgerError if the chain or a signature is broken, or no trusted key leads to it.
        """
        state = LedgerState.replay(self.entries)
        require_trusted(state, trust_anchors(self.workspace))
        return state

    @cached_property
    def _by_release(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.release_id, []).append(entry)
        return found

    @cached_property
    def _by_tag(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for run_id, run in self.runs.items():
            for tag in run["tags"]:
                found.setdefault(tag, []).append(run_id)
        return found

    def entries_of(self, release_id: str) -> list[Entry]:
        """The ledger's entries of a release, oldest first."""
        return self._by_release.get(release_id, [])

    # -- history -------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """Every release, and what the budget refused, in the order in which they were first asked for."""
        names = [*self.state.releases, *(name for name in self.state.refusals if name not in self.state.releases)]
        return [self.row(name) for name in sorted(names, key=lambda name: self.entries_of(name)[0].seq)]

    def row(self, release_id: str) -> Row:
        """One release: what the contract promises, and what belongs to it elsewhere.

        Raises: KeyError for a release that the ledger does not know.
        """
        release = self.state.releases.get(release_id)
        facts = self._reserved(release) if release else self._refused(self.state.refusals[release_id])
        flow_runs = self._runs_of(release_id, facts["flow_run_id"])
        own = next((run for run in flow_runs if run["id"] == facts["flow_run_id"]), None)
        return {
            "release_id": release_id,
            **facts,
            "ledger_entries": [entry.seq for entry in self.entries_of(release_id)],
            "flow_run": {name: own[name] for name in ("state", "name", "url")} if own else None,
            "flow_runs": flow_runs,
            "next": self._next(release, flow_runs),
        }

    def _reserved(self, release: ReleaseState) -> Row:
        reserved, published = release.reservation, release.published
        cost = release.spent if release.spends else release.reserved
        return {
            "period": reserved.period,
            "status": release.status,
            **{name: reserved.stated[name] for name in ("epsilon", "delta")},
            "delta_num": float(cost.delta_num),
            "flow_run_id": published.flow_run_id if published else reserved.flow_run_id,
            "published_at": published.at if published else None,
            "approval": _approval(release.approval),
            "approvals": [{"key": key_id, **_decision_facts(entry)} for key_id, entry in release.approvals.items()],
            "retraction": _retraction(release.retraction),
            "reason": self._reason(release),
        }

    def _reason(self, release: ReleaseState) -> str | None:
        """Why a release was refused or given back, else why it supersedes another."""
        if release.refusal is not None:
            return release.refusal.parse(Refusal).reason
        last = self.entries_of(release.release_id)[-1]
        return last.parse(Void).reason if last.is_a(Void) else release.reservation.reason

    def _refused(self, refusal: Entry) -> Row:
        """What the budget refused: nothing was reserved for it."""
        body = refusal.parse(Refusal)
        stated = body.stated or {}
        return {
            "period": body.period,
            "status": ReleaseStatus.REFUSED,
            **{name: stated[name] for name in ("epsilon", "delta")},
            "delta_num": 0.0,
            "flow_run_id": body.flow_run_id,
            "published_at": None,
            "approval": None,
            "approvals": [],
            "retraction": None,
            "reason": body.reason,
        }

    def _next(self, release: ReleaseState | None, flow_runs: Sequence[Row]) -> str | None:
        """The command that brings a release further; none while a run is about it."""
        busy = any(run["state"] in ("RUNNING", "PENDING", "SCHEDULED") for run in flow_runs)
        return None if release is None or busy else next_command(self.state, release)

    def _runs_of(self, release_id: str, flow_run_id: str) -> list[Row]:
        """The runs that touched a release: those that its entries name, and those that are tagged with it."""
        named = [entry.flow_run_id for entry in self.entries_of(release_id)]
        tagged = self._by_tag.get(release_id, [])
        known = [run_id for run_id in dict.fromkeys([*named, *tagged, flow_run_id]) if run_id in self.runs]
        return sorted((self._run(str(run_id)) for run_id in known), key=lambda run: str(run["start"]))

    def _run(self, run_id: str) -> Row:
        run = self.runs[run_id]
        url = self.server.run_url(run_id) if self.server and run.get("served") else None
        return {"id": run_id, **{key: run[key] for key in ("state", "name", "start")}, "url": url}

    # -- one release ---------------------------------------------------------------

    def whole(self, release_id: str) -> Row:
        """Everything that is known of one release.

        Raises: KeyError for a release that the ledger does not know.
        """
        release, entries = self.state.releases.get(release_id), self.entries_of(release_id)
        return {
            **self.row(release_id),
            "spent": _figures(release.spent if release else Cost()),
            "reserved": _figures(release.reserved if release else Cost()),
            "supersedes": release.reservation.supersedes if release else None,
            "superseded_by": self._successor(release_id),
            "ledger": [{key: getattr(entry, key) for key in ("seq", "kind", "at", "hash")} for entry in entries],
            "bundle": self._bundle(release) if release else None,
            "record": self.record(release_id),
        }

    def record(self, release_id: str) -> dict[str, Any] | None:
        """The record of a published release, where its bundle is at hand."""
        release = self.state.releases.get(release_id)
        path = self.workspace.bundle(release.reservation.name, release_id) / "record.json" if release else Path()
        if release is None or release.published is None:
            return None
        try:
            record = parse_json(read_text(path))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def _successor(self, release_id: str) -> str | None:
        later = [r for r in self.state.releases.values() if r.published and r.reservation.supersedes == release_id]
        return later[-1].release_id if later else None

    def _bundle(self, release: ReleaseState) -> Row | None:
        """Where the bundle is, sealed or published, and in what it differs from the ledger's digest."""
        sealed = release.published or (release.awaiting if release.status == ReleaseStatus.AWAITING_APPROVAL else None)
        if sealed is None:
            return None
        staging = Staging(self.workspace.bundle(release.reservation.name, release.release_id))
        folder = staging.final if release.published else staging.folder
        digest = sealed.parse(SealedBundle).bundle_digest
        found = list(faults(folder, digest)) if folder.is_dir() else ["it is not in this workspace"]
        return {"folder": str(folder), "digest": digest, "as_published": not found, "faults": found}


def _figures(cost: Cost) -> dict[str, float]:
    return {name: float(getattr(cost, name)) for name in ("epsilon", "rho", "delta_num")}


def _approval(approval: Entry | None) -> Row | None:
    return None if approval is None else _decision_facts(approval)


def _retraction(retraction: Entry | None) -> Row | None:
    if retraction is None:
        return None
    body = retraction.parse(Retraction)
    return {"who": body.who, "at": retraction.at, "reason": body.reason, "ledger_entry": retraction.seq}


def _decision_facts(entry: Entry) -> Row:
    body = entry.parse(Approval)
    return {"who": body.who, "at": entry.at, "reason": body.reason}
