"""What a run leaves in the orchestrator: cards of public and released values, and a door that never fails a release."""

from __future__ import annotations

import json
import re
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from support.tasks.builders import Chain
from support.tasks.lineage.endpoints import hanging
from support.tasks.staged import PLAIN, UNMODELLED, land_rows, run_of

from dpcore.evaluation.utility import MeasuredSummary, noisy_spectrum
from dpcore.synthesis.generators import ClassGaussians
from tasks import artifacts
from tasks.allocate import allocate_budget, upcoming_release_id
from tasks.artifacts import Board
from tasks.boundary import PROGRESS
from tasks.estimate import estimate_moments
from tasks.ledger.state import LedgerState
from tasks.project import choose_projection
from tasks.release.context import ReleaseRun
from tasks.report import cards, spectra
from tasks.workspace.folders import Workspace

RUN = "7b0e1b4e-6a8e-4d31-8f1e-2c9a2f6f5b01"
PICTURE_LIMIT = 100_000
PROJECTIONS = {
    "random": "model: {projection: {kind: ron, dimension: 1}, radius: 1}\n",
    "all kept": "model: {projection: {kind: none}, radius: 1, generator: gaussian}\n",
    "in a frame": "model: {projection: {kind: none}, generator: gaussian, radius: auto}\n",
    "out of the moments": "model: {projection: {kind: private-pca, dimension: 1}, radius: 1}\n",
    "bought apart": (
        "model: {projection: {kind: private-pca, dimension: 1}, allocation: {projection: 0.3, moments: 0.7}}\n"
    ),
    "directions only": (
        "model: {projection: {kind: private-pca, dimension: 1, mechanism: exponential-pca}, "
        "allocation: {projection: 0.3, moments: 0.7}}\n"
    ),
}


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReleaseRun]:
    """A run of the small specification; a parameter adds to it."""
    workspace = Workspace(tmp_path)
    workspace.create()
    workspace.spec_path.write_text(UNMODELLED + getattr(request, "param", PLAIN))
    land_rows(tmp_path, "2026-01")
    with (
        workspace.scratch() as scratch,
        closing(replace(run_of(workspace, scratch, period="2026-01"), flow_run_id=RUN)) as run,
    ):
        yield run


by_projection = pytest.mark.parametrize("run", PROJECTIONS.values(), ids=list(PROJECTIONS), indirect=True)


# ---------------------------------------------------------------- what is said


@by_projection
def test_every_stage_is_told_with_the_ledgers_entries(run: ReleaseRun) -> None:
    release_id = upcoming_release_id(run)
    grant = allocate_budget.fn(run, release_id)
    state = run.ledger.state()
    release = state.releases[release_id]
    rows = cards.allocation_rows(run.planned, release)
    assert [row["measurement"] for row in rows] == list(run.planned.plan.events)
    assert {row["ledger entry"] for row in rows} == {f"{release.reserve_seq} (reserved)"}
    cap, before, after = cards.budget_rows(state, release)
    assert (cap["epsilon"], before["epsilon"], after["epsilon"]) == (1.2, 0.0, pytest.approx(0.1))
    projection = choose_projection.fn(run, grant)
    measured = estimate_moments.fn(run, grant, projection)
    moments, projection = measured.moments, measured.projection
    drawn = run.ledger.state().releases[release_id]
    text = cards.projection_card(run.planned, projection, drawn)
    assert cards.KINDS[run.planned.plan.projection] in text
    assert (drawn.reservation.seeds["projection"] in text) == (run.planned.plan.projection == "ron")
    spectrum = noisy_spectrum(MeasuredSummary.of(run.planned.encoding, ClassGaussians(moments, projection)))
    noise = cards.noise_rows(run.planned, drawn, count=moments.count, spectrum=spectrum)
    assert {row["of"] for row in noise} == {*run.planned.plan.events, "release"}
    assert {row["ledger entry"] for row in cards.allocation_rows(run.planned, drawn)} == {
        f"{entry.seq} (spent)" for entry in drawn.spends.values()
    }
    json.dumps([rows, noise], allow_nan=False)
    assert_picture(spectra.moments_plot("small 2026-01", spectrum))
    assert_picture(spectra.kept_plot("small 2026-01", spectra.kept_shares(projection, run.planned.encoding)))


def assert_picture(png: bytes) -> None:
    assert png.startswith(b"\x89PNG")
    assert len(png) < PICTURE_LIMIT


@by_projection
def test_the_spectrum_is_drawn_where_one_was_released(run: ReleaseRun) -> None:
    release_id = upcoming_release_id(run)
    grant = allocate_budget.fn(run, release_id)
    moments = estimate_moments.fn(run, grant, choose_projection.fn(run, grant)).moments
    bought = run.ledger.measurement(release_id, "projection")
    found = spectra.components_spectrum(bought or moments.released, run.planned.encoding)
    event = run.planned.plan.projection_event
    directions_only = event is not None and event.mechanism == "exponential-pca"
    assert (found is None) == directions_only
    if found is not None:
        values, noise = found
        assert values == sorted(values, reverse=True)
        assert noise > 0
        assert_picture(spectra.components_plot("small 2026-01", values, noise, kept=1))


def test_pictures_of_wide_tables_stay_small() -> None:
    spectrum = {
        "blocks": [{"label": f"class {i}", "eigenvalues": [1 / (j + 1) for j in range(60)]} for i in range(30)],
        "noise_level": 0.1,
    }
    assert_picture(spectra.moments_plot("a-rather-long-name 2026-01", spectrum))
    assert_picture(spectra.kept_plot("wide", [(f"column {i}", i / 200) for i in range(200)]))
    assert_picture(spectra.components_plot("wide", [1 / (i + 1) for i in range(300)], 0.01, kept=20))


def state_of(chain: Chain) -> LedgerState:
    return LedgerState.replay(chain.entries)


def test_a_failure_tells_what_was_spent_and_the_one_command_that_resumes() -> None:
    chain = Chain().cap().reserve(stated={"epsilon": 0.5, "delta": 0.0}).spend().fail()
    text = cards.failure_card(state_of(chain).releases["a"], words="checks failed: mean_gap", entries=chain.entries)
    assert "checks failed: mean_gap" in text
    assert "epsilon 0.5 (it stays spent)" in text
    assert re.findall(r"dprelease .*", text) == ["dprelease run --period 2026-01"]
    assert chain.entries[-1].hash in text


def test_what_superseded_and_was_given_back_is_asked_for_as_before() -> None:
    chain = Chain().cap().reserve().spend().publish()
    chain.reserve("b", supersedes="a", reason="it's wrong").void("b")
    text = cards.failure_card(state_of(chain).releases["b"], words="interrupted", entries=[])
    assert "dprelease run --period 2026-01 --supersedes a --reason 'it'\"'\"'s wrong'" in text


def test_the_release_card_leads_to_run_ledger_and_bundle(published: Path) -> None:
    place = published / "releases" / "small" / "small-2026-01-1"
    record = json.loads((place / "record.json").read_text())
    chain = Chain().cap().reserve().spend().publish()
    text = cards.release_card(record, status="published", entries=chain.entries, folder="releases/small/x")
    for link in (f"/runs/flow-run/{record['flow_run_id']}", "releases/small/x/report.html", "b" * 64):
        assert link in text
    assert all(entry.hash in text for entry in chain.entries)
    assert "dprelease approve" not in text
    waiting = cards.release_card(record, status="awaiting-approval", entries=chain.entries, folder="x")
    assert 'dprelease approve small-2026-01-1 --reason "..."' in waiting


def test_text_stays_in_its_cell() -> None:
    assert "| odd | a \\| b c |" in cards.card("title", {"odd": "a | b\nc"})


# ---------------------------------------------------------------- the door


class History(BaseHTTPRequestHandler):
    """A server that keeps what it is told and answers like the orchestrator, or not."""

    told: list[tuple[str, str, dict[str, Any]]]
    status = 201

    def answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else {}
        if "csrf" not in self.path:
            self.told.append((self.command, self.path, body))
        content = json.dumps({"id": str(uuid.uuid4()), **body}).encode()
        self.send_response(404 if "csrf" in self.path else self.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = answer  # noqa: N815

    def log_message(self, *_args: object) -> None:
        return


@contextmanager
def history(status: int = 201) -> Iterator[list[tuple[str, str, dict[str, Any]]]]:
    """Such a server as the configured one; what it was told."""
    handler = type("Kept", (History,), {"told": [], "status": status})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{server.server_port}/api"}):
            yield handler.told  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefect's own events of artifacts go to a server that is not there."""
    monkeypatch.setattr("prefect.events.utilities.emit_event", lambda *_args, **_kwargs: None)


@pytest.fixture
def words(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """What the operator is told."""
    PROGRESS.addHandler(caplog.handler)
    yield caplog
    PROGRESS.removeHandler(caplog.handler)


@pytest.mark.parametrize("name", ["visits", "a", "9-lives", "a--b-", "x" * 64])
def test_every_legal_name_makes_keys_that_the_orchestrator_takes(name: str, words: Any) -> None:
    with history() as told:
        board = Board(RUN)
        board.attempt("a table", lambda: board.table(f"{name}-allocation", [{"": "x"}], "description"))
        board.attempt("a picture", lambda: board.picture(f"{name}-release-card", b"png", "description"))
    assert [body["type"] for _, _, body in told] == ["table", "markdown"]
    assert {body["flow_run_id"] for _, _, body in told} == {RUN}
    assert words.messages == []


def test_names_tags_and_progress_reach_the_run() -> None:
    with history() as told:
        board = Board(RUN)
        board.attempt("label", lambda: board.label(name="visits-1", tags=["visits", "ledger-entry:3"]))
        bar = board.progress("stages")
        board.advance(bar, 50.0, "after validate")
    assert told[0] == ("PATCH", f"/api/flow_runs/{RUN}", {"name": "visits-1", "tags": ["visits", "ledger-entry:3"]})
    assert [body.get("data") for _, _, body in told[1:]] == [0.0, 50.0]


def test_a_server_that_never_answers_costs_seconds_once(monkeypatch: pytest.MonkeyPatch, words: Any) -> None:
    monkeypatch.setattr(artifacts, "PATIENCE", 0.3)
    with hanging() as server, temporary_settings({PREFECT_API_URL: f"{server.url}/api"}):
        board = Board(RUN)
        for _ in range(20):
            board.attempt("the card", lambda: board.markdown("card", "text", "words"))
        assert server.connections() == 1
    assert words.messages == ["could not record the card in Prefect's run history: no answer (ReadTimeout)"]


def test_a_server_that_is_down_is_told_once_and_tried_again_later(monkeypatch: pytest.MonkeyPatch, words: Any) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(artifacts, "SILENCE", 0.0)
    with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{port}/api"}):
        board = Board(RUN)
        for what in ("one", "two"):
            board.attempt(what, lambda: board.markdown("card", "text", "words"))
    assert [message.rpartition("(")[2] for message in words.messages] == ["ConnectError)", "ConnectError)"]


def test_a_server_that_refuses_and_a_card_that_cannot_be_made_fail_nothing(words: Any) -> None:
    with history(status=500):
        board = Board(RUN)
        board.attempt("the card", lambda: board.markdown("card", "text", "words"))
    with history() as told:
        board = Board(RUN)
        board.attempt("the picture", lambda: 1 / 0)
        board.attempt("the card", lambda: board.markdown("card", "text", "words"))
    assert len(told) == 1
    assert len(words.messages) == 2
    assert "ZeroDivisionError at artifacts.py" in words.messages[1]


def test_ctrl_c_is_no_fault_of_the_server() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Board(RUN).attempt("the card", interrupted)


def test_what_the_server_says_is_not_repeated(words: Any) -> None:
    def fails() -> None:
        raise httpx.ReadError("a secret 417.8")

    Board(RUN).attempt("the card", fails)
    assert "417" not in words.messages[0]
