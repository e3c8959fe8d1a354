"""A ledger on PostgreSQL that a team shares: who may write what is the database's own decision.

Writers have no right to insert. They call the functions of `postgres.sql`, which run with the rights of the tables'
owner, check what SQL can check, and take the locks. Readers can neither call them nor lock the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import sqlalchemy as sa

from dpcore.errors import LedgerError
from tasks.ledger.databases.common import APPEND_ONLY, LOCK_WAIT_SECONDS, REFUSAL, own_errors

MIGRATION_LOCK = 0x6470_7265_6C31
"""The advisory lock of whoever makes or migrates the tables; before version 4 it was the writers' lock as well."""

INSERT_FUNCTIONS = {
    "events": "ledger_append",
    "measurements": "ledger_store",
    "operator_fingerprints": "ledger_keep",
}
WRITERS_FUNCTIONS = (
    "ledger_lock()",
    "ledger_hold_name(text)",
    *(f"{function}({table})" for table, function in INSERT_FUNCTIONS.items()),
    "ledger_grant(text, text, boolean, boolean)",
)
READABLE = (*APPEND_ONLY, "ledger_version", "ledger_authors", "ledger_rights", "ledger_set_aside")
PRIVATE = ("operator_fingerprints", "ledger_write_lock", "ledger_name_locks")

CONNECT_SECONDS = 10
KEEP_ALIVE = {"keepalives": 1, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""A release takes minutes in which the lock's connection says nothing; routers forget silent ones."""
WITHOUT_LIMIT = "-c lock_timeout=0 -c idle_in_transaction_session_timeout=0"


class PostgresDatabase:
    """A ledger that a team shares."""

    where = "ledger"
    may_be_empty = True
    schema_version = 5
    """As in SQLite; from 4 on writers append through functions, populations have owners."""

    def __init__(self, url: str) -> None:
        self._url = sa.make_url(url).set(drivername="postgresql+psycopg")

    def engine(self, *, read_only: bool) -> sa.Engine:
        """The server's engine; readers' transactions are read-only."""
        options = f"-c lock_timeout={LOCK_WAIT_SECONDS}s -c synchronous_commit=on"
        options += " -c default_transaction_read_only=on" if read_only else ""
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

    def lock_tables(self, connection: sa.Connection) -> None:
        """Take the migration lock and the tables' owner's rights, unless the tables are of the newest version.

        Then nothing is to be done, and no reader who holds that lock can keep anybody from opening the ledger.
        Raises: LedgerError if this account does not own tables of an older version.
        """
        if self.version(connection) >= self.schema_version:
            return
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        if self.version(connection):
            _act_as_owner(connection)

    def lock_writer(self, connection: sa.Connection) -> None:
        """Take the writers' lock, which ends with the transaction."""
        connection.execute(sa.text("SELECT ledger_lock()"))

    def insert(self, connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> None:
        """Call the table's function, which checks the row and this role's rights.

        Raises: DBAPIError with a code of `common.RULES`.
        """
        values = ", ".join(f":{column.name}" for column in table.columns)
        connection.execute(sa.text(f"SELECT {INSERT_FUNCTIONS[table.name]}(ROW({values})::{table.name})"), row)

    def author(self, connection: sa.Connection, seq: int) -> str | None:
        """The role that called `ledger_append`; None for entries from before version 4."""
        if connection.execute(sa.text("SELECT to_regclass('ledger_authors')")).scalar_one() is None:
            return None
        return connection.execute(sa.text("SELECT role FROM ledger_authors WHERE seq = :seq"), {"seq": seq}).scalar()

    def set_aside(self, connection: sa.Connection, first: int) -> list[str]:
        """Move the entries into `ledger_set_aside`; only the tables' owner may."""
        return list(connection.execute(sa.text("SELECT * FROM ledger_cut(:first)"), {"first": first}).scalars())

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

    def install_rules(self, connection: sa.Connection) -> None:
        """Triggers that refuse updates, deletes and truncation, and the functions through which writers append."""
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
        functions = files(__package__).joinpath("postgres.sql").read_text().replace("@schema@", _schema(connection))
        connection.exec_driver_sql(functions, execution_options={"no_parameters": True})

    def restrict_access(self) -> None:
        """Nothing to do: the server looks after its files."""

    def one_moment(self, connection: sa.Connection) -> None:
        """One snapshot for the whole transaction."""
        connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))

    @contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        """Hold the name in a transaction of its own that never commits.

        The server lets it go when the connection ends, however that comes. A run that loses
        it can still not spend or publish twice: the ledger's own rules forbid it.
        """
        engine = sa.create_engine(
            self._url,
            connect_args={"connect_timeout": CONNECT_SECONDS, "options": WITHOUT_LIMIT, **KEEP_ALIVE},
            poolclass=sa.NullPool,
            isolation_level="READ COMMITTED",
        )
        with own_errors(self.where):
            connection = engine.connect()
        try:
            with own_errors(self.where):
                connection.execute(sa.text("SELECT ledger_hold_name(:name)"), {"name": name})
            yield
        finally:
            connection.invalidate()  # closed, not kept: with it goes the lock
            connection.close()

    def give_roles(self, *, writer: str, auditor: str) -> None:
        """Give the writer and the auditor what they need, and take everything else from them.

        The writer appends and reads; the auditor reads, but not the operator's fingerprints.
        Raises: LedgerError if a role is unknown, or these are not this account's tables to share.
        """
        with self._transaction() as connection:
            _require_roles(connection, (writer, auditor))
            quote = connection.dialect.identifier_preparer.quote
            for statement in _grants(_schema(connection), quote(writer), quote(auditor)):
                connection.exec_driver_sql(statement)

    def grant(self, population: str, role: str, *, as_owner: bool, revoke: bool) -> None:
        """Let a role write to a population, or take that right away.

        Raises: LedgerError unless this account owns the population, or the tables.
        """
        with self._transaction() as connection:
            connection.execute(
                sa.text("SELECT ledger_grant(:population, :role, :as_owner, :revoke)"),
                {"population": population, "role": role, "as_owner": as_owner, "revoke": revoke},
            )

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        engine = self.engine(read_only=False)
        try:
            with own_errors(self.where), engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()


def _schema(connection: sa.Connection) -> str:
    """The schema of the tables, quoted."""
    return str(connection.execute(sa.text("SELECT quote_ident(current_schema())")).scalar_one())


def _act_as_owner(connection: sa.Connection) -> None:
    """Do the rest of the transaction as the tables' owner, whose functions and tables the new ones must be."""
    query = (
        "SELECT tableowner, pg_has_role(tableowner, 'MEMBER') FROM pg_tables "
        "WHERE schemaname = current_schema() AND tablename = 'events'"
    )
    owner, member = connection.execute(sa.text(query)).one()
    if not member:
        raise LedgerError(
            "the ledger's tables have an older version, and only their owner can upgrade them",
            rule="ledger-older",
            where="ledger",
            hint="the owner runs `dprelease ledger roles`, and `dprelease ledger grant` for each population",
        )
    connection.exec_driver_sql(f"SET LOCAL ROLE {connection.dialect.identifier_preparer.quote(owner)}")


def _require_roles(connection: sa.Connection, roles: tuple[str, str]) -> None:
    known = set(connection.execute(sa.text("SELECT rolname FROM pg_roles")).scalars())
    for option, role in zip(("--writer", "--auditor"), roles, strict=True):
        if role not in known:
            raise LedgerError(
                "the database has no such role",
                rule="role-unknown",
                where=option,
                hint="create the role first: CREATE ROLE name LOGIN; this program does not handle passwords",
            )
    if roles[0] == roles[1]:
        raise LedgerError(
            "writer and auditor must be two roles", rule="role-twice", where="--auditor", hint="name another role"
        )


def _grants(schema: str, writer: str, auditor: str) -> Iterator[str]:
    functions = ", ".join(WRITERS_FUNCTIONS)
    for role in ("PUBLIC", writer, auditor):
        yield f"REVOKE ALL ON {', '.join(READABLE + PRIVATE)} FROM {role}"
        yield f"REVOKE ALL ON FUNCTION {functions} FROM {role}"
    for role in (writer, auditor):
        yield f"GRANT SELECT ON {', '.join(READABLE)} TO {role}"
        yield f"GRANT USAGE ON SCHEMA {schema} TO {role}"
    yield f"GRANT SELECT ON operator_fingerprints TO {writer}"
    yield f"GRANT EXECUTE ON FUNCTION {functions} TO {writer}"
