"""Ledgers of before stay what they were; and a long ledger costs a transaction no more than a short one."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa
from support.tasks.builders import BASIS, POPULATION, Chain, Place, cap, opened, released, request

from dpcore.errors import LedgerError
from tasks.keys.signing import signing_key
from tasks.ledger.entries.entry import Entry
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger

VERSION_1 = """
CREATE TABLE events (
    seq INTEGER NOT NULL PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, population TEXT NOT NULL,
    release_id TEXT NOT NULL, body TEXT NOT NULL, previous TEXT NOT NULL UNIQUE, hash TEXT NOT NULL UNIQUE
);
CREATE TABLE measurements (
    release_id TEXT NOT NULL, name TEXT NOT NULL, payload TEXT NOT NULL, PRIMARY KEY (release_id, name)
);
CREATE TABLE operator_fingerprints (release_id TEXT NOT NULL PRIMARY KEY, fingerprint TEXT NOT NULL);
CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
PRAGMA user_version = 1;
"""
FIELDS = ("seq", "at", "kind", "population", "release_id", "body", "previous", "hash")


@pytest.fixture
def chain() -> Chain:
    """What a program of version 1 wrote: nobody signed it."""
    return Chain().cap().reserve("a", {"moments": "0.1"}, sequence=1).spend("a", epsilon="0.1").publish("a")


@pytest.fixture
def old(chain: Chain, tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VERSION_1)
        for entry in chain.entries:
            values = tuple(getattr(entry, name) for name in FIELDS)
            connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        connection.execute("INSERT INTO operator_fingerprints VALUES ('a', 'keyed')")
        connection.commit()
    return path


def test_an_unsigned_ledger_is_audited_as_it_is(old: Path, chain: Chain):
    before = hashlib.sha256(old.read_bytes()).hexdigest()
    with closing(Ledger.open_to_read(old)) as ledger:
        assert ledger.entries() == chain.entries
        assert ledger.state().releases["a"].status == "published"
        assert ledger.fingerprint("a") == "keyed"
    assert hashlib.sha256(old.read_bytes()).hexdigest() == before


def test_an_unsigned_ledger_is_continued_signed(old: Path, chain: Chain):
    with opened(old) as ledger:
        assert ledger.entries() == chain.entries, "opening writes no entry"
        ledger.reserve(request("2026-02"))
        entries = ledger.entries()
    assert entries[:4] == chain.entries
    assert [entry.kind for entry in entries[4:]] == ["key", "reserve"]
    assert entries[4].previous == chain.entries[-1].hash
    assert {entry.key_id for entry in entries[4:]} == {signing_key(old.parent).public.key_id}
    state = LedgerState.replay(entries)
    assert state.committed(POPULATION).epsilon == Fraction(1, 5)
    with closing(sqlite3.connect(old)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (5,)
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute("UPDATE events SET signature = 'x'")


def test_migrating_twice_changes_nothing(old: Path):
    with opened(old) as ledger:
        ledger.reserve(request("2026-02"))
    before = old.read_bytes()
    with opened(old):
        pass
    assert old.read_bytes() == before


def test_a_migration_that_dies_leaves_the_old_version(old: Path, chain: Chain, monkeypatch: pytest.MonkeyPatch):
    from tasks.ledger.databases import schema as module

    steps = (*module.MIGRATIONS[2], "ALTER TABLE nowhere ADD COLUMN x TEXT")
    with monkeypatch.context() as patch:
        patch.setitem(module.MIGRATIONS, 2, steps)
        with pytest.raises(LedgerError), opened(old):
            pass
    with closing(Ledger.open_to_read(old)) as ledger:
        assert ledger.entries() == chain.entries
    with opened(old) as ledger:
        assert ledger.reserve(request("2026-02")).status == "reserved"


def test_an_edited_unsigned_ledger_is_refused_and_not_signed_over(old: Path):
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("DROP TRIGGER events_no_update")
        connection.execute("UPDATE events SET body = replace(body, '6/5', '9')")
        connection.commit()
    with opened(old) as ledger, pytest.raises(LedgerError, match="was changed"):
        ledger.reserve(request("2026-02"))


# ---------------------------------------------------------------- the work of one transaction


class Rows:
    """Counts the events that a ledger reads, and how many it verifies."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read = self.verified = 0
        reading, applying = ledger._read, LedgerState.apply

        def read(connection: sa.Connection, *, since: int = 0) -> list[Entry]:
            found = reading(connection, since=since)
            self.read += len(found)
            return found

        def apply(state: LedgerState, entry: Entry) -> None:
            self.verified += 1
            applying(state, entry)

        monkeypatch.setattr(ledger, "_read", read)
        monkeypatch.setattr(LedgerState, "apply", apply)

    def taken(self) -> tuple[int, int]:
        """What was counted since the last look."""
        found = self.read, self.verified
        self.read = self.verified = 0
        return found


def test_a_transaction_reads_what_is_new_and_nothing_else(place: Place, monkeypatch: pytest.MonkeyPatch):
    with opened(place) as ledger:
        ledger.ensure_cap(POPULATION, cap("1000"), BASIS)
        for month in range(40):
            ledger.reserve(request(f"{2000 + month}-01"))
        rows = Rows(ledger, monkeypatch)
        ledger.reserve(request("2100-01"))
        assert rows.taken() == (1, 1), "the head, to see that it is still there; the new entry"
        release_id = ledger.reserve(request("2100-01")).release_id
        assert rows.taken() == (1, 0)
        ledger.spend(release_id, "moments", released())
        ledger.publish(release_id, bundle_digest="b" * 64, flow_run_id="run")
        assert rows.taken() == (2, 2)
        ledger.state()
        assert rows.taken() == (1, 0)


def test_what_others_wrote_meanwhile_is_read_and_verified_once(place: Place, monkeypatch: pytest.MonkeyPatch):
    with opened(place) as ledger, opened(place) as other:
        ledger.ensure_cap(POPULATION, cap("1000"), BASIS)
        ledger.state()
        for month in range(5):
            other.reserve(request(f"{2000 + month}-01"))
        rows = Rows(ledger, monkeypatch)
        ledger.reserve(request("2100-01"))
        assert rows.taken() == (6, 6), "the head and five; five and the new one"


def test_a_failed_transaction_makes_the_next_one_read_all_again(place: Place, monkeypatch: pytest.MonkeyPatch):
    """What a rolled back transaction thought is not trusted."""
    with opened(place) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
        ledger.reserve(request())
        with pytest.raises(LedgerError):
            ledger.spend("visits-2026-01-1", "moments", released("0.2"))
        rows = Rows(ledger, monkeypatch)
        ledger.state()
        assert rows.taken() == (3, 3)


def test_a_ledger_of_a_newer_program_is_not_read_as_if_all_were_known(tmp_path: Path):
    path = tmp_path / "ledger.db"
    with opened(path) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 9")
    with pytest.raises(LedgerError) as caught:
        Ledger.open_to_read(path)
    assert caught.value.rule == "ledger-newer"
