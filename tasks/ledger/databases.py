"""What differs between the ledger's two databases: opening, locks, how rows are inserted, append-only rules.

Everything else goes through one code path in `tasks.ledger.store`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa

from dpcore.errors import LedgerError
from tasks.ledger.database_common import APPEND_ONLY, LOCK_WAIT_SECONDS, REFUSAL
from tasks.ledger.postgres import PostgresDatabase


class Database(Protocol):
    """Where a ledger is kept."""

    where: str
    may_be_empty: bool
    """Whether a database without tables is an empty ledger, or a broken one."""
    schema_version: int
    """The newest version of the tables that this program knows."""

    def engine(self, *, read_only: bool) -> sa.Engine:
        """The database's engine."""

    def exists(self) -> bool:
        """Whether a ledger may be there; it is not made by asking."""

    def lock_tables(self, connection: sa.Connection) -> None:
        """Start a transaction in which nobody else makes the tables or changes their version."""

    def lock_writer(self, connection: sa.Connection) -> None:
        """Start a transaction in which nobody else writes."""

    def insert(self, connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> None:
        """Insert one row, as far as the database lets this account."""

    def author(self, connection: sa.Connection, seq: int) -> str | None:
        """The role that appended an entry, where the database knows it."""

    def set_aside(self, connection: sa.Connection, first: int) -> list[str]:
        """Take the entries from a number on out of the ledger, keep them apart, and return who appended them."""

    def version(self, connection: sa.Connection) -> int:
        """The version of the tables; 0 where there are none."""

    def set_version(self, connection: sa.Connection, version: int) -> None:
        """Remember the version of the tables."""

    def install_rules(self, connection: sa.Connection) -> None:
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
    schema_version = 4
    """1: unsigned entries. 2: every entry names its key and carries its signature. 3: refusals are entries.
    4: keys are enrolled for roles, and revoked; approvers sign for themselves."""

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

    def lock_tables(self, connection: sa.Connection) -> None:
        """As for writing: the file has one lock."""
        self.lock_writer(connection)

    def lock_writer(self, connection: sa.Connection) -> None:
        """Take SQLite's reserved lock at once, so that the state read is the latest."""
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def insert(self, connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> None:
        """A plain insert: whoever may write the file may write all of it."""
        connection.execute(table.insert().values(**row))

    def author(self, connection: sa.Connection, seq: int) -> str | None:
        """Nobody known: a file has no roles."""
        return None

    def set_aside(self, connection: sa.Connection, first: int) -> list[str]:
        """Refused: a file is written by its own workspace, which appends nothing that it cannot read."""
        raise LedgerError(
            "entries of an SQLite ledger cannot be set aside: only its own workspace writes to it",
            rule="ledger-without-roles",
            where=self.where,
            hint="restore the ledger with `dprelease restore`, and reconcile what was spent after the backup",
        )

    def version(self, connection: sa.Connection) -> int:
        """The file's user version."""
        return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())

    def set_version(self, connection: sa.Connection, version: int) -> None:
        """Write the user version."""
        connection.exec_driver_sql(f"PRAGMA user_version = {int(version)}")

    def install_rules(self, connection: sa.Connection) -> None:
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
