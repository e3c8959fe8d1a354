"""The ledger's tables and the migrations between their versions."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from dpcore.errors import LedgerError
from tasks.ledger.databases.choice import Database

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
    5: (),  # so they are for retractions
}
"""What brings the tables of the version before to this one."""


def stored_columns(connection: sa.Connection) -> list[sa.Column[Any]]:
    """Return the columns of the events that this database has: version 1 has no signatures, an empty one nothing."""
    inspector = sa.inspect(connection)
    if not inspector.has_table("events"):
        return []
    stored = {column["name"] for column in inspector.get_columns("events")}
    return [column for column in EVENTS.columns if column.name in stored]


def prepare_tables(connection: sa.Connection, database: Database) -> None:
    """Create the tables, or migrate them to the newest version; the caller commits.

    Raises: LedgerError for tables of a newer version than this program knows.
    """
    database.lock_tables(connection)
    version = database.version(connection)
    require_known(version, database)
    if version == database.schema_version:
        return
    if version == 0:
        METADATA.create_all(connection)
    for step in range(version + 1, database.schema_version + 1) if version else ():
        for statement in MIGRATIONS[step]:
            connection.exec_driver_sql(statement)
    database.set_version(connection, database.schema_version)
    database.install_rules(connection)


def require_known(version: int, database: Database) -> None:
    """Refuse tables of a newer version than this program knows.

    Raises: LedgerError.
    """
    if version > database.schema_version:
        raise LedgerError(
            f"the ledger has version {version}, this program knows {database.schema_version}",
            rule="ledger-newer",
            where=database.where,
            hint="use the newer program that wrote it",
        )
