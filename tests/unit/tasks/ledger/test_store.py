"""The ledger on disk: nothing is spent twice, lost, changed or taken together by two."""

from __future__ import annotations

import json
import random
import sqlite3
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.tasks.builders import (
    BASIS,
    POPULATION,
    Place,
    cap,
    event,
    opened,
    released,
    request,
)

from dpcore.accounting import Cap, Epsilon
from dpcore.errors import BudgetExceededError, LedgerError, RefusedError, WorkspaceError
from dpcore.mechanisms.laplace import LAPLACE
from tasks.keys.signing import SigningKey
from tasks.ledger.entries.bodies import CapChange, Spend
from tasks.ledger.releases import release_id_of
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger
from tasks.ledger.transaction import Transaction

RACERS, ROOM = 16, 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    ledger.ensure_cap(POPULATION, cap(), BASIS)
    return ledger


@pytest.fixture
def file_ledger(path: Path) -> Iterator[Ledger]:
    """For what is about SQLite's file itself; PostgreSQL's own matters are in test_postgres.py."""
    with opened(path) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
        yield ledger


def kinds(ledger: Ledger) -> list[str]:
    return [entry.kind for entry in ledger.entries() if entry.kind != "key"]


def publish(ledger: Ledger, period: str = "2026-01", **changes: Any) -> str:
    """Bring a release to publication."""
    release_id = ledger.reserve(request(period, **changes)).release_id
    ledger.spend(release_id, "moments", released())
    ledger.publish(release_id, bundle_digest="b" * 64, flow_run_id="run")
    return release_id


# ---------------------------------------------------------------- cap


def test_the_cap_is_written_on_first_use_and_only_then(ledger: Ledger):
    ledger.ensure_cap(POPULATION, cap(), BASIS)
    assert kinds(ledger) == ["cap"]
    assert ledger.state().populations[POPULATION].cap == cap()


@pytest.mark.parametrize(
    "other",
    [cap("1.3"), cap("1.1"), cap(delta="1/1000000"), cap(delta_num="0")],
    ids=["higher", "lower", "delta", "delta_num"],
)
def test_a_spec_that_states_another_cap_is_refused(ledger: Ledger, other: Cap):
    with pytest.raises(LedgerError) as caught:
        ledger.ensure_cap(POPULATION, other, BASIS)
    assert (caught.value.rule, caught.value.where) == ("cap-differs", "privacy.lifetime")
    assert kinds(ledger) == ["cap"]


@pytest.mark.parametrize("key", BASIS.keys() - {"neighbours"})
@pytest.mark.parametrize("reason", [None, "growth"], ids=["next-use", "raise"])
def test_a_population_is_counted_in_one_way_for_life(ledger: Ledger, key: str, reason: str | None):
    state = partial(ledger.raise_cap, reason=reason) if reason else ledger.ensure_cap
    with pytest.raises(LedgerError) as caught:
        state(POPULATION, cap(), BASIS | {key: "another"})
    assert (caught.value.rule, caught.value.where) == ("budget-basis-differs", f"privacy.{key}")
    assert kinds(ledger) == ["cap"]


def test_a_cap_is_raised_with_a_reason_and_then_is_the_one_that_counts(ledger: Ledger):
    entry = ledger.raise_cap(POPULATION, cap("2.4"), BASIS, "a second year")
    assert entry.parse(CapChange).reason == "a second year"
    ledger.ensure_cap(POPULATION, cap("2.4"), BASIS)
    with pytest.raises(LedgerError, match="differs from the ledger's"):
        ledger.ensure_cap(POPULATION, cap(), BASIS)


def test_a_cap_is_not_raised_without_a_reason(ledger: Ledger):
    with pytest.raises(LedgerError, match="without a reason"):
        ledger.raise_cap(POPULATION, cap("2.4"), BASIS, "")
    assert ledger.state().populations[POPULATION].cap == cap()


# ---------------------------------------------------------------- reserve


def test_a_release_at_the_cap_is_refused_with_nothing_reserved(ledger: Ledger):
    ledger.reserve(request(epsilon="0.7", name="others"))
    with pytest.raises(BudgetExceededError) as caught:
        ledger.reserve(request("2026-02", "0.6"))
    assert (caught.value.rule, caught.value.where) == ("budget-exceeded", "privacy.lifetime")
    assert "epsilon 0.7 of 1.2" in str(caught.value)
    assert kinds(ledger) == ["cap", "reserve"]
    assert ledger.reserve(request("2026-02", "0.5")).release_id == "visits-2026-02-1", "what is left can be had"


def test_twelve_releases_of_a_tenth_fit_into_their_lifetime_exactly(ledger: Ledger):
    for month in range(1, 13):
        publish(ledger, f"2026-{month:02d}")
    assert ledger.state().spent(POPULATION).epsilon == Fraction(6, 5)
    with pytest.raises(BudgetExceededError):
        ledger.reserve(request("2027-01", "0.1"))


def test_the_finite_precision_delta_has_a_cap_of_its_own(place: Place):
    noisy = LAPLACE.calibrate(event().layout, event().neighbours, Epsilon(Fraction(1, 10)))
    with opened(place) as ledger:
        ledger.ensure_cap(POPULATION, cap(delta_num="0"), BASIS)
        with pytest.raises(BudgetExceededError):
            ledger.reserve(request(events={"moments": noisy}))
        assert ledger.reserve(request()).status == "reserved", "a mechanism without rounding error fits"


def test_a_reservation_keeps_what_was_asked(ledger: Ledger):
    found = ledger.reserve(request("2026-03")).reservation
    assert (found.name, found.period, found.sequence) == ("visits", "2026-03", 1)
    assert found.measurements["moments"].event == event().as_json()
    assert found.measurements["moments"].cost.epsilon == Fraction(1, 10)
    assert (found.seeds, found.stated) == ({"projection": "1", "sampling": "2"}, {"epsilon": 0.1, "delta": 0.0})


@pytest.mark.parametrize("stage", ["reserved", "measured", "failed", "published"])
def test_whoever_comes_second_for_a_period_gets_the_first_release(ledger: Ledger, stage: str):
    first = ledger.reserve(request()).release_id
    if stage != "reserved":
        ledger.spend(first, "moments", released())
    if stage == "failed":
        ledger.fail(first, status="failed", stage="sample")
    if stage == "published":
        ledger.publish(first, bundle_digest="b" * 64, flow_run_id="run")
    before = ledger.entries()
    second = ledger.reserve(request(flow_run_id="other", seeds={"projection": "9", "sampling": "9"}))
    assert (second.release_id, second.status) == (first, stage)
    assert second.reservation.seeds == {"projection": "1", "sampling": "2"}
    assert ledger.entries() == before, "and nothing more is reserved"


ABANDONED: dict[str, dict[str, Any]] = {
    "another-period": {"period": "2026-02"},
    "another-epsilon": {"epsilon": "0.2"},
    "another-specification": {"spec_digest": "e" * 64},
}


@pytest.mark.parametrize("case", ABANDONED)
def test_a_reservation_that_lost_its_run_is_given_back_to_the_next_of_its_name(ledger: Ledger, case: str):
    lost = ledger.reserve(request()).release_id
    wanted = request(**ABANDONED[case])
    ledger.give_back_abandoned(wanted)
    taken = ledger.reserve(wanted).release_id
    state = ledger.state()
    assert (state.releases[lost].status, state.releases[taken].status) == ("void", "reserved")
    assert state.committed(POPULATION) == state.releases[taken].reserved


def test_nothing_is_given_back_of_what_was_drawn_or_is_anothers(ledger: Ledger):
    drawn = ledger.reserve(request()).release_id
    ledger.spend(drawn, "moments", released())
    others = ledger.reserve(request(name="others")).release_id
    ledger.give_back_abandoned(request("2026-02"))
    ledger.reserve(request("2026-02"))
    state = ledger.state()
    assert (state.releases[drawn].status, state.releases[others].status) == ("measured", "reserved")
    assert state.committed(POPULATION).epsilon == Fraction(3, 10)


def test_a_release_after_a_void_one_has_the_next_number(ledger: Ledger):
    first = ledger.reserve(request()).release_id
    ledger.void(first, reason="the run is gone")
    assert ledger.state().committed(POPULATION).epsilon == 0
    assert ledger.reserve(request()).release_id == release_id_of("visits", "2026-01", 2)


# ---------------------------------------------------------------- supersede


def test_a_published_release_is_superseded_at_its_full_price(ledger: Ledger):
    first = publish(ledger)
    second = publish(ledger, supersedes=first, reason="two files were missing")
    assert second == "visits-2026-01-2"
    state = ledger.state()
    assert (state.releases[first].status, state.releases[second].status) == ("superseded", "published")
    assert state.spent(POPULATION).epsilon == Fraction(1, 5)
    assert state.releases[second].reservation.reason == "two files were missing"


def test_a_repeated_superseding_run_continues_the_one_in_flight(ledger: Ledger):
    first = publish(ledger)
    second = ledger.reserve(request(supersedes=first, reason="late rows"))
    assert ledger.reserve(request(supersedes=first, reason="late rows")).release_id == second.release_id
    assert ledger.state().committed(POPULATION).epsilon == Fraction(1, 5)


SUPERSEDES_WRONGLY: dict[str, Callable[[Ledger], str]] = {
    "nothing-published": lambda ledger: "visits-2026-01-1",
    "unfinished": lambda ledger: ledger.reserve(request()).release_id,
    "void": lambda ledger: ledger.void(ledger.reserve(request()).release_id, reason="gone").release_id,
    "of-another-period": lambda ledger: publish(ledger, "2025-12"),
    "of-another-name": lambda ledger: publish(ledger, name="other"),
    "superseded-before": lambda ledger: _first_of_two(ledger),
    "unknown": lambda ledger: publish(ledger) + "0",
}


def _first_of_two(ledger: Ledger) -> str:
    first = publish(ledger)
    publish(ledger, supersedes=first, reason="late rows")
    return first


@pytest.mark.parametrize("case", SUPERSEDES_WRONGLY)
def test_only_the_latest_published_release_of_a_period_can_be_superseded(ledger: Ledger, case: str):
    other = SUPERSEDES_WRONGLY[case](ledger)
    before = ledger.entries()
    with pytest.raises(LedgerError) as caught:
        ledger.reserve(request(supersedes=other, reason="late rows"))
    assert (caught.value.rule, caught.value.where) == ("supersedes-wrong", "--supersedes")
    assert ledger.entries() == before


# ---------------------------------------------------------------- spend


def test_a_spend_stores_the_measurement_with_its_digest(ledger: Ledger):
    release_id = ledger.reserve(request()).release_id
    drawn = released()
    assert ledger.spend(release_id, "moments", drawn) == drawn
    assert ledger.measurement(release_id, "moments") == drawn
    spend = ledger.entries()[-1].parse(Spend)
    assert (spend.digest, spend.seeded, spend.event) == (drawn.digest(), False, event().as_json())


def test_a_second_spend_returns_the_stored_measurement_and_forgets_the_new_one(ledger: Ledger):
    release_id = ledger.reserve(request()).release_id
    first, second = released(seed=1), released(seed=2)
    assert first != second
    ledger.spend(release_id, "moments", first)
    assert ledger.spend(release_id, "moments", second) == first
    assert kinds(ledger) == ["cap", "reserve", "spend"]
    assert ledger.state().committed(POPULATION).epsilon == Fraction(1, 10)


def test_a_measurement_of_another_cost_cannot_be_spent(ledger: Ledger):
    release_id = ledger.reserve(request()).release_id
    with pytest.raises(LedgerError, match="spends another cost than was reserved"):
        ledger.spend(release_id, "moments", released("0.2"))
    assert ledger.measurement(release_id, "moments") is None
    assert kinds(ledger) == ["cap", "reserve"]


def test_a_fault_between_the_spend_and_its_measurement_leaves_neither(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    release_id = ledger.reserve(request()).release_id

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "store", fail)
        with pytest.raises(KeyboardInterrupt):
            ledger.spend(release_id, "moments", released())
    assert kinds(ledger) == ["cap", "reserve"]
    assert ledger.measurement(release_id, "moments") is None
    drawn = released()
    assert ledger.spend(release_id, "moments", drawn) == drawn, "and the ledger goes on"


def test_a_measurement_that_fails_its_checks_stays_spent(ledger: Ledger):
    release_id = ledger.reserve(request()).release_id
    ledger.spend(release_id, "moments", released())
    ledger.fail(release_id, status="check-failed", stage="check")
    with pytest.raises(LedgerError, match="cannot follow status 'check-failed'"):
        ledger.void(release_id, reason="the checks failed")
    assert ledger.state().spent(POPULATION).epsilon == Fraction(1, 10)


# ---------------------------------------------------------------- append only


@pytest.mark.parametrize("table", ["events", "measurements"])
@pytest.mark.parametrize("statement", ["UPDATE {0} SET release_id = 'x'", "DELETE FROM {0}", "REPLACE INTO {0} {1}"])
def test_the_database_refuses_to_change_what_is_written(file_ledger: Ledger, path: Path, table: str, statement: str):
    publish(file_ledger)
    before = file_ledger.entries(), file_ledger.measurement("visits-2026-01-1", "moments")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA recursive_triggers = ON")  # without it, REPLACE deletes silently
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement.format(table, f"SELECT * FROM {table}"))
    connection.close()
    assert (file_ledger.entries(), file_ledger.measurement("visits-2026-01-1", "moments")) == before


def test_both_tables_have_their_triggers_on_update_and_delete(file_ledger: Ledger, path: Path):
    connection = sqlite3.connect(path)
    triggers = connection.execute("SELECT tbl_name, name FROM sqlite_master WHERE type = 'trigger'").fetchall()
    connection.close()
    assert sorted(triggers) == [
        ("events", "events_no_delete"),
        ("events", "events_no_update"),
        ("measurements", "measurements_no_delete"),
        ("measurements", "measurements_no_update"),
    ]


def test_two_entries_cannot_follow_the_same_one(file_ledger: Ledger, path: Path):
    """A fork is refused by the database itself."""
    file_ledger.reserve(request())
    row = file_ledger.entries()[-1]
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match=r"UNIQUE.*previous"):
        connection.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (9, row.at, row.kind, row.population, "b", row.body, row.previous, "f" * 64, row.key_id, row.signature),
        )
    connection.close()


def test_nothing_is_released_on_a_ledger_that_was_edited(file_ledger: Ledger, path: Path):
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER events_no_update")
    connection.execute("UPDATE events SET body = replace(body, '6/5', '60/5')")
    connection.commit()
    connection.close()
    for attempt in (
        lambda: file_ledger.reserve(request()),
        lambda: file_ledger.ensure_cap(POPULATION, cap("12"), BASIS),
        file_ledger.state,
    ):
        with pytest.raises(LedgerError, match="was changed"):
            attempt()


# ---------------------------------------------------------------- the operator's fingerprints


def test_a_fingerprint_is_that_of_the_data_measured_first(ledger: Ledger):
    release_id = ledger.reserve(request()).release_id
    assert ledger.fingerprint(release_id) is None
    ledger.spend(release_id, "moments", released(), fingerprint="first")
    ledger.spend(release_id, "moments", released(), fingerprint="second")
    assert ledger.fingerprint(release_id) == "first"


def test_fingerprints_are_not_in_the_chain(ledger: Ledger):
    release_id = ledger.reserve(request()).release_id
    ledger.spend(release_id, "moments", released(), fingerprint="planted")
    assert "planted" not in json.dumps([entry.body for entry in ledger.entries()])


def test_threads_share_one_ledger(ledger: Ledger):
    with ThreadPoolExecutor(RACERS) as pool:
        names = [f"visits-{number}" for number in range(12)]
        found = list(pool.map(lambda name: ledger.reserve(request(name=name)).release_id, names))
    assert len(set(found)) == 12
    assert LedgerState.replay(ledger.entries()).committed(POPULATION).epsilon == Fraction(6, 5)


# ---------------------------------------------------------------- opening


def test_a_ledger_that_is_read_is_never_written(file_ledger: Ledger, path: Path):
    publish(file_ledger)
    file_ledger.close()
    before = path.read_bytes()
    reading = Ledger.open_to_read(path)
    assert [entry.kind for entry in reading.entries()] == ["key", "cap", "reserve", "spend", "publish"]
    for attempt in (
        lambda: reading.reserve(request("2026-02")),
        lambda: reading.ensure_cap("others", cap(), BASIS),
        lambda: reading.raise_cap(POPULATION, cap("9"), BASIS, "growth"),
    ):
        with pytest.raises(LedgerError) as refusal:
            attempt()
        assert refusal.value.rule == "ledger-read-only"
    reading.close()
    assert path.read_bytes() == before
    assert sorted(p.name for p in path.parent.iterdir()) == ["ledger.db", "signing.key", "signing.pub"]


def test_a_ledger_is_its_owners_alone(file_ledger: Ledger, path: Path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "it holds the operator's fingerprints"


def test_reading_a_ledger_that_is_not_there_makes_none(path: Path):
    with pytest.raises(LedgerError) as caught:
        Ledger.open_to_read(path)
    assert caught.value.rule == "ledger-missing"
    assert not path.exists()


@pytest.mark.parametrize("name", ["with space", "100%25", "a#b", "what?", "ünïcode", "a&mode=rw"])
def test_a_workspace_may_have_any_name(tmp_path: Path, name: str):
    folder = tmp_path / name
    folder.mkdir()
    with opened(folder / "ledger.db") as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
    assert (folder / "ledger.db").is_file()
    reading = Ledger.open_to_read(folder / "ledger.db")
    assert kinds(reading) == ["cap"]
    reading.close()


def test_a_ledger_opens_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with opened(Path("ledger.db")) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
    reading = Ledger.open_to_read(Path("ledger.db"))
    assert kinds(reading) == ["cap"]
    reading.close()


UNWRITABLE: dict[str, Callable[[Path], Path]] = {
    "a-folder-in-its-place": lambda folder: folder / "ledger.db",
    "below-a-file": lambda folder: folder / "file" / "ledger.db",
    "in-no-folder": lambda folder: folder / "nowhere" / "ledger.db",
}


@pytest.mark.parametrize("case", UNWRITABLE)
def test_a_ledger_that_cannot_be_written_is_a_fault_of_the_workspace(tmp_path: Path, case: str):
    (tmp_path / "ledger.db").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(WorkspaceError) as caught:
        Ledger.open(UNWRITABLE[case](tmp_path), SigningKey.fresh())
    assert (caught.value.rule, caught.value.where) == ("workspace-unwritable", "ledger.db")
    assert str(tmp_path) not in str(caught.value)


BROKEN_FILES: dict[str, Callable[[bytes], bytes]] = {
    "text": lambda good: b"this is no database at all\n" * 100,
    "truncated": lambda good: good[: len(good) // 2],
    "header-only": lambda good: good[:100],
    "body-overwritten": lambda good: good[:100] + b"\xff" * (len(good) - 100),
}


@pytest.mark.parametrize("case", BROKEN_FILES)
def test_a_file_that_is_no_database_is_a_broken_ledger(path: Path, case: str):
    with opened(path) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
    path.write_bytes(BROKEN_FILES[case](path.read_bytes()))
    for opening in (partial(Ledger.open, signer=SigningKey.fresh()), Ledger.open_to_read):
        with pytest.raises(LedgerError) as caught:
            _read_and_close(opening(path))
        assert (caught.value.rule, caught.value.where) == ("ledger-broken", "ledger.db")
        assert "backup" in caught.value.hint


def _read_and_close(ledger: Ledger) -> None:
    try:
        ledger.state()
    finally:
        ledger.close()


def test_a_ledger_of_a_newer_program_is_refused_untouched(path: Path):
    with opened(path) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LedgerError) as caught:
        Ledger.open(path, SigningKey.fresh())
    assert caught.value.rule == "ledger-newer"
    assert path.read_bytes() == before


def test_times_are_written_in_utc(path: Path):
    moment = datetime(2026, 3, 1, 0, 30, tzinfo=timezone(timedelta(hours=2)))
    with opened(path):
        pass
    ledger = Ledger.open(path, SigningKey.fresh(), clock=lambda: moment)
    ledger.ensure_cap(POPULATION, cap(), BASIS)
    assert ledger.entries()[0].at == "2026-02-28T22:30:00.000000Z"
    assert datetime.fromisoformat(ledger.entries()[0].at) == moment.astimezone(UTC)
    ledger.close()


# ---------------------------------------------------------------- bit rot


def everything(path: Path) -> tuple[Any, Any]:
    """All entries and measurements, as they are read and replayed."""
    ledger = Ledger.open_to_read(path)
    try:
        state = ledger.state()
        stored = {
            release_id: ledger.measurement(release_id, name)
            for release_id, release in state.releases.items()
            for name in release.spends
        }
        for release_id, measurement in stored.items():
            digest = state.releases[release_id].spends["moments"].parse(Spend).digest
            if measurement is None or measurement.digest() != digest:
                raise LedgerError("measurement changed", rule="ledger-broken", where="", hint="")
        return ledger.entries(), stored
    finally:
        ledger.close()


def test_a_flipped_byte_is_refused_or_changes_nothing(file_ledger: Ledger, path: Path):
    for month in range(1, 5):
        publish(file_ledger, f"2026-{month:02d}")
    file_ledger.close()
    good, expected = path.read_bytes(), everything(path)
    dice = random.Random(20261116)  # noqa: S311  which bytes to flip, no secret
    refused = 0
    for _ in range(100):
        place, mask = dice.randrange(len(good)), dice.randrange(1, 256)
        path.write_bytes(good[:place] + bytes([good[place] ^ mask]) + good[place + 1 :])
        try:
            assert everything(path) == expected, f"byte {place} xor {mask} changed the ledger unnoticed"
        except (RefusedError, ValueError, TypeError, KeyError):
            refused += 1
    assert refused > 10, "the flips hit something"
