"""The registry of file versions: which were landed or refused, which are announced and handled, and the last looks.

It holds file names, so it is its owner's alone and lies hidden among the landing data. Every
change is one transaction; a roll-back journal works on network mounts too.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dpcore.errors import WorkspaceError
from tasks.stores.workspace import PRIVATE_FILE

BUSY_SECONDS = 60.0
TABLES = (
    """CREATE TABLE IF NOT EXISTS versions (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        token TEXT NOT NULL UNIQUE,
        path TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        period TEXT,
        refused TEXT,  -- the rule that it broke, null if it landed
        announced_at TEXT,
        announcements INTEGER NOT NULL DEFAULT 0,
        handled INTEGER NOT NULL DEFAULT 0,
        UNIQUE (path, fingerprint)
    )""",
    """CREATE TABLE IF NOT EXISTS looks (
        path TEXT NOT NULL,
        clock TEXT NOT NULL,
        signature TEXT NOT NULL,
        since REAL NOT NULL,
        done INTEGER NOT NULL,
        PRIMARY KEY (path, clock)
    )""",
)
_MAKING = threading.Lock()
COLUMNS = "token, period, refused, announced_at, announcements, handled"


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One content of one landing file; its token says nothing of either."""

    token: str
    period: str | None
    refused: str | None = None
    announced_at: datetime | None = None
    announcements: int = 0
    handled: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """What a file looked like, since when on a clock, and whether that content is dealt with."""

    signature: str
    since: float
    done: bool = False


class Registry:
    """The registry's file; safe between threads and processes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __repr__(self) -> str:
        return "Registry(<private>)"

    def looks(self, clock: str) -> dict[str, Look]:
        """The last look at each file by that clock."""
        with self._transaction() as db:
            rows = db.execute("SELECT path, signature, since, done FROM looks WHERE clock = ?", (clock,)).fetchall()
        return {path: Look(signature, since, bool(done)) for path, signature, since, done in rows}

    def keep_look(self, path: str, clock: str, look: Look) -> None:
        """Remember a look."""
        with self._transaction() as db:
            values = (path, clock, look.signature, look.since, look.done)
            db.execute("INSERT OR REPLACE INTO looks VALUES (?, ?, ?, ?, ?)", values)

    def forget_looks(self, paths: Iterable[str]) -> None:
        """Forget how files looked that are gone; what landed of them stays known."""
        gone = [(path,) for path in paths]
        if gone:
            with self._transaction() as db:
                db.executemany("DELETE FROM looks WHERE path = ?", gone)

    def version(self, path: str, fingerprint: str) -> FileVersion | None:
        """A version by what it is."""
        return self._one("path = ? AND fingerprint = ?", path, fingerprint)

    def find(self, token: str) -> FileVersion | None:
        """A version by its token."""
        return self._one("token = ?", token)

    def record(self, path: str, fingerprint: str, *, period: str | None, refused: str | None) -> FileVersion:
        """Record how a version was judged; a refused one may be judged anew, a landed one stays landed."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO versions (token, path, fingerprint, period, refused) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (path, fingerprint) DO UPDATE SET period = excluded.period, refused = excluded.refused"
                " WHERE versions.refused IS NOT NULL",
                (secrets.token_hex(16), path, fingerprint, period, refused),
            )
        recorded = self.version(path, fingerprint)
        if recorded is None:
            raise _unusable("a version was not kept")
        return recorded

    def pending(self) -> list[FileVersion]:
        """What landed and is not handled, oldest first."""
        with self._transaction() as db:
            query = f"SELECT {COLUMNS} FROM versions WHERE refused IS NULL AND NOT handled ORDER BY seq"  # noqa: S608
            return [_version(row) for row in db.execute(query).fetchall()]

    def exists(self) -> bool:
        """Whether anything was ever looked at."""
        return self._path.is_file()

    def refused(self, period: str | None, *, besides: Sequence[str] = ()) -> list[tuple[str, str]]:
        """Token and path of every version of a month that was refused, but for some rules."""
        with self._transaction() as db:
            query = "SELECT token, path, refused FROM versions WHERE refused IS NOT NULL AND period IS ?"
            rows = db.execute(query, (period,)).fetchall()
        return [(token, path) for token, path, rule in rows if rule not in besides]

    def mark_announced(self, token: str, at: datetime) -> None:
        """Remember that a version's event was taken."""
        with self._transaction() as db:
            change = "UPDATE versions SET announced_at = ?, announcements = announcements + 1 WHERE token = ?"
            db.execute(change, (at.isoformat(), token))

    def mark_handled(self, token: str) -> None:
        """Remember that a version needs nothing more."""
        with self._transaction() as db:
            db.execute("UPDATE versions SET handled = 1 WHERE token = ?", (token,))

    def reopen(self, token: str) -> None:
        """Forget that a version was announced and handled."""
        with self._transaction() as db:
            change = "UPDATE versions SET handled = 0, announced_at = NULL, announcements = 0 WHERE token = ?"
            db.execute(change, (token,))

    def _one(self, condition: str, *values: str) -> FileVersion | None:
        with self._transaction() as db:
            query = f"SELECT {COLUMNS} FROM versions WHERE {condition}"  # noqa: S608  conditions are our own
            row = db.execute(query, values).fetchone()
        return None if row is None else _version(row)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction, alone in the file; undone unless it ends well.

        Raises: WorkspaceError if the file cannot be used.
        """
        fault = ""
        try:
            _ensure_private(self._path)
            with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)) as db:
                db.execute("BEGIN IMMEDIATE")
                for table in TABLES:
                    db.execute(table)
                yield db
                db.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            fault = type(error).__name__
        if fault:
            raise _unusable(fault)


def _ensure_private(path: Path) -> None:
    """Make the file as its owner's alone; SQLite would make it readable to others.

    An existing one is not even opened: closing it would take away the locks of this process's other threads.
    """
    with _MAKING, suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))


def _version(row: tuple[str, str | None, str | None, str | None, int, int]) -> FileVersion:
    token, period, refused, announced_at, announcements, handled = row
    at = datetime.fromisoformat(announced_at) if announced_at else None
    return FileVersion(token, period, refused, at, announcements, bool(handled))


def _unusable(fault: str) -> WorkspaceError:
    return WorkspaceError(
        f"the registry of landed files cannot be used: {fault}",
        rule="arrivals-unusable",
        where="landing/.arrivals.db",
        hint="check its permissions and the space on its disk; if it is damaged, remove it: files then count as new",
    )
