"""`history` and `show` put ledger, flow runs and bundle side by side; runs are read from a server or a file."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.flows.command_line import call

from flows import run_history
from flows.release_history import Joined
from flows.run_history import complete_runs, recorded_runs
from flows.server.connection import LOCK, PASSWORD, SERVING, Server
from tasks.bundle.staging import Staging
from tasks.ledger.entries.entry import Entry
from tasks.workspace.folders import Workspace
from tasks.workspace.locks import hold_lock

COST = {"epsilon": "1", "rho": "0", "rho_of_pure": "1/2", "delta_num": "0"}
MOMENTS = {"event": {"mechanism": "laplace"}, "cost": COST}
DIGEST = "d" * 64
SPENT = {"measurement": "moments", **MOMENTS, "seeded": False, "digest": DIGEST}


class Book:
    """A ledger written by hand; hashes and meaning are checked when it is replayed."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        basis = {"neighbours": "replace-one", "unit": "row"}
        cap = {"epsilon": "9", "delta": "0", "delta_num": "0", "basis": basis, "reason": None}
        self.add("cap", "", **cap)

    def add(self, kind: str, release_id: str, **body: Any) -> Book:
        at = f"2026-01-01T00:00:{len(self.entries):02}.000000Z"
        head = self.entries[-1] if self.entries else None
        entry = Entry.after(head, at=at, kind=kind, population="people", release_id=release_id, body=body)
        self.entries.append(entry)
        return self

    def reserve(self, release_id: str, run: str = "one", **changes: Any) -> Book:
        facts = {"name": "visits", "period": "2026-01", "sequence": len(self.entries), "supersedes": None}
        stated = {"measurements": {"moments": MOMENTS}, "stated": {"epsilon": 1.0, "delta": 0.0}, "reason": None}
        rest = {"spec_digest": DIGEST, "seeds": {}, "flow_run_id": run}
        return self.add("reserve", release_id, **(facts | stated | rest | changes))

    def spend(self, release_id: str, run: str = "one") -> Book:
        return self.add("spend", release_id, **SPENT, flow_run_id=run)

    def publish(self, release_id: str, run: str = "one") -> Book:
        return self.add("publish", release_id, bundle_digest=DIGEST, flow_run_id=run)

    def wait(self, release_id: str, run: str = "one") -> Book:
        return self.add("await", release_id, bundle_digest=DIGEST, flow_run_id=run)


def run_of(
    name: str, state: str, *tags: str, start: str = "2026-01-01T00:00:00", served: bool = False
) -> dict[str, Any]:
    return {"name": name, "tags": list(tags), "state": state, "start": start, "own": True, "served": served}


def joined(book: Book, place: Path, runs: dict[str, Any] | None = None, server: Server | None = None) -> Joined:
    return Joined(Workspace(place), book.entries, runs or {}, server)


def test_a_resumed_release_has_both_runs_and_the_one_that_published(tmp_path: Path) -> None:
    book = Book().reserve("a").spend("a").add("fail", "a", status="failed", stage="release").publish("a", run="two")
    runs = {
        "two": run_of("a", "COMPLETED", "a", start="2026-01-02T00:00:00", served=True),
        "one": run_of("a", "FAILED", "a", served=True),
        "other": run_of("b", "COMPLETED", "b"),
    }
    (row,) = joined(book, tmp_path, runs, Server("http://host:4200/api")).rows()
    assert (row["status"], row["flow_run_id"], row["ledger_entries"]) == ("published", "two", [2, 3, 4, 5])
    assert [run["id"] for run in row["flow_runs"]] == ["one", "two"]
    page = "http://host:4200/runs/flow-run/two"
    assert row["flow_run"] == {"state": "COMPLETED", "name": "a", "url": page}


def test_without_a_history_the_ledger_alone_is_told(tmp_path: Path) -> None:
    (row,) = joined(Book().reserve("a").spend("a"), tmp_path).rows()
    assert (row["flow_run"], row["flow_runs"], row["flow_run_id"]) == (None, [], "one")
    assert row["next"] == "dprelease run --period 2026-01"


def test_while_a_run_is_about_it_there_is_nothing_to_do(tmp_path: Path) -> None:
    (row,) = joined(Book().reserve("a"), tmp_path, {"one": run_of("a", "RUNNING", "a")}).rows()
    assert (row["status"], row["next"]) == ("reserved", None)


def test_approval_says_who_when_and_why(tmp_path: Path) -> None:
    book = Book().reserve("a", approve="required").spend("a").wait("a")
    (row,) = joined(book, tmp_path).rows()
    assert (row["status"], row["next"]) == ("awaiting-approval", 'dprelease approve a --reason "..."')
    book.add("approve", "a", bundle_digest=DIGEST, who="steward", reason="looked").publish("a")
    (row,) = joined(book, tmp_path).rows()
    assert row["approval"] == {"who": "steward", "at": "2026-01-01T00:00:04.000000Z", "reason": "looked"}
    assert (row["status"], row["next"]) == ("published", None)


REFUSAL = {"rule": "budget-exceeded", "reason": "epsilon 9 of 9 is spent", "who": None, "flow_run_id": "one"}
ASKED = {"name": "visits", "period": "2026-02", "stated": {"epsilon": 1.0, "delta": 0.0}}


def test_what_the_budget_refused_is_listed_until_it_is_released(tmp_path: Path) -> None:
    book = Book().add("refuse", "a", **REFUSAL, **ASKED)
    (row,) = joined(book, tmp_path).rows()
    assert (row["status"], row["reason"], row["epsilon"]) == ("refused", "epsilon 9 of 9 is spent", 1.0)
    whole = joined(book, tmp_path).whole("a")
    assert (whole["bundle"], whole["record"], whole["spent"]["epsilon"]) == (None, None, 0.0)
    book.reserve("a", period="2026-02").spend("a").publish("a")
    assert [row["status"] for row in joined(book, tmp_path).rows()] == ["published"]


def test_what_a_person_refused_says_why_and_needs_no_command(tmp_path: Path) -> None:
    book = Book().reserve("a", approve="required").spend("a").wait("a")
    book.add("refuse", "a", rule="approval-refused", reason="odd", who="steward", flow_run_id=None)
    (row,) = joined(book, tmp_path).rows()
    assert (row["status"], row["reason"], row["next"]) == ("refused", "odd", None)


def test_a_reservation_that_was_given_back_is_tried_again_unless_that_was_done(tmp_path: Path) -> None:
    book = Book().reserve("a").add("void", "a", reason="its run is gone")
    (row,) = joined(book, tmp_path).rows()
    assert (row["reason"], row["next"]) == ("its run is gone", "dprelease run --period 2026-01")
    book.reserve("b").spend("b").publish("b")
    assert [row["next"] for row in joined(book, tmp_path).rows()] == [None, None]


def test_a_superseded_release_names_its_successor(tmp_path: Path) -> None:
    book = Book().reserve("a").spend("a").publish("a")
    book.reserve("b", supersedes="a", reason="corrected").spend("b").publish("b")
    view = joined(book, tmp_path)
    assert view.whole("a")["superseded_by"] == "b"
    assert (view.whole("b")["supersedes"], view.row("b")["reason"]) == ("a", "corrected")


def test_a_bundle_is_held_against_the_digest_in_the_ledger(tmp_path: Path) -> None:
    staging = Staging(Workspace(tmp_path).bundle("visits", "a"))
    staging.start()
    (staging.folder / "record.json").write_text('{"release_id": "a"}')
    digest = staging.seal()
    book = Book().reserve("a").spend("a").add("publish", "a", bundle_digest=digest, flow_run_id="one")
    assert "not in this workspace" in joined(book, tmp_path).whole("a")["bundle"]["faults"][0]
    staging.reveal()
    whole = joined(book, tmp_path).whole("a")
    assert (whole["bundle"]["as_published"], whole["record"]) == (True, {"release_id": "a"})
    (staging.final / "more").touch()
    assert not joined(book, tmp_path).whole("a")["bundle"]["as_published"]


def test_a_bundle_that_waits_is_found_where_it_was_sealed(tmp_path: Path) -> None:
    staging = Staging(Workspace(tmp_path).bundle("visits", "a"))
    staging.start()
    digest = staging.seal()
    book = Book().reserve("a", approve="required").spend("a").add("await", "a", bundle_digest=digest, flow_run_id="one")
    whole = joined(book, tmp_path).whole("a")
    assert (whole["bundle"]["folder"], whole["bundle"]["as_published"]) == (str(staging.folder), True)
    assert whole["record"] is None


# ---------------------------------------------------------------- where runs are read


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    workspace = Workspace(tmp_path)
    workspace.create()
    return workspace


def write_history(workspace: Workspace, *names: str) -> Path:
    """A database with the columns that are read."""
    path = workspace.prefect_home / "prefect.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma journal_mode = wal")
        database.execute("create table flow (id, name)")
        database.execute("create table flow_run (id, flow_id, name, tags, state_type, state_name, start_time, created)")
        database.executemany("insert into flow values (?, ?)", [("f", "release"), ("g", "another")])
        rows = [(name, "f", name, '["x"]', "COMPLETED", "Completed", None, "2026-01-01 10:00:00.5") for name in names]
        database.executemany("insert into flow_run values (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        database.execute("insert into flow_run values ('z', 'g', 'z', '[]', 'FAILED', 'Failed', null, '2026')")
        database.commit()
    return path


def test_runs_are_read_from_the_file_without_a_server(place: Workspace) -> None:
    assert recorded_runs(place) is None
    write_history(place, "a", "b")
    runs = recorded_runs(place)
    assert runs is not None
    assert set(runs) == {"a", "b"}
    assert (runs["a"]["state"], runs["a"]["start"], runs["a"]["tags"]) == ("COMPLETED", "2026-01-01T10:00:00", ["x"])
    assert complete_runs(place) == runs


def test_a_history_that_is_written_to_can_be_read(place: Workspace) -> None:
    path = write_history(place, "a")
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("begin immediate")
        writer.execute("insert into flow values ('h', 'third')")
        assert set(recorded_runs(place) or {}) == {"a"}


@pytest.mark.parametrize("content", [b"", b"no database", "locked"])
def test_a_history_that_cannot_be_read_is_none(place: Workspace, content: Any, monkeypatch: Any) -> None:
    path = place.prefect_home / "prefect.db"
    if content != "locked":
        path.write_bytes(content)
        assert recorded_runs(place) is None
        return
    monkeypatch.setattr(run_history, "LOCK_SECONDS", 0.1)
    write_history(place, "a")
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("pragma journal_mode = delete")
        writer.execute("pragma locking_mode = exclusive")
        writer.execute("begin exclusive")
        assert recorded_runs(place) is None


class Orchestrator(BaseHTTPRequestHandler):
    """Answers the one question that is asked, in pages."""

    runs: list[dict[str, Any]]
    asked: list[dict[str, Any]]

    def do_POST(self) -> None:
        wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(wanted)
        content = json.dumps(self.runs[wanted["offset"] : wanted["offset"] + wanted["limit"]]).encode()
        self.send_response(200 if self.path == "/api/flow_runs/filter" else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: object) -> None:
        return


@pytest.fixture
def orchestrator(place: Workspace) -> Iterator[tuple[Any, str]]:
    facts = {
        "state_type": "COMPLETED",
        "state_name": "Completed",
        "start_time": None,
        "created": "2026-02-01T00:00:00Z",
    }
    spaces = [str(place.root), "/another/workspace"]
    runs = [
        {"id": f"s{i}", "name": f"n{i}", "tags": [], **facts, "parameters": {"request": {"workspace": spaces[i % 2]}}}
        for i in range(450)
    ]
    handler: Any = type("Answering", (Orchestrator,), {"runs": runs, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler, f"http://127.0.0.1:{server.server_port}/api"
    server.shutdown()
    server.server_close()


def test_a_server_is_asked_in_pages_and_the_file_besides(
    place: Workspace, orchestrator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, url = orchestrator
    monkeypatch.setenv("PREFECT_API_URL", url)
    write_history(place, "a")
    runs = recorded_runs(place) or {}
    assert len(runs) == 451
    assert [question["offset"] for question in handler.asked] == [0, 200, 400]
    assert (runs["s0"]["own"], runs["s1"]["own"]) == (True, False)
    assert (runs["s0"]["served"], runs["a"]["served"]) == (True, False)


def test_the_server_of_this_workspace_is_found_and_may_be_gone(place: Workspace, orchestrator: Any) -> None:
    _, url = orchestrator
    write_history(place, "a")
    (place.prefect_home / PASSWORD).write_text("operator:secret\n")
    (place.prefect_home / SERVING).write_text(json.dumps({"api_url": url}))
    assert set(recorded_runs(place) or {}) == {"a"}, "nobody serves: the file is a dead one's"
    with hold_lock(place.prefect_home / LOCK):
        assert len(recorded_runs(place) or {}) == 451
        (place.prefect_home / SERVING).write_text(json.dumps({"api_url": "http://127.0.0.1:9/api"}))
        assert set(recorded_runs(place) or {}) == {"a"}
        assert set(complete_runs(place) or {}) == {"a"}  # what it served is in the file


def test_an_audit_does_not_take_the_silence_of_another_server_for_loss(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_history(place, "a")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert set(recorded_runs(place) or {}) == {"a"}
    assert complete_runs(place) is None


# ---------------------------------------------------------------- the commands


@pytest.fixture
def shown(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A command on a workspace whose ledger is a book."""
    call(capsys, monkeypatch, "init", str(tmp_path / "w"))
    place = Workspace(tmp_path / "w")

    def run(book: Book, *argv: str, runs: dict[str, Any] | None = None) -> tuple[int, str, str]:
        view = Joined(place, book.entries, runs or {}, Server("http://host:4200/api"))
        monkeypatch.setattr(Joined, "of", staticmethod(lambda _workspace: view))
        return call(capsys, monkeypatch, *argv, "-w", str(place.root))

    return run


BOTH = {"one": run_of("visits-2026-01-1", "FAILED", "visits-2026-01-1", served=True)}


def failed() -> Book:
    return (
        Book()
        .reserve("visits-2026-01-1")
        .spend("visits-2026-01-1")
        .add("fail", "visits-2026-01-1", status="failed", stage="release")
    )


def test_history_shows_entries_state_command_and_page(shown: Any) -> None:
    code, out, _ = shown(failed().add("refuse", "visits-2026-02-1", **REFUSAL, **ASKED), "history", runs=BOTH)
    assert code == 0
    for words in ("2-4", "FAILED", "dprelease run --period 2026-01", "http://host:4200/runs/flow-run/ID"):
        assert words in out
    assert "visits-2026-02-1 (refused): epsilon 9 of 9 is spent" in out


def test_history_can_be_narrowed(shown: Any) -> None:
    book = failed().reserve("b", period="2026-02").reserve("c", period="2026-03")
    names = lambda *argv: [r["release_id"] for r in json.loads(shown(book, "history", *argv, "--json")[1])["releases"]]  # noqa: E731
    assert names("--status", "reserved") == ["b", "c"]
    assert names("--limit", "1") == ["c"]
    assert names("--status", "published") == []
    assert "no release matches" in shown(book, "history", "--status", "published")[1]


def test_an_unpublished_release_is_shown_in_words_and_has_no_record(shown: Any) -> None:
    code, out, _ = shown(failed(), "show", "visits-2026-01-1", runs=BOTH)
    assert code == 0
    for words in ("failed", "epsilon 1", "reserve", "next: dprelease run --period 2026-01", "flow-run/one"):
        assert words in out
    code, out, _ = shown(failed(), "show", "visits-2026-01-1", "--json")
    assert (code, json.loads(out)["rule"]) == (2, "release-not-published")
    code, out, _ = shown(failed(), "show", "visits-2026-01-1", "--all", "--json")
    assert (code, json.loads(out)["status"], json.loads(out)["record"]) == (0, "failed", None)


def test_a_changed_bundle_is_said_so(shown: Any, tmp_path: Path) -> None:
    staging = Staging(Workspace(tmp_path / "w").bundle("visits", "a"))
    staging.start()
    digest = staging.seal()
    staging.reveal()
    book = Book().reserve("a").spend("a").add("publish", "a", bundle_digest=digest, flow_run_id="one")
    assert "matches the ledger" in shown(book, "show", "a")[1]
    (staging.final / "more").touch()
    assert "DOES NOT match the ledger: more does not belong" in shown(book, "show", "a")[1]


def test_a_persons_words_are_shown_as_they_are(shown: Any) -> None:
    book = Book().reserve("a", approve="required").spend("a").wait("a")
    book.add("approve", "a", bundle_digest=DIGEST, who="[bold]ada", reason="[red]fine[/]").publish("a")
    out = shown(book, "show", "a")[1]
    assert "by [bold]ada" in out
    assert "[red]fine[/]" in out
