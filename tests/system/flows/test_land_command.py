"""`dprelease land`: a file is moved in whole or not at all, judged before anybody sees it, and announced once."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ROOT
from support.flows.command_line import call
from support.flows.events import LACKING, EventApi, event_api, make_workspace, wait_for
from support.tasks.landing.landings import GOOD, OTHER, PLANTED, SPEC

from flows.server.connection import LOCK
from tasks.intake import moving
from tasks.intake.arrivals import Arrivals
from tasks.workspace.folders import Workspace
from tasks.workspace.locks import hold_lock

MEMORY = Path("/dev/shm")  # noqa: S108  a file system of its own on Linux


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path / "w")


@pytest.fixture
def api() -> Iterator[EventApi]:
    with event_api() as api:
        yield api


@pytest.fixture
def land(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, workspace: Workspace) -> Any:
    """Lands a file; exit code and answer."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)

    def command(source: Path, *options: str) -> tuple[int, dict[str, Any]]:
        argv = ("land", str(source), "-w", str(workspace.root), *options, "--json")
        code, out, err = call(capsys, monkeypatch, *argv)
        assert err == ""
        return code, json.loads(out)

    return command


def source(tmp_path: Path, content: str = GOOD, name: str = "small-2026-10.csv") -> Path:
    path = tmp_path / "incoming" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    return path


def visible(workspace: Workspace) -> dict[str, str]:
    files = [p for p in workspace.landing.rglob("*") if p.is_file() and not p.name.startswith(".")]
    return {str(p.relative_to(workspace.landing)): p.read_text() for p in files}


def drafts(workspace: Workspace) -> list[Path]:
    return list(workspace.landing.glob(f"{moving.DRAFT}*"))


# ---------------------------------------------------------------- landing


def test_a_file_is_moved_in_and_waits_for_a_server(land: Any, workspace: Workspace, tmp_path: Path):
    file = source(tmp_path)
    assert land(file) == (0, {"status": "landed", "period": "2026-10", "announced": False})
    assert not file.exists()
    assert visible(workspace) == {"small-2026-10.csv": GOOD}
    assert drafts(workspace) == []
    (pending,) = Arrivals(workspace).pending()
    assert (pending.period, pending.announced_at) == ("2026-10", None)
    scan = Arrivals(workspace).scan(_spec(workspace), settle=0)
    assert (scan.landed, scan.unsettled) == ((), False), "the watcher has nothing to do"


def _spec(workspace: Workspace) -> Any:
    from tasks.spec import load_spec

    return load_spec(workspace.spec_path)


def test_people_are_told_what_comes_next_and_no_name(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    workspace: Workspace,
    tmp_path: Path,
    api: EventApi,
):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    argv = ("-w", str(workspace.root))
    code, out, _ = call(capsys, monkeypatch, "land", str(source(tmp_path, name=f"small-2026-10-{PLANTED}.csv")), *argv)
    assert code == 0
    assert "landed for 2026-10" in out
    assert "dprelease serve" in out
    assert "dprelease run" in out
    monkeypatch.setenv("PREFECT_API_URL", api.url)
    code, again, _ = call(
        capsys, monkeypatch, "land", str(source(tmp_path, name=f"small-2026-10-{PLANTED}.csv")), *argv, "--replace"
    )
    assert code == 0
    assert "landed earlier" in again
    assert "the release starts" in again
    assert PLANTED not in out + again


def test_people_are_told_when_nothing_follows_by_itself(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    workspace: Workspace,
    tmp_path: Path,
    api: EventApi,
):
    workspace.spec_path.write_text(SPEC.replace("on_landing: true", "on_landing: false"))
    monkeypatch.setenv("PREFECT_API_URL", api.url)
    code, out, _ = call(capsys, monkeypatch, "land", str(source(tmp_path)), "-w", str(workspace.root))
    assert (code, "dprelease run" in out, "the release starts" in out) == (0, True, False)


def test_a_file_is_announced_once_however_often_it_is_landed(
    land: Any, workspace: Workspace, tmp_path: Path, api: EventApi, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PREFECT_API_URL", api.url)
    assert land(source(tmp_path)) == (0, {"status": "landed", "period": "2026-10", "announced": True})
    (workspace.landing / "small-2026-10.csv").unlink()
    answer = {"status": "already-landed", "period": "2026-10", "announced": True}
    assert land(source(tmp_path)) == (0, answer)
    assert land(source(tmp_path), "--replace") == (0, answer)
    assert len(api.taken) == 1
    assert land(source(tmp_path, OTHER), "--replace")[1]["status"] == "landed"
    assert len(api.taken) == len(set(api.tokens)) == 2
    assert visible(workspace) == {"small-2026-10.csv": OTHER}


def test_beside_a_watcher_commands_leave_the_event_to_it(
    land: Any, workspace: Workspace, tmp_path: Path, api: EventApi, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PREFECT_API_URL", api.url)
    with hold_lock(workspace.prefect_home / LOCK):  # as a living `serve` does
        for number in range(3):
            assert land(source(tmp_path, name=f"small-2026-10-{number}.csv"))[1]["announced"] is True
    assert api.taken == []
    (only,) = Arrivals(workspace).pending()
    assert (only.period, only.announced_at) == ("2026-10", None)


def test_a_server_that_does_not_answer_fails_nothing(
    land: Any, tmp_path: Path, workspace: Workspace, api: EventApi, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert land(source(tmp_path))[1]["announced"] is False
    monkeypatch.setenv("PREFECT_API_URL", api.url)
    (workspace.landing / "small-2026-10.csv").unlink()
    assert land(source(tmp_path))[1] == {"status": "already-landed", "period": "2026-10", "announced": True}


PLACES = {
    "a pattern": ("landing/*.csv", "small-2026-10.csv", "small-2026-10.csv"),
    "a folder": ("landing", "small-2026-10.csv", "small-2026-10.csv"),
    "a folder that is not there yet": ("landing/new", "small-2026-10.csv", "new/small-2026-10.csv"),
    "one file": ("landing/small-2026-10.csv", "small-2026-10.csv", "small-2026-10.csv"),
    "all below": ("landing/**/*.csv", "small-2026-10.csv", "small-2026-10.csv"),
    "a folder within": ("landing/*/*.csv", "deep/small-2026-10.csv", "deep/small-2026-10.csv"),
}


@pytest.mark.parametrize("case", PLACES)
def test_the_source_says_where_files_belong(land: Any, workspace: Workspace, tmp_path: Path, case: str):
    path, name, place = PLACES[case]
    workspace.spec_path.write_text(SPEC.replace("landing/*", path))
    assert land(source(tmp_path), "--as", name)[0] == 0
    assert visible(workspace) == {place: GOOD}
    assert len(Arrivals(workspace).pending()) == 1


def test_an_absolute_source_within_the_workspace_is_within(land: Any, workspace: Workspace, tmp_path: Path):
    workspace.spec_path.write_text(SPEC.replace("landing/*", f"{workspace.landing}/*.csv"))
    assert land(source(tmp_path))[0] == 0
    assert len(visible(workspace)) == 1


def test_a_file_that_is_there_already_is_taken_at_the_stewards_word(land: Any, workspace: Workspace):
    path = workspace.landing / "small-2026-10.csv"
    path.write_text(GOOD)
    assert land(path)[1]["status"] == "landed"
    assert visible(workspace) == {"small-2026-10.csv": GOOD}


# ---------------------------------------------------------------- refusals

REFUSED: dict[str, tuple[str, list[str], str, str]] = {
    "a name that does not fit": ("landing/a-*.csv", [], "name-unmatched", "FILE"),
    "another name that does not fit": ("landing/*.csv", ["--as", "x.parquet"], "name-unmatched", "--as"),
    "a hidden name": ("landing/*", ["--as", ".x.csv"], "name-unmatched", "--as"),
    "a way out": ("landing/*", ["--as", "../x.csv"], "name-unmatched", "--as"),
    "an absolute name": ("landing/*", ["--as", "/x.csv"], "name-unmatched", "--as"),
    "the quarantine": ("landing/**/*", ["--as", "quarantine/x.csv"], "name-unmatched", "--as"),
    "another format": ("landing/*", ["--as", "x.xlsx"], "format-unknown", "source.path"),
    "a month that is none": ("landing/*", ["--as", "small-2026-13.csv"], "period-malformed", "source.period"),
    "no month at all": ("landing/*", ["--as", "visits.csv"], "period-missing", "source.period"),
    "a source outside": ("/elsewhere/*.csv", [], "landing-outside", "source.path"),
    "a source beside": ("../elsewhere/*.csv", [], "landing-outside", "source.path"),
    "no such file": ("landing/*", ["GONE"], "file-missing", "FILE"),
    "a folder": ("landing/*", ["FOLDER"], "file-missing", "FILE"),
    "a file that is there": ("landing/*", ["--as", "small-2026-09.csv"], "landing-exists", "FILE"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_land_stays_where_it_is(land: Any, workspace: Workspace, tmp_path: Path, case: str):
    pattern, options, rule, where = REFUSED[case]
    workspace.spec_path.write_text(SPEC.replace("landing/*", pattern))
    (workspace.landing / "small-2026-09.csv").write_text(OTHER)
    file = source(tmp_path, name=f"{PLANTED}.csv")
    given = {"GONE": tmp_path / "gone.csv", "FOLDER": tmp_path}.get(options[0] if options else "", file)
    code, answer = land(given, *(options if given == file else []))
    assert code == 2
    assert (answer["rule"], answer["where"]) == (rule, where)
    assert PLANTED not in json.dumps(answer)
    assert file.read_text() == GOOD
    assert visible(workspace) == {"small-2026-09.csv": OTHER}
    assert drafts(workspace) == []


def test_a_bad_file_goes_into_quarantine_and_the_one_it_was_to_replace_stays(
    land: Any, workspace: Workspace, tmp_path: Path
):
    land(source(tmp_path))
    code, answer = land(source(tmp_path, LACKING), "--replace")
    assert code == 2
    assert (answer["rule"], answer["where"]) == ("column-missing", "columns.sex")
    assert "quarantine" in answer["error"]
    assert not (tmp_path / "incoming" / "small-2026-10.csv").exists()
    files = visible(workspace)
    assert files.pop("small-2026-10.csv") == GOOD
    assert sorted(Path(name).suffix for name in files) == [".csv", ".json"]
    assert all(name.startswith("quarantine/") and "-small-2026-10.csv" in name for name in files)
    assert len(Arrivals(workspace).pending()) == 1


def test_a_complete_file_without_rows_lands(land: Any, workspace: Workspace, tmp_path: Path):
    code, answer = land(source(tmp_path, "age,sex\n"))
    assert (code, answer["status"]) == (0, "landed")
    assert list(visible(workspace)) == ["small-2026-10.csv"]


@pytest.mark.parametrize("content", ["", "age,sex\n41,f,x\n"], ids=["empty", "unreadable"])
def test_a_file_that_is_said_to_be_complete_is_given_no_patience(
    land: Any, workspace: Workspace, tmp_path: Path, content: str
):
    code, answer = land(source(tmp_path, content))
    assert code == 2
    assert answer["rule"] in ("file-empty", "file-unreadable")
    assert list(visible(workspace)) != ["small-2026-10.csv"]
    assert land(source(tmp_path))[1]["status"] == "landed", "the next one is not blocked"


# ---------------------------------------------------------------- other file systems, crashes, full disks


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the source were on another file system."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("far")
def test_from_another_file_system_a_file_is_copied_and_the_source_removed(
    land: Any, workspace: Workspace, tmp_path: Path
):
    file = source(tmp_path)
    assert land(file)[1]["status"] == "landed"
    assert not file.exists()
    assert visible(workspace) == {"small-2026-10.csv": GOOD}
    assert drafts(workspace) == []


@pytest.mark.skipif(not os.access(MEMORY, os.W_OK), reason="there is no second file system")
def test_from_a_real_other_file_system(land: Any, workspace: Workspace):
    folder = MEMORY / f"landing-{os.getpid()}"
    folder.mkdir()
    try:
        file = folder / "small-2026-10.csv"
        file.write_text(GOOD)
        assert land(file)[1]["status"] == "landed"
        assert not file.exists()
        assert visible(workspace) == {"small-2026-10.csv": GOOD}
    finally:
        shutil.rmtree(folder)


def test_of_a_link_the_content_lands_and_the_link_goes(land: Any, workspace: Workspace, tmp_path: Path):
    kept = source(tmp_path, name="kept.csv")
    link = kept.with_name("small-2026-10.csv")
    link.symlink_to(kept)
    assert land(link)[0] == 0
    assert kept.exists()
    assert not link.is_symlink()
    assert not (workspace.landing / "small-2026-10.csv").is_symlink()


@pytest.mark.usefixtures("far")
def test_a_full_disk_leaves_everything_as_it_was(
    land: Any, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(_read: Any, written: Any, _length: int) -> None:
        written.write(b"age,")
        raise OSError(errno.ENOSPC, "No space left on device")

    file = source(tmp_path)
    monkeypatch.setattr(shutil, "copyfileobj", full)
    code, answer = land(file)
    assert (code, answer["rule"]) == (2, "landing-unwritable")
    assert file.read_text() == GOOD
    assert visible(workspace) == {}
    assert drafts(workspace) == []


@pytest.mark.usefixtures("far")
def test_a_file_that_changes_while_it_is_copied_is_refused(
    land: Any, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file, copy = source(tmp_path), shutil.copyfileobj

    def slow(read: Any, written: Any, length: int) -> None:
        copy(read, written, length)
        with file.open("a") as more:
            more.write("43,f\n")

    monkeypatch.setattr(shutil, "copyfileobj", slow)
    code, answer = land(file)
    assert (code, answer["rule"]) == (2, "landing-changed")
    assert file.exists()
    assert visible(workspace) == {}
    assert drafts(workspace) == []


STALLING = """
import os, shutil, sys, time
from pathlib import Path
from tasks.intake import arrivals

reached, moment = Path(sys.argv[1]), sys.argv[2]

def refuse(*_a, **_k):
    raise OSError(18, "Invalid cross-device link")

def half(read, written, length):
    written.write(read.read(9)); written.flush()
    reached.touch(); time.sleep(3600)

def stall(*_a, **_k):
    reached.touch(); time.sleep(3600)

os.link = refuse
if moment == "while it is copied":
    shutil.copyfileobj = half
elif moment == "before it is seen":
    arrivals.judge = stall
else:
    Path.unlink = stall
sys.argv = ["dprelease", "land", *sys.argv[3:]]
from flows.cli import main
main()
"""


@pytest.mark.parametrize("moment", ["while it is copied", "before it is seen", "before the source is removed"])
def test_a_command_that_is_killed_never_leaves_half_a_file(
    land: Any, workspace: Workspace, tmp_path: Path, moment: str
):
    file, reached = source(tmp_path), tmp_path / "reached"
    process = subprocess.Popen(
        [sys.executable, "-c", STALLING, str(reached), moment, str(file), "-w", str(workspace.root)], cwd=ROOT
    )
    try:
        wait_for(reached.exists, moment)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    assert file.read_text() == GOOD, "the source goes last"
    seen = visible(workspace)
    assert seen in ({}, {"small-2026-10.csv": GOOD})
    assert land(file, "--replace")[1]["status"] == "landed"
    assert visible(workspace) == {"small-2026-10.csv": GOOD}
    assert drafts(workspace) == []
    assert len(Arrivals(workspace).pending()) == 1


def test_landing_needs_no_orchestrator(workspace: Workspace, tmp_path: Path):
    code = """
import sys
sys.argv = ["dprelease", "land", *sys.argv[1:]]
from flows.cli import main
try:
    main()
finally:
    assert not [name for name in sys.modules if name.partition(".")[0] == "prefect"]
"""
    argv = [sys.executable, "-c", code, str(source(tmp_path)), "-w", str(workspace.root)]
    subprocess.run(argv, cwd=ROOT, check=True, timeout=120, stdout=subprocess.DEVNULL)
