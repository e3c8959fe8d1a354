"""What may befall a ledger from outside: a full disk, a clock, a copy, a lost tail. It refuses, and loses nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.tasks.builders import (
    BASIS,
    POPULATION,
    Place,
    cap,
    entries_of,
    opened,
    released,
    request,
    with_a_reservation,
)
from support.tasks.staged import land_rows, release

from dpcore.errors import LedgerError, RefusedError, WorkspaceError
from tasks.audit import audit_workspace
from tasks.keys.signing import signing_key
from tasks.ledger.databases import sqlite
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger
from tasks.workspace.folders import Workspace

FIRST, SECOND = "small-2026-01-1", "small-2026-02-1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return with_a_reservation(tmp_path / "ledger.db")


def faults(workspace: Workspace) -> dict[str, str]:
    return {check.name: check.detail for check in audit_workspace(workspace) if not check.ok}


# ---------------------------------------------------------------- the disk


def test_a_database_that_may_not_grow_refuses_in_the_same_words(path: Path):
    with opened(path) as ledger:
        with ledger._engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        limit = f"PRAGMA max_page_count = {pages}"
        sqlite.sa.event.listen(ledger._engine, "connect", lambda raw, _: raw.execute(limit))
        ledger._engine.dispose()
        with pytest.raises(WorkspaceError) as caught:
            deque(ledger.reserve(request(f"{2000 + month}-01")) for month in range(200))
        assert (caught.value.rule, caught.value.where) == ("workspace-unwritable", "ledger.db")
    LedgerState.replay(entries_of(path))  # type: ignore[arg-type]


# ---------------------------------------------------------------- the clock


def test_a_clock_that_steps_back_a_little_does_not_reorder_the_ledger(place: Place):
    times = [datetime(2026, 3, 1, 12, tzinfo=UTC)]
    with closing(place.open(clock=lambda: times[0])) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
        ledger.reserve(request())
        times[0] -= timedelta(hours=23)
        ledger.spend("visits-2026-01-1", "moments", released())
        times[0] = datetime(2026, 3, 1, 13, tzinfo=UTC)
        ledger.publish("visits-2026-01-1", bundle_digest="b" * 64, flow_run_id="run")
        told = [entry.at for entry in ledger.entries()]
    assert told == sorted(told)
    assert told[-2:] == ["2026-03-01T12:00:00.000000Z", "2026-03-01T13:00:00.000000Z"]


def test_entries_state_the_minute_and_not_how_long_stages_took(place: Place):
    times = [datetime(2026, 3, 1, 12, 0, 1, 5, tzinfo=UTC)]
    with closing(place.open(clock=lambda: times[0])) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
        times[0] += timedelta(seconds=17)
        ledger.reserve(request())
        times[0] += timedelta(seconds=47)
        ledger.spend("visits-2026-01-1", "moments", released())
        times[0] += timedelta(seconds=13)
        ledger.publish("visits-2026-01-1", bundle_digest="b" * 64, flow_run_id="run")
        told = [entry.at for entry in ledger.entries() if entry.kind in ("cap", "reserve", "spend", "publish")]
    assert told == [f"2026-03-01T12:0{minute}:00.000000Z" for minute in (0, 0, 1, 1)]


def test_a_ledger_whose_last_entry_has_seconds_goes_on_within_its_minute(place: Place, monkeypatch: pytest.MonkeyPatch):
    """As programs wrote that stated every microsecond; times keep their order, and later ones tell no seconds."""
    times = [datetime(2026, 3, 1, 12, 0, 40, 7, tzinfo=UTC)]
    with monkeypatch.context() as older, closing(place.open(clock=lambda: times[0])) as ledger:
        older.setattr("tasks.ledger.transaction.to_the_minute", lambda moment: moment)
        ledger.ensure_cap(POPULATION, cap(), BASIS)
    with closing(place.open(clock=lambda: times[0])) as ledger:
        times[0] += timedelta(seconds=5)
        ledger.reserve(request())
        times[0] += timedelta(seconds=30)
        ledger.spend("visits-2026-01-1", "moments", released())
        told = [entry.at for entry in ledger.entries()]
    assert told[-2:] == ["2026-03-01T12:00:40.000007Z", "2026-03-01T12:01:00.000000Z"]


WRONG_CLOCKS = {
    "years-behind": (timedelta(days=-4000), "clock-behind"),
    "two-days-behind": (timedelta(days=-2), "clock-behind"),
    "2000-days-ahead": (timedelta(days=2000), "clock-ahead"),
}


@pytest.mark.parametrize("case", WRONG_CLOCKS)
def test_a_writer_whose_clock_cannot_be_right_is_refused_and_writes_nothing(place: Place, case: str):
    """Later entries are never dated before earlier ones: one wrong clock would date them all."""
    step, rule = WRONG_CLOCKS[case]
    right = datetime(2026, 3, 1, 12, tzinfo=UTC)
    with closing(place.open(clock=lambda: right)) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
        before = ledger.entries()
    with closing(place.open(clock=lambda: right + step)) as ledger:
        for write in (lambda: ledger.reserve(request()), lambda: ledger.ensure_cap("others", cap(), BASIS)):
            with pytest.raises(LedgerError) as caught:
                write()
            assert (caught.value.rule, caught.value.where) == (rule, "clock")
        assert ledger.entries() == before
    with closing(place.open(clock=lambda: right)) as ledger:
        assert ledger.reserve(request()).status == "reserved"


def test_a_first_entry_is_not_older_than_the_product(tmp_path: Path):
    keys = Place(tmp_path / "ledger.db", tmp_path)
    with closing(keys.open(clock=lambda: datetime(1970, 1, 1, tzinfo=UTC))) as ledger:
        with pytest.raises(LedgerError) as caught:
            ledger.ensure_cap(POPULATION, cap(), BASIS)
        assert caught.value.rule == "clock-behind"
        assert ledger.entries() == []


def test_after_years_of_silence_a_person_vouches_for_the_clock(place: Place):
    times = [datetime(2026, 3, 1, 12, tzinfo=UTC)]
    with closing(place.open(clock=lambda: times[0])) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
        times[0] += timedelta(days=2000)
        ledger.raise_cap(POPULATION, cap(), BASIS, "nothing was released for five years", who="ada")
        assert ledger.reserve(request()).status == "reserved"


# ---------------------------------------------------------------- locks


def test_a_writer_that_never_ends_is_told_and_not_waited_for_forever(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sqlite, "LOCK_WAIT_SECONDS", 0.3)
    with closing(sqlite3.connect(path)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError) as caught, opened(path):
            pass
    assert caught.value.rule == "ledger-busy"
    with opened(path) as ledger:
        assert ledger.reserve(request("2026-02")).status == "reserved"


# ---------------------------------------------------------------- tails, copies and forks


def cut(path: Path, seq: int) -> None:
    """Take the last entries away, as who rolls a ledger back would."""
    with closing(sqlite3.connect(path)) as connection:
        for table in ("events", "measurements"):
            connection.execute(f"DROP TRIGGER {table}_no_delete")
        connection.execute("DELETE FROM events WHERE seq > ?", (seq,))
        connection.commit()


TAILS: dict[str, Callable[[Workspace, Path], object]] = {
    "tail-cut-off": lambda workspace, older: cut(workspace.ledger_path, 5),
    "older-file-put-back": lambda workspace, older: shutil.copy(older, workspace.ledger_path),
}


@pytest.mark.parametrize("case", TAILS)
def test_a_ledger_that_lost_its_tail_is_named_and_released_on_no_more(workspace: Workspace, tmp_path: Path, case: str):
    older = tmp_path / "older.db"
    shutil.copy(workspace.ledger_path, older)
    cut(older, 5)
    TAILS[case](workspace, older)
    before = entries_of(workspace.ledger_path)
    told = faults(workspace)["ledger completeness"]
    assert SECOND in told
    assert "fork" not in told
    land_rows(workspace.root, "2026-03")
    with pytest.raises(LedgerError) as caught:
        release(workspace, "2026-03")
    assert caught.value.rule == "ledger-incomplete"
    assert entries_of(workspace.ledger_path) == before


def test_an_open_ledger_notices_that_another_file_took_its_place(path: Path, tmp_path: Path):
    """What it knew of the old one is forgotten, not mixed with the new."""
    shutil.copy(path, tmp_path / "older.db")
    with opened(path) as ledger:
        ledger.reserve(request("2026-02"))
        os.replace(tmp_path / "older.db", path)
        ledger._engine.dispose()
        assert set(ledger.state().releases) == {"visits-2026-01-1"}


def test_a_copy_that_went_on_after_a_rotation_cannot_sign(workspace: Workspace, tmp_path: Path):
    """An old copy whose ledger is shared or brought up to date has a key that was replaced."""
    from tasks.ledger.key_changes import rotate_key
    from tasks.spec import load_spec

    old = signing_key(workspace.keys)
    rotate_key(workspace, load_spec(workspace.spec_path), who="operator")
    with closing(Ledger.open(workspace.ledger_path, old)) as ledger, pytest.raises(RefusedError) as caught:
        ledger.reserve(request("2026-09", name="small"))
    assert caught.value.rule == "signing-key-replaced"
    assert FIRST in {release.release_id for release in ledger.state().releases.values()}
