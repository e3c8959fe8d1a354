"""Published releases that a person takes back: an entry of the ledger, and a mark beside the bundle.

The bundle itself stays as it was published, so that it can still be verified; whoever retracts it may delete its
folder. What the release cost stays spent: nobody can take back what others have read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpcore.errors import RefusedError, WorkspaceError
from tasks.ledger.entries.bodies import Publication
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.marks import mark_text, retraction_words
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.releases import ReleaseState
from tasks.ledger.store import Ledger, utc_now
from tasks.lineage.datasets import BUNDLE, ReleaseDatasets
from tasks.lineage.events import RETRACT, LineageRun
from tasks.release.approval import deciding, finish_reveals
from tasks.release.spend_facets import withdrawn
from tasks.workspace.files import flush_to_disk, write_atomically
from tasks.workspace.folders import Workspace, mark_beside
from tasks.workspace.redaction import ErrorBoundary, reason_of

READABLE = 0o444


@dataclass(frozen=True, slots=True)
class Retracted:
    """A retraction: its ledger entry, the release's flow run, and, where the bundle is here, its folder and mark."""

    entry: Entry
    flow_run_id: str | None
    bundle: Path | None
    mark: Path | None


def retract(workspace: Workspace, release_id: str, *, who: str, reason: str) -> Retracted:
    """Take a published release back; said again, it only writes the mark that a crash may have prevented.

    Raises: RefusedError; also for a release that was retracted before.
    """
    _require_said(who, reason)
    with deciding(workspace, release_id) as (_, ledger, release):
        finish_reveals(workspace, ledger)
        finish_retractions(workspace, ledger)
        _require_published(release)
        entry = ledger.retract(release_id, who=who.strip(), reason=reason.strip())
        release = ledger.state().releases[release_id]
        bundle = workspace.bundle(release.reservation.name, release_id)
        _tell_lineage(workspace, release, entry)
        here = bundle.is_dir()
        if here:
            _write_mark(bundle, entry)
        flow_run_id = release.published.flow_run_id if release.published else None
        return Retracted(entry, flow_run_id, bundle if here else None, mark_beside(bundle) if here else None)


def finish_retractions(workspace: Workspace, ledger: Ledger) -> None:
    """Mark the bundles that lack their mark: a crash came between, or another workspace retracted the release.

    The mark comes last, so whatever a crash may have kept from the lineage is told again.
    """
    for known in ledger.state().releases.values():
        bundle = workspace.bundle(known.reservation.name, known.release_id)
        if known.retraction is not None and bundle.is_dir() and not mark_beside(bundle).exists():
            _tell_lineage(workspace, known, known.retraction)
            _write_mark(bundle, known.retraction)


def _tell_lineage(workspace: Workspace, release: ReleaseState, entry: Entry) -> None:
    """Withdraw the bundle in the lineage."""
    assert release.published is not None  # noqa: S101  or the ledger would not have retracted it
    lineage = LineageRun(
        workspace_log=workspace.lineage_path,
        name=release.reservation.name,
        release_id=release.release_id,
        datasets=ReleaseDatasets.of_retracted(),
        clock=utc_now,
        period=release.reservation.period,
        flow_run_id=release.published.flow_run_id,
    )
    with lineage.stage(RETRACT) as stage:
        stage.made[BUNDLE] = withdrawn(entry, release.published.parse(Publication).bundle_digest)


def _write_mark(bundle: Path, entry: Entry) -> None:
    """Write the mark beside a bundle; whoever reads the bundle may read it.

    Raises: WorkspaceError.
    """
    mark = mark_beside(bundle)
    draft = mark.with_name(f".{mark.name}.partial")
    with ErrorBoundary(OSError, refusal=_unwritable_mark):
        draft.unlink(missing_ok=True)  # a killed process may have left one
        write_atomically(mark, mark_text(entry).encode(), draft=draft, mode=READABLE)
        flush_to_disk(mark.parent)


def _unwritable_mark(error: OSError) -> WorkspaceError:
    return WorkspaceError(
        f"the ledger has the retraction, but the mark beside the bundle cannot be written: {reason_of(error)}",
        rule="mark-unwritable",
        where="releases",
        hint="check the folder's owner, its permissions and the space on its disk; then run the command again, or any "
        "run: it writes the mark",
    )


def _require_published(release: ReleaseState) -> None:
    if release.retraction is not None:
        raise RefusedError(
            f"{release.release_id} was {retraction_words(release.retraction)}",
            rule="release-retracted",
            where="RELEASE",
            hint="nothing is left to do; its bundle may be deleted, and its month measured again with "
            f'`dprelease run --supersedes {release.release_id} --reason "..."`',
        )
    if release.status not in (ReleaseStatus.PUBLISHED, ReleaseStatus.SUPERSEDED):
        waits = release.status == ReleaseStatus.AWAITING_APPROVAL
        raise RefusedError(
            f"{release.release_id} is not published: its status is {release.status}",
            rule="release-not-published",
            where="RELEASE",
            hint=f'`dprelease approve {release.release_id} --refuse --reason "..."` keeps it from being published'
            if waits
            else "there is nothing to take back; what was spent stays spent",
        )


def _require_said(who: str, reason: str) -> None:
    said = {"--reason": (reason, "reason-missing"), "--who": (who, "who-missing")}
    for name, (text, rule) in said.items():
        if not text.strip():
            raise RefusedError(
                "a retraction needs a person and a reason", rule=rule, where=name, hint=f'add {name} "..."'
            )
