"""A ledger that a team shares, on a real PostgreSQL server: rights, locks, faults, and whole releases."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError
from support.flows.events import wait_for
from support.processes import FORKS, blas_settings
from support.tasks.builders import BASIS, POPULATION, Place, cap, hold_a_name, opened, released, request
from support.tasks.ledger.postgres import Server
from support.tasks.staged import NOW, SPEC, land_rows, release, share

from dpcore.errors import LedgerError
from flows.recipe import release_directly
from tasks.audit import audit_workspace
from tasks.keys.signing import SigningKey, signing_key
from tasks.ledger.databases.common import REFUSAL
from tasks.ledger.entries.bodies import CapChange
from tasks.ledger.sharing import give_roles, grant_population
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger
from tasks.release.context import RunRequest
from tasks.spec.privacy import Windows
from tasks.workspace.folders import Workspace

TABLES = ("events", "measurements")


@pytest.fixture
def shared(server: Server, database: str, tmp_path: Path) -> Place:
    """A ledger's place with a published release in it."""
    place = Place(server.url(database), tmp_path)
    with opened(place) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
        _publish(ledger)
    return place


def _publish(ledger: Ledger, period: str = "2026-01") -> None:
    release_id = ledger.reserve(request(period)).release_id
    ledger.spend(release_id, "moments", released(), fingerprint="keyed")
    ledger.publish(release_id, bundle_digest="b" * 64, flow_run_id="run")


# ---------------------------------------------------------------- append only

CHANGES = ("UPDATE {0} SET release_id = 'x'", "DELETE FROM {0}", "TRUNCATE {0}")


@pytest.mark.parametrize("session", ["origin", "replica"])
def test_the_server_refuses_even_its_owner_to_change_what_is_written(
    server: Server, database: str, shared: Place, session: str
):
    """A session that replicates skips ordinary triggers; not these."""
    for change in CHANGES:
        for table in TABLES:
            with pytest.raises(DBAPIError, match=REFUSAL):
                server.execute(f"SET session_replication_role = {session}", change.format(table), database=database)


def test_nothing_is_released_on_a_shared_ledger_that_was_edited(server: Server, database: str, shared: Place):
    server.execute(
        "DROP TRIGGER events_append_only ON events",
        "UPDATE events SET body = replace(body, '6/5', '60/5')",
        database=database,
    )
    with opened(shared) as ledger, pytest.raises(LedgerError, match="was changed"):
        ledger.reserve(request("2026-02"))


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_a_writer_sees_the_head_whatever_isolation_the_server_prefers(
    server: Server, database: str, shared: Place, level: str
):
    """With the snapshot of before its lock, a waiting writer would build on an old head."""
    server.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = '{level}'")
    with opened(shared) as one, opened(shared) as other, ThreadPoolExecutor(1) as pool:
        with one._writing() as transaction:
            waiting = pool.submit(lambda: other.reserve(request("2026-03")).release_id)
            waits = "SELECT 1 FROM pg_locks WHERE NOT granted"
            wait_for(lambda: server.execute(waits), "somebody waits for the writers' lock")
            transaction.append(CapChange.of(cap("1"), BASIS, None, None, Windows()), "others")
        assert waiting.result(timeout=30) == "visits-2026-03-1"
        assert LedgerState.replay(one.entries()).head == other.state().head


# ---------------------------------------------------------------- roles


@pytest.fixture
def roles(server: Server, database: str, shared: Place) -> Iterator[dict[str, Place]]:
    """Places of the writer and the auditor, with the rights that `dprelease ledger roles` gives."""
    names = {role: f"{role}_{database}" for role in ("writer", "auditor")}
    server.execute(*(f"CREATE ROLE {name} LOGIN" for name in names.values()))
    give_roles(shared.address, signing_key(shared.keys), **names)
    grant_population(shared.address, POPULATION, names["writer"])
    yield {role: Place(server.url(database, name), shared.keys) for role, name in names.items()}
    for name in names.values():
        server.execute(f"DROP OWNED BY {name}", f"DROP ROLE {name}", database=database)


def test_the_writer_releases(roles: dict[str, Place]):
    with opened(roles["writer"]) as ledger:
        _publish(ledger, "2026-02")
        assert ledger.fingerprint("visits-2026-02-1") == "keyed"
        assert ledger.state().releases["visits-2026-02-1"].status == "published"


ATTEMPTS = {
    "update": "UPDATE {0} SET release_id = 'x'",
    "delete": "DELETE FROM {0}",
    "truncate": "TRUNCATE {0}",
    "drop-the-trigger": "DROP TRIGGER {0}_append_only ON {0}",
    "disable-the-trigger": "ALTER TABLE {0} DISABLE TRIGGER ALL",
    "drop-the-table": "DROP TABLE {0}",
    "skip-the-triggers": "SET session_replication_role = replica",
    "make-a-table": "CREATE TABLE mine (x integer)",
}


def refused_to(server: Server, database: str, user: str) -> list[str]:
    """Which attempts the server refuses a role for want of rights."""
    found = []
    for name, statement in ATTEMPTS.items():
        for table in TABLES:
            with pytest.raises(DBAPIError) as caught:
                server.execute(statement.format(table), database=database, user=user)
            if isinstance(caught.value.orig, psycopg.errors.InsufficientPrivilege):
                found.append(name)
    return found


@pytest.mark.parametrize("role", ["writer", "auditor"])
def test_no_role_changes_what_is_written_whether_or_not_there_are_triggers(
    server: Server, database: str, roles: dict[str, Place], shared: Place, role: str
):
    with opened(shared) as ledger:
        before = ledger.entries()
    every = [name for name in ATTEMPTS for _ in TABLES]
    assert refused_to(server, database, f"{role}_{database}") == every
    server.execute(*(f"DROP TRIGGER {table}_append_only ON {table}" for table in TABLES), database=database)
    left = [name for name in every if name != "drop-the-trigger"]
    assert refused_to(server, database, f"{role}_{database}") == left
    with opened(shared) as ledger:
        assert ledger.entries() == before


def test_the_auditor_reads_everything_but_fingerprints_and_writes_nothing(roles: dict[str, Place], shared: Place):
    with closing(roles["auditor"].read()) as ledger, opened(shared) as owners:
        assert ledger.entries() == owners.entries()
        assert ledger.measurement("visits-2026-01-1", "moments") == owners.measurement("visits-2026-01-1", "moments")
        with pytest.raises(LedgerError) as caught:
            ledger.fingerprint("visits-2026-01-1")
        assert caught.value.rule == "ledger-read-only"
    with opened(roles["auditor"]) as ledger, pytest.raises(LedgerError) as caught:
        ledger.reserve(request("2026-02"))
    assert caught.value.rule == "ledger-read-only"


def test_rights_that_a_role_had_before_are_taken_away(server: Server, database: str, shared: Place):
    names = {role: f"{role}_{database}" for role in ("writer", "auditor")}
    server.execute(*(f"CREATE ROLE {name} LOGIN" for name in names.values()))
    server.execute(*(f"GRANT ALL ON events TO {name}" for name in (*names.values(), "PUBLIC")), database=database)
    give_roles(shared.address, signing_key(shared.keys), **names)
    for name in names.values():
        granted = server.execute(
            f"SELECT privilege_type FROM information_schema.table_privileges "
            f"WHERE table_name = 'events' AND grantee = '{name}' ORDER BY 1",
            database=database,
        )
        assert [row[0] for row in granted] == ["SELECT"]
        server.execute(f"DROP OWNED BY {name}", f"DROP ROLE {name}", database=database)


def test_roles_that_are_not_there_are_refused(shared: Place):
    with pytest.raises(LedgerError) as caught:
        give_roles(shared.address, signing_key(shared.keys), writer="postgres", auditor="nobody at all")
    assert (caught.value.rule, caught.value.where) == ("role-unknown", "--auditor")


def test_a_file_has_no_roles(tmp_path: Path):
    with pytest.raises(LedgerError) as caught:
        give_roles(tmp_path / "ledger.db", SigningKey.fresh(), writer="a", auditor="b")
    assert caught.value.rule == "ledger-without-roles"
    assert not (tmp_path / "ledger.db").exists()


# ---------------------------------------------------------------- faults

UNREACHABLE = {
    "no-server": "postgresql://somebody:planted-secret@localhost:1/nowhere",
    "no-socket": "postgresql://somebody:planted-secret@/nowhere?host=/nonexistent",
}


@pytest.mark.parametrize("case", UNREACHABLE)
def test_a_server_that_is_away_is_told_without_its_address_or_password(case: str):
    reading = Ledger.open_to_read(UNREACHABLE[case])
    for attempt in (lambda: Ledger.open(UNREACHABLE[case], SigningKey.fresh()), reading.state):
        with pytest.raises(LedgerError) as caught:
            attempt()
        told = json.dumps(caught.value.as_json())
        assert caught.value.rule == "ledger-unreachable"
        assert not any(word in told for word in ("planted", "somebody", "localhost", "nonexistent", "nowhere"))
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None


def test_a_database_without_tables_is_an_empty_ledger(server: Server, database: str):
    with closing(Ledger.open_to_read(server.url(database))) as ledger:
        assert ledger.entries() == []
        assert ledger.state() == LedgerState()


def test_a_connection_that_the_server_ends_is_made_anew(server: Server, database: str, shared: Place):
    with opened(shared) as ledger:
        before = ledger.entries()
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{database}' AND pid <> pg_backend_pid()"
        )
        assert ledger.entries() == before
        _publish(ledger, "2026-02")


def test_a_shared_ledger_of_a_newer_program_is_refused(server: Server, database: str, shared: Place):
    server.execute("INSERT INTO ledger_version VALUES (99)", database=database)
    with pytest.raises(LedgerError) as caught, opened(shared):
        pass
    assert caught.value.rule == "ledger-newer"


# ---------------------------------------------------------------- one release of a name at a time


@pytest.mark.parametrize("way", ["finished", "killed"])
def test_a_name_is_held_until_its_process_lets_go_or_dies(server: Server, database: str, shared: Place, way: str):
    inside, leave = FORKS.Event(), FORKS.Event()
    holder = FORKS.Process(target=hold_a_name, args=(shared, "visits", inside, leave))
    holder.start()
    assert inside.wait(60)
    with opened(shared) as ledger:
        with ledger.exclusive("others"):
            pass  # another name does not wait
        assert _is_held(server, database, "visits")
        if way == "killed":
            holder.kill()
        else:
            leave.set()
        with ledger.exclusive("visits"):
            assert _is_held(server, database, "visits")
    holder.join(60)
    assert not _is_held(server, database, "visits")


def _is_held(server: Server, database: str, name: str) -> bool:
    """Whether somebody holds a name's lock; it is not waited for."""
    try:
        server.execute("SET lock_timeout = '50ms'", f"SELECT ledger_hold_name('{name}')", database=database)
    except DBAPIError as error:
        return isinstance(error.orig, psycopg.errors.LockNotAvailable)
    return False


# ---------------------------------------------------------------- whole releases


def workspace_at(root: Path, url: str) -> Workspace:
    """A workspace with landing data whose ledger is shared."""
    workspace = Workspace(root)
    workspace.create()
    workspace.spec_path.write_text(f"{SPEC}ledger: '{url}'\n")
    land_rows(root, "2026-01")
    return workspace


def test_a_whole_release_on_a_shared_ledger_publishes_and_audits_green(server: Server, database: str, tmp_path: Path):
    workspace = workspace_at(tmp_path / "w", server.url(database))
    release(workspace, "2026-01")
    assert [check.detail for check in audit_workspace(workspace) if not check.ok] == []
    assert not workspace.ledger_path.exists()
    told = "".join(p.read_text(errors="replace") for p in workspace.releases.rglob("*") if p.is_file())
    assert str(server.socket) not in told + workspace.lineage_path.read_text(), "an address stays in the spec"


def test_a_workspace_answers_for_its_own_releases_of_a_shared_ledger_only(
    server: Server, database: str, tmp_path: Path
):
    one, two = (workspace_at(tmp_path / name, server.url(database)) for name in ("one", "two"))
    land_rows(two.root, "2026-02")
    share(one, two, "release")
    release(one, "2026-01")
    release(two, "2026-02")
    for mine, other in ((one, "small-2026-02-1"), (two, "small-2026-01-1")):
        checks = {check.name: check for check in audit_workspace(mine)}
        assert [check.detail for check in checks.values() if not check.ok] == []
        assert "from another workspace" in checks[f"{other}: bundle"].detail
    shutil.rmtree(one.bundle("small", "small-2026-01-1"))
    assert next(check.name for check in audit_workspace(one) if not check.ok) == "small-2026-01-1: bundle"


def test_an_auditor_with_a_role_of_their_own_audits_a_copy_green(server: Server, database: str, tmp_path: Path):
    workspace = workspace_at(tmp_path / "w", server.url(database))
    release(workspace, "2026-01")
    names = {role: f"{role}_{database}" for role in ("writer", "auditor")}
    server.execute(*(f"CREATE ROLE {name} LOGIN" for name in names.values()))
    give_roles(server.url(database), signing_key(workspace.keys), **names)
    workspace.spec_path.write_text(f"{SPEC}ledger: '{server.url(database, names['auditor'])}'\n")
    assert [check.detail for check in audit_workspace(workspace) if not check.ok] == []
    for name in names.values():
        server.execute(f"DROP OWNED BY {name}", f"DROP ROLE {name}", database=database)


def release_once(workspace: Workspace, period: str, barrier: threading.Barrier) -> str:
    """Release a period at the same moment as others."""
    barrier.wait(60)
    return release_directly(workspace, RunRequest(period=period), clock=lambda: NOW).status


def test_two_workspaces_that_share_a_ledger_release_a_period_once(server: Server, database: str, tmp_path: Path):
    places = [workspace_at(tmp_path / name, server.url(database)) for name in ("one", "two")]
    share(*places, "release", "cap")
    barrier = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:  # in threads, for the gate audits a build once a process
        ends = list(pool.map(lambda place: release_once(place, "2026-01", barrier), places))
    assert sorted(ends) == ["already-published", "published"]
    with closing(Ledger.open_to_read(server.url(database))) as ledger:
        kinds = [entry.kind for entry in ledger.entries() if entry.kind not in ("key", "cap")]
    assert kinds == ["reserve", "spend", "publish"]
    assert sum(place.bundle("small", "small-2026-01-1").exists() for place in places) == 1


@pytest.mark.slow
def test_two_commands_on_two_machines_release_a_period_once(server: Server, database: str, tmp_path: Path):
    places = [workspace_at(tmp_path / name, server.url(database)) for name in ("one", "two")]
    share(*places, "release", "cap")
    command = [sys.executable, "-c", "from flows.cli import main; main()", "run", "--json", "--period", "2026-01", "-w"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"} | blas_settings()
    runs = [
        subprocess.Popen([*command, str(place.root)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for place in places
    ]
    told = [run.communicate(timeout=280) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], told
    results = [json.loads(out) for out, _ in told]
    assert sorted(result["status"] for result in results) == ["already-published", "published"]
    assert len({result["epsilon"] for result in results}) == 1
    with closing(Ledger.open_to_read(server.url(database))) as ledger:
        assert [entry.kind for entry in ledger.entries()].count("spend") == 1
