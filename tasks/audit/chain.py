"""Steps over the whole ledger: its keys, its caps, and what else names its entries."""

from __future__ import annotations

from collections import Counter

from tasks.audit.checks import Check, NotShownError, check
from tasks.audit.evidence import Evidence
from tasks.ledger.entries.bodies import CapChange, Reconciliation, Reservation
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.fields import CLOCK_TOLERANCE, time_of, time_text
from tasks.ledger.entries.keys import trust_fault
from tasks.ledger.entries.populations import Population
from tasks.ledger.state import LedgerState
from tasks.spec.relations import at_most
from tasks.workspace.folders import MARK_ENDING, mark_beside


def times_check(evidence: Evidence) -> Check:
    """No entry lies in the future of the auditor's clock; the replay has shown that times never decrease."""
    if not evidence.entries:
        return Check("ledger times", True, "no entries yet")
    first, last = evidence.entries[0], evidence.entries[-1]
    ahead = next((e for e in evidence.entries if time_of(e.at) > evidence.now + CLOCK_TOLERANCE), None)
    if ahead is None:
        return Check("ledger times", True, f"from {first.at[:16]}Z to {last.at[:16]}Z, in the order of the entries")
    words = f"entry {ahead.seq} is dated {ahead.at}, in the future of this machine's clock ({time_text(evidence.now)})"
    return Check("ledger times", False, f"{words}: one of the two clocks is wrong")


def keys_check(evidence: Evidence) -> Check:
    """Every given key is one of the chain's, and the keys of every entry lead to the trusted ones."""
    return check("keys", lambda: _key_faults(evidence), lambda: _signer_words(evidence))


def _key_faults(evidence: Evidence) -> list[str]:
    known, given = evidence.state.keys, evidence.trusted
    found = [f"the given key {key.key_id} never signed this ledger" for key in given if key.key_id not in known]
    fault = trust_fault(known, evidence.state.signers, evidence.anchors)
    if not found and fault is not None:
        found.append(fault.what)
    if not found and known and not evidence.anchors:
        found.append("there is no key to trust: keys/signing.pub is missing and no --public-key is given")
    return found


def _signer_words(evidence: Evidence) -> str:
    state, signed = evidence.state, Counter(entry.key_id for entry in evidence.entries)
    words = [f"{key_id} ({_origin(state, key_id)}, signed {signed[key_id]})" for key_id in state.keys]
    if signed[""]:
        words.append(f"{signed['']} entries are older than the first key and unsigned")
    answers = [(entry.seq, entry.parse(Reconciliation)) for entry in evidence.entries if entry.is_a(Reconciliation)]
    words += [
        f"{body.who} vouches for {', '.join(body.vouches)} in entry {seq}" for seq, body in answers if body.vouches
    ]
    if evidence.trusted:
        words.append(f"a given key seals entries 1 to {len(evidence.entries)}")
    return "; ".join(words) or "none yet"


def _origin(state: LedgerState, key_id: str) -> str:
    key = state.keys[key_id]
    origin = f"enrolled by {key.vouched_by}" if key.vouched_by else "announced itself"
    named = f"{key.name}, {origin}" if key.name else origin
    return named if key.active else f"{named}, revoked since"


def caps_check(evidence: Evidence) -> Check:
    """No cap was exceeded at any time."""
    return check("caps", lambda: _cap_faults(evidence), lambda: _cap_words(evidence))


def _cap_faults(evidence: Evidence) -> list[str]:
    """Charges that exceeded a cap; the replay of the chain compared reservations with the cap.

    A cap below what is spent breaks no promise; it only stops further releases.
    Raises: NotShownError if pure and Gaussian costs together stay under a cap only if all were fixed beforehand.
    """
    found, beyond = [], {}
    for entry in evidence.entries:
        for name in _taking(entry):
            known = evidence.history.at(name, entry.seq)
            balances = [known.balance(relation) for relation in sorted(known.declared)] or [known.balance()]
            if entry.is_a(Reconciliation) and not all(balance.was_admitted for balance in balances):
                found.append(f"{name}: what entry {entry.seq} charges for lost entries exceeds the cap")
            for balance in balances:
                if balance.was_admitted and not balance.is_admitted:
                    epsilon = at_most(balance.statement.epsilon)
                    beyond[name] = f"{name}: entry {entry.seq} takes epsilon {epsilon} of {at_most(known.cap.epsilon)}"
    if beyond and not found:
        raise NotShownError(
            f"{'; '.join(beyond.values())}, as pure costs and Gaussian noise together are counted today; an earlier "
            "version admitted it by a rule that holds only if every cost was fixed before anything was measured"
        )
    return found


def _taking(entry: Entry) -> list[str]:
    """The populations whose budget an entry charges."""
    if entry.is_a(Reservation):
        return [entry.population]
    return list(entry.parse(Reconciliation).charges) if entry.is_a(Reconciliation) else []


def _cap_words(evidence: Evidence) -> str:
    known = evidence.state.populations
    words = [f"{name}: {_spent_words(p)}" for name, p in known.items()]
    changed = [str(entry.seq) for entry in evidence.entries if entry.is_a(CapChange) and entry.parse(CapChange).reason]
    later = f"; set or changed with a reason by entry {', '.join(changed)}" if changed else ""
    return f"never exceeded; {'; '.join(words)}{later}" if words else "none yet"


def _spent_words(known: Population) -> str:
    """What is spent of a cap under each declared relation; with a span, in the most expensive window."""
    within = f" within {known.windows.span} months" if known.windows.span else ""
    relations = sorted(known.declared | {known.neighbours}, key=lambda declared: declared is not known.neighbours)
    spent = [
        f"epsilon {at_most(known.balance(relation, reserved=False).statement.epsilon)}"
        + (f" ({relation.value})" if len(relations) > 1 else "")
        for relation in relations
    ]
    return f"{', '.join(spent)} of {at_most(known.cap.epsilon)} spent{within}"


def strays_check(evidence: Evidence) -> Check:
    """Every bundle and every mark has a ledger entry, except those whose entries were lost and reconciled."""
    known = {evidence.shelf.place(release) for release in evidence.state.releases.values() if release.published}
    others = [folder.name for folder in evidence.shelf.found if folder not in known]
    others += _stray_marks(evidence)
    found = [name for name in others if name.removesuffix(MARK_ENDING) not in evidence.state.retired]
    if found:
        return Check("bundles", False, f"not in the ledger: {', '.join(found)}")
    lost = f"; belonging to lost entries that were reconciled: {', '.join(others)}" if others else ""
    return Check("bundles", True, f"every bundle has its ledger entry{lost}")


def _stray_marks(evidence: Evidence) -> list[str]:
    """The marks of releases that the ledger does not have as retracted; one beside its bundle is checked with it."""
    releases = evidence.state.releases.values()
    retracted = {release.release_id for release in releases if release.retraction}
    beside = {mark_beside(evidence.shelf.place(release)) for release in releases}
    return [
        mark.name
        for mark in evidence.shelf.marks
        if mark not in beside and mark.name.removesuffix(MARK_ENDING) not in retracted
    ]
