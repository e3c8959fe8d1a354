"""Prefect's database in a workspace, copied from an empty one that the same version of Prefect has migrated.

Migrations take most of the time of a first start. The account's cache keeps the empty database with its revision. A
database of that revision is not migrated again; Prefect itself migrates any other.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from tasks.workspace.files import create_once
from tasks.workspace.user_cache import UserCache

DRIVER = "sqlite+aiosqlite:///"
MIGRATE = ("PREFECT_SERVER_DATABASE_MIGRATE_ON_START", "PREFECT_API_DATABASE_MIGRATE_ON_START")
REVISIONS = "alembic_version"


def prepare_database() -> None:
    """Create or find the database of this process's server, which then migrates it only if necessary."""
    from prefect.context import refresh_global_settings_context
    from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, PREFECT_API_DATABASE_MIGRATE_ON_START

    path, cache = _file_of(PREFECT_API_DATABASE_CONNECTION_URL.value()), UserCache.of()
    if path and cache and PREFECT_API_DATABASE_MIGRATE_ON_START.value() and _is_ready(path, cache):
        os.environ.update(dict.fromkeys(MIGRATE, "false"))
        refresh_global_settings_context()


def _file_of(url: str | None) -> Path | None:
    """The file of a SQLite database; None for any other database."""
    path = Path((url or "").removeprefix(DRIVER))
    return path if url and url.startswith(DRIVER) and "?" not in url and path.is_absolute() else None


def _is_ready(path: Path, cache: UserCache) -> bool:
    """Whether the database has the tables of this version of Prefect; a missing database is created."""
    name = f"prefect-{importlib.metadata.version('prefect')}"
    if path.exists():
        revision = _revision(path)
        return revision is not None and revision == cache.read(f"{name}.revision")
    empty = cache.read(f"{name}.db")
    if empty is not None:
        return _is_copied(empty, path)
    _migrate(path, cache, name)
    return True


def _migrate(path: Path, cache: UserCache, name: str) -> None:
    """Let Prefect create the tables, and keep them for the next workspace if they are empty."""
    from prefect.server.database import provide_database_interface

    asyncio.run(provide_database_interface().create_db())
    revision, empty = _revision(path), _empty(path)
    if revision and empty:
        cache.keep(f"{name}.db", empty)
        cache.keep(f"{name}.revision", revision)


def _empty(path: Path) -> bytes | None:
    """The bytes of the database if no table except that of the revision has a row."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN")  # so that the inspected content is the kept content
        named = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        filled = {table for (table,) in named if connection.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone()}  # noqa: S608
        return connection.serialize() if filled == {REVISIONS} else None


def _revision(path: Path) -> bytes | None:
    """The revision of a database; None if it is unknown."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        rows = connection.execute(f"SELECT version_num FROM {REVISIONS}").fetchall()  # noqa: S608
        return str(rows[0][0]).encode() if len(rows) == 1 else None
    return None


def _is_copied(empty: bytes, path: Path) -> bool:
    """Put a complete copy in place; return False if another process was faster or writing fails."""
    try:
        create_once(path, empty)
    except OSError:
        return False
    return True
