"""A real PostgreSQL server for tests, from the binaries in the `pgserver` wheel.

The wheel's own launcher is not used: run by root it adds a system account and opens the
folders above it to everybody. Here root's server runs as `nobody`, from a copy of the binaries.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

OWNER = "postgres"
UNPRIVILEGED = "nobody"
NOT_THERE = "PostgreSQL's binaries (the pgserver wheel) are not installed"


def wheel() -> Path | None:
    """Where the wheel lies, without importing it."""
    spec = importlib.util.find_spec("pgserver")
    return Path(spec.origin).parent if spec and spec.origin else None


def complete_binaries() -> Path | None:
    """The system's own binaries with the extension pg_trgm, which the wheel lacks and Prefect's server needs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    shares = [(path.parent, Path("/usr/share/postgresql") / path.parents[1].name) for path in found]
    return next((bin_ for bin_, share in shares if (share / "extension" / "pg_trgm.control").is_file()), None)


@dataclass(frozen=True)
class Server:
    """A running server; its socket's folder is its only way in."""

    socket: Path

    def url(self, database: str, user: str = OWNER) -> str:
        """The address of a database for a role."""
        return f"postgresql://{user}@/{database}?host={self.socket}"

    def fresh(self) -> str:
        """A new empty database; returns its name."""
        name = f"ledger_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def drop(self, name: str) -> None:
        """Remove a database and whoever is in it."""
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, *statements: str, database: str = OWNER, user: str = OWNER) -> list[sa.Row]:
        """Run statements, each by itself; returns the rows of the last."""
        url = sa.make_url(self.url(database, user)).set(drivername="postgresql+psycopg")
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            for statement in statements:
                result = connection.exec_driver_sql(statement)
            return list(result) if result.returns_rows else []


@contextmanager
def running_server(installed: Path | None = None) -> Iterator[Server]:
    """A server in a folder of its own, of the wheel's binaries or of those installed; it is gone in the end."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: a socket's path has at most 107 characters
    folder.chmod(0o755)
    binaries, user = installed or _binaries(folder), UNPRIVILEGED if os.geteuid() == 0 else None
    data, socket = folder / "data", folder / "s"
    for place in (data, socket):
        place.mkdir(mode=0o700)
        if user:
            os.chown(place, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    settings = f"-c listen_addresses= -k {socket} -c max_connections=60 -c fsync=off"  # no test pulls the plug

    def call(program: str, *arguments: str) -> None:
        command = [str(binaries / program), "-D", str(data), *arguments]
        subprocess.run(command, user=user, cwd=folder, check=True, timeout=60, stdout=subprocess.DEVNULL)

    try:
        call("initdb", "--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync", "-U", OWNER)
        call("pg_ctl", "-w", "-o", settings, "-l", str(data / "log"), "start")
        try:
            yield Server(socket)
        finally:
            call("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binaries(folder: Path) -> Path:
    """The folder of the binaries; for root a copy that the unprivileged user can reach."""
    found = wheel()
    assert found is not None, NOT_THERE
    if os.geteuid() != 0:
        return found / "pginstall" / "bin"
    shutil.copytree(found / "pginstall", folder / "pgserver" / "pginstall", ignore=shutil.ignore_patterns("include"))
    if (libraries := found.parent / "pgserver.libs").is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    return folder / "pgserver" / "pginstall" / "bin"
