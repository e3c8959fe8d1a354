"""One event of the ledger as it is stored, and its place in the hash chain."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, replace
from typing import Any

from tasks.ledger.entries.fields import canonical

GENESIS = "0" * 64
"""What the first entry names as the hash before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event of the ledger, as it is stored."""

    seq: int
    at: str
    kind: str
    population: str
    release_id: str
    body: str
    previous: str
    hash: str
    key_id: str = ""
    signature: str = ""

    @staticmethod
    def after(head: Entry | None, *, at: str, kind: str, population: str, release_id: str, body: Any) -> Entry:
        """The next entry of the chain."""
        draft = Entry(
            seq=head.seq + 1 if head else 1,
            at=at,
            kind=kind,
            population=population,
            release_id=release_id,
            body=canonical(body),
            previous=head.hash if head else GENESIS,
            hash="",
        )
        return replace(draft, hash=draft.expected_hash())

    def expected_hash(self) -> str:
        """SHA-256 over every field but the hash itself and its signature."""
        fields = [self.seq, self.at, self.kind, self.population, self.release_id, self.body, self.previous]
        return hashlib.sha256(canonical(fields).encode()).hexdigest()

    @property
    def facts(self) -> dict[str, Any]:
        """The body, parsed."""
        facts: dict[str, Any] = json.loads(self.body)
        return facts

    def as_json(self) -> dict[str, Any]:
        """The entry as it is exported; `from_json` is its inverse."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @staticmethod
    def from_json(line: dict[str, Any]) -> Entry:
        """The entry that `as_json` wrote."""
        return Entry(**line)
