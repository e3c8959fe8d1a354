"""The orchestrator's history of the story: names, tags, artifacts and states that tell it, and nothing private."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.flows.storybook import Story

from flows.run_history import complete_runs, recorded_runs
from tasks.ledger.entries.entry import Entry
from tasks.ledger.store import Ledger
from tasks.workspace.folders import Workspace

STAGES = {"allocation", "budget", "projection", "noise", "spectrum", "utility", "release-card"}
FIRST = ("visits-2026-03-1", "COMPLETED")
ARROWS = {
    ("allocate budget", "project"),
    ("project", "estimate moments"),
    ("estimate moments", "sample"),
    ("sample", "decode"),
    ("decode", "check"),
    ("check", "publish"),
}
PICTURE_LIMIT = 100_000


@pytest.fixture
def database(story: Story) -> Iterator[sqlite3.Connection]:
    path = story.workspace / "prefect" / "prefect.db"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        yield connection


@pytest.fixture
def runs(story: Story) -> dict[str, Any]:
    return dict(recorded_runs(Workspace(story.workspace)) or {})


@pytest.fixture
def entries(story: Story) -> list[Entry]:
    with closing(Ledger.open_to_read(story.workspace / "ledger.db")) as ledger:
        return ledger.entries()


def artifacts_of(database: sqlite3.Connection, flow_run_id: str) -> dict[str, Any]:
    query = "select key, data from artifact where flow_run_id = ? and key is not null"
    rows = database.execute(query, (flow_run_id,)).fetchall()
    return {key.removeprefix("visits-"): json.loads(data) for key, data in rows}


def row_of(story: Story, step: str, release_id: str) -> dict[str, Any]:
    row: dict[str, Any] = next(r for r in story.json(step)["releases"] if r["release_id"] == release_id)
    return row


def test_every_run_is_named_after_its_release_and_how_it_ended(runs: dict[str, Any]) -> None:
    names = {(run["name"], run["state"]) for run in runs.values()}
    assert {
        ("visits-2026-03-1", "COMPLETED"),
        ("visits-2026-03-1 (again)", "COMPLETED"),
        ("visits-2026-11-1 (refused)", "FAILED"),
        ("visits-2026-05-1", "FAILED"),
        ("visits-2026-05-1", "COMPLETED"),
        ("visits-2026-07-1 (refused)", "FAILED"),
        ("visits-2026-07-1", "COMPLETED"),
        ("visits-2026-04", "FAILED"),  # it crashed before the release had an id
    } <= names
    assert all(name.startswith("visits-2026-") for name, _ in names)


def test_the_runs_graph_leads_from_stage_to_stage(database: sqlite3.Connection, runs: dict[str, Any]) -> None:
    published = next(key for key, run in runs.items() if (run["name"], run["state"]) == FIRST)
    query = "select id, name, task_inputs, tags from task_run where flow_run_id = ?"
    stages = database.execute(query, (published,)).fetchall()
    names = {key: name for key, name, _, _ in stages}
    arrows = {
        (names[source["id"]], name)
        for _, name, inputs, _ in stages
        for sources in json.loads(inputs).values()
        for source in sources
    }
    assert arrows >= ARROWS
    held = [json.loads(inputs).get(name, []) for _, _, inputs, _ in stages for name in ("run", "planned")]
    assert held == [[]] * 2 * len(stages)  # what the run holds is not searched
    assert all(json.loads(tags) == [] for *_, tags in stages)  # else a slot is asked for before every stage


def test_every_ledger_entry_of_a_run_is_a_tag_of_that_run(runs: dict[str, Any], entries: list[Entry]) -> None:
    tagged = {int(tag.split(":")[1]) for run in runs.values() for tag in run["tags"] if tag.startswith("ledger-entry:")}
    kinds = ("reserve", "spend", "await", "publish", "fail", "void", "refuse")
    by_a_person = {entry.seq + 1 for entry in entries if entry.kind == "approve"}  # no run wrote that publication
    assert tagged == {entry.seq for entry in entries if entry.kind in kinds} - by_a_person
    for entry in entries:
        if entry.flow_run_id and entry.seq not in by_a_person:
            run = runs[entry.flow_run_id]
            assert {"visits", entry.release_id, f"ledger-entry:{entry.seq}"} <= set(run["tags"])


def test_a_published_run_shows_every_stage(story: Story, database: sqlite3.Connection) -> None:
    row = row_of(story, "history", "visits-2026-03-1")
    shown = artifacts_of(database, row["flow_run_id"])
    assert set(shown) == STAGES
    card = shown["release-card"]
    publish = next(entry for entry in story.json("show all")["ledger"] if entry["kind"] == "publish")
    for link in (row["flow_run_id"], publish["hash"], story.json("show all")["bundle"]["digest"], "report.html"):
        assert link in card
    for name in ("spectrum", "utility"):
        picture = base64.b64decode(shown[name].partition("base64,")[2].rstrip(")"))
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < PICTURE_LIMIT


def test_a_run_that_failed_says_what_was_spent_and_how_to_go_on(story: Story, database: sqlite3.Connection) -> None:
    row = row_of(story, "history", "visits-2026-05-1")
    failed = next(run for run in row["flow_runs"] if run["state"] == "FAILED")
    shown = artifacts_of(database, failed["id"])
    assert set(shown) == STAGES - {"release-card"} | {"unfinished"}
    assert "checks failed: mean_gap" in shown["unfinished"]
    assert "dprelease run --period 2026-05" in shown["unfinished"]
    assert "epsilon 1 (it stays spent)" in shown["unfinished"]


def test_a_run_that_the_budget_refused_says_so(story: Story, database: sqlite3.Connection) -> None:
    (row,) = story.json("history while refused")["releases"]
    assert (row["release_id"], row["status"], row["epsilon"]) == ("visits-2026-07-1", "refused", 1.0)
    assert "epsilon 5 of 5" in row["reason"]
    shown = artifacts_of(database, row["flow_run_id"])
    assert set(shown) == {"refused"}
    assert "budget-exceeded" in shown["refused"]
    message = database.execute("select message from flow_run_state where message like '%BudgetExceeded%'").fetchone()[0]
    assert "the lifetime budget of 'patients' does not allow this release" in message


def test_a_release_refused_first_and_published_later_is_published(story: Story) -> None:
    row = row_of(story, "history", "visits-2026-07-1")
    assert row["status"] == "published"
    assert {run["state"] for run in row["flow_runs"]} == {"FAILED", "COMPLETED"}
    assert row["flow_run"]["state"] == "COMPLETED"


VERDICTS = ("column-missing", "column-undeclared", "column-type", "file-unreadable", "file-empty")
"""Rules on landing data, as the operator is told them."""


def test_no_verdict_on_landing_data_is_in_the_orchestrators_database(story: Story) -> None:
    home = story.workspace / "prefect"
    content = b"".join(path.read_bytes() for path in home.glob("prefect.db*"))
    assert b"the landing data were refused; the operator was told why" in content
    told = [rule for rule in VERDICTS if rule.encode() in content]
    messages = [story.json(f"refuse {name}.parquet")["error"] for name in ("missing-column", "wrong-type")]
    assert told + [message for message in messages if message.encode() in content] == []


def test_the_operator_keeps_the_verdict(story: Story) -> None:
    """Of what only reading finds; a structure that does not fit is told on the terminal, before there is a run."""
    kept = json.loads((story.workspace / "landing" / "verdicts" / "visits-2026-11-1.json").read_text())
    assert {verdict["rule"] for verdict in kept["verdicts"]} == {story.json("refuse damaged.parquet")["rule"]}


def test_history_joins_ledger_runs_and_commands(story: Story) -> None:
    row = row_of(story, "history after the crash", "visits-2026-04-3")
    assert (row["status"], row["next"]) == ("failed", "dprelease run --period 2026-04")
    assert row["flow_run"]["state"] == "FAILED"
    contract = {"release_id", "period", "status", "epsilon", "delta", "flow_run_id", "published_at"}
    added = {"ledger_entries", "flow_run", "flow_runs", "approval", "reason", "next"}
    for row in story.json("history")["releases"]:
        assert contract | added <= set(row)
        assert row["ledger_entries"] == sorted(row["ledger_entries"])


def test_show_all_joins_everything_of_a_superseded_release(story: Story) -> None:
    whole = story.json("show all")
    assert (whole["status"], whole["superseded_by"]) == ("superseded", "visits-2026-03-2")
    assert whole["bundle"]["as_published"]
    assert whole["record"]["release_id"] == "visits-2026-03-1"
    assert [entry["kind"] for entry in whole["ledger"]] == ["reserve", "spend", "publish"]
    assert whole["flow_runs"][0]["name"] == "visits-2026-03-1"


def test_the_audit_sees_the_same_runs(story: Story, runs: dict[str, Any]) -> None:
    assert complete_runs(Workspace(story.workspace)) == runs
    words = next(check["detail"] for check in story.json("audit")["checks"] if check["name"] == "flow runs")
    assert words.endswith("runs of the ledger are in the history")


def test_the_folder_of_the_story_is_no_part_of_what_is_told(story: Story, database: sqlite3.Connection) -> None:
    texts = [str(row[0]) for row in database.execute("select data from artifact where key is not null")]
    assert not [text for text in texts if str(Path(story.base)) in text]
