"""The ledger's pages: all entries, newest first; the front page also has keys, caps, approvals, reconciliations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dpcore.accounting import Cost, total
from tasks.ledger.entries.bodies import (
    Approval,
    ApprovalRequest,
    Body,
    BundleDecision,
    CapChange,
    Failure,
    KeyEnrolment,
    KeyRevocation,
    Publication,
    Reconciliation,
    Refusal,
    Reservation,
    Restore,
    Retraction,
    SealedBundle,
    Spend,
    Void,
)
from tasks.ledger.entries.entry import Entry
from tasks.report.wording import rounded_up, short_hash
from tasks.site.frame import ENTRIES_PER_PAGE, Site
from tasks.site.survey import FAULTS


@dataclass(frozen=True, slots=True)
class Line:
    """A ledger entry as a row of the table."""

    entry: Entry
    cost: str
    words: str
    href: str | None
    verified: bool
    tone: str


def ledger_pages(site: Site) -> Iterator[tuple[str, str]]:
    """Yield path and content of each page; there is always a front page."""
    for block in range(site.newest_block, -1, -1):
        first = block * ENTRIES_PER_PAGE
        shown = site.survey.entries[first : first + ENTRIES_PER_PAGE]
        lines = [_line(site, entry) for entry in reversed(shown)]
        path = site.ledger_page(block)
        yield path, site.render("ledger.html.j2", path, lines=lines, block=block, **_front(site, block))


def _front(site: Site, block: int) -> dict[str, Any]:
    """Return what only the front page shows."""
    front = block == site.newest_block
    good = site.survey.entries[: site.survey.verified] if front else []
    return {
        "front": front,
        "entries_per_page": ENTRIES_PER_PAGE,
        "keys": list(_signer_rows(site)) if front else [],
        "caps": [_cap_row(entry) for entry in good if entry.is_a(CapChange)],
        "decisions": [(DECISIONS[e.kind], e) for e in good if e.kind in DECISIONS and _is_said(e)],
        "answers": [entry for entry in good if entry.is_a(Restore, Reconciliation)],
    }


DECISIONS = {
    Approval.kind: ("approved", "good"),
    Refusal.kind: ("refused", "bad"),
    Retraction.kind: ("retracted", "bad"),
}
"""What a person decided about a release, with its colour."""


def _is_said(entry: Entry) -> bool:
    """Whether a person decided; the budget refuses too."""
    return not entry.is_a(BundleDecision) or entry.parse(BundleDecision).who is not None


def _signer_rows(site: Site) -> Iterator[dict[str, Any]]:
    """Yield each key with the entry that announced it and the number of entries that it signed."""
    good = site.survey.entries[: site.survey.verified]
    signed = Counter(entry.key_id for entry in good)
    announced = {entry.parse(KeyEnrolment).key_id: entry for entry in good if entry.is_a(KeyEnrolment)}
    for key_id, key in site.survey.state.keys.items():
        yield {"id": key_id, "key": key, "entry": announced[key_id], "signed": signed[key_id]}


def _cap_row(entry: Entry) -> dict[str, Any]:
    body = entry.parse(CapChange)
    figures = {kind: float(getattr(body, kind)) for kind in ("epsilon", "delta", "delta_num")}
    return {"entry": entry, "reason": body.reason, "who": body.who, **figures}


# ---------------------------------------------------------------- entries


def _line(site: Site, entry: Entry) -> Line:
    """Return the row of an entry, or say that the entry cannot be read."""
    try:
        cost, words = ("", "") if entry.kind not in DESCRIPTIONS else _describe(entry.content)
    except FAULTS:
        cost, words = "", "cannot be read"
    verified, tone = entry.seq <= site.survey.verified, TONES.get(entry.kind, "plain")
    return Line(entry, cost, words, site.release_href(entry.release_id), verified, tone)


def _describe(body: Body) -> tuple[str, str]:
    return _entry_cost(body), DESCRIPTIONS[body.kind](body)


def _entry_cost(body: Body) -> str:
    match body:
        case Spend():
            return format_cost(body.cost)
        case Reservation():
            return format_cost(total(plan.cost for plan in body.measurements.values()))
        case Reconciliation():
            return format_cost(total(body.charges.values())) or "nothing"
    return ""


def format_cost(cost: Cost) -> str:
    """Write a cost with Greek letters, rounded up."""
    parts = {"ε": cost.epsilon, "ρ": cost.rho, "δ num.": cost.delta_num}
    return ", ".join(f"{sign} {rounded_up(float(value))}" for sign, value in parts.items() if value)


def _describe_key(body: KeyEnrolment) -> str:
    how = f"replaces {short_hash(body.replaces)}" if body.replaces else "is announced"
    roles = f", may {', '.join(body.roles)}" if body.roles else ""
    return f"key {short_hash(body.key_id)} {how}{roles}"


def _describe_cap(body: CapChange) -> str:
    figures = {"ε": float(body.epsilon), "δ": float(body.delta)}
    words = ", ".join(f"{sign} ≤ {rounded_up(value)}" for sign, value in figures.items())
    by = f", set by {body.who}" if body.who else ""
    return f"{words}{by}: {body.reason}" if body.reason else words + by


def _describe_reservation(body: Reservation) -> str:
    words = f"{', '.join(body.measurements)} for {body.period}"
    return f"{words}; supersedes {body.supersedes}: {body.reason}" if body.supersedes else words


def _describe_spend(body: Spend) -> str:
    return f"{body.measurement} by {body.event['mechanism']}"


def _describe_bundle(body: SealedBundle) -> str:
    return f"bundle {short_hash(body.bundle_digest)}"


def _describe_decision(body: BundleDecision | KeyRevocation | Reconciliation | Retraction) -> str:
    return f"{body.who}: {body.reason}"


def _describe_refusal(body: Refusal) -> str:
    return _describe_decision(body) if body.who else f"{body.rule}: {body.reason}"


DESCRIPTIONS: dict[str, Callable[[Any], str]] = {
    KeyEnrolment.kind: _describe_key,
    KeyRevocation.kind: lambda body: f"key {short_hash(body.key_id)} no longer signs; {_describe_decision(body)}",
    CapChange.kind: _describe_cap,
    Reservation.kind: _describe_reservation,
    Spend.kind: _describe_spend,
    Failure.kind: lambda body: f"{body.status} in stage {body.stage}",
    ApprovalRequest.kind: _describe_bundle,
    Approval.kind: _describe_decision,
    Refusal.kind: _describe_refusal,
    Publication.kind: _describe_bundle,
    Retraction.kind: _describe_decision,
    Void.kind: lambda body: str(body.reason),
    Restore.kind: lambda body: f"{body.who} restored a backup",
    Reconciliation.kind: _describe_decision,
}
"""The content of an entry by kind; only values that the ledger states."""

TONES = {
    Spend.kind: "accent",
    Publication.kind: "good",
    Approval.kind: "good",
    Refusal.kind: "bad",
    Retraction.kind: "bad",
    Failure.kind: "bad",
}
