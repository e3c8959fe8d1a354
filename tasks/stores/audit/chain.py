"""Steps over the whole ledger: its keys, its caps, and what else names its entries."""

from __future__ import annotations

from collections import Counter

from dpcore.accounting import compose
from tasks.stores.audit.checks import Check, check
from tasks.stores.audit.evidence import Evidence
from tasks.stores.entry_content import CLOCK_TOLERANCE, time_of, time_text
from tasks.stores.ledger_state import LedgerState
from tasks.stores.signing import PublicKey


def times_check(evidence: Evidence) -> Check:
    """The ledger does not end in the future of the auditor's clock; that no time goes back, its replay has shown."""
    if not evidence.entries:
        return Check("ledger times", True, "no entries yet")
    first, last = evidence.entries[0], evidence.entries[-1]
    ahead = next((e for e in evidence.entries if time_of(e.at) > evidence.now + CLOCK_TOLERANCE), None)
    if ahead is None:
        return Check("ledger times", True, f"from {first.at} to {last.at}, none before the one before it")
    words = f"entry {ahead.seq} is dated {ahead.at}, in the future of this machine's clock ({time_text(evidence.now)})"
    return Check("ledger times", False, f"{words}: one of the two clocks is wrong")


def keys_check(evidence: Evidence) -> Check:
    """Every given key is one of the chain's, and one of them seals its end; keys that nobody vouches for are named."""
    return check("keys", lambda: _key_faults(evidence), lambda: _key_words(evidence))


def _key_faults(evidence: Evidence) -> list[str]:
    known, given = evidence.state.keys, evidence.trusted
    found = [f"the given key {key.key_id} never signed this ledger" for key in given if key.key_id not in known]
    head = evidence.entries[-1] if evidence.entries else None
    if given and not found and head is not None and head.key_id not in vouched_for(evidence.state, given):
        last = max((e.seq for e in evidence.entries if e.key_id in vouched_for(evidence.state, given)), default=0)
        found.append(f"entries {last + 1} to {head.seq} are sealed by no given key, but by {head.key_id}")
    return found


def _key_words(evidence: Evidence) -> str:
    state, signed = evidence.state, Counter(entry.key_id for entry in evidence.entries)
    words = [f"{key_id} ({_origin(state, key_id)}, signed {signed[key_id]})" for key_id in state.keys]
    if signed[""]:
        words.append(f"{signed['']} entries are older than the first key and unsigned")
    if not evidence.trusted:
        return "; ".join(words) or "none yet"
    trusted = vouched_for(state, evidence.trusted)
    strangers = [key_id for key_id in state.keys if key_id not in trusted]
    words += [f"NOT VOUCHED FOR by a given key: {key_id}, which announced itself" for key_id in strangers]
    words.append(f"a given key seals entries 1 to {len(evidence.entries)}")
    return "; ".join(words)


def _origin(state: LedgerState, key_id: str) -> str:
    key = state.keys[key_id]
    origin = f"announced by {key.vouched_by}" if key.vouched_by else "announced itself"
    return origin if key.active else f"{origin}, replaced since"


def vouched_for(state: LedgerState, given: tuple[PublicKey, ...]) -> set[str]:
    """The given keys of a ledger, and those that one of them announced as its successor, and so on."""
    trusted = {key.key_id for key in given} & set(state.keys)
    for key_id, key in state.keys.items():  # in the order of their announcement
        if key.vouched_by in trusted:
            trusted.add(key_id)
    return trusted


def caps_check(evidence: Evidence) -> Check:
    """No cap was exceeded at any time."""
    return check("caps", lambda: _cap_faults(evidence), lambda: _cap_words(evidence))


def _cap_faults(evidence: Evidence) -> list[str]:
    """Charges that exceeded a cap; reservations were held against it when the chain was replayed.

    Lowering a cap below what is spent breaks no promise that was made; it only stops releases.
    """
    found = []
    for entry in evidence.entries:
        if entry.kind != "reconcile":
            continue
        for name in entry.facts["charges"]:
            known = evidence.history.at(name, entry.seq)
            if not known.cap.admits(known.spent + known.reserved):
                found.append(f"{name}: what entry {entry.seq} charges for lost entries exceeds the cap")
    return found


def _cap_words(evidence: Evidence) -> str:
    words = []
    for name, known in evidence.state.populations.items():
        spent = compose(known.spent, delta=known.cap.delta)
        words.append(f"{name}: epsilon {float(spent.epsilon):g} of {float(known.cap.epsilon):g} spent")
    changed = [str(entry.seq) for entry in evidence.entries if entry.kind == "cap" and entry.facts["reason"]]
    later = f"; set or changed with a reason by entry {', '.join(changed)}" if changed else ""
    return f"never exceeded; {'; '.join(words)}{later}" if words else "none yet"


def strays_check(evidence: Evidence) -> Check:
    """No bundle without a ledger entry, except those whose entries were lost and answered for."""
    published = [release for release in evidence.state.releases.values() if release.published]
    known = {evidence.shelf.place(release) for release in published}
    others = [folder.name for folder in evidence.shelf.found if folder not in known]
    found = [name for name in others if name not in evidence.state.retired]
    if found:
        return Check("bundles", False, f"not in the ledger: {', '.join(found)}")
    lost = f"; of lost entries that were answered for: {', '.join(others)}" if others else ""
    return Check("bundles", True, f"every bundle has its ledger entry{lost}")
