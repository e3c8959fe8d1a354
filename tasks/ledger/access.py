"""What a writer is told before it signs: whether its ledger is to be trusted, and whether its key may write.

The replay calls the same things broken in other people's entries; here they are refusals with a way out.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpcore.errors import LedgerError
from tasks.keys.signing import PublicKey
from tasks.ledger.entries.bodies import RequiredApprovers
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.keys import Key, Keys, owners, trust_fault
from tasks.ledger.releases import ReleaseState, approver_name
from tasks.ledger.state import LedgerState


def require_trusted(state: LedgerState, anchors: Sequence[PublicKey]) -> None:
    """Refuse a ledger that trusted keys do not lead to.

    Raises: LedgerError.
    """
    fault = trust_fault(state.keys, state.signers, anchors)
    if fault is not None:
        raise LedgerError(fault.what, rule=fault.rule, where=f"ledger entry {fault.seq}", hint=fault.hint)


def require_enrolled(keys: Keys, key_id: str) -> None:
    """Refuse a key that no entry enrolled, or that was revoked; a ledger without keys takes any as its first.

    Raises: LedgerError.
    """
    known = keys.get(key_id)
    if known is None and keys:
        listed = ", ".join(keys[owner].name or owner for owner in owners(keys))
        raise LedgerError(
            f"the key {key_id} of this workspace is not enrolled in the ledger",
            rule="key-not-enrolled",
            where="keys/signing.key",
            hint=f"send keys/signing.pub to the owner of the ledger (key {listed}), who runs `dprelease keys enrol "
            "signing.pub --role release`; get their public key and run `dprelease keys trust FILE`",
        )
    if known is not None and not known.active:
        raise LedgerError(
            f"the signing key {key_id} was revoked or replaced by a newer one",
            rule="signing-key-replaced",
            where="keys/signing.key",
            hint="use the newer key; this folder may be an old copy of the workspace",
        )


def require_role(state: LedgerState, key_id: str, entry: Entry) -> None:
    """Refuse an entry that the writer's key has no role for.

    Raises: LedgerError.
    """
    role, known = state.role_of(entry), state.keys.get(key_id)
    if known is not None and role not in known.roles:
        holders = [key.name or other for other, key in state.keys.items() if _holds(key, role)]
        raise LedgerError(
            f"the key {key_id} does not have the role {role!r}, which an entry of kind {entry.kind!r} needs",
            rule="key-role-missing",
            where="keys/signing.key",
            hint=f"ask whoever holds a key with that role ({', '.join(holders) or 'nobody'}), or a key with the role "
            "cap to enrol this one for it",
        )


def require_approvers(keys: Keys, wanted: str | RequiredApprovers) -> None:
    """Refuse to spend on a release that could never be published: too few of its approvers have a key.

    Raises: LedgerError.
    """
    if isinstance(wanted, str):
        return
    able = [name for key_id, key in keys.items() if _holds(key, "approve") for name in (key.name, key_id)]
    missing = [listed for listed in wanted.by if listed not in able]
    if len(wanted.by) - len(missing) < wanted.at_least:
        raise LedgerError(
            f"the release needs approvers who have no key in the ledger: {', '.join(missing)}",
            rule="approvers-missing",
            where="approve.by",
            hint='enrol their keys: `dprelease keys enrol PUBLIC --role approve --name "..."`',
        )


def require_approver(state: LedgerState, release: ReleaseState, key_id: str) -> None:
    """Refuse a decision about a bundle by a key that may not decide, or has decided.

    Raises: LedgerError.
    """
    known = state.keys.get(key_id)
    if known is None or not _holds(known, "approve") or approver_name(state.keys, release, key_id) is None:
        raise LedgerError(
            f"the key {key_id} is not one of the approvers of {release.release_id}",
            rule="not-an-approver",
            where="--key",
            hint="`dprelease keys show` lists keys with the role approve; the specification may restrict them",
        )
    if key_id in release.approvals:
        raise LedgerError(
            f"the key {key_id} has already approved {release.release_id}",
            rule="approved-before",
            where="--key",
            hint="each approval needs another approver",
        )


def _holds(key: Key, role: str) -> bool:
    return key.active and key.vouched and role in key.roles
