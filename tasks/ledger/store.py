"""The ledger's storage: append-only tables, one transaction an event, measurements with their spends.

One code path for SQLite and PostgreSQL; what differs between them is in `tasks.ledger.databases`.
Every entry is signed by the workspace's key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dpcore.accounting import Cap, Cost, population_balance
from dpcore.errors import BudgetExceededError, LedgerError, WorkspaceError
from dpcore.measure import Measurement, measurement_from_json
from dpcore.mechanisms.registry import Event, cost_of
from tasks.keys.decision import SignedDecision
from tasks.keys.signing import PublicKey, Signer
from tasks.ledger.access import require_approvers, require_enrolled, require_role, require_trusted
from tasks.ledger.database_common import own_errors
from tasks.ledger.databases import Database, database_at
from tasks.ledger.entry_content import (
    CLOCK_TOLERANCE,
    EARLIEST_TIME,
    LONGEST_SILENCE,
    canonical,
    is_text,
    time_of,
    time_text,
)
from tasks.ledger.entry_keys import ROLES
from tasks.ledger.state import (
    BROKEN_HINT,
    GENESIS,
    MAY_FOLLOW_A_RESTORE,
    UNFINISHED,
    Entry,
    LedgerState,
    Population,
    ReleaseState,
    cost_to_json,
)
from tasks.spec.privacy import what_differs
from tasks.spec.relations import at_most
from tasks.workspace.clock import to_the_minute

CLOCK_BEHIND_HINT = (
    "set this machine's clock; if it is right, the last writer's was wrong: restore a backup from before that entry, "
    "and reconcile what was spent since"
)
CLOCK_AHEAD_HINT = (
    "set this machine's clock; if nothing was written for years indeed, "
    'say so with `dprelease budget raise --reason "..."`'
)

MIXED_HINT = (
    "pure costs and Gaussian noise together are counted as zCDP, which takes more of a cap: "
    "with mechanisms of the kind that the population has used so far, more fits"
)

WHAT_A_RUN_CAN_TAKE_UP = ("period", "measurements", "spec_digest", "supersedes")

Row = dict[str, Any]

METADATA = sa.MetaData()
EVENTS = sa.Table(
    "events",
    METADATA,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("population", sa.Text, nullable=False),
    sa.Column("release_id", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False, unique=True),
    sa.Column("hash", sa.Text, nullable=False, unique=True),
    sa.Column("key_id", sa.Text, nullable=False, server_default=""),
    sa.Column("signature", sa.Text, nullable=False, server_default=""),
)
MEASUREMENTS = sa.Table(
    "measurements",
    METADATA,
    sa.Column("release_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("payload", sa.Text, nullable=False),
)
FINGERPRINTS = sa.Table(  # the operator's side: keyed, never exported, not part of the chain
    "operator_fingerprints",
    METADATA,
    sa.Column("release_id", sa.Text, primary_key=True),
    sa.Column("fingerprint", sa.Text, nullable=False),
)
MIGRATIONS = {
    2: (
        "ALTER TABLE events ADD COLUMN key_id TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE events ADD COLUMN signature TEXT NOT NULL DEFAULT ''",
    ),
    3: (),  # the tables stay; programs of before do not know the entries
    4: (),  # keys have roles; on PostgreSQL the rules are installed anew
}
"""What brings the tables of the version before to this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveRequest:
    """What a release asks of its population's budget."""

    name: str
    period: str
    population: str
    events: dict[str, Event]
    stated: dict[str, float]
    spec_digest: str
    seeds: dict[str, str]
    flow_run_id: str
    supersedes: str | None = None
    reason: str | None = None
    approve: str | dict[str, Any] = "none"

    def body(self, sequence: int) -> dict[str, Any]:
        """The reservation's content."""
        measurements = {
            name: {"event": event.as_json(), "cost": cost_to_json(cost_of(event))}
            for name, event in self.events.items()
        }
        return {
            "name": self.name,
            "period": self.period,
            "sequence": sequence,
            "measurements": measurements,
            "stated": self.stated,
            "spec_digest": self.spec_digest,
            "seeds": self.seeds,
            "flow_run_id": self.flow_run_id,
            "supersedes": self.supersedes,
            "reason": self.reason,
            "approve": self.approve,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """A person's answer for what is missing in a ledger: costs by population, or nothing at all."""

    reason: str
    who: str
    charges: dict[str, Cost]
    lost: Sequence[tuple[int, str]] = ()
    retired: Sequence[str] = ()
    vouches: Sequence[str] = ()

    def body(self) -> dict[str, Any]:
        """The reconciliation's content."""
        return {
            "reason": self.reason,
            "who": self.who,
            "nothing_was_spent": not self.charges and not self.vouches,
            "charges": {name: cost_to_json(cost) for name, cost in self.charges.items()},
            "lost": sorted(set(self.lost)),
            "retired": sorted(set(self.retired)),
            "vouches": sorted(set(self.vouches)),
        }


@dataclass(frozen=True, slots=True)
class SetAside:
    """What was taken out of a ledger: from which entry on, how many, who appended them, and what stands there now."""

    first: int
    entries: int
    roles: tuple[str, ...]
    restore: Entry


def release_id_of(name: str, period: str, sequence: int) -> str:
    """The release id: from name, period and a number, never from the data."""
    return f"{name}-{period}-{sequence}"


def utc_now() -> datetime:
    """The present time."""
    return datetime.now(UTC)


class Ledger:
    """The budget ledger of a workspace, or of a team.

    The replayed state is kept between calls, and only entries that are new are read and
    verified: a transaction takes milliseconds however long the ledger is.
    """

    def __init__(
        self,
        database: Database,
        *,
        signer: Signer | None = None,
        anchors: Sequence[PublicKey] = (),
        clock: Callable[[], datetime] = utc_now,
        read_only: bool = False,
    ) -> None:
        self._database, self._signer, self._clock = database, signer, clock
        self._anchors = (*anchors, signer.public) if signer else tuple(anchors)
        self._engine = database.engine(read_only=read_only)
        self._known = LedgerState()
        self._columns: list[sa.Column[Any]] = []

    @staticmethod
    def open(
        address: Path | str,
        signer: Signer,
        *,
        anchors: Sequence[PublicKey] = (),
        clock: Callable[[], datetime] = utc_now,
    ) -> Ledger:
        """The ledger at a path or address, made on first use and brought to the present version.

        The signer's own key is a trust anchor, as `anchors` are.
        Raises: WorkspaceError if it cannot be written, LedgerError if it is no ledger.
        """
        database = database_at(address)
        ledger = Ledger(database, signer=signer, anchors=anchors, clock=clock)
        try:
            with own_errors(database.where):
                ledger._prepare_tables()
        except BaseException:
            ledger.close()
            raise
        database.opened()
        return ledger

    @staticmethod
    def open_to_read(address: Path | str, *, anchors: Sequence[PublicKey] = ()) -> Ledger:
        """The ledger at a path or address, for reading only; it must exist."""
        database = database_at(address)
        if not database.exists():
            raise LedgerError(
                "the workspace has no ledger yet",
                rule="ledger-missing",
                where=database.where,
                hint="the first `dprelease run` makes it",
            )
        ledger = Ledger(database, anchors=anchors, read_only=True)
        version = 0
        broken = (LedgerError, WorkspaceError, ValueError)  # whoever reads it is told
        with suppress(*broken), own_errors(database.where), ledger._engine.connect() as connection:
            version = database.version(connection)
        if version > database.schema_version:
            ledger.close()
        _require_known(version, database)
        return ledger

    def _prepare_tables(self) -> None:
        with self._engine.connect() as connection:
            self._database.lock_tables(connection)
            version = self._database.version(connection)
            _require_known(version, self._database)
            if version < self._database.schema_version:
                self._bring_up_to_date(connection, version)
            connection.commit()

    def _bring_up_to_date(self, connection: sa.Connection, version: int) -> None:
        if version == 0:
            METADATA.create_all(connection)
        for step in range(version + 1, self._database.schema_version + 1) if version else ():
            for statement in MIGRATIONS[step]:
                connection.exec_driver_sql(statement)
        self._database.set_version(connection, self._database.schema_version)
        self._database.install_rules(connection)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def exclusive(self, name: str) -> AbstractContextManager[None]:
        """Wait until no other user of this ledger releases under that name, on whatever machine.

        A workspace's own lock does the same for its processes; take that one first.
        """
        return self._database.exclusive(name)

    def entries(self) -> list[Entry]:
        """All entries in order."""
        with own_errors(self._database.where), self._engine.connect() as connection:
            return self._read(connection)

    def _read(self, connection: sa.Connection, *, since: int = 0) -> list[Entry]:
        """Entries from a sequence number on."""
        if not self._columns:
            self._columns = _stored_columns(connection)
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
        fault = _fault_of(state, entry)
        if fault is None:
            return
        role = self._database.author(connection, entry.seq)
        raise fault if role is None else _attribute(fault, role)

    @contextmanager
    def _writing(self, *, vouching: bool = False) -> Iterator[Transaction]:
        """One write transaction: it sees the latest head, and nobody else writes meanwhile.

        Only a reconciliation that vouches for keys may follow entries that nobody vouched for.
        """
        with own_errors(self._database.where), self._engine.connect() as connection:
            try:
                self._database.lock_writer(connection)
                transaction = self._transaction(connection, self._latest(connection))
                transaction.require_enrolled()
                if not vouching:
                    require_trusted(transaction.state, self._anchors)
                yield transaction
                connection.commit()
            except BaseException:
                self._known = LedgerState()  # it may hold what is being rolled back
                connection.rollback()
                raise

    def _transaction(self, connection: sa.Connection, state: LedgerState) -> Transaction:
        return Transaction(self._database, connection, state, self._signer, self._clock)

    def set_aside(self, *, who: str) -> SetAside:
        """Take the first entry that cannot be read, and all after it, out of a shared ledger.

        No honest program appended after that entry, for none could read it. The entries are kept apart as
        evidence, and a restore entry takes their place: nothing is released until somebody reconciles.
        Raises: LedgerError if every entry can be read, or if entries were edited after they were appended.
        """
        with own_errors(self._database.where), self._engine.begin() as connection:
            self._known = LedgerState()
            self._database.lock_writer(connection)
            state, entries = LedgerState(), self._read(connection)
            sound = next((number for number, entry in enumerate(entries) if _fault_of(state, entry)), len(entries))
            _require_appended(state, entries[sound:])
            # a fault may leave the state half changed; the entries before it apply
            state = LedgerState.replay(entries[:sound])
            roles = self._database.set_aside(connection, entries[sound].seq)
            made_at = state.head.at if state.head else ""
            restore = self._transaction(connection, state).append("restore", "", "", _restore_body(who, made_at))
            return SetAside(entries[sound].seq, len(entries) - sound, tuple(roles), restore)

    def rotate_key(self, successor: Signer, *, who: str) -> Entry:
        """Enrol the key that follows this ledger's own, for the same roles, and revoke the old one.

        The new key signs the revocation: it takes its place in this ledger and no other. Returns the enrolment.
        """
        with self._writing() as transaction:
            own = transaction.announce_first()
            old = transaction.state.keys[own]
            entry = transaction.append("key", "", "", _key_body(successor.public, old.roles, old.name, replaces=own))
            body = {"key_id": own, "reason": "rotated", "who": who}
            following = Transaction(self._database, transaction.connection, transaction.state, successor, self._clock)
            following.append("revoke", "", "", body)
            return entry

    def enrol_key(self, public: PublicKey, *, roles: Sequence[str], name: str) -> Entry:
        """Let a key write what its roles allow; a key that is enrolled gets these roles in place of its own."""
        with self._writing() as transaction:
            return transaction.append("key", "", "", _key_body(public, roles, name))

    def revoke_key(self, key_id: str, *, reason: str, who: str) -> Entry:
        """Let a key write no more; what it signed before stays."""
        with self._writing() as transaction:
            return transaction.append("revoke", "", "", {"key_id": key_id, "reason": reason, "who": who})

    def mark_restored(self, *, who: str, made_at: str) -> Entry:
        """Say that what follows continues a backup: nothing is released until it is reconciled."""
        with self._writing() as transaction:
            return transaction.append("restore", "", "", _restore_body(who, made_at))

    def reconcile(self, answer: Reconciliation) -> Entry:
        """Write down what entries that are gone may have cost, or who vouches for keys; releases may go on."""
        with self._writing(vouching=bool(answer.vouches)) as transaction:
            entry = transaction.append("reconcile", "", "", answer.body())
            require_trusted(transaction.state, self._anchors)  # or more keys are to be vouched for
            return entry

    def adopt(
        self,
        entries: Sequence[Entry],
        measurements: Sequence[Row],
        fingerprints: Sequence[Row],
        *,
        who: str,
        made_at: str,
    ) -> None:
        """Fill an empty ledger with a backup's rows and say so, in one transaction.

        Raises: LedgerError if there are entries already, or the backup's do not replay.
        """
        with self._writing() as transaction:
            transaction.adopt(entries, measurements, fingerprints)
            transaction.append("restore", "", "", _restore_body(who, made_at))

    def contents(self) -> tuple[list[Entry], list[Row], list[Row]]:
        """Entries, measurements and fingerprints at one moment."""
        with own_errors(self._database.where), self._engine.connect() as connection:
            self._database.one_moment(connection)
            tables = (MEASUREMENTS, FINGERPRINTS)
            rows = [[dict(row) for row in connection.execute(sa.select(table)).mappings()] for table in tables]
            return self._read(connection), rows[0], rows[1]

    def ensure_cap(self, population: str, cap: Cap, basis: dict[str, str], *, who: str | None = None) -> None:
        """Write the population's cap on first use; refuse a specification that states another one.

        `who` is the account that runs the first release.
        Raises: LedgerError.
        """
        with self._writing() as transaction:
            known = transaction.state.populations.get(population)
            if known is None:
                transaction.append("cap", population, "", _cap_body(cap, basis, None, who))
            else:
                _require_same_cap(known, cap, basis)

    def raise_cap(
        self, population: str, cap: Cap, basis: dict[str, str], reason: str, *, who: str | None = None
    ) -> Entry:
        """Write another cap over the present one, with its reason and who set it."""
        with self._writing() as transaction:
            known = transaction.state.populations.get(population)
            if known is not None:
                require_adding_up(known, basis)
                basis = known.basis  # a population's is the one of its first cap
            return transaction.append("cap", population, "", _cap_body(cap, basis, reason, who))

    def give_back_abandoned(self, request: ReserveRequest) -> None:
        """Void reservations of the request's name of which nothing was drawn and whose run is gone.

        The caller holds the name's lock, so no run of that name is alive. The reservation
        that this request can take up stays.
        """
        wanted = request.body(0)
        with self._writing() as transaction:
            for release in list(transaction.state.releases.values()):
                same = all(release.facts[key] == wanted[key] for key in WHAT_A_RUN_CAN_TAKE_UP)
                if release.facts["name"] == request.name and release.status == "reserved" and not same:
                    body = {"reason": "its run is gone and nothing was drawn"}
                    transaction.append("void", release.population, release.release_id, body)

    def reserve(self, request: ReserveRequest) -> ReleaseState:
        """Reserve the budget of a release, or find the unfinished one of its period.

        Whoever comes second for a name and period gets the first one's release, in
        whatever status it is, unless the request supersedes it.
        Raises: BudgetExceededError, with nothing reserved.
        """
        with self._writing() as transaction:
            state = transaction.state
            _require_reconciled(state)
            taken = _taken_up(state.of_period(request.name, request.period), request.supersedes)
            if taken is not None:
                return _copy(taken)
            sequence = state.next_sequence(request.name, request.period)
            self._require_room(state, request)
            require_approvers(state.keys, request.approve)
            release_id = release_id_of(request.name, request.period, sequence)
            transaction.append("reserve", request.population, release_id, request.body(sequence))
            return _copy(state.releases[release_id])

    @staticmethod
    def _require_room(state: LedgerState, request: ReserveRequest) -> None:
        cap = state.populations[request.population].cap
        wanted = sum((cost_of(event) for event in request.events.values()), Cost())
        if cap.admits(state.committed(request.population) + wanted):
            return
        used = population_balance(state.committed(request.population), delta=cap.delta)
        mixed = (state.committed(request.population) + wanted).is_mixed
        raise BudgetExceededError(
            f"the lifetime budget of {request.population!r} does not allow this release: "
            f"epsilon {at_most(used.epsilon)} of {at_most(cap.epsilon)} is spent or reserved",
            rule="budget-exceeded",
            where="privacy.lifetime",
            hint="ask for a smaller epsilon, or raise the cap in the spec and run `dprelease budget raise --reason`"
            + (f"; {MIXED_HINT}" if mixed else ""),
        )

    def spend(
        self,
        release_id: str,
        name: str,
        released: Measurement,
        *,
        build: dict[str, Any] | None = None,
        flow_run_id: str | None = None,
        fingerprint: str | None = None,
    ) -> Measurement:
        """Store a drawn measurement together with its spend, in one transaction.

        If the measurement was stored before, that one is returned and the new draw,
        which nobody has seen, is forgotten. `build` is the audit of the build that drew, in
        the run `flow_run_id`; `fingerprint` is the operator's, of the data measured.
        """
        with self._writing() as transaction:
            release = transaction.state.releases[release_id]
            if name in release.spends:
                return transaction.measurement(release, name)
            body = {
                "measurement": name,
                "event": released.event.as_json(),
                "cost": cost_to_json(cost_of(released.event)),
                "seeded": released.seeded,
                "digest": released.digest(),
                "build": build,
                "flow_run_id": flow_run_id,
            }
            transaction.append("spend", release.population, release_id, body)
            transaction.store(release_id, name, released)
            if fingerprint is not None:
                transaction.keep_fingerprint(release_id, fingerprint)
            return released

    def measurement(self, release_id: str, name: str) -> Measurement | None:
        """The stored measurement of a release, if it was drawn.

        Raises: LedgerError if it is not the one that was spent.
        """
        with own_errors(self._database.where), self._engine.connect() as connection:
            release = self._latest(connection).releases.get(release_id)
            return _read_measurement(connection, release, name) if release and name in release.spends else None

    def publish(self, release_id: str, *, bundle_digest: str, flow_run_id: str) -> Entry:
        """Record that the bundle with this digest is the release."""
        body = {"bundle_digest": bundle_digest, "flow_run_id": flow_run_id}
        return self._close_release("publish", release_id, body)

    def await_approval(self, release_id: str, *, bundle_digest: str, flow_run_id: str) -> Entry:
        """Record that the sealed bundle with this digest waits for a person."""
        return self._close_release("await", release_id, {"bundle_digest": bundle_digest, "flow_run_id": flow_run_id})

    def approve(
        self, release_id: str, *, bundle_digest: str, who: str, reason: str, signed: SignedDecision | None = None
    ) -> Entry:
        """Record who lets the bundle with this digest be published; with the last one needed, publish it as well.

        Without a signed decision the ledger's own key approves. Returns the approval.
        Raises: LedgerError if the release waits for nobody, with another bundle, or for somebody else.
        """
        with self._writing() as transaction:
            release = transaction.state.releases[release_id]
            said = {"bundle_digest": bundle_digest, "who": who, "reason": reason} | _proof(signed)
            approval = transaction.append("approve", release.population, release_id, said)
            if transaction.state.is_approved(release):
                assert release.awaiting is not None  # noqa: S101  or it could not be approved
                body = {"bundle_digest": bundle_digest, "flow_run_id": release.awaiting.facts["flow_run_id"]}
                transaction.append("publish", release.population, release_id, body)
            return approval

    def refuse_bundle(self, release_id: str, *, who: str, reason: str, signed: SignedDecision | None = None) -> Entry:
        """Record who did not let a bundle be published; what it cost stays spent."""
        with self._writing() as transaction:
            release = transaction.state.releases[release_id]
            body = {"rule": "approval-refused", "reason": reason, "who": who, "flow_run_id": None}
            return transaction.append("refuse", release.population, release_id, body | _proof(signed))

    def refuse_request(self, request: ReserveRequest, release_id: str, *, rule: str, reason: str) -> None:
        """Record that a release was not reserved, and why; once, however often it is tried again."""
        with self._writing() as transaction:
            known = transaction.state.refusals.get(release_id)
            if known is not None and known.facts["rule"] == rule:
                return
            facts = {"name": request.name, "period": request.period, "stated": request.stated}
            why = {"rule": rule, "reason": reason, "who": None, "flow_run_id": request.flow_run_id}
            transaction.append("refuse", request.population, release_id, facts | why)

    def fail(self, release_id: str, *, status: str, stage: str) -> Entry:
        """Record that a measured release did not come to publication."""
        return self._close_release("fail", release_id, {"status": status, "stage": stage})

    def void(self, release_id: str, *, reason: str) -> Entry:
        """Give back a reservation of which nothing was spent."""
        return self._close_release("void", release_id, {"reason": reason})

    def _close_release(self, kind: str, release_id: str, body: dict[str, Any]) -> Entry:
        with self._writing() as transaction:
            release = transaction.state.releases[release_id]
            return transaction.append(kind, release.population, release_id, body)

    def fingerprint(self, release_id: str) -> str | None:
        """The operator's fingerprint of a release's data."""
        with own_errors(self._database.where), self._engine.connect() as connection:
            query = sa.select(FINGERPRINTS.c.fingerprint).where(FINGERPRINTS.c.release_id == release_id)
            return connection.execute(query).scalar_one_or_none()


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

    def append(self, kind: str, population: str, release_id: str, body: dict[str, Any]) -> Entry:
        """Append a signed event; it must be one that the state allows."""
        self.require_enrolled()
        if kind not in MAY_FOLLOW_A_RESTORE:
            _require_reconciled(self.state)
        _require_writable(body)
        self._require_clock(spoken=_is_spoken(kind, body))
        self.announce_first()
        return self._sign_and_store(kind, population, release_id, body)

    def _sign_and_store(self, kind: str, population: str, release_id: str, body: dict[str, Any]) -> Entry:
        assert self._signer is not None  # noqa: S101  a writer has a key
        entry = Entry.after(
            self.state.head, at=self._time(), kind=kind, population=population, release_id=release_id, body=body
        )
        key_id = self._signer.public.key_id
        require_role(self.state, key_id, entry)
        signed = replace(entry, key_id=key_id, signature=self._signer.sign(entry.hash.encode()))
        self.state.apply(signed)
        self._database.insert(self.connection, EVENTS, signed.as_json())
        return signed

    def _time(self) -> str:
        """The present time, never before the head's: a clock that steps back does not reorder the ledger."""
        return max(time_text(to_the_minute(self._clock())), self._latest_time())

    def _latest_time(self) -> str:
        return self.state.head.at if self.state.head else EARLIEST_TIME

    def _require_clock(self, *, spoken: bool) -> None:
        """Refuse to write by a clock that cannot be right: later entries are dated no earlier than this one.

        Raises: LedgerError for a clock far behind the last entry or, unless a person speaks, far ahead of it.
        """
        now, latest = self._clock(), time_of(self._latest_time())
        if now < latest - CLOCK_TOLERANCE:
            raise _clock_differs("behind the ledger's last entry", "clock-behind", CLOCK_BEHIND_HINT)
        if self.state.head is not None and now > latest + LONGEST_SILENCE and not spoken:
            raise _clock_differs("ahead of the ledger's last entry", "clock-ahead", CLOCK_AHEAD_HINT)

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
            self._sign_and_store("key", "", "", _key_body(public, ROLES, ""))
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

    def measurement(self, release: ReleaseState, name: str) -> Measurement:
        """A measurement that was drawn before."""
        return _read_measurement(self.connection, release, name)

    def store(self, release_id: str, name: str, released: Measurement) -> None:
        """Store a measurement."""
        values = {"release_id": release_id, "name": name, "payload": canonical(released.as_json())}
        self._database.insert(self.connection, MEASUREMENTS, values)

    def keep_fingerprint(self, release_id: str, fingerprint: str) -> None:
        """Remember a fingerprint unless there is one."""
        query = sa.select(FINGERPRINTS).where(FINGERPRINTS.c.release_id == release_id)
        if self.connection.execute(query).first() is None:
            row = {"release_id": release_id, "fingerprint": fingerprint}
            self._database.insert(self.connection, FINGERPRINTS, row)


def _taken_up(known: Sequence[ReleaseState], supersedes: str | None) -> ReleaseState | None:
    """The release of the period that a request takes up; None if it begins another.

    Raises: LedgerError for a period whose bundle a person refused, and for superseding another than the latest.
    """
    last = known[-1] if known else None
    if supersedes is None:
        if last is not None and last.status == "refused":
            raise _refused_before(last.release_id)
        return last
    if last is not None and last.status in UNFINISHED and last.facts.get("supersedes") == supersedes:
        return last
    if last is None or last.status in UNFINISHED or last.release_id != supersedes:
        raise _cannot_supersede(supersedes)
    return None


def _refused_before(release_id: str) -> LedgerError:
    return LedgerError(
        f"{release_id} was completed, and a person refused to publish it",
        rule="release-refused",
        where=release_id,
        hint=f'`dprelease run --supersedes {release_id} --reason "..."` measures the period again, and is charged',
    )


def _fault_of(state: LedgerState, entry: Entry) -> LedgerError | None:
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


def _require_appended(state: LedgerState, broken: Sequence[Entry]) -> None:
    """The first broken entry must be as the database took it: it follows the head, and its hash is right."""
    if not broken:
        raise LedgerError(
            "every entry of the ledger can be read: there is nothing to set aside",
            rule="nothing-to-set-aside",
            where="ledger",
            hint="`dprelease audit` shows what holds",
        )
    first, head = broken[0], state.head
    place = (head.seq + 1, head.hash) if head else (1, GENESIS)
    if (first.seq, first.previous) != place or first.hash != first.expected_hash():
        raise LedgerError(
            f"ledger entry {first.seq} was changed after it was appended: entries after it may be honest",
            rule="ledger-edited",
            where=f"ledger entry {first.seq}",
            hint="restore the ledger from a backup into another database, and reconcile it",
        )


def _require_known(version: int, database: Database) -> None:
    if version > database.schema_version:
        raise LedgerError(
            f"the ledger has version {version}, this program knows {database.schema_version}",
            rule="ledger-newer",
            where=database.where,
            hint="use the newer program that wrote it",
        )


def _require_writable(body: dict[str, Any]) -> None:
    """Refuse text that no file of the release could hold, such as bytes of a command line that are no UTF-8."""
    if not is_text(json.dumps(body, ensure_ascii=False)):
        raise LedgerError(
            "a text of this entry cannot be written as UTF-8",
            rule="text-unwritable",
            where="--reason, --who",
            hint="write plain text, in the terminal's encoding",
        )


def _is_spoken(kind: str, body: dict[str, Any]) -> bool:
    """Whether an entry is written at a person's word, who can vouch for the clock."""
    return kind in ("key", "restore", "reconcile") or (kind == "cap" and bool(body["reason"]))


def _clock_differs(how: str, rule: str, hint: str) -> LedgerError:
    return LedgerError(f"this machine's clock is far {how}", rule=rule, where="clock", hint=hint)


def _require_reconciled(state: LedgerState) -> None:
    if state.restored is not None:
        raise LedgerError(
            "the ledger was restored from a backup; what was spent after that is not in it",
            rule="ledger-unreconciled",
            where=f"ledger entry {state.restored.seq}",
            hint='run `dprelease ledger reconcile --reason "..."` with --nothing-was-spent or --charge EPSILON',
        )


def _restore_body(who: str, made_at: str) -> dict[str, Any]:
    return {"who": who, "backup_made_at": made_at}


def _key_body(public: PublicKey, roles: Sequence[str], name: str, *, replaces: str | None = None) -> dict[str, Any]:
    known = {"key_id": public.key_id, "public_key": public.text, "replaces": replaces}
    return known | {"roles": [role for role in ROLES if role in roles], "name": name}


def _proof(signed: SignedDecision | None) -> dict[str, str]:
    return signed.as_json() if signed else {}


def _copy(release: ReleaseState) -> ReleaseState:
    """The release as it is now; later events do not change the copy."""
    return replace(release, spends=dict(release.spends))


def _stored_columns(connection: sa.Connection) -> list[sa.Column[Any]]:
    """The columns of the events that this database has: version 1 has no signatures, an empty one nothing."""
    inspector = sa.inspect(connection)
    if not inspector.has_table("events"):
        return []
    stored = {column["name"] for column in inspector.get_columns("events")}
    return [column for column in EVENTS.columns if column.name in stored]


def _read_measurement(connection: sa.Connection, release: ReleaseState, name: str) -> Measurement:
    """A drawn measurement, which must be the one that its spend names."""
    query = sa.select(MEASUREMENTS.c.payload).where(
        MEASUREMENTS.c.release_id == release.release_id, MEASUREMENTS.c.name == name
    )
    entry = release.spends[name]
    stored = _parse_measurement(connection.execute(query).scalar_one_or_none())
    if stored is None or stored.digest() != entry.facts["digest"]:
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


def _cap_body(cap: Cap, basis: dict[str, str], reason: str | None, who: str | None) -> dict[str, Any]:
    figures = {"epsilon": str(cap.epsilon), "delta": str(cap.delta), "delta_num": str(cap.delta_num)}
    return {**figures, "basis": basis, "reason": reason, "who": who}


def _require_same_cap(known: Population, cap: Cap, basis: dict[str, str]) -> None:
    require_adding_up(known, basis)
    differs = cap_difference(known, cap)
    if differs is not None:
        raise differs


def cap_difference(known: Population, cap: Cap) -> LedgerError | None:
    """Why a specification's cap is refused: it is not the population's; None if it is."""
    if known.cap == cap:
        return None
    return LedgerError(
        f"the spec's lifetime ({_show(cap)}) differs from the ledger's ({_show(known.cap)})",
        rule="cap-differs",
        where="privacy.lifetime",
        hint='restore the earlier figures, or run `dprelease budget raise --reason "..."` to write the new ones',
    )


def require_adding_up(known: Population, basis: dict[str, str]) -> None:
    """Refuse a specification whose costs do not add to those of its population.

    Raises: LedgerError.
    """
    key = what_differs(known.basis, basis)
    if key is None:
        return
    raise LedgerError(
        f"the population's budget is counted for {key} {known.basis.get(key)!r}, the spec says {basis.get(key)!r}: "
        "their costs cannot be added",
        rule="budget-basis-differs",
        where=f"privacy.{key}",
        hint="put the old value back; under another population's name, or in another ledger, what was spent on the "
        "same people would not be counted",
    )


def _cannot_supersede(release_id: str | None) -> LedgerError:
    return LedgerError(
        f"{release_id!r} is not the latest finished release of this period",
        rule="supersedes-wrong",
        where="--supersedes",
        hint="`dprelease history` shows the releases of a period; only its latest can be superseded",
    )


def _show(cap: Cap) -> str:
    return ", ".join(f"{name} {at_most(getattr(cap, name))}" for name in ("epsilon", "delta", "delta_num"))
