"""Rights on a ledger that a team shares in PostgreSQL."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from dpcore.errors import LedgerError
from tasks.keys.signing import Signer
from tasks.ledger.databases.choice import database_at
from tasks.ledger.databases.postgres import PostgresDatabase
from tasks.ledger.store import Ledger, SetAside


def give_roles(address: Path | str, signer: Signer, *, writer: str, auditor: str) -> None:
    """Give a writer and an auditor their rights on a shared ledger, whose tables are made if they are not there.

    Tables of an older version are brought to this one.
    Raises: LedgerError for SQLite, for unknown roles, and if this account does not own the tables.
    """
    database = _require_roles(address)
    Ledger.open(address, signer).close()
    database.give_roles(writer=writer, auditor=auditor)


def grant_population(
    address: Path | str, population: str, role: str, *, as_owner: bool = False, revoke: bool = False
) -> None:
    """Let a role write to a population of a shared ledger, as its owner or not; or take that right away.

    Raises: LedgerError for SQLite, and unless this account owns the population, or the tables.
    """
    _require_roles(address).grant(population, role, as_owner=as_owner, revoke=revoke)


def set_aside(address: Path | str, signer: Signer, *, who: str) -> SetAside:
    """Take what a role appended and nobody can read out of a shared ledger; see `Ledger.set_aside`.

    Raises: LedgerError for SQLite, if there is nothing to set aside, and if this account does not own the tables.
    """
    _require_roles(address)
    with closing(Ledger.open(address, signer)) as ledger:
        return ledger.set_aside(who=who)


def _require_roles(address: Path | str) -> PostgresDatabase:
    database = database_at(address)
    if not isinstance(database, PostgresDatabase):
        raise LedgerError(
            "an SQLite ledger has no roles: its file belongs to its owner",
            rule="ledger-without-roles",
            where="ledger",
            hint="give auditors an export or a copy; `ledger: postgresql://...` has roles",
        )
    return database
