"""Prefect's database is made once per version and account, and copied; it is empty, and no other is touched."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support import ROOT

from flows.server.prefect_database import _empty, _file_of, _is_ready
from tasks.workspace.user_cache import UserCache

PREPARE = (
    "from flows.server.prefect_database import prepare_database; prepare_database();"
    "from prefect.settings import PREFECT_API_DATABASE_MIGRATE_ON_START as migrates;"
    "import sys; print(migrates.value(), 'prefect.server.database' in sys.modules)"
)
MIGRATED, COPIED, LEFT = "False True", "False False", "True False"
"""Whether the server is to migrate when it starts, and whether what migrates was loaded."""


class Account:
    """A cache, and workspaces of the same account."""

    def __init__(self, base: Path) -> None:
        self.base = base

    def prepare(self, name: str, **settings: str) -> str:
        """Prepare a workspace's database as a server does."""
        home = self.home(name)
        home.mkdir(exist_ok=True)
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.base), "PREFECT_HOME": str(home), **settings}
        done = subprocess.run(
            [sys.executable, "-c", PREPARE], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def home(self, name: str) -> Path:
        return self.base / name

    @property
    def kept(self) -> list[Path]:
        return sorted((self.base / ".cache" / "dprelease").glob("prefect-*"))


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Account:
    """An account with one workspace, whose database was migrated."""
    account = Account(tmp_path_factory.mktemp("account"))
    assert account.prepare("first") == MIGRATED
    return account


def rows_in(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables}


def test_the_next_workspace_gets_a_copy_with_the_same_tables_and_nothing_in_them(account: Account) -> None:
    assert account.prepare("second") == COPIED
    rows = rows_in(account.home("second") / "prefect.db")
    assert rows == rows_in(account.home("first") / "prefect.db")
    assert {name for name, count in rows.items() if count} == {"alembic_version"}
    assert "flow_run" in rows
    assert (account.home("second") / "prefect.db").stat().st_mode & 0o777 == 0o600


def test_a_database_of_the_same_revision_is_not_migrated_again(account: Account) -> None:
    assert account.prepare("first") == COPIED


def test_a_database_of_another_revision_is_left_to_prefect(account: Account) -> None:
    account.prepare("older")
    with closing(sqlite3.connect(account.home("older") / "prefect.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'older'")
    assert account.prepare("older") == LEFT


@pytest.mark.parametrize("content", [b"", b"no database"])
def test_a_file_that_is_no_database_is_left_to_prefect(account: Account, content: bytes) -> None:
    account.home("strange").mkdir(exist_ok=True)
    (account.home("strange") / "prefect.db").write_bytes(content)
    assert account.prepare("strange") == LEFT
    assert (account.home("strange") / "prefect.db").read_bytes() == content


def test_a_configured_database_is_left_alone(account: Account) -> None:
    url = "sqlite+aiosqlite:///file::memory:?cache=shared&uri=true&check_same_thread=false"
    assert account.prepare("configured", PREFECT_SERVER_DATABASE_CONNECTION_URL=url) == LEFT
    assert list(account.home("configured").glob("prefect.db*")) == []


def test_without_a_cache_of_its_own_an_account_leaves_all_to_prefect(account: Account) -> None:
    (account.base / "open").mkdir(exist_ok=True)
    (account.base / "open").chmod(0o777)
    assert account.prepare("uncached", XDG_CACHE_HOME=str(account.base / "open")) == LEFT


def test_a_template_that_somebody_changed_is_not_copied(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = UserCache.of({"XDG_CACHE_HOME": str(account.base / ".cache")})
    (template,) = (path for path in account.kept if path.suffix == ".db")
    content, migrated = template.read_bytes(), []
    monkeypatch.setattr("flows.server.prefect_database._migrate", lambda path, *_: migrated.append(path))
    template.write_bytes(content.replace(b"flow_run", b"flow_ruX", 1))
    try:
        assert _is_ready(account.base / "new.db", cache)
    finally:
        template.write_bytes(content)
    assert migrated == [account.base / "new.db"]
    assert not (account.base / "new.db").exists()


def test_a_database_in_which_something_is_written_is_no_template(account: Account, tmp_path: Path) -> None:
    account.prepare("used")
    path = account.home("used") / "prefect.db"
    assert _empty(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("""INSERT INTO "configuration" (id, "key", value) VALUES ('1', 'secret', '{}')""")
    assert _empty(path) is None


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite+aiosqlite:////home/x/prefect.db", Path("/home/x/prefect.db")),
        ("sqlite+aiosqlite:///relative.db", None),
        ("sqlite+aiosqlite:////x.db?mode=ro", None),
        ("postgresql+asyncpg://u:p@host/db", None),
        (None, None),
    ],
)
def test_only_a_file_by_its_whole_path_is_made(url: str | None, path: Path | None) -> None:
    assert _file_of(url) == path
