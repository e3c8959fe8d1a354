"""Which ledger belongs to a workspace: the file beside its specification, or the address that this names."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from dpcore.errors import SpecError
from tasks.keys.signing import ANCHOR_FILE, PUBLIC_FILE, PublicKey, read_public, settle_rotation, signing_key
from tasks.ledger.databases.choice import database_at
from tasks.ledger.entries.keys import Keys
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger
from tasks.spec import ReleaseSpec, load_spec
from tasks.workspace.folders import Workspace


def ledger_address(workspace: Workspace, spec: ReleaseSpec) -> Path | str:
    """The path or URL of the ledger; a relative SQLite path is taken from the workspace."""
    if spec.ledger is None:
        return workspace.ledger_path
    prefix = "sqlite:///"
    return workspace.root / spec.ledger[len(prefix) :] if spec.ledger.startswith(prefix) else spec.ledger


def writable_ledger(workspace: Workspace, spec: ReleaseSpec, *, address: str | None = None) -> Ledger:
    """The workspace's ledger, opened with its signing key; an interrupted rotation of that is settled first.

    `address` replaces the specification's, to open the same ledger with another account.
    """
    place = address or ledger_address(workspace, spec)
    settle_rotation(workspace.keys, lambda public: _announces(place, public))
    return Ledger.open(place, signing_key(workspace.keys), anchors=trust_anchors(workspace))


def trust_anchors(workspace: Workspace) -> tuple[PublicKey, ...]:
    """The keys that a workspace trusts: its own, and that of the owner of a ledger that it shares.

    Raises: WorkspaceError if one of them cannot be read.
    """
    return tuple(
        _public_key(path) for path in (workspace.keys / PUBLIC_FILE, workspace.keys / ANCHOR_FILE) if path.is_file()
    )


def _public_key(path: Path) -> PublicKey:
    hint = "restore it from a backup: without it nobody can say whose ledger this is"
    return read_public(lambda: path.read_text(encoding="ascii"), where=f"keys/{path.name}", hint=hint)


def _announces(address: Path | str, public: PublicKey) -> bool:
    with closing(Ledger.open_to_read(address)) as ledger:
        return public.key_id in ledger.state().keys


def readable_ledger(workspace: Workspace) -> Ledger:
    """The workspace's ledger for reading; if the specification cannot be read, the file beside it.

    Raises: LedgerError if there is none.
    """
    return Ledger.open_to_read(_address(workspace), anchors=trust_anchors(workspace))


def known_keys(workspace: Workspace) -> Keys:
    """The keys that the ledger names, whether or not they are to be trusted."""
    if not has_ledger(workspace):
        return {}
    with closing(readable_ledger(workspace)) as ledger:
        return LedgerState.replay(ledger.entries()).keys


def own_public_key(workspace: Workspace) -> PublicKey | None:
    """The key that the workspace signs with, if it has one."""
    path = workspace.keys / PUBLIC_FILE
    return _public_key(path) if path.is_file() else None


def has_ledger(workspace: Workspace) -> bool:
    """Whether a ledger may be there."""
    return database_at(_address(workspace)).exists()


def is_shared(workspace: Workspace) -> bool:
    """Whether other workspaces may write to the same ledger: it is not a file of this one."""
    return not isinstance(_address(workspace), Path)


def ledger_state(workspace: Workspace) -> LedgerState:
    """What the ledger says; nothing before the first run."""
    if not has_ledger(workspace):
        return LedgerState()
    with closing(readable_ledger(workspace)) as ledger:
        return ledger.state()


def _address(workspace: Workspace) -> Path | str:
    try:
        return ledger_address(workspace, load_spec(workspace.spec_path))
    except SpecError:
        if workspace.ledger_path.is_file():
            return workspace.ledger_path
        raise
