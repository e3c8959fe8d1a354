"""Bundles, ledgers and exports changed behind the program's back, and what an audit then says."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tasks.audit import Check
from tasks.keys.signing import SigningKey, signing_key
from tasks.ledger.entries.entry import Entry
from tasks.ledger.store import Ledger
from tasks.workspace.folders import Workspace

FIRST, SECOND = "small-2026-01-1", "small-2026-02-1"


def bundle(workspace: Workspace, release_id: str = FIRST) -> Path:
    return workspace.bundle("small", release_id)


def broken(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.detail for check in checks if check.outcome == "broken"}


def rewritten(path: Path, content: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(content)


# ---------------------------------------------------------------- ledger


def on_the_ledger(workspace: Workspace, *statements: str) -> None:
    """Run SQL as someone would who can write the file and knows about the triggers."""
    with closing(sqlite3.connect(workspace.ledger_path)) as connection:
        for table in ("events", "measurements"):
            for action in ("update", "delete"):
                connection.execute(f"DROP TRIGGER IF EXISTS {table}_no_{action}")
        for statement in statements:
            assert connection.execute(statement).rowcount > 0, "the tampering must hit something"
        connection.commit()


def rechain(workspace: Workspace, change: Callable[[Entry], Entry], key: SigningKey | None = None) -> None:
    """Rewrite the whole history with right hashes and signatures, as only the key's owner can."""
    signer = key or signing_key(workspace.keys)
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger:
        entries = ledger.entries()
    on_the_ledger(workspace, "DELETE FROM events")
    head: Entry | None = None
    with closing(sqlite3.connect(workspace.ledger_path)) as connection:
        for old in entries:
            new = replace(change(old), previous=head.hash if head else "0" * 64)
            hashed = replace(new, hash=new.expected_hash())
            head = replace(hashed, signature=signer.sign(hashed.hash.encode()))
            connection.execute(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", tuple(head.as_json().values())
            )
        connection.commit()
