"""The ledger's pages: all entries, newest first; the front page also has keys, caps, approvals, reconciliations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpcore.accounting import Cost, total
from tasks.ledger.state import Entry, cost_from_json
from tasks.report.wording import rounded_up, short_hash
from tasks.site.frame import ENTRIES_PER_PAGE, Site
from tasks.site.survey import FAULTS

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """A ledger entry as a row of the table."""

    entry: Entry
    cost: str
    words: str
    href: str | None
    verified: bool


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
    chosen = {kind: [entry for entry in good if entry.kind == kind] for kind in ("cap", "reconcile", "restore")}
    decided = [entry for entry in good if entry.kind == "approve" or (entry.kind == "refuse" and entry.facts["who"])]
    return {
        "front": front,
        "entries_per_page": ENTRIES_PER_PAGE,
        "keys": list(_key_rows(site)) if front else [],
        "caps": [_cap_row(entry) for entry in chosen["cap"]],
        "approvals": decided,
        "answers": [*chosen["restore"], *chosen["reconcile"]],
    }


def _key_rows(site: Site) -> Iterator[dict[str, Any]]:
    """Yield each key with the entry that announced it and the number of entries that it signed."""
    good = site.survey.entries[: site.survey.verified]
    signed = Counter(entry.key_id for entry in good)
    announced = {entry.facts["key_id"]: entry for entry in good if entry.kind == "key"}
    for key_id, key in site.survey.state.keys.items():
        yield {"id": key_id, "key": key, "entry": announced[key_id], "signed": signed[key_id]}


def _cap_row(entry: Entry) -> dict[str, Any]:
    figures = {kind: float(Fraction(entry.facts[kind])) for kind in ("epsilon", "delta", "delta_num")}
    return {"entry": entry, "reason": entry.facts.get("reason"), "who": entry.facts.get("who"), **figures}


# ---------------------------------------------------------------- entries


def _line(site: Site, entry: Entry) -> Line:
    """Return the row of an entry, or say that the entry cannot be read."""
    try:
        facts = entry.facts
        cost, words = _entry_cost(entry.kind, facts), DESCRIPTIONS.get(entry.kind, _describe_nothing)(facts)
    except FAULTS:
        cost, words = "", "cannot be read"
    return Line(entry, cost, words, site.release_href(entry.release_id), entry.seq <= site.survey.verified)


def _entry_cost(kind: str, facts: Facts) -> str:
    if kind == "spend":
        return format_cost(cost_from_json(facts["cost"]))
    if kind == "reserve":
        return format_cost(total(cost_from_json(m["cost"]) for m in facts["measurements"].values()))
    if kind == "reconcile":
        return format_cost(total(cost_from_json(cost) for cost in facts["charges"].values())) or "nothing"
    return ""


def format_cost(cost: Cost) -> str:
    """Write a cost with Greek letters, rounded up."""
    parts = {"ε": cost.epsilon, "ρ": cost.rho, "δ num.": cost.delta_num}
    return ", ".join(f"{sign} {rounded_up(float(value))}" for sign, value in parts.items() if value)


def _describe_nothing(_facts: Facts) -> str:
    return ""


def _describe_key(facts: Facts) -> str:
    how = f"replaces {short_hash(facts['replaces'])}" if facts["replaces"] else "is announced"
    roles = f", may {', '.join(facts['roles'])}" if facts.get("roles") else ""
    return f"key {short_hash(facts['key_id'])} {how}{roles}"


def _describe_cap(facts: Facts) -> str:
    figures = {sign: float(Fraction(facts[kind])) for sign, kind in (("ε", "epsilon"), ("δ", "delta"))}
    words = ", ".join(f"{sign} ≤ {rounded_up(value)}" for sign, value in figures.items())
    by = f", set by {facts['who']}" if facts.get("who") else ""
    return f"{words}{by}: {facts['reason']}" if facts.get("reason") else words + by


def _describe_reservation(facts: Facts) -> str:
    words = f"{', '.join(facts['measurements'])} for {facts['period']}"
    replaced = f"; supersedes {facts['supersedes']}: {facts['reason']}" if facts.get("supersedes") else ""
    return words + replaced


def _describe_spend(facts: Facts) -> str:
    return f"{facts['measurement']} by {facts['event']['mechanism']}"


def _describe_bundle(facts: Facts) -> str:
    return f"bundle {short_hash(facts['bundle_digest'])}"


def _describe_decision(facts: Facts) -> str:
    return f"{facts['who']}: {facts['reason']}"


def _describe_refusal(facts: Facts) -> str:
    return _describe_decision(facts) if facts["who"] else f"{facts['rule']}: {facts['reason']}"


DESCRIPTIONS: dict[str, Callable[[Facts], str]] = {
    "key": _describe_key,
    "revoke": lambda facts: f"key {short_hash(facts['key_id'])} no longer signs; {_describe_decision(facts)}",
    "cap": _describe_cap,
    "reserve": _describe_reservation,
    "spend": _describe_spend,
    "fail": lambda facts: f"{facts['status']} in stage {facts['stage']}",
    "await": _describe_bundle,
    "approve": _describe_decision,
    "refuse": _describe_refusal,
    "publish": _describe_bundle,
    "void": lambda facts: str(facts["reason"]),
    "restore": lambda facts: f"{facts['who']} restored a backup",
    "reconcile": _describe_decision,
}
"""The content of an entry by kind; only values that the ledger states."""
