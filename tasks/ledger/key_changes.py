"""Changes of keys: rotate and encrypt the workspace's own, enrol and revoke others, trust an owner's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from dpcore.errors import LedgerError, RefusedError, WorkspaceError
from tasks.keys.signing import (
    AgentKey,
    PublicKey,
    SigningKey,
    install_successor,
    read_public,
    rotation_lock,
    signing_key,
    write_anchor,
    write_key,
    write_successor,
)
from tasks.ledger.entries.entry import Entry
from tasks.ledger.opening import writable_ledger
from tasks.spec import ReleaseSpec
from tasks.workspace.folders import Workspace


def rotate_key(
    workspace: Workspace, spec: ReleaseSpec, *, who: str, agent: PublicKey | None = None
) -> tuple[PublicKey, Entry]:
    """Give the workspace a new signing key, which the old one enrols in the ledger; the new one revokes the old.

    With `agent` the new key is one that an SSH agent keeps. No run of the workspace is under way
    meanwhile: it would end in the middle with a key that is no longer good. Entries of before stay
    verifiable: the ledger keeps every public key.
    Raises: RefusedError; the old key stays then.
    """
    with (
        workspace.exclusive(spec.name),
        closing(writable_ledger(workspace, spec)) as ledger,
        rotation_lock(workspace.keys),
    ):
        present = signing_key(workspace.keys)
        fresh = present.successor() if isinstance(present, SigningKey) else SigningKey.fresh()
        successor = AgentKey(agent) if agent else fresh
        write_successor(workspace.keys, successor)
        entry = ledger.rotate_key(successor, who=who)
        install_successor(workspace.keys, successor.public)
        return successor.public, entry


def enrol_key(workspace: Workspace, spec: ReleaseSpec, public: PublicKey, *, roles: Sequence[str], name: str) -> Entry:
    """Let a key write what its roles allow.

    Raises: RefusedError; also for a key that was revoked, or is the workspace's own.
    """
    with closing(writable_ledger(workspace, spec)) as ledger:
        known = ledger.state().keys.get(public.key_id)
        if public == signing_key(workspace.keys).public or (known is not None and not known.active):
            raise LedgerError(
                f"the key {public.key_id} was revoked" if known and not known.active else "a key cannot enrol itself",
                rule="key-not-enrollable",
                where="PUBLIC",
                hint="enrol another key; `dprelease keys show` lists those that the ledger knows",
            )
        return ledger.enrol_key(public, roles=roles, name=name)


def revoke_key(workspace: Workspace, spec: ReleaseSpec, key_id: str, *, reason: str, who: str) -> Entry:
    """Let a key write no more; what it signed before stays.

    Raises: RefusedError; also for the only key that may enrol another.
    """
    if not reason.strip():
        raise RefusedError("the reason is empty", rule="reason-missing", where="--reason", hint="say what happened")
    with closing(writable_ledger(workspace, spec)) as ledger:
        keys = ledger.state().keys
        if key_id not in keys or not keys[key_id].active:
            raise LedgerError(
                f"the ledger has no active key {key_id!r}",
                rule="key-unknown",
                where="KEY_ID",
                hint="`dprelease keys show` lists them",
            )
        if key_id == signing_key(workspace.keys).public.key_id:
            raise LedgerError(
                "a key cannot revoke itself",
                rule="key-own",
                where="KEY_ID",
                hint="`dprelease keys rotate` replaces it; or another key with the role cap revokes it",
            )
        return ledger.revoke_key(key_id, reason=reason.strip(), who=who)


def encrypt_key(workspace: Workspace, passphrase: bytes) -> PublicKey:
    """Encrypt the workspace's key file with a passphrase; the key stays the same.

    Raises: WorkspaceError for a key that an agent keeps.
    """
    with rotation_lock(workspace.keys):
        key = signing_key(workspace.keys)
        if not isinstance(key, SigningKey):
            raise WorkspaceError(
                "the secret key is not in the workspace: an SSH agent holds it",
                rule="key-in-agent",
                where="keys/signing.key",
                hint="protect it where it is",
            )
        write_key(workspace.keys, key.encrypted(passphrase))
        return key.public


def trust_owner(workspace: Workspace, public: PublicKey) -> None:
    """Trust the owner of a ledger that this workspace shares, from now on."""
    write_anchor(workspace.keys, public)


def given_public_key(text: str) -> PublicKey:
    """A public key from a file's name, or from its own text.

    Raises: RefusedError.
    """
    hint = "give a file such as keys/signing.pub or an OpenSSH id_ed25519.pub, or the key's text"
    file = Path(text)
    return read_public(lambda: file.read_text(encoding="ascii") if file.is_file() else text, where="PUBLIC", hint=hint)
