"""Which keys may write a ledger, and what each may write: pure rules that the replay applies to every entry.

The first key announces itself and holds every role. Any other becomes a writer by an entry that a
key with the role `cap` signs, and stops being one when such a key revokes it. Before format
version 4 a key could announce itself at any time; such a key counts only once a person has vouched
for it, in a reconciliation that a vouched key signs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tasks.keys.signing import PublicKey
from tasks.ledger.entries.bodies import CapChange, KeyEnrolment, KeyRevocation, Reconciliation, Restore

ROLES = ("release", "cap", "approve")
WITH_ROLE_CAP = (CapChange, KeyEnrolment, KeyRevocation, Restore, Reconciliation)
"""The entries of the role `cap`; a person's decisions about a bundle are of `approve`, and all others of `release`."""


class KeyRuleError(Exception):
    """An entry does what its key may not; the replay adds which entry."""


@dataclass(frozen=True, slots=True)
class Key:
    """A public key that signs entries, or did."""

    public: str
    active: bool = True
    vouched_by: str | None = None
    """The key that enrolled it."""
    roles: tuple[str, ...] = ROLES
    name: str = ""
    replaces: str | None = None
    """The key whose place it took in a rotation."""
    vouched: bool = True
    """False: it announced itself, or leads to a key that did, and nobody has answered for it."""
    since: int = 0
    """The entry that announced it."""


Keys = dict[str, Key]


def announce(keys: Keys, signer: str, enrolment: KeyEnrolment, *, seq: int, closed: bool) -> Keys:
    """The keys after an enrolment; `closed` ledgers let no key announce itself.

    Raises: KeyRuleError.
    """
    key_id, public, replaces = enrolment.key_id, enrolment.public_key, enrolment.replaces
    _require(key_id == PublicKey.from_text(public).key_id, "misnames the key it announces")
    if signer == key_id:
        _require(key_id not in keys, "announces a key a second time")
        _require(replaces is None, "is not signed by the key that it replaces")
        _require(not keys or not closed, "announces itself: no key of the ledger enrolled it")
        return keys | {key_id: Key(public, vouched=not keys, since=seq)}
    voucher = keys[signer]
    _require(replaces in (None, signer), "is not signed by the key that it replaces")
    fresh = Key(public, vouched_by=signer, replaces=replaces, vouched=voucher.vouched, since=seq)
    if enrolment.roles is None:  # a rotation of before version 4 is one entry
        _require(replaces is not None, "announces a key that did not sign it")
        _require(key_id not in keys, "announces a key a second time")
        return keys | {signer: replace(voucher, active=False), key_id: replace(fresh, roles=voucher.roles)}
    _require(voucher.vouched, "enrols a key by one that nobody vouched for")
    _require(key_id not in keys or keys[key_id].active, "enrols a key that was revoked")
    roles = enrolment.roles
    _require(bool(roles) and set(roles) <= set(ROLES), "enrols a key for unknown roles")
    known = keys.get(key_id, fresh)
    _require(known.vouched, "enrols a key that announced itself before")
    return keys | {key_id: replace(known, roles=roles, name=enrolment.name or "")}


def revoke(keys: Keys, signer: str, revocation: KeyRevocation) -> Keys:
    """The keys after a revocation.

    Raises: KeyRuleError; also if nobody would be left who may enrol a key.
    """
    key_id = revocation.key_id
    _require(bool(revocation.who and revocation.reason), "does not say who revokes a key, or why")
    _require(key_id in keys and keys[key_id].active, "revokes a key that is not active")
    _require(signer in keys and keys[signer].vouched, "revokes a key by one that nobody vouched for")
    left = keys | {key_id: replace(keys[key_id], active=False)}
    _require(bool(owners(left)), "revokes the last key that may enrol another")
    return left


def vouch(keys: Keys, signer: str, vouched: Collection[str]) -> Keys:
    """The keys after a person vouched for some that announced themselves, and so for those that they enrolled.

    Raises: KeyRuleError.
    """
    _require(signer in keys and keys[signer].vouched, "vouches for keys by one that nobody vouched for")
    _require(set(vouched) <= keys.keys(), "vouches for an unknown key")
    result: Keys = {}
    for key_id, key in keys.items():  # in the order of their announcement
        led = key.vouched_by is not None and result[key.vouched_by].vouched
        result[key_id] = replace(key, vouched=key.vouched or key_id in vouched or led)
    return result


def owners(keys: Keys) -> list[str]:
    """The keys that may enrol others."""
    return [key_id for key_id, key in keys.items() if key.active and key.vouched and "cap" in key.roles]


def require_role(keys: Keys, key_id: str, role: str) -> None:
    """Refuse what a key has no role for.

    Raises: KeyRuleError.
    """
    _require(role in keys[key_id].roles, f"is signed by a key without the role {role!r}")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise KeyRuleError(what)


# ---------------------------------------------------------------- the trust anchor


@dataclass(frozen=True, slots=True)
class TrustFault:
    """The first entry that the trusted keys do not lead to, and why."""

    seq: int
    rule: str
    what: str
    hint: str


def trust_fault(keys: Keys, signers: Collection[str], anchors: Sequence[PublicKey]) -> TrustFault | None:
    """Why a ledger whose entries hold is not to be believed, if so.

    An anchor is a key that the reader trusts for reasons of their own. It carries the ledger if it is
    the first key, or has signed an entry: a signature covers everything before it. Without anchors
    only keys that nobody vouched for are found. A ledger without keys is older than signatures.
    """
    strangers = [key_id for key_id, key in keys.items() if not key.vouched and key.vouched_by is None]
    if strangers:
        since = keys[strangers[0]].since
        return TrustFault(
            since,
            "key-unvouched",
            f"ledger entry {since} announces key {strangers[0]}, which no trusted key of the ledger enrolled",
            "if you know whose key it is and what it wrote, `dprelease ledger reconcile "
            f'{" ".join(f"--vouch {key_id}" for key_id in strangers)} --reason "..."` vouches for it; '
            "if not, bring the ledger back with `dprelease restore`, and reconcile what was spent after the backup",
        )
    if not keys or not anchors:
        return None
    first = next(iter(keys))
    if any(anchor.key_id == first or anchor.key_id in signers for anchor in anchors):
        return None
    return TrustFault(
        keys[first].since,
        "ledger-not-anchored",
        f"the ledger begins with key {first}, which leads to no trusted key ({anchors[0].key_id} signed nothing in it)",
        "if the ledger was replaced, restore it from a backup; if it is shared and new to this workspace, get its "
        "owner's public key from them and run `dprelease keys trust FILE`",
    )
