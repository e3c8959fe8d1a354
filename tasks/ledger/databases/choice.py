"""The interface of the ledger's two databases, and the choice between them by address.

Everything else goes through one code path in `tasks.ledger.store`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa

from dpcore.errors import LedgerError
from tasks.ledger.databases.postgres import PostgresDatabase
from tasks.ledger.databases.sqlite import SqliteDatabase


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

    def restrict_access(self) -> None:
        """Keep others from the files of a ledger that was opened for writing."""

    def one_moment(self, connection: sa.Connection) -> None:
        """Start a transaction all of whose reads see the same moment."""

    def exclusive(self, name: str) -> AbstractContextManager[None]:
        """Wait until nobody else who uses this database releases under that name."""


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
