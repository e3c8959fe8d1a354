"""What one run of the release is about: the public things every stage needs, and a private reference."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpcore.errors import RefusedError
from dpcore.records.encoding import Encoding
from tasks.ledger.entries.fields import is_text
from tasks.ledger.opening import writable_ledger
from tasks.ledger.releases import ReleaseState
from tasks.ledger.store import Ledger
from tasks.spec import load_spec
from tasks.spec.plan import PlannedRelease, plan_release
from tasks.workspace.folders import Workspace

if TYPE_CHECKING:
    from tasks.landing.datasets import Arrival
    from tasks.landing.readings import Readings


@dataclass(frozen=True, kw_only=True)  # no slots: ledger and readings are made once, on first use
class ReleaseRun(PlannedRelease):
    """One run: workspace, specification, plan, and where the landing data are."""

    workspace: Workspace
    arrival: Arrival
    flow_run_id: str
    scratch: Path
    supersedes: str | None = None
    reason: str | None = None
    who: str | None = None
    """The account that runs the release; the ledger names it beside a cap that this run is the first to use."""

    @property
    def period(self) -> str:
        """The data's month."""
        return self.arrival.period

    def ledger(self) -> Ledger:
        """The workspace's ledger, opened on first use."""
        return self._ledger

    def fetch(self) -> None:
        """Bring the data of a query here, once; files are where they are.

        Raises: LandingError, WorkspaceError.
        """
        if not self.arrival.is_queried or self.arrival.landing.files[0].exists():
            return
        from tasks.landing.sql import spooled

        target = self.arrival.landing.files[0]
        spooled(self.spec, target, period=self.period, root=self.workspace.root, environment=os.environ)

    @cached_property
    def readings(self) -> Readings:
        """The landing data, and how often they were read so far."""
        from tasks.landing.readings import Readings

        key = self.workspace.fingerprint_key
        return Readings(self.arrival.landing, self.spec.unit, key=key, scratch=self.scratch)

    @cached_property
    def _ledger(self) -> Ledger:
        return writable_ledger(self.workspace, self.spec)


@dataclass(frozen=True, slots=True)
class Grant:
    """A release's place in the ledger: its id, its seeds, and the audits of this build."""

    release_id: str
    sequence: int
    seeds: dict[str, str]
    builds: dict[str, Any]
    needs_approval: bool = False

    @staticmethod
    def of(release: ReleaseState, builds: dict[str, Any]) -> Grant:
        """The grant that a reservation gives."""
        reserved = release.reservation
        return Grant(release.release_id, reserved.sequence, reserved.seeds, builds, reserved.approve != "none")


def prepare_run(
    workspace: Workspace,
    *,
    request: dict[str, Any],
    flow_run_id: str,
    scratch: Path,
    now: datetime,
    who: str | None = None,
) -> ReleaseRun:
    """Read the specification, plan, and find the landing data; nothing is read of them yet.

    Raises: RefusedError.
    """
    from tasks.landing.datasets import find_landing, find_query
    from tasks.release.rehearsal import rehearse

    spec = load_spec(workspace.spec_path)
    plan = plan_release(spec)
    rehearse(spec)
    given = request.get("input")
    if spec.source.query is not None and given is None:
        arrival = find_query(spec, scratch, period=request.get("period"), now=now)
    else:
        arrival = find_landing(spec, workspace.root, given=given, period=request.get("period"), now=now)
    if not is_text(request.get("reason") or ""):
        raise RefusedError(
            "the reason cannot be written as UTF-8",
            rule="text-unwritable",
            where="--reason",
            hint="write plain text, in the terminal's encoding",
        )
    if request.get("supersedes") and not request.get("reason"):
        raise RefusedError(
            "a superseding release needs a reason", rule="reason-missing", where="--reason", hint='add --reason "..."'
        )
    return ReleaseRun(
        workspace=workspace,
        spec=spec,
        plan=plan,
        encoding=Encoding(plan.schema),
        arrival=arrival,
        flow_run_id=flow_run_id,
        scratch=scratch,
        supersedes=request.get("supersedes"),
        reason=request.get("reason"),
        who=who,
    )
