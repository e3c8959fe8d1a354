"""What both databases of a ledger have in common: the append-only tables, the wait for a lock, faults in our words."""

from __future__ import annotations

from functools import partial

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError

from dpcore.errors import LedgerError, PrivacyError, WorkspaceError
from tasks.workspace.redaction import ErrorBoundary

LOCK_WAIT_SECONDS = 60

APPEND_ONLY = ("events", "measurements")
REFUSAL = "the ledger is append-only"

RULES = {
    "DP001": (
        "entry-refused",
        "update the program; if the ledger still refuses, its owner should look for a role that tampers with it",
    ),
    "DP002": (
        "population-not-granted",
        "the population's owner grants it: `dprelease ledger grant POPULATION --to ROLE`",
    ),
    "DP003": ("not-the-owner", "its owner does this; the owner of the ledger's tables may too, with --owner-url"),
    "DP004": ("role-unknown", "make the role first: CREATE ROLE name LOGIN"),
    "DP005": ("population-unknown", "`dprelease budget` shows the population; its first run writes its cap"),
}
"""Rule and hint for each error code that the functions in postgres.sql raise; the message is theirs."""


def own_errors(where: str) -> ErrorBoundary:
    """Tell database faults in our own words; what a driver says may quote addresses and passwords."""
    return ErrorBoundary(DBAPIError, sa.exc.TimeoutError, refusal=partial(_translate, where))


def _translate(where: str, error: DBAPIError | sa.exc.TimeoutError) -> PrivacyError:
    if isinstance(error, sa.exc.TimeoutError):
        return _busy(where)
    said, kind = str(error.orig), type(error.orig).__name__
    if (code := getattr(error.orig, "sqlstate", None)) in RULES:
        rule, hint = RULES[code]
        return LedgerError(error.orig.diag.message_primary, rule=rule, where=where, hint=hint)  # type: ignore[union-attr]
    if kind == "DiskFull":  # PostgreSQL's words would name the server's files
        return LedgerError(
            "the ledger cannot be written: the database's disk is full",
            rule="ledger-full",
            where=where,
            hint="free space on the database's disk and run again; what was stored before is kept",
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
            "the database does not permit this operation to this role",
            rule="ledger-read-only",
            where=where,
            hint="the writer's role may release, the auditor's may read, and only the tables' owner grants rights",
        )
    if isinstance(error, OperationalError) and type(error.orig).__module__.startswith("psycopg"):
        return LedgerError(
            f"the ledger's database cannot be reached ({kind})",
            rule="ledger-unreachable",
            where=where,
            hint="check that the database runs and this account may use it, then run again; nothing is drawn twice",
        )
    return LedgerError(
        f"the ledger's database is not usable ({kind})",
        rule="ledger-broken",
        where=where,
        hint="restore it with `dprelease restore`, and reconcile what was spent after the backup",
    )


def _busy(where: str) -> LedgerError:
    return LedgerError(
        "the ledger is being written by another process",
        rule="ledger-busy",
        where=where,
        hint="try again; if this persists, look for a process that holds the ledger open",
    )
