"""The landing watcher as a real process: one event for a month's files, whoever is killed, and nothing told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support import ROOT
from support.flows.events import (
    LACKING,
    EventApi,
    event_api,
    make_workspace,
    mute_server,
    parquet,
    wait_for,
    watching,
)
from support.tasks.landing.landings import GOOD, OTHER, PLANTED, SPEC

from flows.announce import AGAIN_SECONDS, announce_due, event_of, is_due
from flows.server.connection import LOCK, PASSWORD, SERVING, Server, ServerUnreachableError
from flows.watcher import BROKEN_SECONDS
from tasks.intake.arrivals import Arrivals
from tasks.intake.file_registry import Announcement
from tasks.spec import parse_spec
from tasks.workspace.folders import Workspace
from tasks.workspace.locks import hold_lock

PATIENT = ("--patience", "60")
"""What looks unfinished is left alone for longer than a busy machine keeps a test from writing on."""
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path / "w")


@pytest.fixture
def api() -> Iterator[EventApi]:
    with event_api() as api:
        yield api


def landed(workspace: Workspace) -> list[str | None]:
    return [version.period for version in Arrivals(workspace).pending()]


# ---------------------------------------------------------------- landing


@pytest.mark.parametrize("options", [(), pytest.param(("--poll",), marks=pytest.mark.slow)], ids=["told", "polling"])
def test_what_is_written_slowly_is_announced_once_and_nothing_of_it_told(
    workspace: Workspace, api: EventApi, options: tuple[str, ...]
):
    slow, content = workspace.landing / f"small-2026-10-{PLANTED}.csv", parquet()
    (workspace.landing / f"small-2026-08-{PLANTED}.csv").write_text(GOOD)  # before the watcher started
    with watching(workspace, api.url, *PATIENT, *options) as watcher:
        wait_for(lambda: len(api.taken) == 1, "what was there at the start")
        with slow.open("w") as file:
            file.write("age,sex\n41,")
            for _ in range(20):  # for longer than a file needs to settle; it always stops within a line
                file.write("f\n41,")
                file.flush()
                time.sleep(0.1)
            assert len(api.taken) == 1, "not while it grows"
            file.write("f\n")
        whole = workspace.landing / f"small-2026-09-{PLANTED}.parquet"
        for start in range(0, len(content), 4096):
            with whole.open("ab") as file:
                file.write(content[start : start + 4096])
            time.sleep(0.05)
        wait_for(lambda: len(api.taken) == 3, "all of them")
        (workspace.landing / "small-2026-11.csv").write_text(LACKING)
        wait_for(lambda: "quarantine (column-missing)" in watcher.said, "the bad one")
        arrivals = Arrivals(workspace)
        arrivals.mark_handled("2026-10", arrivals.latest("2026-10"))  # as the run does that the event triggers
        slow.write_text(OTHER)  # in place: a new version
        wait_for(lambda: len(api.taken) == 4, "the new version")
    assert len(set(api.tokens)) == len({event["id"] for event in api.taken}) == 4
    for month in ("2026-08", "2026-09", "2026-10"):
        assert f"data landed for {month}\n" in watcher.said
    everything = "".join(api.requests) + watcher.said
    assert PLANTED not in everything
    assert str(workspace.root) not in everything
    assert str(len(content)) not in "".join(json.dumps(event["payload"]) for event in api.taken)
    assert {frozenset(event["payload"]) for event in api.taken} == {frozenset({"arrival"})}
    assert not list(workspace.landing.glob("small-2026-11*"))


@pytest.mark.parametrize("files", [1, 5])
def test_a_month_s_files_are_one_event_whatever_their_number(workspace: Workspace, api: EventApi, files: int):
    first, *others = (workspace.landing / f"small-2026-10-{number}.csv" for number in range(files))
    first.write_text(GOOD[:-1])  # a last line without an end: nothing is announced before it has one
    with watching(workspace, api.url, *PATIENT) as watcher:
        for other in others:
            other.write_text(GOOD)
        first.write_text(GOOD)
        wait_for(lambda: api.taken, "the month's event")
        (workspace.landing / "small-2026-11.csv").write_text(GOOD)
        wait_for(lambda: len(set(api.tokens)) == 2, "another month's, so that more of the first would have been seen")
    assert len(api.taken) == 2
    assert watcher.said.count("data landed for 2026-10") <= files
    sizes = {len(json.dumps(event)) for event in api.taken}
    assert len(sizes) == 1, "an event is as long for many files as for one"


# ---------------------------------------------------------------- restarts


def test_a_watcher_killed_between_landing_and_announcing_neither_loses_nor_repeats(workspace: Workspace, api: EventApi):
    api.status = 503
    (workspace.landing / "small-2026-10.csv").write_text(GOOD)
    with watching(workspace, api.url) as watcher:
        wait_for(lambda: api.refused, "an attempt to announce")
        assert watcher.end(signal.SIGKILL) == -signal.SIGKILL
    assert landed(workspace) == ["2026-10"]
    api.status = 204
    with watching(workspace, api.url) as watcher:
        wait_for(lambda: api.taken, "the event after the restart")
        watcher.end(signal.SIGKILL)
    with watching(workspace, api.url):
        (workspace.landing / "small-2026-11.csv").write_text(OTHER)
        wait_for(lambda: len(set(api.tokens)) > 1, "the next file's event")
    assert list(dict.fromkeys(api.tokens)) == [v.token for v in Arrivals(workspace).pending()]
    assert len({event["id"] for event in api.taken}) == 2, "a server takes an id once"


def test_an_event_whose_answer_was_never_heard_is_repeated_by_the_same_id(workspace: Workspace, api: EventApi):
    api.answering.clear()
    (workspace.landing / "small-2026-10.csv").write_text(GOOD)
    with watching(workspace, api.url) as watcher:
        wait_for(lambda: api.taken, "the first attempt")
        watcher.end(signal.SIGKILL)
    api.answering.set()
    with watching(workspace, api.url):
        wait_for(lambda: len(api.taken) == 2, "the second attempt")
    assert len({(event["id"], event["payload"]["arrival"]) for event in api.taken}) == 1


def test_a_server_that_is_down_only_makes_what_landed_wait(workspace: Workspace):
    with mute_server() as mute, watching(workspace, mute.url) as watcher:
        (workspace.landing / "small-2026-10.csv").write_text(GOOD)
        wait_for(lambda: "does not answer" in watcher.said, "the news")
        wait_for(lambda: mute.asked >= 3, "two more attempts")
        assert watcher.said.count("does not answer") == 1
        assert watcher.process.poll() is None
    assert landed(workspace) == ["2026-10"]


def test_a_server_that_starts_later_is_found(workspace: Workspace, api: EventApi):
    (workspace.landing / "small-2026-10.csv").write_text(GOOD)
    with watching(workspace) as watcher:
        wait_for(lambda: "landed" in watcher.said, "the landing")
        (workspace.prefect_home / PASSWORD).write_text("operator:secret\n")
        (workspace.prefect_home / SERVING).write_text(json.dumps({"api_url": api.url}))
        with hold_lock(workspace.prefect_home / LOCK):  # as a living `serve` does
            wait_for(lambda: api.taken, "the event")


def test_a_broken_specification_is_told_once_and_mended_without_a_restart(workspace: Workspace, api: EventApi):
    workspace.spec_path.write_text(SPEC.replace("epsilon: 1,", ""))
    (workspace.landing / "small-2026-10.csv").write_text(GOOD)
    with watching(workspace, api.url) as watcher:
        wait_for(lambda: "landing data cannot be processed now" in watcher.said, "the news")
        (workspace.landing / "small-2026-11.csv").write_text(GOOD)  # it looks at once,
        time.sleep(BROKEN_SECONDS + 0.5)  # and after a while
        workspace.spec_path.write_text(SPEC)
        wait_for(lambda: len(api.taken) == 2, "both files")
        news = [line for line in watcher.said.splitlines() if "landed" not in line]
        assert [
            ("landing data cannot be processed now" in line, "landing data can be processed again" in line)
            for line in news
        ] == [
            (True, False),
            (False, True),
        ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
def test_a_signal_ends_it_well_and_before_anything_else_is_done(
    workspace: Workspace, api: EventApi, number: signal.Signals
):
    with watching(workspace, api.url) as watcher:
        (workspace.landing / "small-2026-10.csv").write_text(GOOD)
        wait_for(lambda: api.taken, "that it is at work")
        watcher.process.send_signal(signal.SIGSTOP)  # so that the next file and the signal come together
        (workspace.landing / "small-2026-11.csv").write_text(GOOD)
        watcher.process.send_signal(number)
        assert watcher.end(signal.SIGCONT) == 0
        assert "Traceback" not in watcher.said
    assert landed(workspace) == ["2026-10"]


def test_a_signal_ends_it_while_the_server_does_not_answer(workspace: Workspace, api: EventApi):
    api.answering.clear()
    with watching(workspace, api.url) as watcher:
        (workspace.landing / "small-2026-10.csv").write_text(GOOD)
        wait_for(lambda: api.taken, "that it waits for the answer")
        assert watcher.end(signal.SIGTERM) == 0
        assert "does not answer" not in watcher.said, "as it would say after ten seconds"


def test_a_folder_that_is_no_workspace_is_refused(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "flows.watcher", str(tmp_path / "nowhere")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "does not exist" in done.stderr


# ---------------------------------------------------------------- with the command


@pytest.mark.slow
def test_the_command_and_two_watchers_announce_every_file_once(workspace: Workspace, api: EventApi, tmp_path: Path):
    environment = {"PATH": os.environ["PATH"], "PREFECT_API_URL": api.url}
    with watching(workspace, api.url, settle=0.2), watching(workspace, api.url, settle=0.2) as watcher:
        commands = []
        for month in range(1, 5):
            source = tmp_path / f"small-2026-{month:02}.csv"
            source.write_text(GOOD)
            argv = [str(Path(sys.executable).with_name("dprelease")), "land", str(source), "-w", str(workspace.root)]
            commands.append(subprocess.Popen([*argv, "--json"], stdout=subprocess.PIPE, env=environment, cwd=tmp_path))
            (workspace.landing / f"small-2025-{month:02}.csv").write_text(GOOD)
        for command in commands:
            answer = json.loads(command.communicate(timeout=120)[0])
            assert answer["status"] == "landed"
            assert answer["announced"] is True
        wait_for(lambda: len(api.taken) == 8, "all events")
        (workspace.landing / "small-2024-01.csv").write_text(GOOD)
        wait_for(lambda: len(api.taken) >= 9, "one more, so that repetitions would have been seen")
        assert watcher.process.poll() is None
    assert len(api.taken) == len(set(api.tokens)) == 9


# ---------------------------------------------------------------- announcing


def version(**changes: object) -> Announcement:
    return Announcement(**({"token": "t" * 32, "period": "2026-10", "latest": 1} | changes))  # type: ignore[arg-type]


AGES = {
    "never": (None, True),
    "a moment ago": (0.0, False),
    "nearly long ago": (AGAIN_SECONDS - 1, False),
    "long ago": (AGAIN_SECONDS, True),
    "in the future, by a clock that was set back": (-3600.0, True),
}


@pytest.mark.parametrize("case", AGES)
def test_what_nobody_handled_is_announced_again_after_a_while(case: str):
    age, due = AGES[case]
    at = None if age is None else NOW - timedelta(seconds=age)
    assert is_due(version(announced_at=at), NOW, again=True) is due
    assert is_due(version(announced_at=at), NOW, again=False) is (age is None), "where nobody handles, once is enough"


def test_what_was_handled_is_never_announced_again(workspace: Workspace, api: EventApi):
    spec, arrivals, server = parse_spec(SPEC), Arrivals(workspace), Server(api.url)
    for month in ("2026-09", "2026-10"):
        path = workspace.landing / f"small-{month}.csv"
        path.write_text(GOOD)
        arrivals.admit(path, spec)
    first, second = arrivals.pending()
    announce_due(server, arrivals, spec, ready=lambda arrival: arrival == second)
    assert api.tokens == [second.token]
    announce_due(server, arrivals, spec)
    assert api.tokens == [second.token, first.token]
    for arrival in arrivals.pending():
        arrivals.mark_announced(arrival, NOW - timedelta(days=1))
    arrivals.mark_handled("2026-10", arrivals.latest("2026-10"))
    api.alive = [first.token]
    announce_due(server, arrivals, spec)
    assert api.tokens == [second.token, first.token], "a run deals with it now"
    api.alive = []
    announce_due(server, arrivals, spec)
    assert api.tokens == [second.token, first.token, first.token]
    assert api.taken[1]["id"] != api.taken[2]["id"], "a server that has seen the first one must act on the second"


def test_later_files_of_a_month_wait_for_the_run_of_the_earlier_ones(workspace: Workspace, api: EventApi):
    spec, arrivals, server = parse_spec(SPEC), Arrivals(workspace), Server(api.url)

    def lands(name: str) -> None:
        path = workspace.landing / name
        path.write_text(GOOD)
        arrivals.admit(path, spec)

    lands("small-2026-10-1.csv")
    announce_due(server, arrivals, spec)
    for number in range(2, 5):
        lands(f"small-2026-10-{number}.csv")
        announce_due(server, arrivals, spec)
    assert len(api.tokens) == 1, "somebody is to handle the first one"
    lands("small-2026-11.csv")
    announce_due(server, arrivals, spec)
    assert len(api.tokens) == 2, "another month does not wait"
    (sent, *_) = arrivals.pending()
    arrivals.mark_announced(sent, datetime.now(UTC) - timedelta(days=1))
    api.alive = [sent.token]
    announce_due(server, arrivals, spec)
    assert len(api.tokens) == 2, "its run is under way, however long it takes"
    api.alive = []
    announce_due(server, arrivals, spec)
    assert len(set(api.tokens)) == 3, "one event for all that came meanwhile"
    nobody = parse_spec(SPEC.replace("on_landing: true", "on_landing: false"))
    lands("small-2026-10-9.csv")
    announce_due(server, arrivals, nobody)
    assert len(set(api.tokens)) == 4, "where nobody handles, nothing is waited for"


def test_what_could_not_be_announced_stays_pending(workspace: Workspace, api: EventApi):
    spec, arrivals = parse_spec(SPEC), Arrivals(workspace)
    path = workspace.landing / "small-2026-10.csv"
    path.write_text(GOOD)
    arrivals.admit(path, spec)
    api.status = 500
    for url in (api.url, "http://127.0.0.1:9/api"):
        with pytest.raises(ServerUnreachableError):
            announce_due(Server(url), arrivals, spec)
    assert [v.announced_at for v in arrivals.pending()] == [None]


def test_the_event_is_one_that_prefect_takes(tmp_path: Path):
    event = event_of(parse_spec(SPEC), version(), NOW)
    code = """
import json, sys
from prefect.server.events.schemas.events import Event
event = Event.model_validate(json.load(sys.stdin))
print(event.event, event.resource.id, event.resource.name, event.payload, event.occurred.isoformat(), event.id)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(event),
        text=True,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PREFECT_HOME": str(tmp_path), "DO_NOT_TRACK": "1"},
        check=True,
    )
    name, resource, shown, *rest = done.stdout.split()
    assert (name, resource, shown) == ("dprelease.month.landed", "dprelease.dataset.small", "small")
    assert rest[-1] == event["id"]
    assert event_of(parse_spec(SPEC), version(), NOW + timedelta(seconds=59.9))["occurred"] == NOW.isoformat()
    assert event_of(parse_spec(SPEC), version(), NOW + timedelta(days=1))["id"] == event["id"]
    assert event_of(parse_spec(SPEC), version(token="u" * 32), NOW)["id"] != event["id"]
    assert event_of(parse_spec(SPEC), version(announced_at=NOW), NOW)["id"] != event["id"]
