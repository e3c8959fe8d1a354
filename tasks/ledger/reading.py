"""Read access to a ledger: its entries, the state that they lead to, and its measurements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from dpcore.errors import LedgerError, WorkspaceError
from dpcore.measure import Measurement, measurement_from_json
from tasks.keys.signing import PublicKey
from tasks.ledger.access import require_trusted
from tasks.ledger.databases.choice import Database, database_at
from tasks.ledger.databases.common import own_errors
from tasks.ledger.databases.schema import EVENTS, FINGERPRINTS, MEASUREMENTS, Row, require_known, stored_columns
from tasks.ledger.entries.bodies import Spend
from tasks.ledger.entries.chain import BROKEN_HINT
from tasks.ledger.entries.entry import Entry
from tasks.ledger.releases import ReleaseState
from tasks.ledger.state import LedgerState


class LedgerReader:
    """Read access to a ledger.

    The replayed state is kept between calls, and only entries that are new are read and
    verified: a transaction takes milliseconds however long the ledger is.
    """

    def __init__(
        self,
        database: Database,
        *,
        anchors: Sequence[PublicKey] = (),
        read_only: bool = True,
    ) -> None:
        self._database, self._anchors = database, tuple(anchors)
        self._engine = database.engine(read_only=read_only)
        self._known = LedgerState()
        self._columns: list[sa.Column[Any]] = []

    @classmethod
    def open_to_read(cls, address: Path | str, *, anchors: Sequence[PublicKey] = ()) -> Self:
        """The ledger at a path or address, for reading only; it must exist."""
        database = database_at(address)
        if not database.exists():
            raise LedgerError(
                "the workspace has no ledger yet",
                rule="ledger-missing",
                where=database.where,
                hint="the first `dprelease run` makes it",
            )
        ledger = cls(database, anchors=anchors, read_only=True)
        version = 0
        with (
            suppress(LedgerError, WorkspaceError, ValueError),  # whoever reads it is told
            own_errors(database.where),
            ledger._engine.connect() as connection,
        ):
            version = database.version(connection)
        if version > database.schema_version:
            ledger.close()
        require_known(version, database)
        return ledger

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def entries(self) -> list[Entry]:
        """All entries in order."""
        with own_errors(self._database.where), self._engine.connect() as connection:
            return self._read(connection)

    def _read(self, connection: sa.Connection, *, since: int = 0) -> list[Entry]:
        """Entries from a sequence number on."""
        if not self._columns:
            self._columns = stored_columns(connection)
        if not self._columns and self._database.may_be_empty:
            return []
        query = sa.select(*(self._columns or EVENTS.columns)).where(EVENTS.c.seq >= since).order_by(EVENTS.c.seq)
        return [Entry(**row) for row in connection.execute(query).mappings()]

    def state(self) -> LedgerState:
        """The state after all entries, as a copy.

        Raises: LedgerError if the chain or a signature is broken, or the trust anchors do not lead to it.
        """
        with own_errors(self._database.where), self._engine.connect() as connection:
            state = self._latest(connection).snapshot()
        require_trusted(state, self._anchors)
        return state

    def _latest(self, connection: sa.Connection) -> LedgerState:
        """The state after all entries; those since the last look are read and verified."""
        state, self._known = self._known, LedgerState()  # nothing is known while an entry may fail
        head = state.head
        fresh = self._read(connection, since=head.seq if head else 0)
        if head is not None and (not fresh or fresh[0] != head):
            state, fresh = LedgerState(), self._read(connection)  # another ledger is in its place
        elif head is not None:
            fresh = fresh[1:]
        for entry in fresh:
            self._apply(connection, state, entry)
        self._known = state
        return state

    def _apply(self, connection: sa.Connection, state: LedgerState, entry: Entry) -> None:
        """Take a stored entry into account.

        Raises: LedgerError that names the entry and, where the database knows it, the role that appended it.
        """
        fault = apply_or_fault(state, entry)
        if fault is None:
            return
        role = self._database.author(connection, entry.seq)
        raise fault if role is None else _attribute(fault, role)

    def contents(self) -> tuple[list[Entry], list[Row], list[Row]]:
        """Entries, measurements and fingerprints at one moment."""
        with own_errors(self._database.where), self._engine.connect() as connection:
            self._database.one_moment(connection)
            rows = [
                [dict(row) for row in connection.execute(sa.select(table)).mappings()]
                for table in (MEASUREMENTS, FINGERPRINTS)
            ]
            return self._read(connection), rows[0], rows[1]

    def measurement(self, release_id: str, name: str) -> Measurement | None:
        """The stored measurement of a release, if it was drawn.

        Raises: LedgerError if it is not the one that was spent.
        """
        with own_errors(self._database.where), self._engine.connect() as connection:
            release = self._latest(connection).releases.get(release_id)
            return read_measurement(connection, release, name) if release and name in release.spends else None

    def fingerprint(self, release_id: str) -> str | None:
        """The operator's fingerprint of a release's data."""
        with own_errors(self._database.where), self._engine.connect() as connection:
            return connection.execute(
                sa.select(FINGERPRINTS.c.fingerprint).where(FINGERPRINTS.c.release_id == release_id)
            ).scalar_one_or_none()


def apply_or_fault(state: LedgerState, entry: Entry) -> LedgerError | None:
    """Apply an entry to the state; returns what is wrong with it, also if its content makes no sense at all."""
    try:
        state.apply(entry)
    except LedgerError as error:
        return error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return LedgerError(
            f"ledger entry {entry.seq} has a content that no version of this program writes",
            rule="ledger-broken",
            where=f"ledger entry {entry.seq}",
            hint=BROKEN_HINT,
        )
    return None


def _attribute(fault: LedgerError, role: str) -> LedgerError:
    return LedgerError(
        f"{fault}; the database role {role!r} appended it",
        rule=fault.rule,
        where=fault.where,
        hint="the owner of the ledger's tables locks that role out and runs `dprelease ledger set-aside`",
    )


def read_measurement(connection: sa.Connection, release: ReleaseState, name: str) -> Measurement:
    """A drawn measurement, which must be the one that its spend names."""
    query = sa.select(MEASUREMENTS.c.payload).where(
        MEASUREMENTS.c.release_id == release.release_id, MEASUREMENTS.c.name == name
    )
    entry = release.spends[name]
    stored = _parse_measurement(connection.execute(query).scalar_one_or_none())
    if stored is None or stored.digest() != entry.parse(Spend).digest:
        raise LedgerError(
            f"the measurement of ledger entry {entry.seq} is missing or was changed",
            rule="ledger-broken",
            where=f"ledger entry {entry.seq}",
            hint=BROKEN_HINT,
        )
    return stored


def _parse_measurement(payload: str | None) -> Measurement | None:
    try:
        return None if payload is None else measurement_from_json(json.loads(payload))
    except (ValueError, KeyError, TypeError):
        return None
