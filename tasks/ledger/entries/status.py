"""The status of a release in the ledger."""

from __future__ import annotations

from enum import StrEnum


class ReleaseStatus(StrEnum):
    """How far a release has come."""

    RESERVED = "reserved"
    MEASURED = "measured"
    AWAITING_APPROVAL = "awaiting-approval"
    CHECK_FAILED = "check-failed"
    FAILED = "failed"
    REFUSED = "refused"
    VOID = "void"
    LOST = "lost"
    """Unfinished when a reconciliation charged for lost entries; what it reserved counts as spent."""
    PUBLISHED = "published"
    SUPERSEDED = "superseded"
    RETRACTED = "retracted"
    """Published once, and taken back by a person."""
