"""What the body of an entry may hold, kind by kind.

Whoever has a key can sign anything, so a signed entry is checked like any other input:
fields and types are those that the program writes, numbers are exact, not negative, of
bounded length and in their one spelling, and times are in the one format and plausible.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict

from dpcore.accounting import LARGEST_FIGURE, Cap, CapKind
from dpcore.records.schema import Neighbours
from tasks.keys.decision import Decision
from tasks.keys.signing import PublicKey
from tasks.ledger.entries import bodies
from tasks.ledger.entries.fields import canonical, exact_number, is_slug, is_text

_DIGEST = re.compile(r"[0-9a-f]{64}")
_SPAN = re.compile(r"[1-9][0-9]{0,3}")
_PERIOD = re.compile(r"[0-9]{4}-(?:0[1-9]|1[0-2])")

Check = Callable[[object], bool]


def fault_of_body(kind: str, body: str) -> str | None:
    """What is wrong with the content of an entry of a known kind, in words that quote none of it."""
    try:
        facts = json.loads(body)
        spelled = isinstance(facts, dict) and canonical(facts) == body
    except (ValueError, RecursionError):
        spelled = False
    if not spelled:
        return "does not hold one JSON object in its one spelling"
    needed, known = BODIES[kind], BODIES[kind] | LATER_FIELDS.get(kind, {})
    halves = [names for names in bodies.TOGETHER.get(kind, ()) if names & facts.keys() and not names <= facts.keys()]
    if halves or not needed.keys() <= facts.keys() <= known.keys():
        return "lacks a field, or has one that is unknown"
    wrong = [name for name in known if name in facts and not known[name](facts[name])]
    if wrong:
        return f"has an impossible value in its field {wrong[0]!r}"
    return None if _fits_together(bodies.parse_body(kind, body)) else "holds figures that do not belong together"


def _fits_together(content: bodies.Body) -> bool:
    """Whether a cap is one of its kind, and the measurements of a reservation declare one relation."""
    try:
        match content:
            case bodies.CapChange():
                return isinstance(content.cap, Cap) and content.neighbours in Neighbours
            case bodies.Reservation():
                return content.neighbours is None or content.neighbours in Neighbours
    except ValueError:
        return False
    return True


def _is_exact(value: object) -> bool:
    try:
        return exact_number(value) >= 0
    except ValueError:
        return False


def _is_probability(value: object) -> bool:
    return _is_exact(value) and exact_number(value) <= 1


def _is_exact_cost(value: object) -> bool:
    """The figures of a cost; a delta of its own is there only if it is positive."""
    return (
        isinstance(value, dict)
        and value.keys() - {"delta"} == {"epsilon", "rho", "rho_of_pure", "delta_num"}
        and all(map(_is_exact, value.values()))
        and value.get("delta") != "0"
    )


def _is_figure(value: object) -> bool:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and math.isfinite(value) and 0 <= value <= LARGEST_FIGURE  # type: ignore[arg-type,operator]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _is_truth(value: object) -> bool:
    return isinstance(value, bool)


def _is_mapping(value: object) -> bool:
    return isinstance(value, dict)


def _is_public_key(value: object) -> bool:
    try:
        return isinstance(value, str) and PublicKey.from_text(value).text == value
    except ValueError:
        return False


def _is_event(value: object) -> bool:
    return isinstance(value, dict) and is_text(value.get("mechanism"))


def _is_measurement(value: object) -> bool:
    """An event with its cost and, since later versions, its cost under the other relation."""
    named = isinstance(value, dict) and value.keys() - {"other"} == {"cost", "event"}
    costs = [value[name] for name in value if name != "event"] if named else []  # type: ignore[attr-defined,index]
    return named and all(map(_is_exact_cost, costs)) and _is_event(value["event"])  # type: ignore[index]


def _is_lost_entry(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and _is_count(value[0]) and is_text(value[1])


def _is_decision(value: object) -> bool:
    """The text that an approver signs."""
    try:
        return isinstance(value, str) and all(map(is_text, asdict(Decision.from_text(value)).values()))
    except (ValueError, TypeError, RecursionError):
        return False


def _is_approval(value: object) -> bool:
    """`none` or `required`, or who may approve and how many of them must."""
    named = isinstance(value, dict) and value.keys() == {"by", "at_least"}
    return is_text(value) or (named and _list_of(is_text)(value["by"]) and _is_count(value["at_least"]))  # type: ignore[index]


def _matches(pattern: re.Pattern[str]) -> Check:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _mapping_of(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(is_text, value)) and all(map(check, value.values()))


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _is_rule(value: object) -> bool:
    """A kind of cap, and exact figures."""
    figures = value.items() - {("kind", value.get("kind"))} if _mapping_of(is_text)(value) else ()  # type: ignore[attr-defined]
    known = all(name in bodies.FIGURES_OF_KINDS and _is_exact(text) for name, text in figures)
    return isinstance(value, dict) and value.get("kind") in list(CapKind) and known


def _is_window_of_cap(value: object) -> bool:
    """How many months, and by which rule records belong to one."""
    return _is_window(value) and _matches(_SPAN)(value.get(bodies.SPAN)) and "column" in value  # type: ignore[attr-defined,operator]


_is_digest, _is_period = _matches(_DIGEST), _matches(_PERIOD)
_text_or_none = _or_none(is_text)
_is_window = _mapping_of(is_text)
_sealed: dict[str, Check] = {"bundle_digest": _is_digest, "flow_run_id": _text_or_none}

BODIES: Mapping[str, dict[str, Check]] = {
    bodies.KeyEnrolment.kind: {"key_id": is_text, "public_key": _is_public_key, "replaces": _text_or_none},
    bodies.CapChange.kind: {
        "epsilon": _is_exact,
        "delta": _is_probability,
        "delta_num": _is_probability,
        "basis": _mapping_of(is_text),
        "reason": _text_or_none,
    },
    bodies.Reservation.kind: {
        "name": is_slug,
        "period": _is_period,
        "sequence": _is_count,
        "measurements": _mapping_of(_is_measurement),
        "stated": _mapping_of(_is_figure),
        "spec_digest": _is_digest,
        "seeds": _mapping_of(is_text),
        "flow_run_id": _text_or_none,
        "supersedes": _text_or_none,
        "reason": _text_or_none,
    },
    bodies.Spend.kind: {
        "measurement": is_text,
        "event": _is_event,
        "cost": _is_exact_cost,
        "seeded": _is_truth,
        "digest": _is_digest,
    },
    bodies.Failure.kind: {"status": is_text, "stage": is_text},
    bodies.ApprovalRequest.kind: _sealed,
    bodies.Approval.kind: {"bundle_digest": _is_digest, "who": is_text, "reason": is_text},
    bodies.Refusal.kind: {"rule": is_text, "reason": is_text, "who": _text_or_none, "flow_run_id": _text_or_none},
    bodies.Publication.kind: _sealed,
    bodies.Retraction.kind: {"who": is_text, "reason": is_text},
    bodies.Void.kind: {"reason": is_text},
    bodies.Restore.kind: {"who": is_text, "backup_made_at": is_text},
    bodies.KeyRevocation.kind: {"key_id": is_text, "reason": is_text, "who": is_text},
    bodies.Reconciliation.kind: {
        "reason": is_text,
        "who": is_text,
        "nothing_was_spent": _is_truth,
        "charges": _mapping_of(_is_exact_cost),
        "lost": _list_of(_is_lost_entry),
        "retired": _list_of(is_text),
    },
}
"""The fields that every entry of a kind has."""

_proof: dict[str, Check] = {"approver": is_text, "statement": _is_decision, "signature": is_text}

LATER_FIELDS: Mapping[str, dict[str, Check]] = {
    bodies.KeyEnrolment.kind: {"roles": _list_of(is_text), "name": is_text},
    bodies.CapChange.kind: {
        "who": _text_or_none,
        "rule": _is_rule,
        "window": _is_window_of_cap,
    },
    bodies.Reservation.kind: {"approve": _is_approval, "window": _is_window},
    bodies.Approval.kind: _proof,
    bodies.Reconciliation.kind: {"vouches": _list_of(is_text)},
    bodies.Spend.kind: {"build": _or_none(_is_mapping), "flow_run_id": _text_or_none},
    bodies.Refusal.kind: {"name": is_slug, "period": _is_period, "stated": _mapping_of(_is_figure), **_proof},
}
"""The fields that entries of earlier versions lack, or that only some entries of a kind have."""
