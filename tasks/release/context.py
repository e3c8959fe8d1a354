"""One run of a release: what it was asked, what is planned, and the resources that it holds until it ends."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dpcore.errors import RefusedError
from dpcore.records.encoding import Encoding
from tasks.ledger.entries.fields import is_text
from tasks.ledger.opening import writable_ledger
from tasks.ledger.store import Ledger
from tasks.spec import load_spec
from tasks.spec.plan import PlannedRelease, plan_run
from tasks.workspace.folders import Workspace

if TYPE_CHECKING:
    from tasks.landing.datasets import Arrival
    from tasks.landing.readings import Readings


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a run is asked to release. The source names files, so it never becomes a parameter of a flow."""

    period: str | None = None
    source: str | None = field(default=None, repr=False)
    """Data to release instead of those that the specification names; the names of files are private."""
    supersedes: str | None = None
    reason: str | None = None

    def require_reason(self) -> None:
        """Refuse a reason that cannot be written down, and a superseding release without one.

        Raises: RefusedError.
        """
        if not is_text(self.reason or ""):
            raise RefusedError(
                "the reason cannot be written as UTF-8",
                rule="text-unwritable",
                where="--reason",
                hint="write plain text, in the terminal's encoding",
            )
        if self.supersedes and not self.reason:
            raise RefusedError(
                "a superseding release needs a reason",
                rule="reason-missing",
                where="--reason",
                hint='add --reason "..."',
            )


@dataclass(frozen=True, kw_only=True)
class PreparedRelease(PlannedRelease):
    """A planned release and the landing data that it is for; nothing of them has been read yet."""

    request: RunRequest
    arrival: Arrival

    @property
    def period(self) -> str:
        """The data's month."""
        return self.arrival.period

    @property
    def public(self) -> PlannedRelease:
        """The plan alone, for stages behind the privacy line: it does not lead to the landing data."""
        return PlannedRelease(spec=self.spec, plan=self.plan, encoding=self.encoding)

    def fetch(self, root: Path) -> None:
        """Bring the data of a query into the vault, once; files stay where they are.

        Raises: LandingError, WorkspaceError.
        """
        if not self.arrival.is_queried or self.arrival.landing.files[0].exists():
            return
        from tasks.landing.sql import spool_query

        spool_query(self.spec, self.arrival.landing.files[0], period=self.period, root=root, environment=os.environ)

    def readings(self, workspace: Workspace, scratch: Path) -> Readings:
        """Return the readings of the landing data: they count how often the data are read, and for what."""
        from tasks.landing.readings import Readings

        key = workspace.fingerprint_key
        return Readings(self.arrival.landing, self.spec.unit, key=key, scratch=scratch, period=self.period)


def prepare_release(workspace: Workspace, request: RunRequest, *, scratch: Path, now: datetime) -> PreparedRelease:
    """Read the specification, plan, and find the landing data; nothing is read of them yet.

    Raises: RefusedError.
    """
    from tasks.landing.datasets import find_landing, find_query
    from tasks.release.rehearsal import rehearse

    spec = load_spec(workspace.spec_path)
    plan = plan_run(spec)
    rehearse(spec)
    arrival = (
        find_query(spec, scratch, period=request.period, now=now)
        if spec.source.query is not None and request.source is None
        else find_landing(spec, workspace.root, given=request.source, period=request.period, now=now)
    )
    request.require_reason()
    return PreparedRelease(spec=spec, plan=plan, encoding=Encoding(plan.schema), request=request, arrival=arrival)


@dataclass(frozen=True, kw_only=True)  # no slots: ledger and readings are made once, on first use
class ReleaseRun:
    """One run: a prepared release, and the ledger and landing data that it holds until it is closed."""

    planned: PreparedRelease
    workspace: Workspace
    scratch: Path
    flow_run_id: str
    who: str | None = None
    """The account that runs the release; the ledger names it beside a cap that this run is the first to use."""

    @cached_property
    def ledger(self) -> Ledger:
        """The workspace's ledger, opened on first use."""
        return writable_ledger(self.workspace, self.planned.spec)

    @cached_property
    def readings(self) -> Readings:
        """The landing data, and how often they were read so far."""
        return self.planned.readings(self.workspace, self.scratch)

    def close(self) -> None:
        """Close the ledger, if it was opened."""
        if "ledger" in self.__dict__:
            self.ledger.close()
