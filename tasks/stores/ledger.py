"""The ledger's storage: append-only tables, one transaction an event, measurements with their spends.

Written against SQLAlchemy Core, so that PostgreSQL needs another address and another
way to take the writer's lock, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from dpcore.accounting import Cap, Cost, compose
from dpcore.errors import BudgetExceededError, LedgerError, WorkspaceError
from dpcore.measure import Released
from dpcore.mechanisms.base import GramEvent
from dpcore.registry import cost_of
from tasks.stores.ledger_state import Entry, LedgerState, Population, ReleaseState, canonical, cost_to_json

SCHEMA_VERSION = 1
LOCK_WAIT_SECONDS = 60
WHAT_A_RUN_CAN_TAKE_UP = ("period", "measurements", "spec_digest", "supersedes")

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
APPEND_ONLY = ("events", "measurements")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveRequest:
    """What a release asks of its population's budget."""

    name: str
    period: str
    population: str
    events: dict[str, GramEvent]
    stated: dict[str, float]
    spec_digest: str
    seeds: dict[str, str]
    flow_run_id: str
    supersedes: str | None = None
    reason: str | None = None

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
        }


def release_id_of(name: str, period: str, sequence: int) -> str:
    """The release id: from name, period and a number, never from the data."""
    return f"{name}-{period}-{sequence}"


def utc_now() -> datetime:
    """The present time."""
    return datetime.now(UTC)


class Ledger:
    """The budget ledger of a workspace."""

    def __init__(self, url: str | sa.URL, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._engine = sa.create_engine(url, connect_args={"timeout": LOCK_WAIT_SECONDS, "isolation_level": None})
        sa.event.listen(self._engine, "connect", _prepare_connection)
        self._clock = clock

    @staticmethod
    def open(path: Path) -> Ledger:
        """The SQLite ledger at a path, made on first use.

        Raises: WorkspaceError if it cannot be written, LedgerError if it is no ledger.
        """
        ledger = Ledger(sa.URL.create("sqlite", database=str(path)))
        with _own_errors():
            ledger._create_tables()
        with suppress(PermissionError):  # somebody else's file keeps its mode
            path.chmod(0o600)  # it holds the operator's fingerprints
        return ledger

    @staticmethod
    def open_to_read(path: Path) -> Ledger:
        """The SQLite ledger at a path, for reading only; it must exist."""
        if not path.is_file():
            raise LedgerError(
                "the workspace has no ledger yet",
                rule="ledger-missing",
                where="ledger.db",
                hint="the first `dprelease run` makes it",
            )
        read_only = {"mode": "ro", "uri": "true"}
        return Ledger(sa.URL.create("sqlite", database=path.absolute().as_uri(), query=read_only))

    def _create_tables(self) -> None:
        with self._engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
            if version > SCHEMA_VERSION:
                raise LedgerError(
                    f"the ledger has version {version}, this program knows {SCHEMA_VERSION}",
                    rule="ledger-newer",
                    where="ledger.db",
                    hint="use the newer program that wrote it",
                )
            METADATA.create_all(connection)
            for table in APPEND_ONLY:
                for action in ("UPDATE", "DELETE"):
                    connection.exec_driver_sql(
                        f"CREATE TRIGGER IF NOT EXISTS {table}_no_{action.lower()} BEFORE {action} ON {table} "
                        "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
                    )
            connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.commit()

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def entries(self) -> list[Entry]:
        """All entries in order."""
        with _own_errors(), self._engine.connect() as connection:
            return _read_entries(connection)

    def state(self) -> LedgerState:
        """The replayed state.

        Raises: LedgerError if the chain is broken.
        """
        return LedgerState.replay(self.entries())

    @contextmanager
    def _writing(self) -> Iterator[Transaction]:
        """One write transaction: it sees the latest head, and nobody else writes meanwhile."""
        with _own_errors(), self._engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield Transaction(connection, LedgerState.replay(_read_entries(connection)), self._clock)
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    def ensure_cap(self, population: str, cap: Cap, basis: dict[str, str]) -> None:
        """Write the population's cap on first use; refuse a specification that states another one.

        Raises: LedgerError.
        """
        with self._writing() as transaction:
            known = transaction.state.populations.get(population)
            if known is None:
                transaction.append("cap", population, "", _cap_body(cap, basis, None))
            else:
                _require_same_cap(known, cap, basis)

    def raise_cap(self, population: str, cap: Cap, basis: dict[str, str], reason: str) -> Entry:
        """Write another cap over the present one, with its reason."""
        with self._writing() as transaction:
            known = transaction.state.populations.get(population)
            if known is not None and known.basis != basis:
                raise _basis_differs(known.basis, basis)
            return transaction.append("cap", population, "", _cap_body(cap, basis, reason))

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
            known = state.of_period(request.name, request.period)
            if known and request.supersedes is None:
                return known[-1]
            if known and known[-1].status not in ("published", "superseded"):
                if known[-1].facts.get("supersedes") == request.supersedes:
                    return known[-1]
                raise _cannot_supersede(request.supersedes)
            if request.supersedes is not None and (not known or known[-1].release_id != request.supersedes):
                raise _cannot_supersede(request.supersedes)
            sequence = state.next_sequence(request.name, request.period)
            self._require_room(state, request)
            release_id = release_id_of(request.name, request.period, sequence)
            transaction.append("reserve", request.population, release_id, request.body(sequence))
            return state.releases[release_id]

    @staticmethod
    def _require_room(state: LedgerState, request: ReserveRequest) -> None:
        cap = state.populations[request.population].cap
        wanted = sum((cost_of(event) for event in request.events.values()), Cost())
        if cap.admits(state.committed(request.population) + wanted):
            return
        used = compose(state.committed(request.population), delta=cap.delta)
        raise BudgetExceededError(
            f"the lifetime budget of {request.population!r} does not allow this release: "
            f"epsilon {float(used.epsilon):g} of {float(cap.epsilon):g} is spent or reserved",
            rule="budget-exceeded",
            where="privacy.lifetime",
            hint="ask for a smaller epsilon, or raise the cap in the spec and run `dprelease budget raise --reason`",
        )

    def spend(
        self,
        release_id: str,
        name: str,
        released: Released,
        *,
        build: dict[str, Any] | None = None,
        fingerprint: str | None = None,
    ) -> Released:
        """Store a drawn measurement together with its spend, in one transaction.

        If the measurement was stored before, that one is returned and the new draw,
        which nobody has seen, is forgotten. `build` is the audit of the build that drew;
        `fingerprint` is the operator's, of the data measured.
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
            }
            transaction.append("spend", release.population, release_id, body)
            transaction.store(release_id, name, released)
            if fingerprint is not None:
                transaction.keep_fingerprint(release_id, fingerprint)
            return released

    def measurement(self, release_id: str, name: str) -> Released | None:
        """The stored measurement of a release, if it was drawn.

        Raises: LedgerError if it is not the one that was spent.
        """
        with _own_errors(), self._engine.connect() as connection:
            release = LedgerState.replay(_read_entries(connection)).releases.get(release_id)
            return _read_measurement(connection, release, name) if release and name in release.spends else None

    def publish(self, release_id: str, *, bundle_digest: str, flow_run_id: str) -> Entry:
        """Record that the bundle with this digest is the release."""
        body = {"bundle_digest": bundle_digest, "flow_run_id": flow_run_id}
        return self._close_release("publish", release_id, body)

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
        with _own_errors(), self._engine.connect() as connection:
            query = sa.select(FINGERPRINTS.c.fingerprint).where(FINGERPRINTS.c.release_id == release_id)
            return connection.execute(query).scalar_one_or_none()


class Transaction:
    """An open write transaction and the state it builds on."""

    def __init__(self, connection: sa.Connection, state: LedgerState, clock: Callable[[], datetime]) -> None:
        self._connection, self.state, self._clock = connection, state, clock

    def append(self, kind: str, population: str, release_id: str, body: dict[str, Any]) -> Entry:
        """Append an event; it must be one that the state allows."""
        at = self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        entry = Entry.after(self.state.head, at=at, kind=kind, population=population, release_id=release_id, body=body)
        self.state.apply(entry)
        columns = {column.name: getattr(entry, column.name) for column in EVENTS.columns}
        self._connection.execute(EVENTS.insert().values(**columns))
        return entry

    def measurement(self, release: ReleaseState, name: str) -> Released:
        """A measurement that was drawn before."""
        return _read_measurement(self._connection, release, name)

    def store(self, release_id: str, name: str, released: Released) -> None:
        """Store a measurement."""
        values = {"release_id": release_id, "name": name, "payload": canonical(released.as_json())}
        self._connection.execute(MEASUREMENTS.insert().values(**values))

    def keep_fingerprint(self, release_id: str, fingerprint: str) -> None:
        """Remember a fingerprint unless there is one."""
        query = sa.select(FINGERPRINTS).where(FINGERPRINTS.c.release_id == release_id)
        if self._connection.execute(query).first() is None:
            self._connection.execute(FINGERPRINTS.insert().values(release_id=release_id, fingerprint=fingerprint))


def _prepare_connection(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous = EXTRA")


def _read_entries(connection: sa.Connection) -> list[Entry]:
    rows = connection.execute(sa.select(EVENTS).order_by(EVENTS.c.seq)).mappings()
    return [Entry(**row) for row in rows]


def _read_measurement(connection: sa.Connection, release: ReleaseState, name: str) -> Released:
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
            hint="restore the ledger from a backup and run `dprelease audit`",
        )
    return stored


def _parse_measurement(payload: str | None) -> Released | None:
    try:
        return None if payload is None else Released.from_json(json.loads(payload))
    except (ValueError, KeyError, TypeError):
        return None


@contextmanager
def _own_errors() -> Iterator[None]:
    """Tell database faults in our own words."""
    fault = kind = ""
    try:
        yield
    except DBAPIError as error:
        kind = type(error.orig).__name__
        fault = str(error.orig) or kind
    if any(words in fault for words in ("readonly", "unable to open", "disk I/O", "disk is full")):
        raise WorkspaceError(
            f"the ledger cannot be written: {fault}",
            rule="workspace-unwritable",
            where="ledger.db",
            hint="check the folder's owner, its permissions and the space on its disk",
        )
    if "locked" in fault:
        raise LedgerError(
            "the ledger is being written by another process",
            rule="ledger-busy",
            where="ledger.db",
            hint="try again; if it stays so, look for a process that holds ledger.db open",
        )
    if fault:
        raise LedgerError(
            f"the ledger's database is not usable ({kind})",
            rule="ledger-broken",
            where="ledger.db",
            hint="restore it from a backup and run `dprelease audit`",
        )


def _cap_body(cap: Cap, basis: dict[str, str], reason: str | None) -> dict[str, Any]:
    figures = {"epsilon": str(cap.epsilon), "delta": str(cap.delta), "delta_num": str(cap.delta_num)}
    return {**figures, "basis": basis, "reason": reason}


def _require_same_cap(known: Population, cap: Cap, basis: dict[str, str]) -> None:
    if known.basis != basis:
        raise _basis_differs(known.basis, basis)
    if known.cap != cap:
        raise LedgerError(
            f"the spec's lifetime ({_show(cap)}) differs from the ledger's ({_show(known.cap)})",
            rule="cap-differs",
            where="privacy.lifetime",
            hint='put the old figures back, or run `dprelease budget raise --reason "..."` to write the new ones',
        )


def _basis_differs(known: dict[str, str], stated: dict[str, str]) -> LedgerError:
    key = next(name for name in known if known[name] != stated.get(name))
    return LedgerError(
        f"the population's budget is counted for {key} {known[key]!r}, the spec says {stated.get(key)!r}",
        rule="budget-basis-differs",
        where=f"privacy.{key}",
        hint="a population is counted in one way for life; put the old value back or name another population",
    )


def _cannot_supersede(release_id: str | None) -> LedgerError:
    return LedgerError(
        f"{release_id!r} is not the latest published release of this period",
        rule="supersedes-wrong",
        where="--supersedes",
        hint="`dprelease history` shows the releases of a period; only its latest can be superseded",
    )


def _show(cap: Cap) -> str:
    figures = ((name, float(Fraction(getattr(cap, name)))) for name in ("epsilon", "delta", "delta_num"))
    return ", ".join(f"{name} {value:g}" for name, value in figures)
