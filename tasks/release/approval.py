"""Sealed bundles that wait for a person: approved and revealed, or refused and removed.

What is approved is the bundle as it was sealed, by its digest: nothing can be exchanged
between the look and the word.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpcore.errors import LedgerError, RefusedError
from tasks.bundle.staging import CHECKSUMS, DATA, PROJECTED, Staging, faults, sha256_of
from tasks.keys.decision import Decision, SignedDecision
from tasks.keys.signing import Signer, signing_key
from tasks.ledger.access import require_approver
from tasks.ledger.cited_heads import require_complete_ledger
from tasks.ledger.entries.bodies import Approval, ApprovalRequest, Publication, Refusal
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.opening import writable_ledger
from tasks.ledger.releases import ReleaseState, approvals_needed, approver_name, approvers
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger, utc_now
from tasks.lineage.datasets import BUNDLE, ReleaseDatasets
from tasks.lineage.events import LineageRun
from tasks.release.spend_facets import Account
from tasks.spec import ReleaseSpec, load_spec
from tasks.workspace.clock import MINUTE_FORMAT
from tasks.workspace.folders import Workspace, unknown_release
from tasks.workspace.reading import parse_json, read_text
from tasks.workspace.redaction import ErrorBoundary


def approve(
    workspace: Workspace,
    release_id: str,
    *,
    who: str,
    reason: str,
    signer: Signer | None = None,
    signed: SignedDecision | None = None,
) -> tuple[Path, dict[str, Any], Entry]:
    """Approve a release that waits; with the last approval that it needs, the ledger publishes it, then it is revealed.

    The workspace's key approves, or `signer`, or whoever `signed` a decision elsewhere. Returns its folder, which is
    there once it is published, its record and the approval. Said again of a published one, it finishes what a crash
    may have left and changes nothing.
    Raises: RefusedError.
    """
    _require_said(who, reason)
    with deciding(workspace, release_id) as (spec, ledger, release):
        finish_reveals(workspace, ledger)
        if release.status == ReleaseStatus.PUBLISHED and release.approval is not None:
            final = workspace.bundle(spec.name, release_id)
            _require_here(final)
            return final, parse_json(read_text(final / "record.json")), release.approval
        staging, digest = _waiting_bundle(workspace, release)
        record: dict[str, Any] = parse_json(read_text(staging.folder / "record.json"))
        decision = _decision(Approval.kind, release_id, digest, who, reason)
        signed = _sign_or_check(decision, signer, signed)
        approver = signed.approver if signed else signing_key(workspace.keys).public.key_id
        with ExitStack() as told:
            lineage = None
            if _is_last(ledger.state(), release, approver):
                lineage = _lineage(workspace, staging.folder, record)
                stage = told.enter_context(lineage.stage("publish"))
            approval = ledger.approve(
                release_id, bundle_digest=digest, who=decision.who, reason=decision.reason, signed=signed
            )
            if ledger.state().releases[release_id].published:
                staging.reveal()
                if lineage is not None:
                    stage.made[BUNDLE] = Account.of(ledger.state(), ledger.entries(), release_id).bundled(
                        lineage.datasets, BUNDLE, digest
                    )
        return staging.final, record, approval


def refuse_release(
    workspace: Workspace,
    release_id: str,
    *,
    who: str,
    reason: str,
    signer: Signer | None = None,
    signed: SignedDecision | None = None,
) -> Entry:
    """Say no to a release that waits: its bundle is removed, what it cost stays spent.

    Raises: RefusedError.
    """
    _require_said(who, reason)
    with deciding(workspace, release_id) as (_, ledger, release):
        staging, digest = _waiting_bundle(workspace, release, sealed=False)
        decision = _decision(Refusal.kind, release_id, digest, who, reason)
        signed = _sign_or_check(decision, signer, signed)
        approver = signed.approver if signed else signing_key(workspace.keys).public.key_id
        require_approver(ledger.state(), replace(release, approvals={}), approver)
        entry = ledger.refuse_bundle(release_id, who=decision.who, reason=decision.reason, signed=signed)
        shutil.rmtree(staging.folder, ignore_errors=True)
        return entry


def decide_apart(
    folder: Path, release_id: str, signer: Signer, *, refuse: bool, who: str, reason: str
) -> SignedDecision:
    """Sign a decision about the sealed bundle in a folder, without ledger or workspace.

    Raises: RefusedError if the folder is not the sealed bundle of that release.
    """
    _require_said(who, reason)
    digest = sha256_of(folder / CHECKSUMS) if (folder / CHECKSUMS).is_file() else ""
    broken = not digest or any(faults(folder, digest))
    if broken or parse_json(read_text(folder / "record.json"))["release_id"] != release_id:
        raise RefusedError(
            f"the folder is not the sealed bundle of {release_id}",
            rule="bundle-changed",
            where="--bundle",
            hint="use the folder that `dprelease run` printed, complete and unchanged",
        )
    return SignedDecision.by(
        signer, _decision(Refusal.kind if refuse else Approval.kind, release_id, digest, who, reason)
    )


def read_decision(path: Path) -> SignedDecision:
    """The signed decision in a file.

    Raises: RefusedError.
    """
    unreadable = RefusedError(
        "there is no readable signed decision",
        rule="decision-unreadable",
        where="--add",
        hint="`dprelease approve RELEASE --key FILE --bundle FOLDER --out FILE` writes one",
    )
    with ErrorBoundary(OSError, ValueError, KeyError, TypeError, refusal=lambda _: unreadable):
        signed = SignedDecision.from_json(parse_json(read_text(path)))
        if signed.content.decision in (Approval.kind, Refusal.kind):
            return signed
    raise unreadable


def _decision(word: str, release_id: str, digest: str, who: str, reason: str) -> Decision:
    return Decision(
        decision=word,
        release_id=release_id,
        bundle_digest=digest,
        who=who.strip(),
        reason=reason.strip(),
        at=utc_now().strftime(MINUTE_FORMAT),
    )


def _sign_or_check(decision: Decision, signer: Signer | None, signed: SignedDecision | None) -> SignedDecision | None:
    """The decision as it was signed elsewhere, which must be this one: same word, release and bundle; or signed now."""
    if signed is None:
        return SignedDecision.by(signer, decision) if signer else None
    if replace(signed.content, at="") != replace(decision, at=""):
        raise LedgerError(
            "the signed decision is about another release or another bundle than the one that waits",
            rule="decision-differs",
            where="--add",
            hint="the approver must review the bundle that now waits, and sign again",
        )
    return signed


def _is_last(state: LedgerState, release: ReleaseState, approver: str) -> bool:
    """Whether an approval is the last that a release needs.

    Raises: LedgerError if that key may not approve it, or did.
    """
    require_approver(state, release, approver)
    name = approver_name(state.keys, release, approver)
    return len(approvers(state.keys, release) | {name}) >= approvals_needed(release)


def finish_reveals(workspace: Workspace, ledger: Ledger) -> None:
    """Reveal bundles that a crash kept hidden between their ledger entry and their rename."""
    for known in ledger.state().releases.values():
        staging = Staging(workspace.bundle(known.reservation.name, known.release_id))
        digest = known.published.parse(Publication).bundle_digest if known.published else None
        if digest and not staging.final.exists() and staging.is_sealed_as(digest):
            staging.reveal()


@contextmanager
def deciding(workspace: Workspace, release_id: str) -> Iterator[tuple[ReleaseSpec, Ledger, ReleaseState]]:
    """The release, while no run of its name is under way."""
    spec = load_spec(workspace.spec_path)
    with (
        closing(writable_ledger(workspace, spec)) as ledger,
        workspace.exclusive(spec.name),
        ledger.exclusive(spec.name),
    ):
        require_complete_ledger(workspace, ledger.entries())
        release = ledger.state().releases.get(release_id)
        if release is None or release.reservation.name != spec.name:
            raise unknown_release(f"there is no release {release_id!r} of {spec.name}")
        yield spec, ledger, release


def _waiting_bundle(workspace: Workspace, release: ReleaseState, *, sealed: bool = True) -> tuple[Staging, str]:
    """The bundle that waits, and its digest."""
    _require_waits(release)
    assert release.awaiting is not None  # noqa: S101  the status says so
    digest = release.awaiting.parse(ApprovalRequest).bundle_digest
    staging = Staging(workspace.bundle(release.reservation.name, release.release_id))
    if sealed and not staging.is_sealed_as(digest):
        raise LedgerError(
            f"the bundle of {release.release_id} is missing or was changed after it was sealed",
            rule="bundle-changed",
            where=release.release_id,
            hint=f"`dprelease run --period {release.reservation.period}` rebuilds it without drawing or charging again",
        )
    return staging, digest


def _require_here(bundle: Path) -> None:
    if not bundle.is_dir():
        raise RefusedError(
            f"{bundle.name} is published, and its bundle is in another workspace of this ledger",
            rule="published-elsewhere",
            where="RELEASE",
            hint="nothing is left to approve",
        )


def _require_waits(release: ReleaseState) -> None:
    if release.status != ReleaseStatus.AWAITING_APPROVAL:
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
                "an approval needs a person and a reason", rule="approval-unsaid", where=name, hint=f'add {name} "..."'
            )


def _lineage(workspace: Workspace, bundle: Path, record: dict[str, Any]) -> LineageRun:
    """Lineage of the bundle as it was sealed, whatever the specification says by now."""
    import pyarrow.parquet as pq  # here, for a refusal needs no tables

    from tasks.landing.cells import arrow_schema

    found = {name: pq.read_schema(bundle / name) for name in (DATA, PROJECTED) if (bundle / name).exists()}
    return LineageRun(
        workspace_log=workspace.lineage_path,
        name=record["name"],
        release_id=record["release_id"],
        datasets=ReleaseDatasets.of_sealed(
            found[DATA]
            if DATA in found
            else arrow_schema(ReleaseSpec.from_public_json(record["specification"]).schema),
            [measurement["name"] for measurement in record["privacy"]["measurements"]],
            projected=found.get(PROJECTED),
            original=DATA in found,
        ),
        clock=utc_now,
        period=record["period"],
        flow_run_id=record["flow_run_id"],
    )
