"""A release in the ledger: what it requests, its state, and who has approved it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from dpcore.accounting import Cost
from dpcore.mechanisms.registry import Event, cost_of, cost_under
from tasks.ledger.entries.bodies import (
    ApprovalRequest,
    BundleDecision,
    MeasurementPlan,
    Reservation,
    parse_approval_rule,
)
from tasks.ledger.entries.chain import parse_key, refuse_unless
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.keys import Keys, require_role
from tasks.ledger.entries.status import ReleaseStatus

RESUMABLE = (ReleaseStatus.RESERVED, ReleaseStatus.MEASURED, ReleaseStatus.FAILED, ReleaseStatus.CHECK_FAILED)
"""A run of the same period goes on with its measurements."""
UNFINISHED = (*RESUMABLE, ReleaseStatus.AWAITING_APPROVAL)
"""What another run of the same period takes up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveRequest:
    """What a release asks of its population's budget."""

    name: str
    period: str
    population: str
    events: dict[str, Event]
    stated: dict[str, float]
    spec_digest: str
    seeds: dict[str, str]
    flow_run_id: str
    supersedes: str | None = None
    reason: str | None = None
    approve: str | dict[str, Any] = "none"
    window: dict[str, str] | None = None
    """By which rule the rows of other months are left out."""

    def reservation(self, sequence: int) -> Reservation:
        """The reservation that the request asks for."""
        return Reservation(
            name=self.name,
            period=self.period,
            sequence=sequence,
            measurements={
                name: MeasurementPlan(event.as_json(), cost_of(event), cost_under(event, event.neighbours.other))
                for name, event in self.events.items()
            },
            stated=self.stated,
            spec_digest=self.spec_digest,
            seeds=self.seeds,
            flow_run_id=self.flow_run_id,
            supersedes=self.supersedes,
            reason=self.reason,
            approve=parse_approval_rule(self.approve),
            window=self.window,
        )


def release_id_of(name: str, period: str, sequence: int) -> str:
    """The release id: from name, period and a number, never from the data."""
    return f"{name}-{period}-{sequence}"


@dataclass(slots=True)
class ReleaseState:
    """One release as the events so far tell it."""

    release_id: str
    population: str
    reservation: Reservation
    reserve_seq: int
    status: ReleaseStatus = ReleaseStatus.RESERVED
    reserved: Cost = field(default_factory=Cost)
    spent: Cost = field(default_factory=Cost)
    spends: dict[str, Entry] = field(default_factory=dict)
    awaiting: Entry | None = None
    """The sealed bundle that waits, or waited, for approval."""
    approval: Entry | None = None
    """The last approval."""
    approvals: dict[str, Entry] = field(default_factory=dict)
    """The approvals of the bundle that waits, by the key of the approver."""
    refusal: Entry | None = None
    """A person's no to the bundle that waited."""
    published: Entry | None = None
    retraction: Entry | None = None
    """A person's word that the published bundle is not to be used."""

    @property
    def awaited_digest(self) -> str | None:
        """The digest of the bundle that waits, or waited, for approval."""
        return self.awaiting.parse(ApprovalRequest).bundle_digest if self.awaiting else None


def copy_release(release: ReleaseState) -> ReleaseState:
    """Copy a release as it is now; later events do not change the copy."""
    return replace(release, spends=dict(release.spends))


def approvals_needed(release: ReleaseState) -> int:
    """How many approvers a release asks for."""
    wanted = release.reservation.approve
    return 1 if isinstance(wanted, str) else wanted.at_least


def approver_name(keys: Keys, release: ReleaseState, key_id: str) -> str | None:
    """As whom a key decides about a release: two keys of one name are one approver; None if it may not."""
    wanted = release.reservation.approve
    if isinstance(wanted, str):
        return key_id
    name = keys[key_id].name if key_id in keys else ""
    return next((listed for listed in (name, key_id) if listed and listed in wanted.by), None)


def approvers(keys: Keys, release: ReleaseState) -> set[str]:
    """Who has approved the bundle that waits, without those whose key was revoked since."""
    valid = (key_id for key_id in release.approvals if key_id not in keys or keys[key_id].active)
    return {name for key_id in valid if (name := approver_name(keys, release, key_id)) is not None}


def is_approved(keys: Keys, release: ReleaseState) -> bool:
    """Whether as many approvers as the release asks for have approved the bundle that waits."""
    return len(approvers(keys, release)) >= approvals_needed(release)


def deciding_key(keys: Keys, release: ReleaseState, entry: Entry) -> str:
    """The key that decides about a bundle: the entry's, or the one whose signed decision it passes on.

    Raises: LedgerError for a decision that is not the approver's, or of a key that may not decide.
    """
    body, approver = entry.parse(BundleDecision), entry.key_id
    if signed := body.signed:
        approver, known = signed.approver, keys.get(signed.approver)
        refuse_unless(known is not None and known.active, entry, "passes on a decision of a key that is not active")
        require_role(keys, approver, "approve")
        refuse_unless(
            signed.is_signed_by(parse_key(keys[approver].public)),
            entry,
            "passes on a decision that its approver did not sign",
        )
        said = (entry.kind, entry.release_id, release.awaited_digest, body.who, body.reason)
        content = signed.content
        decided = (content.decision, content.release_id, content.bundle_digest, content.who, content.reason)
        refuse_unless(decided == said, entry, "passes on a decision about something else")
    listed = approver_name(keys, release, approver) is not None
    refuse_unless(listed, entry, "is the decision of a key that the release does not name as approver")
    return approver
