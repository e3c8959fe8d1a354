"""Ledger chains signed by several keys."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import fields, replace
from typing import Any

from support.tasks.builders import Chain

from tasks.keys.signing import SigningKey
from tasks.ledger.entries.entry import Entry
from tasks.ledger.opening import readable_ledger
from tasks.workspace.folders import Workspace


class Signed(Chain):
    """A chain whose entries are signed by whoever is named: legal or not."""

    def __init__(self, entries: list[Entry] | None = None) -> None:
        super().__init__()
        self.entries = list(entries or [])
        self.signer = SigningKey.fresh()

    def by(self, signer: SigningKey) -> Signed:
        self.signer = signer
        return self

    def add(self, kind: str, release_id: str = "", body: dict[str, Any] | None = None, **changes: str) -> Signed:
        if self.entries:
            changes = {"at": max(self.entries[-1].at, changes.get("at", ""))} | changes
        super().add(kind, release_id, body, **changes)
        entry = self.entries.pop()
        key_id = self.signer.public.key_id
        self.entries.append(replace(entry, key_id=key_id, signature=self.signer.sign(entry.hash.encode())))
        return self

    def announce(self, **roles: Any) -> Signed:
        """The present signer announces itself; without roles as programs before version 4 did."""
        return self.add("key", body=key_body(self.signer, None, **roles), population="")

    def enrol(self, key: SigningKey, *roles: str, name: str = "") -> Signed:
        return self.add("key", body=key_body(key, None, roles=list(roles), name=name), population="")

    def revoke(self, key: SigningKey) -> Signed:
        body = {"key_id": key.public.key_id, "reason": "lost", "who": "owner"}
        return self.add("revoke", body=body, population="")

    def reconcile(self, *vouched: SigningKey) -> Signed:
        body = {"who": "owner", "reason": "ours", "nothing_was_spent": False, "charges": {}, "lost": [], "retired": []}
        return self.add("reconcile", body=body | {"vouches": [k.public.key_id for k in vouched]}, population="")


def key_body(key: SigningKey, replaces: str | None, **more: Any) -> dict[str, Any]:
    return {"key_id": key.public.key_id, "public_key": key.public.text, "replaces": replaces} | more


def overwrite(workspace: Workspace, entries: list[Entry]) -> None:
    """What whoever can write the file can do, triggers or not."""
    names = [field.name for field in fields(Entry)]
    with closing(sqlite3.connect(workspace.ledger_path)) as connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute("DELETE FROM events")
        values = ", ".join(f":{name}" for name in names)
        rows = [entry.as_json() for entry in entries]
        connection.executemany(f"INSERT INTO events ({', '.join(names)}) VALUES ({values})", rows)
        connection.commit()


def entries_of(workspace: Workspace) -> list[Entry]:
    with closing(readable_ledger(workspace)) as ledger:
        return ledger.entries()


def raise_cap(chain: Signed) -> Signed:
    return chain.cap("100", reason="because")


def announce_and_raise(workspace: Workspace) -> list[Entry]:
    """The attack: announce a key, raise the cap with it."""
    attacker = SigningKey.fresh()
    forged = Signed(entries_of(workspace)).by(attacker)
    return raise_cap(forged.announce()).entries
