"""One role cannot break a ledger that a team shares: every attack with real roles on a real PostgreSQL server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError
from support.tasks.builders import BASIS, POPULATION, Place, cap, measurement, opened, released, request
from support.tasks.ledger.postgres import Server

from dpcore.accounting import Cost
from dpcore.errors import LedgerError
from tasks.keys.signing import Signer, SigningKey, signing_key
from tasks.ledger.databases import postgres
from tasks.ledger.entries.bodies import Reconciliation, body_to_json
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.fields import canonical
from tasks.ledger.sharing import give_roles, grant_population, set_aside
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger

STRANGERS = "strangers"
OLD_WRITERS_LOCK = 0x6470_7265_6C31
ROLES = ("clinic", "stranger", "auditor")
MINE = "visits-2026-01-1"
TABLES = ("events", "measurements", "operator_fingerprints", "ledger_version")
GUARDS = ("ledger_authors", "ledger_rights", "ledger_set_aside", "ledger_write_lock", "ledger_name_locks")


@dataclass(frozen=True)
class Team:
    """A shared ledger: `clinic` owns the population of the builders, `stranger` one of its own, `auditor` reads."""

    server: Server
    database: str
    folder: Path

    def role(self, name: str) -> str:
        return f"{name}_{self.database}"

    def place(self, name: str) -> Place:
        """A workspace's ledger and key; the owner has the server's own account."""
        user = () if name == "owner" else (self.role(name),)
        return Place(self.server.url(self.database, *user), self._keys(name), (self.key("clinic").public,))

    def key(self, name: str) -> Signer:
        return signing_key(self._keys(name))

    def _keys(self, name: str) -> Path:
        keys = self.folder / name
        keys.mkdir(exist_ok=True)
        return keys

    def execute(self, *statements: str, user: str | None = None) -> list[Any]:
        account = {"user": self.role(user)} if user else {}
        return self.server.execute(*statements, database=self.database, **account)

    def entries(self) -> list[Entry]:
        with closing(self.place("owner").read()) as ledger:
            return ledger.entries()

    def forge(self, name: str, kind: str, content: Any, **changes: Any) -> Entry:
        """The next entry with that content, its hash and signature right unless they are changed."""
        facts = {"population": STRANGERS, "release_id": ""} | changes
        fields = {field: facts.pop(field) for field in ("population", "release_id")}
        head = self.entries()[-1]
        draft = Entry.after(head, at=facts.pop("at", head.at), kind=kind, body=content, **fields)
        draft = replace(draft, **{field: facts.pop(field) for field in ("seq", "body", "previous") if field in facts})
        draft = replace(draft, hash=draft.expected_hash())
        signer = self.key(name)
        signed = replace(draft, key_id=signer.public.key_id, signature=signer.sign(draft.hash.encode()))
        return replace(signed, **facts)

    def append(self, name: str, entry: Entry) -> None:
        """Call the database's function as that role, past our program."""
        self.call(name, "ledger_append", "events", entry.as_json())

    def call(self, name: str, function: str, table: str, row: dict[str, Any]) -> None:
        text = json.dumps(row, ensure_ascii=False).replace("'", "''")
        self.execute(f"SELECT {function}(json_populate_record(NULL::{table}, '{text}'))", user=name)


@contextmanager
def team_on(server: Server, folder: Path) -> Iterator[Team]:
    team = Team(server, server.fresh(), folder)
    server.execute(*(f"CREATE ROLE {team.role(name)} LOGIN" for name in ROLES))
    for writer in ("clinic", "stranger"):
        names = {"writer": team.role(writer), "auditor": team.role("auditor")}
        give_roles(server.url(team.database), team.key("owner"), **names)
    with opened(team.place("clinic")) as ledger:
        ledger.ensure_cap(POPULATION, cap("100"), BASIS)
        for name in ("stranger", "owner"):
            ledger.enrol_key(team.key(name).public, roles=["release", "cap"], name=name)
        _release(ledger, "2026-01")
    with opened(team.place("stranger")) as ledger:
        ledger.ensure_cap(STRANGERS, cap(), BASIS)
    yield team
    server.drop(team.database)
    server.execute(*(f"DROP ROLE {team.role(name)}" for name in ROLES))


@pytest.fixture(scope="module")
def team(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """One for all attacks that are refused."""
    with team_on(server, tmp_path_factory.mktemp("team")) as team:
        yield team


@pytest.fixture
def own(server: Server, tmp_path: Path) -> Iterator[Team]:
    """One for this test alone, whose rights or entries change."""
    with team_on(server, tmp_path) as team:
        yield team


def _release(ledger: Ledger, period: str, **changes: Any) -> None:
    release_id = ledger.reserve(request(period, **changes)).release_id
    ledger.spend(release_id, "moments", released(), fingerprint="keyed")
    ledger.publish(release_id, bundle_digest="b" * 64, flow_run_id="run")


def assert_the_clinic_releases(team: Team) -> None:
    period = f"{2026 + len(team.entries())}-01"
    with opened(team.place("clinic")) as ledger, ledger.exclusive("visits"):
        _release(ledger, period)
        assert ledger.state().releases[f"visits-{period}-1"].status == "published"
    assert LedgerState.replay(team.entries()).head is not None


# ---------------------------------------------------------------- rows that nobody checked

ROWS = {
    "events": f"INSERT INTO events VALUES (1000, 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x')",  # noqa: F541
    "measurements": "INSERT INTO measurements VALUES ('visits-2026-02-1', 'moments', 'x')",
    "operator_fingerprints": "INSERT INTO operator_fingerprints VALUES ('visits-2026-02-1', 'x')",
    "ledger_version": "INSERT INTO ledger_version VALUES (99)",
}


@pytest.mark.parametrize("table", ROWS)
def test_a_row_that_a_role_inserts_itself_is_refused_and_the_ledger_goes_on(team: Team, table: str):
    for role in ROLES:
        with pytest.raises(DBAPIError) as caught:
            team.execute(ROWS[table], user=role)
        assert isinstance(caught.value.orig, psycopg.errors.InsufficientPrivilege)
    assert_the_clinic_releases(team)


@pytest.mark.parametrize("table", GUARDS)
@pytest.mark.parametrize("role", ["stranger", "auditor"])
def test_no_role_gives_itself_rights_or_another_s_name(team: Team, role: str, table: str):
    column = {"ledger_write_lock": None, "ledger_name_locks": "name", "ledger_set_aside": "role"}.get(table, "role")
    attempts = [f"INSERT INTO {table} DEFAULT VALUES", f"DELETE FROM {table}", f"TRUNCATE {table}"]
    attempts += [f"UPDATE {table} SET {column} = 'x'"] if column else []
    for attempt in attempts:
        with pytest.raises(DBAPIError) as caught:
            team.execute(attempt, user=role)
        assert isinstance(caught.value.orig, psycopg.errors.InsufficientPrivilege)


def test_roles_call_what_they_need_and_no_function_looks_into_its_caller_s_search_path(team: Team):
    functions = "pg_proc WHERE starts_with(proname, 'ledger_')"
    for role, wanted in (("clinic", set(postgres.WRITERS_FUNCTIONS)), ("auditor", set())):
        may_call = f"has_function_privilege('{team.role(role)}', oid, 'EXECUTE')"
        callable_ = team.execute(f"SELECT oid::regprocedure::text FROM {functions} AND {may_call}")
        assert {row[0].replace(",", ", ") for row in callable_} == wanted
    open_ = "NOT coalesce(proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false)"
    assert team.execute(f"SELECT proname FROM {functions} AND {open_}") == [("ledger_is_append_only",)]


def _nested(levels: int) -> str:
    return '{"x":' * levels + "1" + "}" * levels


def _cap_body(**changes: Any) -> dict[str, Any]:
    return {"epsilon": "1", "delta": "0", "delta_num": "0", "basis": BASIS, "reason": "more"} | changes


RESERVE = body_to_json(request("2026-01", name="others").reservation(1))
CHARGE = {"who": "x", "reason": "x", "nothing_was_spent": True, "charges": {}, "lost": [], "retired": []}
FORGERIES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "a-gap": ("cap", _cap_body(), {"seq": 1000}),
    "another-predecessor": ("cap", _cap_body(), {"previous": "1" * 64}),
    "another-hash": ("cap", _cap_body(), {"hash": "1" * 64}),
    "no-signature": ("cap", _cap_body(), {"signature": "", "key_id": ""}),
    "an-unknown-key": ("cap", _cap_body(), {"key_id": "0" * 32}),
    "a-signature-that-is-none": ("cap", _cap_body(), {"signature": "x" * 88}),
    "an-unknown-kind": ("nonsense", {}, {}),
    "no-json": ("cap", {}, {"body": "nonsense"}),
    "no-object": ("cap", [1], {}),
    "not-ascii": ("cap", {}, {"body": '{"reason":"é"}'}),
    "a-population-not-in-ascii": ("cap", _cap_body(), {"population": "café"}),
    "a-character-that-no-text-holds": ("cap", {}, {"body": '{"reason":"\\u0000"}'}),
    "deep": ("cap", {}, {"body": _nested(5000)}),
    "a-number-that-python-does-not-parse": ("cap", {}, {"body": '{"x":' + "9" * 5000 + "}"}),
    "yesterday": ("cap", _cap_body(), {"at": "2020-01-01T00:00:00.000000Z"}),
    "years-ahead": ("cap", _cap_body(), {"at": "2999-01-01T00:00:00.000000Z"}),
    "no-time": ("cap", _cap_body(), {"at": "zzzz"}),
    "no-such-day": ("cap", _cap_body(), {"at": "2999-02-31T00:00:00.000000Z"}),
    "a-cap-that-is-no-number": ("cap", _cap_body(epsilon="much"), {}),
    "a-cap-over-nothing": ("cap", _cap_body(epsilon="1/0"), {}),
    "a-cap-without-a-reason": ("cap", _cap_body(reason=None), {}),
    "a-cap-counted-for-others": ("cap", _cap_body(basis={"unit": "x"}), {}),
    "a-key-that-is-none": ("key", {"key_id": "1" * 32, "public_key": "x", "replaces": None}, {"population": ""}),
    "a-cap-of-nobody": ("cap", _cap_body(), {"population": ""}),
    "a-reservation-without-a-cap": ("reserve", RESERVE, {"population": "new", "release_id": "others-2026-01-1"}),
    "a-misnamed-reservation": ("reserve", RESERVE, {"release_id": "somewhat"}),
    "an-unknown-release": ("publish", {"bundle_digest": "b" * 64}, {"release_id": "nowhere"}),
}
NOT_THEIRS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "a-foreign-cap": ("cap", _cap_body(), {"population": POPULATION}),
    "a-foreign-reservation": ("reserve", RESERVE, {"population": POPULATION, "release_id": "others-2026-01-1"}),
    "a-foreign-spend": ("spend", {"measurement": "moments"}, {"population": POPULATION, "release_id": MINE}),
    "a-foreign-failure": ("fail", {"status": "failed"}, {"population": POPULATION, "release_id": MINE}),
    "a-foreign-void": ("void", {"reason": "x"}, {"population": POPULATION, "release_id": MINE}),
    "a-foreign-retraction": (
        "retract",
        {"who": "x", "reason": "x"},
        {"population": POPULATION, "release_id": MINE},
    ),
    "a-foreign-name": ("reserve", RESERVE | {"name": "visits"}, {"release_id": "visits-2026-01-9"}),
    "a-refusal-of-a-foreign-name": (
        "refuse",
        {"name": "visits", "period": "2026-09", "rule": "x", "reason": "x", "who": None},
        {"release_id": "visits-2026-09-1"},
    ),
    "a-restore": ("restore", {"who": "x", "backup_made_at": "x"}, {"population": ""}),
    "a-charge": ("reconcile", CHARGE, {"population": ""}),
}


@pytest.mark.parametrize("case", [*FORGERIES, *NOT_THEIRS])
def test_a_forged_entry_is_refused_by_the_database(team: Team, case: str):
    kind, body, changes = (FORGERIES | NOT_THEIRS)[case]
    before = team.entries()
    with pytest.raises(DBAPIError) as caught:
        team.append("stranger", team.forge("stranger", kind, body, **changes))
    assert caught.value.orig.sqlstate in (("DP001",) if case in FORGERIES else ("DP002", "DP003"))
    assert team.entries() == before


def test_an_entry_of_null_fields_is_refused(team: Team):
    row = team.forge("stranger", "cap", _cap_body()).as_json()
    for field in row:
        with pytest.raises(DBAPIError):
            team.call("stranger", "ledger_append", "events", row | {field: None})
    assert_the_clinic_releases(team)


def test_what_our_program_writes_is_what_the_database_demands(team: Team):
    """The forgeries are refused for their faults: the same entry without one is taken."""
    team.append("stranger", team.forge("stranger", "cap", _cap_body()))
    team.append("stranger", team.forge("stranger", "reserve", RESERVE, release_id="others-2026-01-1"))
    assert LedgerState.replay(team.entries()).releases["others-2026-01-1"].status == "reserved"


TEXTS = ['"', "\\", '\\"', "/", "a\tb\n", "é", "\U0001f600", "\x7f", "<&>'", "{}", " "]


@pytest.mark.parametrize("text", TEXTS)
def test_the_database_hashes_an_entry_as_python_does(team: Team, text: str):
    entry = team.forge("stranger", "cap", _cap_body(reason=text + "x"), population=STRANGERS)
    team.append("stranger", entry)
    assert team.entries()[-1] == entry


def test_a_session_s_settings_do_not_weaken_the_checks(team: Team):
    """Settings that change how SQL is read, and tables and functions of the attacker's own in front of the ledger's."""
    row = json.dumps(team.forge("stranger", "cap", _cap_body(), at="zzzz").as_json()).replace("\\", "\\\\")
    with pytest.raises(DBAPIError) as caught:
        team.execute(
            "SET standard_conforming_strings = off",
            "CREATE TEMPORARY TABLE ledger_rights (population text, role name, is_owner boolean)",
            "CREATE FUNCTION pg_temp.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT NULL::bytea'",
            "SET search_path = pg_temp, public, pg_catalog",
            f"SELECT public.ledger_append(json_populate_record(NULL::public.events, '{row}'))",
            user="stranger",
        )
    assert caught.value.orig.sqlstate == "DP001"


def test_a_measurement_is_stored_for_its_spend_and_once(team: Team):
    drawn, other = released(), released()
    row = {"release_id": "visits-2026-03-1", "name": "moments", "payload": canonical(drawn.as_json())}
    with opened(team.place("clinic")) as ledger:
        ledger.reserve(request("2026-03"))
        with pytest.raises(DBAPIError, match="no spend names"):
            team.call("clinic", "ledger_store", "measurements", row)
        ledger.spend("visits-2026-03-1", "moments", drawn)
    changed = row | {"payload": canonical(other.as_json())}
    with pytest.raises(DBAPIError, match="no spend names"):
        team.call("clinic", "ledger_store", "measurements", changed)
    with pytest.raises(DBAPIError) as caught:
        team.call("clinic", "ledger_store", "measurements", row)
    assert isinstance(caught.value.orig, psycopg.errors.UniqueViolation)
    assert_the_clinic_releases(team)


def test_a_second_spend_of_a_measurement_is_refused(team: Team):
    body = {"measurement": "moments", **measurement("0.1"), "digest": "0" * 64}
    with pytest.raises(DBAPIError) as caught:
        team.append("clinic", team.forge("clinic", "spend", body, population=POPULATION, release_id=MINE))
    assert caught.value.orig.sqlstate == "DP001"


@pytest.mark.parametrize("fault", ["unpublished", "twice", "nobody", "for-no-reason"])
def test_a_retraction_that_no_program_could_read_is_refused(own: Team, fault: str):
    with opened(own.place("clinic")) as ledger:
        unfinished = ledger.reserve(request("2026-05")).release_id
    said = {"who": "" if fault == "nobody" else "ada", "reason": "" if fault == "for-no-reason" else "erasure"}
    target = unfinished if fault == "unpublished" else MINE
    attempt = partial(own.forge, "clinic", "retract", said, population=POPULATION, release_id=target)
    if fault == "twice":
        own.append("clinic", attempt())
    before = own.entries()
    with pytest.raises(DBAPIError) as caught:
        own.append("clinic", attempt())
    assert (caught.value.orig.sqlstate, own.entries()) == ("DP001", before)
    assert LedgerState.replay(before).releases[MINE].status == ("retracted" if fault == "twice" else "published")
    assert_the_clinic_releases(own)


def test_measurements_and_fingerprints_of_others_are_not_a_stranger_s_to_store(team: Team):
    with opened(team.place("clinic")) as ledger:
        ledger.reserve(request("2026-04"))
    drawn = released()
    body = {"measurement": "moments", **measurement("0.1"), "seeded": False, "digest": drawn.digest()}
    entry = team.forge("clinic", "spend", body, population=POPULATION, release_id="visits-2026-04-1")
    team.append("clinic", entry)
    row = {"release_id": "visits-2026-04-1", "name": "moments", "payload": canonical(drawn.as_json())}
    for function, table, content in (
        ("ledger_store", "measurements", row),
        ("ledger_keep", "operator_fingerprints", {"release_id": "visits-2026-04-1", "fingerprint": "x"}),
    ):
        with pytest.raises(DBAPIError) as caught:
            team.call("stranger", function, table, content)
        assert caught.value.orig.sqlstate == "DP002"


# ---------------------------------------------------------------- locks


@contextmanager
def session(team: Team, name: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of a role, whose transaction stays open."""
    url = team.server.url(team.database, team.role(name))
    with psycopg.connect(url, options="-c lock_timeout=2s") as connection:
        yield connection


MODES = ("ACCESS SHARE", "ROW SHARE", "ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE", "SHARE", "SHARE ROW EXCLUSIVE")
MODES += ("EXCLUSIVE", "ACCESS EXCLUSIVE")


def _take_every_lock(connection: psycopg.Connection[Any], name: str) -> list[str]:
    """Try all table, row and advisory locks, and the functions that lock; returns what the server granted."""
    from hashlib import sha256

    of_name = int.from_bytes(sha256(b"dprelease name " + name.encode()).digest()[:8], signed=True)
    attempts = [f"LOCK TABLE {table} IN {mode} MODE" for table in (*TABLES, *GUARDS) for mode in MODES]
    attempts += [f"SELECT FROM {table} {how}" for table in (*TABLES, *GUARDS) for how in ("FOR UPDATE", "FOR SHARE")]
    attempts += ["SELECT ledger_lock()", f"SELECT ledger_hold_name('{name}')"]
    attempts += [f"SELECT pg_advisory_lock({key})" for key in (OLD_WRITERS_LOCK, of_name)]
    granted = []
    for attempt in attempts:
        with suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported):
            with connection.transaction():
                connection.execute(attempt)
            granted.append(attempt)
    return granted


def in_time(work: Callable[[], None], release: Callable[[], None], seconds: float = 30) -> None:
    """Do the work while somebody holds locks; they let go afterwards, or when the work takes too long."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        try:
            future.result(timeout=seconds)
        finally:
            release()


def test_an_auditor_who_holds_every_lock_they_can_get_stops_nobody(team: Team, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(postgres, "LOCK_WAIT_SECONDS", 5)
    with session(team, "auditor") as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        connection.execute("SELECT * FROM events")
        granted = _take_every_lock(connection, "visits")
        assert {g for g in granted if "advisory" not in g and "ACCESS SHARE MODE" not in g} == set()
        in_time(lambda: assert_the_clinic_releases(team), connection.close)


def test_a_writer_holds_no_table_and_no_name_of_others(team: Team, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(postgres, "LOCK_WAIT_SECONDS", 5)
    with session(team, "stranger") as connection:
        connection.execute("SELECT 1")
        with pytest.raises(psycopg.DatabaseError, match="another population releases"), connection.transaction():
            connection.execute("SELECT ledger_hold_name('visits')")
        connection.execute("SELECT ledger_hold_name('others')")
        in_time(lambda: assert_the_clinic_releases(team), connection.close)


def test_a_writer_who_keeps_the_writers_lock_is_told_to_others(team: Team, monkeypatch: pytest.MonkeyPatch):
    """Every writer can keep it: nobody else waits for longer than the limit, and the end of the session frees it."""
    monkeypatch.setattr(postgres, "LOCK_WAIT_SECONDS", 0.3)
    with session(team, "stranger") as connection:
        connection.execute("SELECT ledger_lock()")
        with opened(team.place("clinic")) as ledger, pytest.raises(LedgerError) as caught:
            ledger.reserve(request("2026-02"))
        assert caught.value.rule == "ledger-busy"
        holders = "SELECT usename FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE relation = "
        assert team.execute(f"{holders} 'ledger_write_lock'::regclass") == [(team.role("stranger"),)]
    assert_the_clinic_releases(team)


def test_a_name_that_somebody_committed_is_still_one_holder_s_at_a_time(team: Team):
    team.execute("SELECT ledger_hold_name('visits')", user="clinic")
    assert_the_clinic_releases(team)
    with session(team, "clinic") as holder, session(team, "clinic") as other:
        holder.execute("SELECT ledger_hold_name('visits')")
        other.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("SELECT ledger_hold_name('visits')")


# ---------------------------------------------------------------- populations


def test_strangers_spend_from_a_population_once_its_owner_grants_it(own: Team):
    """Shared budgets keep working; whoever is not invited is refused."""
    clinic, stranger = own.place("clinic"), own.place("stranger")
    with opened(stranger) as ledger, pytest.raises(LedgerError) as caught:
        ledger.reserve(request("2026-02", name="others"))
    assert caught.value.rule == "population-not-granted"
    assert "ledger grant" in caught.value.hint
    grant_population(clinic.address, POPULATION, own.role("stranger"))
    with opened(stranger) as ledger:
        ledger.ensure_cap(POPULATION, cap("100"), BASIS)
        _release(ledger, "2026-02", name="others")
        with pytest.raises(LedgerError) as caught:
            ledger.raise_cap(POPULATION, cap("99"), BASIS, "more")
        assert caught.value.rule == "not-the-owner"
        with pytest.raises(LedgerError) as caught:
            grant_population(stranger.address, POPULATION, own.role("auditor"))
        assert caught.value.rule == "not-the-owner"
    grant_population(clinic.address, POPULATION, own.role("stranger"), revoke=True)
    with opened(stranger) as ledger, pytest.raises(LedgerError) as caught:
        ledger.reserve(request("2026-03", name="others"))
    assert caught.value.rule == "population-not-granted"
    with opened(clinic) as ledger:
        ledger.raise_cap(POPULATION, cap("2"), BASIS, "a second study")
        assert ledger.state().spent(POPULATION).epsilon == Fraction(1, 5)


def test_a_transaction_of_before_has_no_rights_that_were_taken_away(own: Team):
    grant_population(own.place("clinic").address, POPULATION, own.role("stranger"), as_owner=True)
    row = json.dumps(own.forge("stranger", "cap", _cap_body(), population=POPULATION).as_json())
    with session(own, "stranger") as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT FROM events")
        grant_population(own.place("clinic").address, POPULATION, own.role("stranger"), revoke=True)
        for attempt in (
            f"SELECT ledger_append(json_populate_record(NULL::events, '{row}'))",
            f"SELECT ledger_grant('{POPULATION}', '{own.role('stranger')}', true, false)",
        ):
            with pytest.raises(psycopg.DatabaseError, match="only the population's owner"), connection.transaction():
                connection.execute(attempt)


def test_a_population_is_handed_to_another_role_and_back_to_the_owner_of_the_tables(own: Team):
    owner, clinic, stranger = (own.place(name) for name in ("owner", "clinic", "stranger"))
    grant_population(owner.address, POPULATION, own.role("stranger"), as_owner=True)
    grant_population(stranger.address, POPULATION, own.role("clinic"), revoke=True)
    with opened(stranger) as ledger:
        ledger.raise_cap(POPULATION, cap("2"), BASIS, "mine now")
    with opened(clinic) as ledger, pytest.raises(LedgerError):
        ledger.reserve(request("2026-02"))
    grant_population(stranger.address, POPULATION, own.role("stranger"), revoke=True)
    with opened(owner) as ledger:
        ledger.raise_cap(POPULATION, cap("3"), BASIS, "nobody else's")


def test_members_of_a_role_have_its_rights(own: Team):
    group, member = own.role("group"), own.role("stranger")
    own.execute(f"CREATE ROLE {group}", f"GRANT {group} TO {member}")
    grant_population(own.place("clinic").address, POPULATION, group)
    with opened(own.place("stranger")) as ledger:
        _release(ledger, "2026-02", name="others")
    own.execute(f"DROP ROLE {group}")
    with opened(own.place("stranger")) as ledger, pytest.raises(LedgerError):
        ledger.reserve(request("2026-03", name="others"))


@pytest.mark.parametrize(
    ("population", "role", "rule"),
    [("nowhere", "clinic", "population-unknown"), (POPULATION, "nobody at all", "role-unknown")],
)
def test_a_grant_of_or_to_what_is_not_there_is_refused(team: Team, population: str, role: str, rule: str):
    with pytest.raises(LedgerError) as caught:
        grant_population(team.place("clinic").address, population, role)
    assert caught.value.rule == rule


def test_the_auditor_grants_nothing(team: Team):
    with pytest.raises(LedgerError) as caught:
        grant_population(team.place("auditor").address, POPULATION, team.role("auditor"))
    assert caught.value.rule == "ledger-read-only"


# ---------------------------------------------------------------- what SQL cannot check

UNREADABLE: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "a-wrong-signature": ("cap", _cap_body(), {"signature": "A" * 86 + "=="}),
    "no-content": ("reserve", {"name": "others", "period": "2026-01"}, {"release_id": "others-2026-01-1"}),
    "beyond-the-cap": (
        "reserve",
        RESERVE | {"measurements": {"moments": measurement("50")}},
        {"release_id": "others-2026-01-1"},
    ),
    "a-stolen-key": ("key", {}, {"population": ""}),
}


def poison(team: Team, case: str = "a-wrong-signature") -> None:
    """Let the stranger append what the database takes and no program can read."""
    kind, body, changes = UNREADABLE[case]
    if kind == "key":
        new, old = SigningKey.fresh().public, team.key("clinic").public
        body = {"key_id": new.key_id, "public_key": new.text, "replaces": old.key_id}
    team.append("stranger", team.forge("stranger", kind, body, **changes))


@pytest.mark.parametrize("case", UNREADABLE)
def test_an_unreadable_entry_is_named_with_its_role_and_its_way_out(own: Team, case: str):
    poison(own, case)
    number = own.entries()[-1].seq
    with opened(own.place("clinic")) as ledger, pytest.raises(LedgerError) as caught:
        ledger.reserve(request("2026-02"))
    told = caught.value
    assert (told.rule, told.where) == ("ledger-broken", f"ledger entry {number}")
    assert own.role("stranger") in str(told)
    assert "ledger set-aside" in told.hint


@pytest.mark.parametrize("case", UNREADABLE)
def test_the_owner_sets_unreadable_entries_aside_and_releases_go_on(own: Team, case: str):
    sound = own.entries()
    poison(own, case)
    own.append("stranger", own.forge("stranger", "cap", _cap_body(), population="more"))
    unreadable = own.entries()[len(sound) :]
    owner = own.place("owner")
    done = set_aside(owner.address, own.key("owner"), who="somebody")
    assert (done.first, done.entries, done.roles) == (unreadable[0].seq, 2, (own.role("stranger"),))
    kept = own.execute("SELECT role, content FROM ledger_set_aside ORDER BY content -> 'seq'", user="auditor")
    assert [(row[0], Entry.from_json(row[1])) for row in kept] == [(own.role("stranger"), e) for e in unreadable]
    entries = own.entries()
    assert entries[: len(sound)] == sound
    assert [entry.kind for entry in entries[len(sound) :]] == ["restore"]
    with opened(own.place("clinic")) as ledger, pytest.raises(LedgerError) as caught:
        ledger.reserve(request("2026-02"))
    assert caught.value.rule == "ledger-unreconciled"
    with opened(owner) as ledger:
        ledger.reconcile(
            Reconciliation.of(reason="a rogue role", who="somebody", charges={STRANGERS: Cost(Fraction(1))})
        )
    assert_the_clinic_releases(own)
    for change in ("DELETE FROM events", "DELETE FROM measurements"):
        with pytest.raises(DBAPIError, match="append-only"):
            own.execute(change)


def test_what_hangs_on_entries_goes_with_them(own: Team):
    """A release of which only a part is left could not be made again otherwise."""
    poison(own)
    before = own.execute("SELECT * FROM measurements"), own.execute("SELECT * FROM operator_fingerprints")
    drawn, release_id = released(), "others-2026-01-1"
    spend = {"measurement": "moments", **measurement("0.1"), "seeded": False, "digest": drawn.digest()}
    own.append("stranger", own.forge("stranger", "reserve", RESERVE, release_id=release_id))
    own.append("stranger", own.forge("stranger", "spend", spend, release_id=release_id))
    row = {"release_id": release_id, "name": "moments", "payload": canonical(drawn.as_json())}
    own.call("stranger", "ledger_store", "measurements", row)
    own.call("stranger", "ledger_keep", "operator_fingerprints", {"release_id": release_id, "fingerprint": "x"})
    set_aside(own.place("owner").address, own.key("owner"), who="somebody")
    after = own.execute("SELECT * FROM measurements"), own.execute("SELECT * FROM operator_fingerprints")
    assert after == before
    assert own.execute("SELECT count(*) FROM ledger_set_aside WHERE content ? 'payload'") == [(1,)]


@pytest.mark.parametrize("role", ["stranger", "clinic", "auditor"])
def test_only_the_owner_of_the_tables_sets_entries_aside(own: Team, role: str):
    poison(own)
    before = own.entries()
    with pytest.raises(LedgerError) as caught:
        set_aside(own.place(role).address, own.key(role), who="somebody")
    assert caught.value.rule == "ledger-read-only"
    assert own.entries() == before


def test_nothing_is_set_aside_of_a_ledger_that_can_be_read(team: Team):
    with pytest.raises(LedgerError) as caught:
        set_aside(team.place("owner").address, team.key("owner"), who="somebody")
    assert caught.value.rule == "nothing-to-set-aside"


def test_an_edited_entry_takes_no_honest_ones_with_it(own: Team):
    """Spends after it would be forgotten."""
    before = own.entries()
    own.execute("DROP TRIGGER events_append_only ON events", "UPDATE events SET body = body || ' ' WHERE seq = 2")
    with pytest.raises(LedgerError) as caught:
        set_aside(own.place("owner").address, own.key("owner"), who="somebody")
    assert caught.value.rule == "ledger-edited"
    assert len(own.entries()) == len(before)


def test_a_file_has_neither_grants_nor_strangers(tmp_path: Path):
    for attempt in (
        lambda: grant_population(tmp_path / "ledger.db", POPULATION, "x"),
        lambda: set_aside(tmp_path / "ledger.db", SigningKey.fresh(), who="x"),
    ):
        with pytest.raises(LedgerError) as caught:
            attempt()
        assert caught.value.rule == "ledger-without-roles"
    assert not (tmp_path / "ledger.db").exists()


def test_the_database_knows_the_kinds_that_the_state_machine_knows():
    """A kind that is added in one place only would be refused by the other."""
    text = (Path(postgres.__file__).parent / "postgres.sql").read_text()
    start, end = text.index("    CASE\n        WHEN entry.kind"), text.index("    END CASE;")
    branches = re.findall(r"entry\.kind (?:=|IN) ([^T]*) THEN", text[start:end])
    known = set(re.findall(r"'(\w+)'", " ".join(branches)))
    handlers = (name.removeprefix("_apply_") for name in dir(LedgerState) if name.startswith("_apply_"))
    assert known == set(handlers)


# ---------------------------------------------------------------- ledgers of before


@pytest.fixture
def version_3(own: Team) -> Team:
    """The same ledger as the program before left it: writers insert, and nobody owns a population."""
    named = "SELECT oid::regprocedure::text FROM pg_proc WHERE starts_with(proname, 'ledger_')"
    functions = own.execute(f"{named} AND proname <> 'ledger_is_append_only'")
    own.execute(
        *(f"DROP FUNCTION {row[0]} CASCADE" for row in functions),
        *(f"DROP TABLE {table}" for table in GUARDS),
        "DROP INDEX events_by_kind, events_by_release, events_by_name",
        "DELETE FROM ledger_version",
        "INSERT INTO ledger_version VALUES (3)",
        *(f"GRANT SELECT, INSERT ON {table} TO {own.role(w)}" for w in ("clinic", "stranger") for table in TABLES),
        "GRANT INSERT ON events TO PUBLIC",
    )
    return own


def test_readers_read_a_ledger_that_nobody_migrated(version_3: Team):
    with closing(version_3.place("auditor").read()) as ledger:
        assert ledger.state().releases[MINE].status == "published"


def test_only_the_owner_migrates(version_3: Team):
    for role in ("clinic", "auditor"):
        with pytest.raises(LedgerError) as caught, opened(version_3.place(role)):
            pass
        assert caught.value.rule == "ledger-older"
        assert "ledger roles" in caught.value.hint


def test_an_old_ledger_is_migrated_once_and_its_roles_go_on(version_3: Team):
    before = version_3.entries()
    owner = version_3.place("owner")
    for _ in range(2):
        with opened(owner) as ledger:
            assert ledger.entries() == before
    assert version_3.execute("SELECT version FROM ledger_version ORDER BY 1") == [(3,), (5,)]
    with pytest.raises(DBAPIError) as caught:
        version_3.execute(ROWS["events"], user="stranger")
    assert isinstance(caught.value.orig, psycopg.errors.InsufficientPrivilege)
    names = {"writer": version_3.role("clinic"), "auditor": version_3.role("auditor")}
    give_roles(owner.address, version_3.key("owner"), **names)
    with opened(version_3.place("clinic")) as ledger, pytest.raises(LedgerError) as refused:
        ledger.reserve(request("2026-02"))
    assert refused.value.rule == "population-not-granted", "populations of before are the tables' owner's"
    grant_population(owner.address, POPULATION, names["writer"], as_owner=True)
    assert_the_clinic_releases(version_3)
    with opened(version_3.place("clinic")) as ledger:
        ledger.raise_cap(POPULATION, cap("2"), BASIS, "a second study")


def test_the_database_of_version_4_learns_of_retractions_when_its_owner_opens_it(own: Team):
    """Rights stay as they were; until then writers with this program are refused, and readers read."""
    rules = files("tasks.ledger.databases").joinpath("postgres.sql").read_text()
    assert rules.count("'retract',") == 1
    own.execute(rules.replace("'retract',", "").replace("@schema@", "public"), "UPDATE ledger_version SET version = 4")
    with closing(own.place("auditor").read()) as ledger:
        assert ledger.state().releases[MINE].status == "published"
    with pytest.raises(LedgerError) as caught, opened(own.place("clinic")):
        pass
    assert caught.value.rule == "ledger-older"
    forged = own.forge("clinic", "retract", {"who": "x", "reason": "x"}, population=POPULATION, release_id=MINE)
    with pytest.raises(DBAPIError, match="unknown kind"):
        own.append("clinic", forged)
    with opened(own.place("owner")):
        pass
    with opened(own.place("clinic")) as ledger:
        ledger.retract(MINE, who="ada", reason="erasure")
    assert_the_clinic_releases(own)


def test_whoever_migrates_the_functions_are_the_tables_owner_s(version_3: Team):
    """A superuser may migrate; the functions must not run with a superuser's rights."""
    owner = version_3.role("clinic")
    version_3.execute(
        *(f"ALTER TABLE {table} OWNER TO {owner}" for table in TABLES),
        f"GRANT CREATE ON SCHEMA public TO {owner}",
        f"ALTER FUNCTION ledger_is_append_only() OWNER TO {owner}",
    )
    with opened(version_3.place("owner")):
        pass
    owner_of = "SELECT DISTINCT rolname FROM pg_roles r JOIN pg_proc p ON p.proowner = r.oid"
    owners = version_3.execute(f"{owner_of} WHERE starts_with(proname, 'ledger_')")
    assert owners == [(owner,)]
    assert_the_clinic_releases(version_3)
