"""What differs between the ledger's two databases: opening, the writer's lock, append-only rules, faults in words.

Everything else goes through one code path in `tasks.stores.ledger`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError

from dpcore.errors import LedgerError, PrivacyError, WorkspaceError

LOCK_WAIT_SECONDS = 60
WRITER_LOCK = 0x6470_7265_6C31
"""The advisory lock that PostgreSQL's writers take, one at a time."""

APPEND_ONLY = ("events", "measurements")
REFUSAL = "the ledger is append-only"


class Database(Protocol):
    """Where a ledger is kept."""

    where: str
    may_be_empty: bool
    """Whether a database without tables is an empty ledger, or a broken one."""

    def engine(self, *, read_only: bool) -> sa.Engine:
        """The database's engine."""

    def exists(self) -> bool:
        """Whether a ledger may be there; it is not made by asking."""

    def lock_writer(self, connection: sa.Connection) -> None:
        """Start a transaction in which nobody else writes."""

    def version(self, connection: sa.Connection) -> int:
        """The version of the tables; 0 where there are none."""

    def set_version(self, connection: sa.Connection, version: int) -> None:
        """Remember the version of the tables."""

    def forbid_changes(self, connection: sa.Connection) -> None:
        """Make the database itself refuse updates and deletes."""

    def opened(self) -> None:
        """Called when the ledger was opened for writing."""

    def one_moment(self, connection: sa.Connection) -> None:
        """Start a transaction all of whose reads see the same moment."""

    def exclusive(self, name: str) -> AbstractContextManager[None]:
        """Wait until nobody else who uses this database releases under that name."""


class SqliteDatabase:
    """A ledger in one file of the workspace."""

    where = "ledger.db"
    may_be_empty = False

    def __init__(self, path: Path) -> None:
        self.path = path

    def engine(self, *, read_only: bool) -> sa.Engine:
        """The file's engine; for readers it is opened read-only."""
        url = sa.URL.create("sqlite", database=str(self.path))
        if read_only:
            query = {"mode": "ro", "uri": "true"}
            url = sa.URL.create("sqlite", database=self.path.absolute().as_uri(), query=query)
        engine = sa.create_engine(url, connect_args={"timeout": LOCK_WAIT_SECONDS, "isolation_level": None})
        sa.event.listen(engine, "connect", _durable)
        return engine

    def exists(self) -> bool:
        """Whether the file is there; an empty one is what a crash before its first commit leaves."""
        return self.path.is_file() and self.path.stat().st_size > 0

    def lock_writer(self, connection: sa.Connection) -> None:
        """Take SQLite's reserved lock at once, so that the state read is the latest."""
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def version(self, connection: sa.Connection) -> int:
        """The file's user version."""
        return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())

    def set_version(self, connection: sa.Connection, version: int) -> None:
        """Write the user version."""
        connection.exec_driver_sql(f"PRAGMA user_version = {int(version)}")

    def forbid_changes(self, connection: sa.Connection) -> None:
        """Triggers that abort updates and deletes."""
        for table in APPEND_ONLY:
            for action in ("UPDATE", "DELETE"):
                connection.exec_driver_sql(
                    f"CREATE TRIGGER IF NOT EXISTS {table}_no_{action.lower()} BEFORE {action} ON {table} "
                    f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
                )

    def opened(self) -> None:
        """Keep the file to its owner: it holds the operator's fingerprints."""
        try:
            self.path.chmod(0o600)
        except PermissionError:  # somebody else's file keeps its mode
            return

    def one_moment(self, connection: sa.Connection) -> None:
        """A transaction: its shared lock keeps writers from committing."""
        connection.exec_driver_sql("BEGIN")

    def exclusive(self, name: str) -> AbstractContextManager[None]:
        """Nothing more: the file is one workspace's, and that has a lock of its own."""
        return nullcontext()


def _durable(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous = EXTRA")


class PostgresDatabase:
    """A ledger that a team shares."""

    where = "ledger"
    may_be_empty = True

    def __init__(self, url: str) -> None:
        self._url = sa.make_url(url).set(drivername="postgresql+psycopg")

    def engine(self, *, read_only: bool) -> sa.Engine:
        """The server's engine; readers' transactions are read-only."""
        options = f"-c lock_timeout={LOCK_WAIT_SECONDS}s -c synchronous_commit=on"
        if read_only:
            options += " -c default_transaction_read_only=on"
        return sa.create_engine(
            self._url,
            connect_args={"options": options, "connect_timeout": CONNECT_SECONDS},
            pool_pre_ping=True,
            # stricter levels keep the snapshot from before the writers' lock was had: an old head
            isolation_level="READ COMMITTED",
        )

    def exists(self) -> bool:
        """Always: a server without tables is an empty ledger."""
        return True

    def lock_writer(self, connection: sa.Connection) -> None:
        """Take the writers' lock, which ends with the transaction."""
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": WRITER_LOCK})

    def version(self, connection: sa.Connection) -> int:
        """What the version table says."""
        if connection.execute(sa.text("SELECT to_regclass('ledger_version')")).scalar_one() is None:
            return 0
        return int(connection.execute(sa.text("SELECT max(version) FROM ledger_version")).scalar_one() or 0)

    def set_version(self, connection: sa.Connection, version: int) -> None:
        """Write the version, unless it is there."""
        connection.execute(sa.text("CREATE TABLE IF NOT EXISTS ledger_version (version integer NOT NULL)"))
        if self.version(connection) != version:
            connection.execute(sa.text("INSERT INTO ledger_version VALUES (:version)"), {"version": version})

    def forbid_changes(self, connection: sa.Connection) -> None:
        """Triggers that refuse updates, deletes and truncation."""
        connection.execute(
            sa.text(
                "CREATE OR REPLACE FUNCTION ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$"
            )
        )
        for table in APPEND_ONLY:
            connection.execute(
                sa.text(
                    f"CREATE OR REPLACE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
                    "FOR EACH STATEMENT EXECUTE FUNCTION ledger_is_append_only()"
                )
            )
            # always: also for sessions that replicate, which skip ordinary triggers
            connection.execute(sa.text(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_append_only"))

    def opened(self) -> None:
        """Nothing to do: the server looks after its files."""

    def one_moment(self, connection: sa.Connection) -> None:
        """One snapshot for the whole transaction."""
        connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))

    @contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        """Hold the name's advisory lock on a connection of its own.

        The server lets it go when the connection ends, however that comes. A run that loses
        it can still not spend or publish twice: the ledger's own rules forbid it.
        """
        connect_args = {"connect_timeout": CONNECT_SECONDS, **KEEP_ALIVE}
        engine = sa.create_engine(
            self._url, connect_args=connect_args, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT"
        )
        with own_errors(self.where):
            connection = engine.connect()
        try:
            with own_errors(self.where):
                connection.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": _lock_of(name)})
            yield
        finally:
            connection.invalidate()  # closed, not kept: with it goes the lock
            connection.close()

    def grant(self, *, writer: str, auditor: str) -> None:
        """Give the writer and the auditor what they need, and take everything else from them.

        The writer appends and reads; the auditor reads, but not the operator's fingerprints.
        Raises: LedgerError if a role is unknown, or these are not this account's tables to share.
        """
        engine = self.engine(read_only=False)
        try:
            with own_errors(self.where), engine.begin() as connection:
                _require_roles(connection, (writer, auditor))
                schema = str(connection.execute(sa.text("SELECT current_schema()")).scalar_one())
                quote = engine.dialect.identifier_preparer.quote
                for statement in _grants(quote(schema), quote(writer), quote(auditor)):
                    connection.exec_driver_sql(statement)
        finally:
            engine.dispose()


CONNECT_SECONDS = 10
KEEP_ALIVE = {"keepalives": 1, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""A release takes minutes in which the lock's connection says nothing; routers forget silent ones."""


def _lock_of(name: str) -> int:
    """The advisory lock of a release's name: 64 bits of its hash."""
    return int.from_bytes(hashlib.sha256(b"dprelease name " + name.encode()).digest()[:8], signed=True)


def _require_roles(connection: sa.Connection, roles: tuple[str, str]) -> None:
    known = set(connection.execute(sa.text("SELECT rolname FROM pg_roles")).scalars())
    for option, role in zip(("--writer", "--auditor"), roles, strict=True):
        if role not in known:
            raise LedgerError(
                "the database has no such role",
                rule="role-unknown",
                where=option,
                hint="make the role first: CREATE ROLE name LOGIN; passwords stay between you and the database",
            )
    if roles[0] == roles[1]:
        raise LedgerError(
            "writer and auditor must be two roles", rule="role-twice", where="--auditor", hint="name another role"
        )


def _grants(schema: str, writer: str, auditor: str) -> Iterator[str]:
    tables = (*APPEND_ONLY, "operator_fingerprints", "ledger_version")
    for role in ("PUBLIC", writer, auditor):
        yield f"REVOKE ALL ON {', '.join(tables)} FROM {role}"
    for role in (writer, auditor):
        yield f"GRANT SELECT ON {', '.join(APPEND_ONLY)}, ledger_version TO {role}"
        yield f"GRANT USAGE ON SCHEMA {schema} TO {role}"
    yield f"GRANT INSERT ON {', '.join(APPEND_ONLY)} TO {writer}"
    yield f"GRANT SELECT, INSERT ON operator_fingerprints TO {writer}"


def database_at(address: Path | str) -> Database:
    """The database that a path or URL names.

    Raises: LedgerError for any other URL.
    """
    if isinstance(address, Path):
        return SqliteDatabase(address)
    url = sa.make_url(address)
    if url.get_backend_name() == "postgresql":
        return PostgresDatabase(address)
    if url.get_backend_name() == "sqlite" and url.database:
        return SqliteDatabase(Path(url.database))
    raise LedgerError(
        "the ledger's address is neither SQLite nor PostgreSQL",
        rule="ledger-url",
        where="ledger",
        hint="leave `ledger` out, or use postgresql://user@host/database",
    )


@contextmanager
def own_errors(where: str) -> Iterator[None]:
    """Tell database faults in our own words; what a driver says may quote addresses and passwords."""
    refusal: PrivacyError | None = None
    try:
        yield
    except DBAPIError as error:
        refusal = _refusal(error, where)
    except sa.exc.TimeoutError:
        refusal = _busy(where)
    if refusal is not None:
        try:
            raise refusal
        finally:
            refusal.__context__ = None  # `with` handles the driver's error still: it would hang on ours


def _refusal(error: DBAPIError, where: str) -> PrivacyError:
    said, kind = str(error.orig), type(error.orig).__name__
    if kind == "DiskFull":  # PostgreSQL's words would name the server's files
        return LedgerError(
            "the ledger cannot be written: the database's disk is full",
            rule="ledger-full",
            where=where,
            hint="make room on the database's disk and run again; nothing was lost",
        )
    if any(words in said for words in ("readonly", "unable to open", "disk I/O", "is full")):
        return WorkspaceError(
            f"the ledger cannot be written: {said}",
            rule="workspace-unwritable",
            where=where,
            hint="check the folder's owner, its permissions and the space on its disk",
        )
    if "locked" in said or kind == "LockNotAvailable":
        return _busy(where)
    if kind in ("InsufficientPrivilege", "ReadOnlySqlTransaction"):
        return LedgerError(
            "the database does not allow this role what was asked",
            rule="ledger-read-only",
            where=where,
            hint="the writer's role releases, the auditor's reads, and only the tables' owner gives roles their rights",
        )
    if isinstance(error, OperationalError) and type(error.orig).__module__.startswith("psycopg"):
        return LedgerError(
            f"the ledger's database cannot be reached ({kind})",
            rule="ledger-unreachable",
            where=where,
            hint="check that the database runs and that this account may use it; nothing was spent",
        )
    return LedgerError(
        f"the ledger's database is not usable ({kind})",
        rule="ledger-broken",
        where=where,
        hint="restore it from a backup and run `dprelease audit`",
    )


def _busy(where: str) -> LedgerError:
    return LedgerError(
        "the ledger is being written by another process",
        rule="ledger-busy",
        where=where,
        hint="try again; if it stays so, look for a process that holds the ledger open",
    )
