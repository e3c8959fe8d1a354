"""The registry of file versions: which landed or were refused, which are announced and handled, and the last scans.

Months are announced, not files: an announcement concerns all versions that had landed for its month when it
was sent, and its token reveals nothing about them, not even their number.

The registry contains file names, so only its owner can read it; it is a hidden file among the landing data.
Every change is one transaction; a rollback journal works on network mounts too.
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
from typing import Any

from dpcore.errors import WorkspaceError
from tasks.workspace.files import PRIVATE_FILE
from tasks.workspace.redaction import ErrorBoundary

BUSY_SECONDS = 60.0
TABLES = (
    """CREATE TABLE IF NOT EXISTS versions (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        token TEXT NOT NULL UNIQUE,
        path TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        period TEXT,
        refused TEXT,  -- the rule that it broke, null if it landed
        handled INTEGER NOT NULL DEFAULT 0,
        UNIQUE (path, fingerprint)
    )""",
    """CREATE TABLE IF NOT EXISTS announcements (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        token TEXT NOT NULL UNIQUE,
        period TEXT,
        after INTEGER NOT NULL,  -- it is about the landed versions of its month that come after this one,
        upto INTEGER,  -- up to this one; null until it is sent
        announced_at TEXT,
        announcements INTEGER NOT NULL DEFAULT 0
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
LANDED = "v.refused IS NULL AND NOT v.handled"
ANNOUNCEMENTS = f"""
    SELECT a.token, a.period, a.announced_at, a.announcements, max(v.seq)
    FROM announcements a LEFT JOIN versions v
    ON v.period IS a.period AND {LANDED} AND v.seq > a.after AND v.seq <= coalesce(a.upto, v.seq)
"""  # noqa: S608  our own words
UNANNOUNCED = f"""
    SELECT v.period, max(coalesce(a.upto, 0)) FROM versions v LEFT JOIN announcements a ON a.period IS v.period
    WHERE {LANDED} GROUP BY v.period
    HAVING max(v.seq) > max(coalesce(a.upto, 0)) AND sum(a.seq IS NOT NULL AND a.upto IS NULL) = 0
    ORDER BY min(v.seq)
"""  # noqa: S608  our own words


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One content of one landing file; its token reveals nothing about either."""

    token: str
    period: str | None
    refused: str | None = None
    handled: bool = False


@dataclass(frozen=True, slots=True)
class Announcement:
    """The announcement that data landed for a month; its token reveals neither which data nor how many files."""

    token: str
    period: str | None
    announced_at: datetime | None = None
    announcements: int = 0
    latest: int | None = None
    """The last landed version of this announcement that is not handled; None if all are."""

    @property
    def handled(self) -> bool:
        """Whether no version of this announcement needs a further run."""
        return self.latest is None


@dataclass(frozen=True, slots=True)
class Look:
    """The signature of a file, since when it has been the same on a clock, and whether this content is processed."""

    signature: str
    since: float
    done: bool = False


class Registry:
    """The registry's file; safe for several threads and processes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __repr__(self) -> str:
        return "Registry(<private>)"

    def looks(self, clock: str) -> dict[str, Look]:
        """The last look at each file by that clock."""
        rows = self._run("SELECT path, signature, since, done FROM looks WHERE clock = ?", clock)
        return {path: Look(signature, since, bool(done)) for path, signature, since, done in rows}

    def keep_look(self, path: str, clock: str, look: Look) -> None:
        """Store a look."""
        values = (path, clock, look.signature, look.since, look.done)
        self._run("INSERT OR REPLACE INTO looks VALUES (?, ?, ?, ?, ?)", *values)

    def forget_looks(self, paths: Iterable[str]) -> None:
        """Delete the looks of files that no longer exist; their landed versions remain."""
        gone = [(path,) for path in paths]
        if gone:
            with self._transaction() as db:
                db.executemany("DELETE FROM looks WHERE path = ?", gone)

    def version(self, path: str, fingerprint: str) -> FileVersion | None:
        """The version with this path and fingerprint, if there is one."""
        query = "SELECT token, period, refused, handled FROM versions WHERE path = ? AND fingerprint = ?"
        rows = self._run(query, path, fingerprint)
        return next((FileVersion(token, period, rule, bool(handled)) for token, period, rule, handled in rows), None)

    def record(self, path: str, fingerprint: str, *, period: str | None, refused: str | None) -> FileVersion:
        """Record the judgement of a version; a refused one may be judged again, a landed one stays landed."""
        self._run(
            "INSERT INTO versions (token, path, fingerprint, period, refused) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (path, fingerprint) DO UPDATE SET period = excluded.period, refused = excluded.refused,"
            " seq = (SELECT max(seq) + 1 FROM versions) WHERE versions.refused IS NOT NULL",
            secrets.token_hex(16),
            path,
            fingerprint,
            period,
            refused,
        )
        recorded = self.version(path, fingerprint)
        if recorded is None:
            raise _unusable_registry("a version was not kept")
        return recorded

    def pending(self) -> list[Announcement]:
        """The announcements, sent or not, of landed data that no run has handled, oldest first.

        All data that landed after a month's last announcement was sent belong to one new announcement.
        """
        with self._transaction() as db:
            for period, upto in db.execute(UNANNOUNCED).fetchall():
                values = (secrets.token_hex(16), period, upto)
                db.execute("INSERT INTO announcements (token, period, after) VALUES (?, ?, ?)", values)
            rows = db.execute(f"{ANNOUNCEMENTS} GROUP BY a.seq ORDER BY a.seq").fetchall()
        return [known for known in map(_announcement, rows) if not known.handled]

    def find(self, token: str) -> Announcement | None:
        """An announcement by its token."""
        rows = self._run(f"{ANNOUNCEMENTS} WHERE a.token = ? GROUP BY a.seq", token)
        return _announcement(rows[0]) if rows else None

    def latest(self, period: str | None) -> int:
        """The last version that landed for a month."""
        ((seq,),) = self._run("SELECT max(seq) FROM versions WHERE refused IS NULL AND period IS ?", period)
        return int(seq or 0)

    def exists(self) -> bool:
        """Whether the registry has been created."""
        return self._path.is_file()

    def refused(self, period: str | None, *, besides: Sequence[str] = ()) -> list[tuple[str, str]]:
        """Token and path of every refused version of a month, except those refused by the rules `besides`."""
        query = "SELECT token, path, refused FROM versions WHERE refused IS NOT NULL AND period IS ?"
        return [(token, path) for token, path, rule in self._run(query, period) if rule not in besides]

    def mark_announced(self, sent: Announcement, at: datetime) -> None:
        """Record that an event was accepted; data that land later are not part of it."""
        self._run(
            "UPDATE announcements SET announced_at = ?, announcements = announcements + 1, upto = coalesce(upto, ?)"
            " WHERE token = ?",
            at.isoformat(),
            sent.latest,
            sent.token,
        )

    def mark_handled(self, period: str | None, seen: int) -> None:
        """Record that the landed versions of a month, up to the number `seen`, need no further run."""
        self._run("UPDATE versions SET handled = 1 WHERE refused IS NULL AND period IS ? AND seq <= ?", period, seen)

    def reopen(self, token: str) -> None:
        """Mark a version as neither announced nor handled."""
        self._run("UPDATE versions SET handled = 0, seq = (SELECT max(seq) + 1 FROM versions) WHERE token = ?", token)

    def _run(self, statement: str, *values: str | float | None) -> list[Any]:
        """Execute one statement as a transaction of its own, and return its rows."""
        with self._transaction() as db:
            return db.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One exclusive transaction, which is rolled back on any error.

        Raises: WorkspaceError if the file cannot be used.
        """
        with ErrorBoundary(sqlite3.Error, OSError, refusal=lambda error: _unusable_registry(type(error).__name__)):
            _ensure_private(self._path)
            with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)) as db:
                db.execute("BEGIN IMMEDIATE")
                for table in TABLES:
                    db.execute(table)
                yield db
                db.execute("COMMIT")


def _ensure_private(path: Path) -> None:
    """Create the file so that only its owner can read it; SQLite would make it readable for others.

    An existing file is not opened, because closing it would release the locks of this process's other threads.
    """
    with _MAKING, suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))


def _announcement(row: tuple[str, str | None, str | None, int, int | None]) -> Announcement:
    token, period, announced_at, announcements, latest = row
    at = datetime.fromisoformat(announced_at) if announced_at else None
    return Announcement(token, period, at, announcements, latest)


def _unusable_registry(fault: str) -> WorkspaceError:
    return WorkspaceError(
        f"the registry of landed files cannot be used: {fault}",
        rule="arrivals-unusable",
        where="landing/.arrivals.db",
        hint="check its permissions and the space on its disk; if it is damaged, remove it: files then count as new",
    )
