"""A write transaction of the ledger: it signs, checks and stores one entry after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from dpcore.errors import LedgerError
from dpcore.measure import Measurement
from tasks.keys.signing import PublicKey, Signer
from tasks.ledger.access import require_enrolled, require_role
from tasks.ledger.databases.choice import Database
from tasks.ledger.databases.schema import EVENTS, FINGERPRINTS, MEASUREMENTS, Row
from tasks.ledger.entries.bodies import (
    Body,
    CapChange,
    KeyEnrolment,
    Reconciliation,
    Restore,
    Retraction,
    body_to_json,
)
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.fields import (
    EARLIEST_TIME,
    canonical,
    time_text,
)
from tasks.ledger.entries.keys import ROLES
from tasks.ledger.refusals import require_clock, require_reconciled, require_writable
from tasks.ledger.state import MAY_FOLLOW_A_RESTORE, LedgerState
from tasks.workspace.clock import to_the_minute


class Transaction:
    """An open write transaction and the state it builds on."""

    def __init__(
        self,
        database: Database,
        connection: sa.Connection,
        state: LedgerState,
        signer: Signer | None,
        clock: Callable[[], datetime],
    ) -> None:
        self._database, self.connection, self.state = database, connection, state
        self._signer, self._clock = signer, clock

    def append(self, body: Body, population: str = "", release_id: str = "") -> Entry:
        """Append a signed event; it must be one that the state allows."""
        self.require_enrolled()
        if not isinstance(body, MAY_FOLLOW_A_RESTORE):
            require_reconciled(self.state)
        require_writable(body_to_json(body))
        require_clock(self._clock(), self.state.head, spoken=_is_spoken(body))
        self.announce_first()
        return self._sign_and_store(body, population, release_id)

    def _sign_and_store(self, body: Body, population: str = "", release_id: str = "") -> Entry:
        assert self._signer is not None  # noqa: S101  a writer has a key
        entry = Entry.after(
            self.state.head,
            at=self._time(),
            kind=body.kind,
            population=population,
            release_id=release_id,
            body=body_to_json(body),
        )
        key_id = self._signer.public.key_id
        require_role(self.state, key_id, entry)
        signed = replace(entry, key_id=key_id, signature=self._signer.sign(entry.hash.encode()))
        self.state.apply(signed)
        self._database.insert(self.connection, EVENTS, signed.as_json())
        return signed

    def _time(self) -> str:
        """The present time, never before the head's: a clock that steps back does not reorder the ledger."""
        latest = self.state.head.at if self.state.head else EARLIEST_TIME
        return max(time_text(to_the_minute(self._clock())), latest)

    def _public(self) -> PublicKey:
        if self._signer is None:
            raise LedgerError(
                "this ledger was opened for reading",
                rule="ledger-read-only",
                where="ledger",
                hint="open it with the workspace's key",
            )
        return self._signer.public

    def require_enrolled(self) -> None:
        """Refuse a writer whose key is not enrolled, or was revoked.

        Raises: LedgerError.
        """
        require_enrolled(self.state.keys, self._public().key_id)

    def announce_first(self) -> str:
        """Make the writer's key the first of a ledger without keys; returns its fingerprint."""
        public = self._public()
        if not self.state.keys:
            self._sign_and_store(enrolment_of(public, ROLES, ""))
        return public.key_id

    def adopt(self, entries: Sequence[Entry], measurements: Sequence[Row], fingerprints: Sequence[Row]) -> None:
        """Take over all rows of another ledger; this one must be empty, and its tables this account's own."""
        if self.state.head is not None:
            raise LedgerError(
                "the ledger is not empty",
                rule="ledger-not-empty",
                where="ledger",
                hint="restore into a new database, and release from that one alone; entries are never replaced",
            )
        for entry in entries:
            self.state.apply(entry)
        contents = {EVENTS: [entry.as_json() for entry in entries], MEASUREMENTS: measurements}
        for table, rows in (contents | {FINGERPRINTS: fingerprints}).items():
            if rows:
                self.connection.execute(table.insert(), list(rows))

    def store(self, release_id: str, name: str, released: Measurement) -> None:
        """Store a measurement."""
        self._database.insert(
            self.connection,
            MEASUREMENTS,
            {"release_id": release_id, "name": name, "payload": canonical(released.as_json())},
        )

    def keep_fingerprint(self, release_id: str, fingerprint: str) -> None:
        """Remember a fingerprint unless there is one."""
        query = sa.select(FINGERPRINTS).where(FINGERPRINTS.c.release_id == release_id)
        if self.connection.execute(query).first() is None:
            self._database.insert(self.connection, FINGERPRINTS, {"release_id": release_id, "fingerprint": fingerprint})


def _is_spoken(body: Body) -> bool:
    """Whether an entry is written at a person's word, who can vouch for the clock."""
    return isinstance(body, KeyEnrolment | Restore | Reconciliation | Retraction) or (
        isinstance(body, CapChange) and bool(body.reason)
    )


def enrolment_of(public: PublicKey, roles: Sequence[str], name: str, *, replaces: str | None = None) -> KeyEnrolment:
    """The enrolment of a key, with its roles in their one order."""
    return KeyEnrolment(
        key_id=public.key_id,
        public_key=public.text,
        replaces=replaces,
        roles=tuple(role for role in ROLES if role in roles),
        name=name,
    )
