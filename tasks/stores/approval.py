"""Sealed bundles that wait for a person: approved and revealed, or refused and removed.

What is approved is the bundle as it was sealed, by its digest: nothing can be exchanged
between the look and the word.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.errors import LedgerError, RefusedError
from tasks.stores.bundle import Staging
from tasks.stores.heads import require_complete_ledger
from tasks.stores.ledger import Ledger, utc_now
from tasks.stores.ledger_state import Entry, ReleaseState
from tasks.stores.ledgers import writable_ledger
from tasks.stores.lineage import LineageRun
from tasks.stores.reading import parse_json, read_text
from tasks.stores.spec import ReleaseSpec, load_spec
from tasks.stores.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Waiting:
    """A release that waits, with its sealed bundle."""

    release: ReleaseState
    staging: Staging
    digest: str

    @property
    def record(self) -> dict[str, Any]:
        """What the bundle's record says."""
        record: dict[str, Any] = parse_json(read_text(self.staging.folder / "record.json"))
        return record


def approve(workspace: Workspace, release_id: str, *, who: str, reason: str) -> tuple[Path, dict[str, Any], Entry]:
    """Publish a release that waits: the ledger has it first, then its bundle is revealed.

    Returns its folder, its record and the approval. Said again of a published one, it finishes
    what a crash may have left and changes nothing.
    Raises: RefusedError.
    """
    _require_said(who, reason)
    with _deciding(workspace, release_id) as (spec, ledger, release):
        finish_reveals(workspace, ledger)
        if release.status == "published" and release.approval is not None:
            final = workspace.bundle(spec.name, release_id)
            _require_here(final)
            return final, parse_json(read_text(final / "record.json")), release.approval
        waiting = _waiting(workspace, release)
        record = waiting.record
        with _lineage(workspace, waiting.staging.folder, record).stage(
            "publish", inputs=("synthetic-table", "report", "sealed-bundle"), outputs=("bundle",)
        ):
            approval = ledger.approve(release_id, bundle_digest=waiting.digest, who=who.strip(), reason=reason.strip())
            waiting.staging.reveal()
        return waiting.staging.final, record, approval


def refuse(workspace: Workspace, release_id: str, *, who: str, reason: str) -> Entry:
    """Say no to a release that waits: its bundle is removed, what it cost stays spent.

    Raises: RefusedError.
    """
    _require_said(who, reason)
    with _deciding(workspace, release_id) as (_, ledger, release):
        _require_waits(release)
        entry = ledger.refuse_bundle(release_id, who=who.strip(), reason=reason.strip())
        shutil.rmtree(Staging(workspace.bundle(release.facts["name"], release_id)).folder, ignore_errors=True)
        return entry


def finish_reveals(workspace: Workspace, ledger: Ledger) -> None:
    """Reveal bundles that a crash kept hidden between their ledger entry and their rename."""
    for known in ledger.state().releases.values():
        staging = Staging(workspace.bundle(known.facts["name"], known.release_id))
        digest = known.published.facts["bundle_digest"] if known.published else None
        if digest and not staging.final.exists() and staging.is_sealed_as(digest):
            staging.reveal()


@contextmanager
def _deciding(workspace: Workspace, release_id: str) -> Iterator[tuple[ReleaseSpec, Ledger, ReleaseState]]:
    """The release, while no run of its name is under way."""
    spec = load_spec(workspace.spec_path)
    with (
        closing(writable_ledger(workspace, spec)) as ledger,
        workspace.exclusive(spec.name),
        ledger.exclusive(spec.name),
    ):
        require_complete_ledger(workspace, ledger.entries())
        release = ledger.state().releases.get(release_id)
        if release is None or release.facts["name"] != spec.name:
            raise RefusedError(
                f"there is no release {release_id!r} of {spec.name}",
                rule="release-unknown",
                where="RELEASE",
                hint="see `dprelease history`",
            )
        yield spec, ledger, release


def _waiting(workspace: Workspace, release: ReleaseState) -> Waiting:
    _require_waits(release)
    assert release.awaiting is not None  # noqa: S101  the status says so
    digest = str(release.awaiting.facts["bundle_digest"])
    staging = Staging(workspace.bundle(release.facts["name"], release.release_id))
    if not staging.is_sealed_as(digest):
        raise LedgerError(
            f"the bundle of {release.release_id} is not there as it was sealed",
            rule="bundle-changed",
            where=release.release_id,
            hint=f"`dprelease run --period {release.facts['period']}` makes it anew, without drawing or charging twice",
        )
    return Waiting(release, staging, digest)


def _require_here(bundle: Path) -> None:
    if not bundle.is_dir():
        raise RefusedError(
            f"{bundle.name} is published, and its bundle is in another workspace of this ledger",
            rule="published-elsewhere",
            where="RELEASE",
            hint="nothing is left to approve",
        )


def _require_waits(release: ReleaseState) -> None:
    if release.status != "awaiting-approval":
        raise RefusedError(
            f"{release.release_id} does not wait for approval: its status is {release.status}",
            rule="not-awaiting-approval",
            where="RELEASE",
            hint="`dprelease history` shows which releases wait",
        )


def _require_said(who: str, reason: str) -> None:
    for name, text in (("--who", who), ("--reason", reason)):
        if not text.strip():
            raise RefusedError(
                "an approval says who and why", rule="approval-unsaid", where=name, hint=f'add {name} "..."'
            )


def _lineage(workspace: Workspace, bundle: Path, record: dict[str, Any]) -> LineageRun:
    """Lineage of the bundle as it was sealed, whatever the specification says by now."""
    import pyarrow.parquet as pq  # here, for a refusal needs no tables

    return LineageRun(
        workspace_log=workspace.lineage_path,
        name=record["name"],
        release_id=record["release_id"],
        schema=pq.read_schema(bundle / "data.parquet"),
        clock=utc_now,
        period=record["period"],
        flow_run_id=record["flow_run_id"],
    )
