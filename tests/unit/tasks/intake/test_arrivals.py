"""Files on their way in: one arrival per version, nothing half, nothing twice, nothing lost, nothing told."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import stat
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.tasks.landing.landings import (
    BAD,
    GOOD,
    NO_ROWS,
    NOTHING,
    OTHER,
    PLANTED,
    SPEC,
    UNFINISHED,
    WRITING,
    HandClock,
    Intake,
    make_workspace,
    parquet,
)

from dpcore.errors import LandingError, StageFailedError, WorkspaceError
from tasks.intake import arrivals as arrivals_module
from tasks.intake import inspection
from tasks.intake.arrivals import Arrivals, wait_until_settled
from tasks.intake.file_registry import Announcement
from tasks.landing.datasets import find_landing
from tasks.workspace.clock import steady_clock


@pytest.fixture
def intake(tmp_path: Path) -> Intake:
    return Intake(make_workspace(tmp_path / "w"), HandClock())


# ---------------------------------------------------------------- complete or not


@pytest.mark.parametrize(
    ("name", "content"), [("small-2026-10.csv", GOOD.encode()), ("small-2026-10.parquet", parquet())]
)
def test_a_file_lands_once_when_it_has_settled(intake: Intake, name: str, content: bytes):
    assert intake.look() == NOTHING
    intake.put(name, content)
    assert intake.look() == WRITING
    assert intake.look(after=9) == WRITING
    assert intake.look(after=1) == (["2026-10"], [], False)
    assert intake.look(after=100) == NOTHING
    assert intake.files == {name}
    assert len(intake.arrivals.pending()) == 1


def test_a_file_that_grows_is_left_alone_as_long_as_it_grows(intake: Intake):
    path = intake.put("small-2026-10.csv", "age,sex\n")
    for _ in range(20):
        with path.open("a") as file:
            file.write("41,f\n")
        assert intake.look(after=9) == WRITING
    assert intake.look(after=10) == (["2026-10"], [], False)


def test_a_parquet_file_written_in_pieces_lands_when_its_last_piece_is_there(intake: Intake):
    content = parquet(age=[float(i % 100) for i in range(5000)], sex=["f"] * 5000)
    path = intake.put("small-2026-10.parquet", b"")
    for start in range(0, len(content), 4096):
        with path.open("ab") as file:
            file.write(content[start : start + 4096])
        assert intake.look(after=30) == WRITING, "stable for a while, but not readable to its end"
    assert intake.look(after=10) == (["2026-10"], [], False)


def test_a_line_without_an_end_is_given_time_and_then_believed(intake: Intake):
    intake.put("small-2026-10.csv", GOOD.rstrip())
    assert intake.look() == WRITING
    assert intake.look(after=59) == WRITING
    assert intake.look(after=1) == (["2026-10"], [], False)


def test_lines_may_end_in_any_way_and_encoding(intake: Intake):
    intake.workspace.spec_path.write_text(SPEC.replace("'landing/*',", "'landing/*', csv: {encoding: utf-16},"))
    intake.put("small-2026-09.csv", GOOD.replace("\n", "\r\n").encode("utf-16"))
    intake.look()
    assert intake.look(after=10) == (["2026-09"], [], False)


@pytest.mark.parametrize("case", UNFINISHED)
def test_what_may_be_unfinished_is_not_snatched_away(intake: Intake, case: str):
    name, content, rule = UNFINISHED[case]
    intake.put(name, content)
    assert intake.look() == WRITING
    assert intake.look(after=59) == WRITING
    assert intake.files == {name}
    assert intake.look(after=1) == ([], [rule], False)
    assert intake.files == set()


@pytest.mark.parametrize("case", NO_ROWS)
def test_a_file_without_rows_lands_once_it_can_no_longer_be_unfinished(intake: Intake, case: str):
    name, content = NO_ROWS[case]
    intake.put(name, content)
    assert intake.look() == WRITING
    assert intake.look(after=59) == WRITING
    assert intake.look(after=1) == (["2026-10"], [], False)
    assert intake.files == {name}


def test_an_upload_that_goes_on_after_a_long_pause_still_lands(intake: Intake):
    path = intake.put("small-2026-10.parquet", parquet()[:50])
    intake.look()
    assert intake.look(after=59) == WRITING
    path.write_bytes(parquet())
    assert intake.look(after=1) == WRITING
    assert intake.look(after=10) == (["2026-10"], [], False)


def test_a_file_that_vanishes_is_no_error(intake: Intake, monkeypatch: pytest.MonkeyPatch):
    path = intake.put("small-2026-10.csv")
    intake.look()
    path.unlink()
    assert intake.look(after=10) == NOTHING
    intake.put("small-2026-10.csv")
    intake.look()

    def vanish(path: Path, spec: Any, name: str) -> Any:
        path.unlink()
        return inspection.judge(path, spec)

    monkeypatch.setattr(arrivals_module, "judge", vanish)
    assert intake.look(after=10) == NOTHING
    assert intake.quarantine == []


def test_a_file_that_changes_while_it_is_read_is_not_judged_by_what_it_was(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
):
    path = intake.put("small-2026-09.csv", BAD["a column is missing"][1])
    intake.look()

    def change(path: Path, spec: Any, name: str) -> Any:
        judgement = inspection.judge(path, spec)
        path.write_text(GOOD)
        return judgement

    monkeypatch.setattr(arrivals_module, "judge", change)
    assert intake.look(after=10) == WRITING
    monkeypatch.undo()
    assert intake.look() == WRITING
    assert intake.look(after=10) == (["2026-09"], [], False)
    assert path.exists()


# ---------------------------------------------------------------- versions


def test_a_changed_file_is_a_new_arrival_and_the_same_bytes_are_not(intake: Intake):
    path = intake.put("small-2026-10.csv")
    intake.look()
    intake.look(after=10)
    path.write_text(OTHER)
    assert intake.look() == WRITING
    assert intake.look(after=10) == (["2026-10"], [], False)
    path.unlink()
    intake.look()
    for content in (GOOD, OTHER):
        path.write_text(content)
        assert intake.look() == WRITING
        assert intake.look(after=10) == NOTHING
    assert len(intake.arrivals.pending()) == 1, "nothing of the month was announced between"


def test_a_file_replaced_by_another_of_the_same_size_and_time_is_noticed(intake: Intake):
    path = intake.put("small-2026-10.csv")
    intake.look()
    intake.look(after=10)
    times = path.stat()
    new = intake.put(".new.csv", OTHER)
    os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
    new.replace(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (times.st_size, times.st_mtime_ns)
    intake.look()
    assert intake.look(after=10) == (["2026-10"], [], False)


def test_known_files_are_not_read_again(intake: Intake, monkeypatch: pytest.MonkeyPatch):
    intake.put("small-2026-10.csv")
    intake.look()
    intake.look(after=10)
    monkeypatch.setattr(arrivals_module, "fingerprint", None)
    monkeypatch.setattr(arrivals_module, "judge", None)
    assert intake.look(after=100) == NOTHING


def test_files_are_told_apart_by_name_and_come_in_their_order(intake: Intake):
    for month in ("2026-10", "2026-08", "2026-09"):
        intake.put(f"small-{month}.csv")
    intake.look()
    assert intake.look(after=10) == (["2026-08", "2026-09", "2026-10"], [], False)
    assert [v.period for v in intake.arrivals.pending()] == ["2026-08", "2026-09", "2026-10"]
    assert len({v.token for v in intake.arrivals.pending()}) == 3


def test_announced_and_handled_are_remembered(intake: Intake):
    for month in ("2026-09", "2026-10"):
        intake.put(f"small-{month}.csv")
    intake.look()
    intake.look(after=10)
    first, second = intake.arrivals.pending()
    assert first.announced_at is None
    at = datetime(2026, 11, 16, 12, tzinfo=UTC)
    intake.arrivals.mark_announced(first, at)
    assert [v.announced_at for v in intake.arrivals.pending()] == [at, None]
    intake.arrivals.mark_handled("2026-09", intake.arrivals.latest("2026-09"))
    assert intake.arrivals.pending() == [second]
    known = intake.arrivals.find(first.token)
    assert known is not None
    assert (known.handled, known.announced_at, known.period) == (True, at, "2026-09")
    assert intake.arrivals.find("unknown") is None


def landed(intake: Intake, *names: str) -> None:
    for name in names:
        intake.arrivals.admit(intake.put(name), intake.spec)


@pytest.mark.parametrize("files", [1, 7])
def test_what_lands_before_a_month_is_announced_is_one_announcement_whatever_the_number_of_files(
    intake: Intake, files: int
):
    landed(intake, *(f"small-2026-10-{n}.csv" for n in range(files)))
    (only,) = intake.arrivals.pending()
    assert (only.period, len(only.token), only.announcements) == ("2026-10", 32, 0)


def test_what_lands_later_is_one_more_announcement_and_handled_with_what_its_run_found(intake: Intake):
    landed(intake, "small-2026-10-1.csv", "small-2026-10-2.csv")
    (first,) = intake.arrivals.pending()
    intake.arrivals.mark_announced(first, datetime.now(UTC))
    landed(intake, "small-2026-10-3.csv", "small-2026-10-4.csv")
    sent, second = intake.arrivals.pending()
    assert (sent.token, sent.announcements) == (first.token, 1)
    assert (second.announced_at, second.token != first.token) == (None, True)
    seen = intake.arrivals.latest("2026-10")  # the first one's run begins, and finds all four
    landed(intake, "small-2026-10-5.csv")
    intake.arrivals.mark_handled("2026-10", seen)
    (left,) = intake.arrivals.pending()
    assert (left.period, left.announced_at) == ("2026-10", None)
    assert [found.handled for found in map(intake.arrivals.find, (first.token, left.token)) if found] == [True, False]
    intake.arrivals.mark_handled("2026-10", intake.arrivals.latest("2026-10"))
    assert intake.arrivals.pending() == []


def test_a_refused_version_that_lands_after_all_is_announced_although_its_month_was(intake: Intake):
    registry = intake.arrivals.registry
    registry.record("a.csv", "1", period="2026-10", refused="column-missing")
    landed(intake, "small-2026-10.csv")
    (first,) = intake.arrivals.pending()
    intake.arrivals.mark_announced(first, datetime.now(UTC))
    registry.record("a.csv", "1", period="2026-10", refused=None)
    assert [known.announced_at is None for known in intake.arrivals.pending()] == [False, True]


OLDER = """CREATE TABLE versions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, token TEXT NOT NULL UNIQUE, path TEXT NOT NULL, fingerprint TEXT NOT NULL,
    period TEXT, refused TEXT, announced_at TEXT, announcements INTEGER NOT NULL DEFAULT 0,
    handled INTEGER NOT NULL DEFAULT 0, UNIQUE (path, fingerprint))"""


def test_a_registry_that_announced_files_is_taken_over(intake: Intake):
    with closing(sqlite3.connect(intake.workspace.landing / ".arrivals.db")) as db, db:
        db.execute(OLDER)
        for name, handled in (("a", 1), ("b", 0), ("c", 0)):
            values = (name, name, name, "2026-10", "2026-11-16T12:00:00+00:00", 1, handled)
            names = "token, path, fingerprint, period, announced_at, announcements, handled"
            db.execute(f"INSERT INTO versions ({names}) VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    (only,) = intake.arrivals.pending()
    assert (only.period, only.announced_at) == ("2026-10", None)
    assert intake.arrivals.find("b") is None
    landed(intake, "small-2026-10.csv")
    assert [known.token for known in intake.arrivals.pending()] == [only.token]


def test_hidden_files_and_what_was_put_apart_are_no_arrivals(intake: Intake):
    intake.workspace.spec_path.write_text(SPEC.replace("landing/*", "landing/**/*"))
    for name in (".a.csv", "quarantine/b.csv", "verdicts/c.csv", "verdicts/d.json"):
        intake.put(name)
    assert intake.look() == NOTHING
    assert find_nothing(intake) == "landing-missing", "the registry among them stops no release"


def find_nothing(intake: Intake) -> str:
    with pytest.raises(LandingError) as caught:
        find_landing(intake.spec, intake.workspace.root, given=None, period=None, now=datetime.now(UTC))
    return caught.value.rule


def test_a_very_long_name_is_put_apart_as_well(intake: Intake):
    intake.put("x" * 250 + ".csv", BAD["a column is missing"][1])
    intake.look()
    assert intake.look(after=10) == ([], ["column-missing"], False)
    assert len(intake.quarantine) == 2


def test_a_name_without_the_period_that_names_carry_is_put_apart_instead_of_passed_by(intake: Intake):
    intake.put("visits.csv")
    intake.look()
    assert intake.look(after=10) == ([], ["period-missing"], False)
    assert intake.arrivals.pending() == []


def test_a_month_is_not_held_up_by_another_month_s_file(intake: Intake):
    intake.put("small-2026-09.csv")
    spec = intake.spec
    Arrivals(intake.workspace).scan(spec, settle=0)
    intake.put("small-2026-10.csv", "age,sex\n")
    assert wait_until_settled(intake.workspace, spec, period="2026-09", seconds=0, settle=3600) == ()
    with pytest.raises(LandingError) as caught:
        wait_until_settled(intake.workspace, spec, period="2026-10", seconds=0, settle=3600)
    assert caught.value.rule == "landing-unsettled"


def test_a_version_that_was_dealt_with_can_be_opened_again(intake: Intake):
    version = intake.arrivals.admit(intake.put("small-2026-09.csv"), intake.spec).version
    (first,) = intake.arrivals.pending()
    intake.arrivals.mark_announced(first, datetime.now(UTC))
    intake.arrivals.mark_handled("2026-09", intake.arrivals.latest("2026-09"))
    assert intake.arrivals.pending() == []
    intake.arrivals.reopen(version.token)
    (again,) = intake.arrivals.pending()
    assert (again.period, again.announced_at, again.announcements) == ("2026-09", None, 0)
    assert again.token != first.token, "a server that acted on the first must act on this one"


def test_a_name_that_is_no_text_cannot_be_read_and_blocks_nothing(intake: Intake):
    intake.put(os.fsdecode(b"\xff\xfe.csv"))
    intake.put("small-2026-10.csv")
    intake.look()
    assert intake.look(after=10) == (["2026-10"], [], True)
    assert intake.look(after=50) == ([], ["file-unreadable"], False)
    assert intake.files == {"small-2026-10.csv"}


# ---------------------------------------------------------------- quarantine


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_put_into_quarantine_with_its_verdict_and_blocks_nothing(intake: Intake, case: str):
    name, content, rule = BAD[case]
    intake.put(name, content)
    intake.put("small-2026-10.csv")
    intake.look()
    assert intake.look(after=10) == (["2026-10"], [rule], False)
    assert intake.files == {"small-2026-10.csv"}
    moved, verdict = intake.quarantine
    assert moved.name.endswith(f"-{name}")
    assert verdict.name == f"{moved.name}.verdict.json"
    assert moved.read_bytes() == content
    assert stat.S_IMODE(verdict.stat().st_mode) == 0o600
    told = json.loads(verdict.read_text())
    assert set(told) == {"rule", "column", "verdict", "hint", "at"}
    assert told["rule"] == rule
    assert PLANTED not in verdict.read_text()
    assert intake.look(after=100) == NOTHING


def test_a_verdict_names_the_column(intake: Intake):
    intake.put("small-2026-09.csv", BAD["a column is missing"][1])
    intake.look()
    intake.look(after=10)
    assert json.loads(intake.quarantine[1].read_text())["column"] == "sex"


def test_two_bad_files_of_one_name_do_not_collide(intake: Intake):
    for content in (b"age\n41\n", b"sex\nf\n"):
        intake.put("small-2026-09.csv", content)
        intake.look()
        assert intake.look(after=10)[1] == ["column-missing"]
    assert len({p.read_bytes() for p in intake.quarantine if p.suffix == ".csv"}) == 2


def test_a_refused_file_lands_again_once_the_specification_allows_it(intake: Intake):
    content = BAD["a column is not declared"][1]
    intake.put("small-2026-09.csv", content)
    intake.look()
    intake.look(after=10)
    intake.put("small-2026-09.csv", content)
    intake.look()
    assert intake.look(after=10)[1] == ["column-undeclared"], "the same rule, once more"
    intake.workspace.spec_path.write_text(SPEC.replace("'landing/*',", f"'landing/*', drop: [{PLANTED}],"))
    intake.put("small-2026-09.csv", content)
    intake.look()
    assert intake.look(after=10) == (["2026-09"], [], False)
    assert len(intake.arrivals.pending()) == 1


def test_a_bad_file_that_cannot_be_moved_is_refused_where_it_is_and_once(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
):
    intake.put("small-2026-09.csv", BAD["a column is missing"][1])
    intake.look()

    def elsewhere(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "rename", elsewhere)
    assert intake.look(after=10)[1] == ["column-missing"]
    assert intake.look(after=10) == NOTHING
    assert intake.quarantine == []


def test_a_good_file_that_takes_the_place_of_a_bad_one_at_the_last_moment_is_put_back(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
):
    path, good = intake.put("small-2026-09.csv", BAD["a column is missing"][1]), intake.put(".good", GOOD)
    intake.look()
    rename = Path.rename

    def overtaken(self: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        good.replace(path)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", overtaken)
    intake.look(after=10)
    assert path.read_text() == GOOD
    assert intake.quarantine == []
    intake.look()
    assert intake.look(after=10) == (["2026-09"], [], False)


def test_a_fault_with_one_file_does_not_keep_others_from_landing(intake: Intake, monkeypatch: pytest.MonkeyPatch):
    for name in ("small-2026-09.csv", "small-2026-08.csv"):
        intake.put(name)
    intake.look()

    def fail(path: Path, spec: Any, name: str) -> Any:
        if path.name == "small-2026-09.csv":
            raise MemoryError(PLANTED)
        return inspection.judge(path, spec)

    monkeypatch.setattr(arrivals_module, "judge", fail)
    with pytest.raises(StageFailedError) as caught:
        intake.look(after=10)
    assert PLANTED not in str(caught.value)
    assert len(intake.arrivals.pending()) == 1
    monkeypatch.undo()
    assert intake.look() == (["2026-09"], [], False)


# ---------------------------------------------------------------- clocks and restarts


def test_looks_outlive_the_process_that_made_them(intake: Intake):
    intake.put("small-2026-10.csv")
    intake.look()
    intake.hand.now += 10
    assert intake.look()[0] == ["2026-10"], "every look is made by a fresh object"


def test_a_clock_that_steps_back_only_starts_the_wait_anew(intake: Intake):
    intake.put("small-2026-10.csv")
    intake.look()
    assert intake.look(after=-500) == WRITING
    assert intake.look(after=9) == WRITING
    assert intake.look(after=1) == (["2026-10"], [], False)


def test_a_clock_that_stands_still_never_takes_a_file_for_complete(intake: Intake):
    intake.put("small-2026-10.csv")
    assert {intake.look()[2] for _ in range(5)} == {True}


def test_looks_by_another_clock_say_nothing(intake: Intake):
    intake.put("small-2026-10.csv", NO_ROWS["a header alone"][1])
    intake.look()
    intake.hand.name, intake.hand.now = "another machine, up for long", 10_000_000.0
    assert intake.look() == WRITING
    assert intake.look(after=10) == WRITING
    assert intake.files, "it was not snatched away"


def test_after_another_start_known_files_are_known_still(intake: Intake):
    intake.put("small-2026-10.csv")
    intake.look()
    intake.look(after=10)
    intake.hand.name, intake.hand.now = "after a restart", 5.0
    intake.look()
    assert intake.look(after=10) == NOTHING
    assert len(intake.arrivals.pending()) == 1


def test_the_steady_clock_is_one_clock_for_all_processes_and_goes_forward():
    first, second = steady_clock(), steady_clock()
    assert first.name == second.name
    assert first.seconds() <= second.seconds()


# ---------------------------------------------------------------- the registry's file


def test_the_registry_is_its_owners_alone_and_holds_no_content(intake: Intake):
    mask = os.umask(0)
    try:
        intake.put("small-2026-10.csv")
        intake.look()
        intake.look(after=10)
    finally:
        os.umask(mask)
    hidden = [p for p in intake.workspace.landing.iterdir() if p.name.startswith(".")]
    assert {stat.S_IMODE(p.stat().st_mode) for p in hidden} == {0o600}
    with closing(sqlite3.connect(intake.workspace.landing / ".arrivals.db")) as db:
        kept = repr(db.execute("SELECT * FROM versions").fetchall())
    assert hashlib.sha256(GOOD.encode()).hexdigest() not in kept, "the fingerprint is keyed"
    assert "small-2026-10.csv" not in repr(intake.arrivals.pending()) + repr(intake.arrivals.registry)


def test_a_damaged_registry_is_refused_and_a_removed_one_starts_anew(intake: Intake):
    intake.put("small-2026-10.csv")
    intake.look()
    registry = intake.workspace.landing / ".arrivals.db"
    registry.write_bytes(b"this is no database, and it is long enough to be taken for one" * 100)
    with pytest.raises(WorkspaceError) as caught:
        intake.look()
    assert caught.value.rule == "arrivals-unusable"
    assert str(intake.workspace.root) not in str(caught.value.as_json())
    registry.unlink()
    intake.look()
    assert intake.look(after=10) == (["2026-10"], [], False)


def test_threads_share_the_registry(intake: Intake):
    for month in range(1, 9):
        intake.put(f"small-2026-{month:02}.csv")
    intake.look()
    intake.look(after=10)
    at = datetime(2026, 11, 16, tzinfo=UTC)

    def work(arrival: Announcement) -> None:
        for _ in range(20):
            intake.arrivals.mark_announced(arrival, at)
        intake.arrivals.mark_handled(arrival.period, arrival.latest or 0)

    threads = [threading.Thread(target=work, args=(arrival,)) for arrival in intake.arrivals.pending()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert intake.arrivals.pending() == []


# ---------------------------------------------------------------- admission


def test_what_was_moved_in_whole_lands_at_once_and_once(intake: Intake):
    path = intake.put("small-2026-10.csv", GOOD.rstrip())
    admission = intake.arrivals.admit(path, intake.spec)
    assert (admission.known, admission.refusal, admission.version.period) == (False, None, "2026-10")
    assert intake.look() == NOTHING
    assert [arrival.period for arrival in intake.arrivals.pending()] == ["2026-10"]
    again = intake.arrivals.admit(path, intake.spec)
    assert (again.known, again.version) == (True, admission.version)


def test_a_bad_file_is_refused_at_once_when_admitted(intake: Intake):
    path = intake.put("small-2026-09.csv", b"")
    admission = intake.arrivals.admit(path, intake.spec)
    assert admission.refusal is not None
    assert admission.refusal.rule == admission.version.refused == "file-empty"
    assert len(intake.quarantine) == 2
    assert intake.arrivals.pending() == []


def test_a_file_that_is_gone_at_once_is_refused(intake: Intake):
    with pytest.raises(LandingError) as caught:
        intake.arrivals.admit(intake.workspace.landing / "small-2026-09.csv", intake.spec)
    assert caught.value.rule == "landing-changed"


# ---------------------------------------------------------------- waiting


def test_nothing_to_wait_for_is_no_wait(intake: Intake):
    assert wait_until_settled(intake.workspace, intake.spec, seconds=0, settle=3600) == ()
