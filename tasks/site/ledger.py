"""The ledger's pages: every entry, the newest first, and on the front page keys, caps, approvals and answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dpcore.accounting import Cost, total
from tasks.ledger.entries.bodies import (
    Body,
    BundleDecision,
    CapChange,
    KeyEnrolment,
    KeyRevocation,
    Reconciliation,
    Refusal,
    Reservation,
    SealedBundle,
    Spend,
)
from tasks.ledger.entries.entry import Entry
from tasks.report.wording import rounded_up, short_hash
from tasks.site.frame import ENTRIES_A_PAGE, Site
from tasks.site.survey import FAULTS


@dataclass(frozen=True, slots=True)
class Line:
    """An entry as a row of the table."""

    entry: Entry
    cost: str
    words: str
    href: str | None
    verified: bool


def ledger_pages(site: Site) -> Iterator[tuple[str, str]]:
    """Path and content of each page; there is always a front page."""
    for block in range(site.newest_block, -1, -1):
        first = block * ENTRIES_A_PAGE
        shown = site.survey.entries[first : first + ENTRIES_A_PAGE]
        lines = [_line(site, entry) for entry in reversed(shown)]
        path = site.ledger_page(block)
        yield path, site.render("ledger.html.j2", path, lines=lines, block=block, **_front(site, block))


def _front(site: Site, block: int) -> dict[str, Any]:
    """What only the front page shows."""
    front = block == site.newest_block
    good = site.survey.entries[: site.survey.verified] if front else []
    chosen = {kind: [entry for entry in good if entry.kind == kind] for kind in ("cap", "reconcile", "restore")}
    spoken = [
        entry for entry in good if entry.kind == "approve" or (entry.kind == "refuse" and entry.parse(Refusal).who)
    ]
    return {
        "front": front,
        "entries_a_page": ENTRIES_A_PAGE,
        "keys": list(_keys(site)) if front else [],
        "caps": [_cap(entry) for entry in chosen["cap"]],
        "approvals": spoken,
        "answers": [*chosen["restore"], *chosen["reconcile"]],
    }


def _keys(site: Site) -> Iterator[dict[str, Any]]:
    """Each key, when it was announced, by whom, and how many entries it signed."""
    good = site.survey.entries[: site.survey.verified]
    signed = Counter(entry.key_id for entry in good)
    announced = {entry.parse(KeyEnrolment).key_id: entry for entry in good if entry.kind == "key"}
    for key_id, key in site.survey.state.keys.items():
        yield {"id": key_id, "key": key, "entry": announced[key_id], "signed": signed[key_id]}


def _cap(entry: Entry) -> dict[str, Any]:
    body = entry.parse(CapChange)
    figures = {kind: float(getattr(body, kind)) for kind in ("epsilon", "delta", "delta_num")}
    return {"entry": entry, "reason": body.reason, "who": body.who, **figures}


# ---------------------------------------------------------------- entries


def _line(site: Site, entry: Entry) -> Line:
    """A row; of an entry that cannot be read, that."""
    try:
        cost, words = ("", "") if entry.kind not in WORDS else _describe(entry.content)
    except FAULTS:
        cost, words = "", "cannot be read"
    return Line(entry, cost, words, site.release_href(entry.release_id), entry.seq <= site.survey.verified)


def _describe(body: Body) -> tuple[str, str]:
    return _entry_cost(body), WORDS[body.kind](body)


def _entry_cost(body: Body) -> str:
    match body:
        case Spend():
            return cost_in_signs(body.cost)
        case Reservation():
            return cost_in_signs(total(plan.cost for plan in body.measurements.values()))
        case Reconciliation():
            return cost_in_signs(total(body.charges.values())) or "nothing"
    return ""


def cost_in_signs(cost: Cost) -> str:
    """A cost as people read it."""
    parts = {"ε": cost.epsilon, "ρ": cost.rho, "δ num.": cost.delta_num}
    return ", ".join(f"{sign} {rounded_up(float(value))}" for sign, value in parts.items() if value)


def _key_words(body: KeyEnrolment) -> str:
    how = f"replaces {short_hash(body.replaces)}" if body.replaces else "is announced"
    roles = f", may {', '.join(body.roles)}" if body.roles else ""
    return f"key {short_hash(body.key_id)} {how}{roles}"


def _key_entry_words(body: KeyEnrolment) -> str:
    how = f"replaces {short_hash(body.replaces)}" if body.replaces else "is announced"
    roles = f", may {', '.join(body.roles)}" if body.roles else ""
    return f"key {short_hash(body.key_id)} {how}{roles}"


def _cap_entry_words(body: CapChange) -> str:
    figures = {"ε": float(body.epsilon), "δ": float(body.delta)}
    words = ", ".join(f"{sign} ≤ {rounded_up(value)}" for sign, value in figures.items())
    by = f", set by {body.who}" if body.who else ""
    return f"{words}{by}: {body.reason}" if body.reason else words + by


def _reserve_words(body: Reservation) -> str:
    words = f"{', '.join(body.measurements)} for {body.period}"
    return f"{words}; supersedes {body.supersedes}: {body.reason}" if body.supersedes else words


def _spend_entry_words(body: Spend) -> str:
    return f"{body.measurement} by {body.event['mechanism']}"


def _bundle_words(body: SealedBundle) -> str:
    return f"bundle {short_hash(body.bundle_digest)}"


def _person_words(body: BundleDecision | KeyRevocation | Reconciliation) -> str:
    return f"{body.who}: {body.reason}"


def _refuse_words(body: Refusal) -> str:
    return _person_words(body) if body.who else f"{body.rule}: {body.reason}"


WORDS: dict[str, Callable[[Any], str]] = {
    "key": _key_entry_words,
    "revoke": lambda body: f"key {short_hash(body.key_id)} signs no more; {_person_words(body)}",
    "cap": _cap_entry_words,
    "reserve": _reserve_words,
    "spend": _spend_entry_words,
    "fail": lambda body: f"{body.status} in stage {body.stage}",
    "await": _bundle_words,
    "approve": _person_words,
    "refuse": _refuse_words,
    "publish": _bundle_words,
    "void": lambda body: str(body.reason),
    "restore": lambda body: f"{body.who} restored a backup",
    "reconcile": _person_words,
}
"""What an entry says, kind by kind; values that the ledger states, nothing else."""
