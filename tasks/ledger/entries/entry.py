"""One event of the ledger as it is stored, and its place in the hash chain."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from tasks.ledger.entries.bodies import BODIES_BY_KIND, Body, parse_body
from tasks.ledger.entries.fields import canonical

BodyT = TypeVar("BodyT", bound=Body)

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
    def content(self) -> Body:
        """The body, parsed."""
        return parse_body(self.kind, self.body)

    def is_a(self, *bodies: type[Body]) -> bool:
        """Whether the entry is of one of these kinds, or of a kind of them; one of an unknown kind is of none."""
        return issubclass(BODIES_BY_KIND.get(self.kind, object), bodies)

    def parse(self, body: type[BodyT]) -> BodyT:
        """Parse the body of an entry whose kind the caller knows.

        Raises: TypeError for an entry of another kind.
        """
        content = self.content
        if not isinstance(content, body):
            raise TypeError(f"ledger entry {self.seq} is no {body.__name__}")
        return content

    @property
    def flow_run_id(self) -> str | None:
        """The flow run that the body names, if it does."""
        return getattr(self.content, "flow_run_id", None)

    def as_json(self) -> dict[str, Any]:
        """The entry as it is exported; `from_json` is its inverse."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @staticmethod
    def from_json(line: dict[str, Any]) -> Entry:
        """The entry that `as_json` wrote."""
        return Entry(**line)
