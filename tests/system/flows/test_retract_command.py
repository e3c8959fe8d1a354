"""`dprelease retract`, and what other commands say of a retracted release."""

from __future__ import annotations

import getpass
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.flows.command_line import call
from support.tasks.lineage.endpoints import Collector, free_port
from support.tasks.staged import SPEC, land_rows, release

from dpcore.errors import CheckFailedError
from flows.server import connection
from flows.server.connection import ServerUnreachableError
from tasks.lineage.events import events_of
from tasks.workspace.folders import Workspace, mark_beside

ID, OTHER = "small-2026-01-1", "small-2026-02-1"
REASON = "a person asked for erasure"


@pytest.fixture
def run(workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda *argv: call(capsys, monkeypatch, *argv, "-w", str(workspace.root))


@pytest.fixture
def retracted(run: Any) -> None:
    assert run("retract", ID, "--reason", REASON, "--who", "the data board")[0] == 0


# ---------------------------------------------------------------- the command


def test_it_says_in_json_what_was_written_and_where(run: Any, workspace: Workspace) -> None:
    code, out, err = run("retract", ID, "--reason", REASON, "--json")
    content = json.loads(out)
    assert (code, err) == (0, "")
    bundle = workspace.bundle("small", ID)
    assert content.pop("key")
    assert content == {
        "release_id": ID,
        "status": "retracted",
        "retracted_by": getpass.getuser(),
        "reason": REASON,
        "ledger_entry": 9,
        "bundle": str(bundle),
        "mark": str(mark_beside(bundle)),
    }
    assert mark_beside(bundle).is_file()


def test_it_says_in_words_who_and_where_the_mark_is(run: Any, workspace: Workspace) -> None:
    code, out, _ = run("retract", ID, "--reason", REASON, "--who", "the [red]data board[/]")
    assert code == 0
    assert f"{ID}: retracted (by the [red]data board[/], ledger entry 9)" in out
    assert str(mark_beside(workspace.bundle("small", ID))) in out
    shutil.rmtree(workspace.bundle("small", OTHER))
    assert "its bundle is not in this workspace" in run("retract", OTHER, "--reason", REASON)[1]


REFUSED = {
    "an unknown release": ([OTHER + "0", "--reason", REASON], "release-unknown"),
    "an empty reason": ([ID, "--reason", " "], "reason-missing"),
    "nobody": ([ID, "--reason", REASON, "--who", " "], "who-missing"),
    "a reason that is no text": ([ID, "--reason", "\udcff"], "text-unwritable"),
    "no reason": ([ID], "usage"),
    "no release": (["--reason", REASON], "usage"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_retracted_is_refused_in_words_and_in_json(run: Any, workspace: Workspace, case: str) -> None:
    argv, rule = REFUSED[case]
    before = workspace.ledger_path.read_bytes()
    code, out, _ = run("retract", *argv, "--json")
    assert (code, json.loads(out)["rule"]) == (2, rule)
    assert set(json.loads(out)) == {"error", "rule", "where", "hint"}
    code, out, err = run("retract", *argv)
    assert (code, out) == (2, "")
    assert err.strip()
    assert "Traceback" not in err
    assert workspace.ledger_path.read_bytes() == before


def test_twice_is_refused_with_who_did_it_before(run: Any, retracted: None) -> None:
    code, out, _ = run("retract", ID, "--reason", "again", "--json")
    assert (code, json.loads(out)["rule"]) == (2, "release-retracted")
    assert "the data board" in json.loads(out)["error"]


def test_a_release_that_was_never_published_is_refused(run: Any, workspace: Workspace) -> None:
    workspace.spec_path.write_text(SPEC + "checks: {signal_to_noise: 100000}\n")
    land_rows(workspace.root, "2026-03")
    with pytest.raises(CheckFailedError):
        release(workspace, "2026-03")
    code, out, _ = run("retract", "small-2026-03-1", "--reason", REASON, "--json")
    assert (code, json.loads(out)["rule"]) == (2, "release-not-published")
    assert "check-failed" in json.loads(out)["error"]


def test_the_month_is_refused_before_a_server_starts(run: Any, retracted: None) -> None:
    code, out, _ = run("run", "--period", "2026-01", "--json")
    assert (code, json.loads(out)["rule"]) == (2, "release-retracted")


# ---------------------------------------------------------------- what it tells others


class Prefect:
    """A server that keeps what it is asked, or does not answer."""

    def __init__(self, *, answers: bool = True) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self._answers = answers

    def ask(self, method: str, path: str, body: Any = None, *, seconds: float) -> Any:
        if not self._answers:
            raise ServerUnreachableError
        self.asked.append((method, path, body))
        return {"tags": ["small", "ledger-entry:3"]} if method == "GET" else {}


@pytest.mark.parametrize("answers", [True, False])
def test_the_flow_run_is_marked_where_a_server_answers(
    run: Any, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    server = Prefect(answers=answers)
    monkeypatch.setattr(connection, "known_server", lambda _: server)
    assert run("retract", ID, "--reason", REASON, "--who", "ada")[0] == 0
    if answers:
        (_, page, _), (_, _, tags), (_, place, state) = server.asked
        assert (page, place) == ("/flow_runs/run", "/flow_runs/run/set_state")
        assert tags == {"tags": ["small", "ledger-entry:3", "ledger-entry:9"]}
        assert state["state"] == {"type": "COMPLETED", "name": "Retracted", "message": "retracted by ada"}


def with_endpoint(workspace: Workspace, url: str) -> None:
    with workspace.spec_path.open("a") as file:
        file.write(f"lineage: {{url: '{url}'}}\n")


def test_the_endpoint_for_lineage_is_told_at_once(run: Any, workspace: Workspace) -> None:
    with Collector() as collector:
        with_endpoint(workspace, collector.url)
        code, _, err = run("retract", ID, "--reason", REASON)
    told = [json.loads(line) for line in collector.lines]
    assert (code, err) == (0, "")
    assert told == events_of(workspace.lineage_path)
    (dataset,) = told[-1]["outputs"]
    assert dataset["name"] == f"{ID}/bundle"
    assert dataset["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "DROP"


def test_an_endpoint_that_is_down_is_told_later(run: Any, workspace: Workspace) -> None:
    with_endpoint(workspace, f"http://127.0.0.1:{free_port()}")
    code, _, err = run("retract", ID, "--reason", REASON)
    assert code == 0
    assert "dprelease lineage --flush" in err


# ---------------------------------------------------------------- what other commands say


def test_history_shows_the_status_and_why(run: Any, retracted: None) -> None:
    rows = {row["release_id"]: row for row in json.loads(run("history", "--json")[1])["releases"]}
    said = rows[ID]["retraction"]
    assert rows[ID]["status"] == "retracted"
    assert (said["who"], said["reason"], said["ledger_entry"]) == ("the data board", REASON, 9)
    assert rows[ID]["ledger_entries"] == [3, 4, 5, 9]
    assert rows[OTHER]["retraction"] is None
    out = run("history")[1]
    assert f"{ID} (retracted): by the data board, " in out
    assert REASON in out
    assert [
        row["release_id"] for row in json.loads(run("history", "--status", "retracted", "--json")[1])["releases"]
    ] == [ID]


def test_show_says_it_and_its_record_comes_with_a_warning(run: Any, workspace: Workspace, retracted: None) -> None:
    out = run("show", ID)[1]
    assert "status" in out
    assert "by the data board" in out
    assert "matches the ledger" in out
    code, out, err = run("show", ID, "--json")
    assert (code, json.loads(out)["release_id"]) == (0, ID)
    assert f"! {ID} was retracted by the data board" in err
    shutil.rmtree(workspace.bundle("small", ID))
    code, out, _ = run("show", ID)
    assert code == 0
    assert "the bundle of a retracted release may be deleted" in out
    assert "DOES NOT" not in out
    code, out, _ = run("show", ID, "--json")
    assert (code, json.loads(out)["rule"]) == (2, "release-retracted")
    whole = json.loads(run("show", ID, "--all", "--json")[1])
    assert (whole["status"], whole["retraction"]["who"], whole["record"]) == ("retracted", "the data board", None)


def test_the_budget_counts_it_and_names_it(run: Any) -> None:
    before = json.loads(run("budget", "--json")[1])
    assert before["retracted"] == []
    run("retract", ID, "--reason", REASON)
    after = json.loads(run("budget", "--json")[1])
    assert after == before | {"retracted": [ID]}
    assert f"retracted, and still spent: {ID}" in run("budget")[1]


def test_lineage_shows_who_withdrew_what(run: Any, retracted: None) -> None:
    words = run("lineage", ID)[1]
    stage = words.partition("retract ")[2]
    assert "→ bundle" in stage
    assert "withdrew bundle: ledger entry 9" in stage
    assert "wrote" not in stage
    graph = json.loads(run("lineage", ID, "--json")[1])
    (node,) = (node for node in graph["nodes"] if node["name"] == "bundle")
    assert node["withdrawn"]["ledgerEntry"] == 9


def test_checks_are_shown_with_a_warning_while_the_bundle_is_there(
    run: Any, workspace: Workspace, retracted: None
) -> None:
    code, out, err = run("check", ID)
    assert code == 0
    assert f"checks of {ID}" in out
    assert f"! {ID} was retracted by the data board" in err
    code, out, _ = run("check", ID, "--json")
    assert (code, json.loads(out)["retracted"]) == (0, True)
    code, out, err = run("check", OTHER, "--json")
    assert (code, json.loads(out)["retracted"], err) == (0, False, "")
    shutil.rmtree(workspace.bundle("small", ID))
    code, out, _ = run("check", ID, "--json")
    assert (code, json.loads(out)["rule"]) == (2, "release-retracted")


def test_the_audit_tells_of_it_and_holds_without_the_bundle(run: Any, workspace: Workspace, retracted: None) -> None:
    for _ in range(2):
        code, out, _ = run("audit")
        assert code == 0
        assert f"{ID}: retraction: retracted by the data board" in out
        shutil.rmtree(workspace.bundle("small", ID), ignore_errors=True)


def test_an_export_holds_the_entry_as_it_was_signed(run: Any, workspace: Workspace, retracted: None) -> None:
    out = workspace.root / "export.ndjson"
    run("ledger", "export", "--out", str(out))
    last = json.loads(out.read_text().splitlines()[-1])
    assert (last["kind"], last["release_id"]) == ("retract", ID)
    assert json.loads(last["body"]) == {"who": "the data board", "reason": REASON}
    mark = json.loads(Path(mark_beside(workspace.bundle("small", ID))).read_text())
    assert mark["ledger_entry"] == last
