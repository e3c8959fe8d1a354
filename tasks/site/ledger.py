"""The ledger's pages: every entry, the newest first, and on the front page keys, caps, approvals and answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpcore.accounting import Cost, total
from tasks.ledger.entries.costs import cost_from_json
from tasks.ledger.entries.entry import Entry
from tasks.report.wording import rounded_up, short_hash
from tasks.site.frame import ENTRIES_A_PAGE, Site
from tasks.site.survey import FAULTS

Facts = dict[str, Any]


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
    spoken = [entry for entry in good if entry.kind == "approve" or (entry.kind == "refuse" and entry.facts["who"])]
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
    announced = {entry.facts["key_id"]: entry for entry in good if entry.kind == "key"}
    for key_id, key in site.survey.state.keys.items():
        yield {"id": key_id, "key": key, "entry": announced[key_id], "signed": signed[key_id]}


def _cap(entry: Entry) -> dict[str, Any]:
    figures = {kind: float(Fraction(entry.facts[kind])) for kind in ("epsilon", "delta", "delta_num")}
    return {"entry": entry, "reason": entry.facts.get("reason"), "who": entry.facts.get("who"), **figures}


# ---------------------------------------------------------------- entries


def _line(site: Site, entry: Entry) -> Line:
    """A row; of an entry that cannot be read, that."""
    try:
        facts = entry.facts
        cost, words = _cost(entry.kind, facts), WORDS.get(entry.kind, _nothing)(facts)
    except FAULTS:
        cost, words = "", "cannot be read"
    return Line(entry, cost, words, site.release_href(entry.release_id), entry.seq <= site.survey.verified)


def _cost(kind: str, facts: Facts) -> str:
    if kind == "spend":
        return cost_words(cost_from_json(facts["cost"]))
    if kind == "reserve":
        return cost_words(total(cost_from_json(m["cost"]) for m in facts["measurements"].values()))
    if kind == "reconcile":
        return cost_words(total(cost_from_json(cost) for cost in facts["charges"].values())) or "nothing"
    return ""


def cost_words(cost: Cost) -> str:
    """A cost as people read it."""
    parts = {"ε": cost.epsilon, "ρ": cost.rho, "δ num.": cost.delta_num}
    return ", ".join(f"{sign} {rounded_up(float(value))}" for sign, value in parts.items() if value)


def _nothing(_facts: Facts) -> str:
    return ""


def _key_words(facts: Facts) -> str:
    how = f"replaces {short_hash(facts['replaces'])}" if facts["replaces"] else "is announced"
    roles = f", may {', '.join(facts['roles'])}" if facts.get("roles") else ""
    return f"key {short_hash(facts['key_id'])} {how}{roles}"


def _cap_words(facts: Facts) -> str:
    figures = {sign: float(Fraction(facts[kind])) for sign, kind in (("ε", "epsilon"), ("δ", "delta"))}
    words = ", ".join(f"{sign} ≤ {rounded_up(value)}" for sign, value in figures.items())
    by = f", set by {facts['who']}" if facts.get("who") else ""
    return f"{words}{by}: {facts['reason']}" if facts.get("reason") else words + by


def _reserve_words(facts: Facts) -> str:
    words = f"{', '.join(facts['measurements'])} for {facts['period']}"
    replaced = f"; supersedes {facts['supersedes']}: {facts['reason']}" if facts.get("supersedes") else ""
    return words + replaced


def _spend_words(facts: Facts) -> str:
    return f"{facts['measurement']} by {facts['event']['mechanism']}"


def _bundle_words(facts: Facts) -> str:
    return f"bundle {short_hash(facts['bundle_digest'])}"


def _person_words(facts: Facts) -> str:
    return f"{facts['who']}: {facts['reason']}"


def _refuse_words(facts: Facts) -> str:
    return _person_words(facts) if facts["who"] else f"{facts['rule']}: {facts['reason']}"


WORDS: dict[str, Callable[[Facts], str]] = {
    "key": _key_words,
    "revoke": lambda facts: f"key {short_hash(facts['key_id'])} signs no more; {_person_words(facts)}",
    "cap": _cap_words,
    "reserve": _reserve_words,
    "spend": _spend_words,
    "fail": lambda facts: f"{facts['status']} in stage {facts['stage']}",
    "await": _bundle_words,
    "approve": _person_words,
    "refuse": _refuse_words,
    "publish": _bundle_words,
    "void": lambda facts: str(facts["reason"]),
    "restore": lambda facts: f"{facts['who']} restored a backup",
    "reconcile": _person_words,
}
"""What an entry says, kind by kind; values that the ledger states, nothing else."""
