"""A ledger in one SQLite file of the workspace."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dpcore.errors import LedgerError
from tasks.ledger.databases.common import APPEND_ONLY, LOCK_WAIT_SECONDS, REFUSAL


class SqliteDatabase:
    """A ledger in one file of the workspace."""

    where = "ledger.db"
    may_be_empty = False
    schema_version = 5
    """1: unsigned entries. 2: every entry names its key and carries its signature. 3: refusals are entries.
    4: keys are enrolled for roles, and revoked; approvers sign for themselves. 5: releases are retracted."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def engine(self, *, read_only: bool) -> sa.Engine:
        """The file's engine; for readers it is opened read-only."""
        url = (
            sa.URL.create("sqlite", database=self.path.absolute().as_uri(), query={"mode": "ro", "uri": "true"})
            if read_only
            else sa.URL.create("sqlite", database=str(self.path))
        )
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

    def restrict_access(self) -> None:
        """Keep the file to its owner: it holds the operator's fingerprints."""
        with suppress(PermissionError):  # somebody else's file keeps its mode
            self.path.chmod(0o600)

    def one_moment(self, connection: sa.Connection) -> None:
        """A transaction: its shared lock keeps writers from committing."""
        connection.exec_driver_sql("BEGIN")

    def exclusive(self, name: str) -> AbstractContextManager[None]:
        """Nothing more: the file is one workspace's, and that has a lock of its own."""
        return nullcontext()


def _durable(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous = EXTRA")
