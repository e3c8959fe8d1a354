"""Lineage after a run and on the command line: sent if it can be, never in the way, with nothing private in it."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.flows import canaries
from support.flows.command_line import call
from support.flows.storybook import SPEC, drive, visits
from support.tasks.lineage.endpoints import hanging

from dpcore.errors import LandingError
from flows.delivery import deliver_afterwards, deliver_lineage
from tasks.boundary import PROGRESS
from tasks.lineage.datasets import ReleaseDatasets
from tasks.lineage.events import LineageRun
from tasks.spec import parse_spec
from tasks.spec.plan import plan_release
from tasks.workspace.folders import Workspace

DRAWING = "tasks.draw_once.measure_rows"
RELEASE = "visits-2026-03-1"


class Endpoint(ThreadingHTTPServer):
    """Keeps every event that it is sent."""

    daemon_threads, block_on_close = True, False

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), Receiver)
        self.url = f"http://127.0.0.1:{self.server_port}"


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Endpoint)
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        return


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    """A workspace with the events of one release, and no endpoint yet."""
    place = Workspace(tmp_path / "workspace")
    place.create()
    place.spec_path.write_text(SPEC)
    with events(place).flow(), events(place).stage("validate"):
        pass
    return place


def events(place: Workspace) -> LineageRun:
    now = datetime(2026, 4, 1, tzinfo=UTC)
    datasets = ReleaseDatasets.of(plan_release(parse_spec(SPEC)))
    return LineageRun(
        workspace_log=place.lineage_path, name="visits", release_id=RELEASE, datasets=datasets, clock=lambda: now
    )


def send_to(place: Workspace, url: str) -> None:
    place.spec_path.write_text(f"{SPEC}lineage: {{url: '{url}'}}\n")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the operator's terminal shows."""
    words: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: words.append(record.getMessage())  # type: ignore[method-assign]
    monkeypatch.setattr(PROGRESS, "handlers", [handler])
    return words


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda *argv: call(capsys, monkeypatch, *argv)


# ---------------------------------------------------------------- after a run


def test_without_an_endpoint_nothing_is_sent_and_no_outbox_is_made(place: Workspace, told: list[str]) -> None:
    deliver_lineage(place)
    assert told == []
    assert not (place.root / "lineage-outbox").exists()


def test_events_are_sent_when_a_run_ends_well_and_when_it_fails(
    place: Workspace, endpoint: Endpoint, told: list[str]
) -> None:
    send_to(place, endpoint.url)
    with deliver_afterwards(place.root):
        pass
    assert len(endpoint.bodies) == 4
    with pytest.raises(LandingError) as refusal, deliver_afterwards(place.root), events(place).flow():
        raise LandingError("words", rule="rule", where="where", hint="hint")
    assert refusal.value.__context__ is None
    assert [body.decode() for body in endpoint.bodies] == place.lineage_path.read_text().splitlines()
    assert told == []


def test_a_dead_endpoint_is_told_to_the_operator_without_its_address(place: Workspace, told: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    send_to(place, f"http://127.0.0.1:{port}")
    deliver_lineage(place)
    assert told == [
        "4 lineage events are not sent yet (the connection failed); "
        "the next run or `dprelease lineage --flush` sends them"
    ]


def test_a_hanging_endpoint_delays_a_run_by_seconds_only(place: Workspace, told: list[str]) -> None:
    with hanging() as server:
        send_to(place, server.url)
        deliver_lineage(place)
        assert server.connections() == 1, "it is not asked for every event"
    assert "did not answer in time" in told[0]


@pytest.mark.parametrize("fault", ["loose token", "outbox is a file", "broken specification", "no workspace"])
def test_whatever_is_wrong_here_the_release_stands(
    place: Workspace, endpoint: Endpoint, told: list[str], fault: str
) -> None:
    send_to(place, endpoint.url)
    if fault == "loose token":
        (place.keys / "lineage.token").write_text("s3cret")
        (place.keys / "lineage.token").chmod(0o644)
    elif fault == "outbox is a file":
        (place.root / "lineage-outbox").touch()
    elif fault == "broken specification":
        place.spec_path.write_text("name: [")
    else:
        place = Workspace(place.root / "nowhere")
    deliver_lineage(place)
    assert not any(word in " ".join(told) for word in ("s3cret", endpoint.url, str(place.root)))
    assert endpoint.bodies == []


# ---------------------------------------------------------------- the command


def test_the_graph_of_a_release_is_one_json_object_or_a_tree(place: Workspace, run: Any) -> None:
    code, out, _ = run("lineage", RELEASE, "-w", str(place.root), "--json")
    graph = json.loads(out)
    assert (code, set(graph)) == (0, {"nodes", "edges"})
    assert {node["kind"] for node in graph["nodes"]} == {"flow", "stage", "dataset"}
    ids = {node["id"] for node in graph["nodes"]}
    assert all({edge["from"], edge["to"]} <= ids for edge in graph["edges"])
    code, out, _ = run("lineage", RELEASE, "-w", str(place.root))
    assert code == 0
    assert RELEASE in out
    assert "validate" in out


@pytest.mark.parametrize(
    ("argv", "rule"),
    [
        (["visits-1999-01-1"], "release-unknown"),
        (["--flush"], "lineage-not-configured"),
        ([RELEASE, "--flush"], "usage"),
        ([], "usage"),
    ],
)
def test_what_cannot_be_shown_or_sent_is_refused(place: Workspace, run: Any, argv: list[str], rule: str) -> None:
    code, out, _ = run("lineage", *argv, "-w", str(place.root), "--json")
    refusal = json.loads(out)
    assert (code, refusal["rule"]) == (2, rule)
    assert set(refusal) == {"error", "rule", "where", "hint"}


def test_without_arguments_it_explains_itself(run: Any) -> None:
    code, out, _ = run("lineage")
    assert code == 0
    assert "--flush" in out


def test_flush_sends_what_waits_and_fails_while_something_does(place: Workspace, endpoint: Endpoint, run: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    send_to(place, f"http://127.0.0.1:{port}")
    code, out, _ = run("lineage", "--flush", "-w", str(place.root), "--json")
    assert code == 1
    assert json.loads(out) == {"sent": 0, "set_aside": 0, "waiting": 4, "fault": "the connection failed"}
    send_to(place, endpoint.url)
    code, out, _ = run("lineage", "--flush", "-w", str(place.root), "--json")
    assert code == 0
    assert json.loads(out) == {"sent": 4, "set_aside": 0, "waiting": 0, "fault": ""}
    assert "sent 0 events" in run("lineage", "--flush", "-w", str(place.root))[1]


# ---------------------------------------------------------------- a whole story


@pytest.mark.slow
def test_what_leaves_a_workspace_is_its_log_in_order_and_holds_no_planted_value(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    place = Workspace(tmp_path / "workspace")
    place.create()
    send_to(place, endpoint.url)
    for month in ("03", "04"):
        rows = visits(3000, int(month), planted=True)
        pq.write_table(rows, place.landing / f"v-{canaries.FILE}-2026-{month}.parquet")
    (tmp_path / f"{canaries.FILE}.csv").write_text(f"weight,{canaries.NAME}\n1,{canaries.CATEGORY}\n")
    text = f"could not convert {canaries.NUMBER!r} of {canaries.NAME} in {canaries.FILE}"
    where = ["-w", str(place.root), "--json"]
    refused = ["run", "--period", "2026-05", "--input", str(tmp_path / f"{canaries.FILE}.csv"), *where]
    steps = drive(
        tmp_path,
        [
            {"name": "publish", "argv": ["run", "--period", "2026-03", *where]},
            {"name": "crash", "argv": ["run", "--period", "2026-04", *where], "crash": [DRAWING, text]},
            {"name": "refused", "argv": refused},
            {"name": "lineage", "argv": ["lineage", RELEASE, *where]},
            {"name": "failed", "argv": ["lineage", "visits-2026-04-1", *where]},
        ],
    )
    assert [step["code"] for step in steps.values()] == [0, 3, 2, 0, 0]
    assert [body.decode() for body in endpoint.bodies] == place.lineage_path.read_text().splitlines()
    sent = b"\n".join(endpoint.bodies)
    assert canaries.found_in(sent) == set()
    (released,) = {int(rows) for rows in re.findall(rb'"rowCount": (\d+)', sent)}
    assert released == json.loads(steps["publish"]["out"])["rows"], "the noisy count, which is in the record"
    readable = re.sub(rb'[0-9a-f]{64}|[0-9a-f-]{36}|"rowCount": \d+', b"", sent)  # digests and ids hold any digits
    assert b"3000" not in readable.replace(b'"v-2026', b""), "the number of rows"
    graph = json.loads(steps["lineage"]["out"])
    states = {node["name"]: node.get("state") for node in graph["nodes"]}
    assert states["publish"] == states["release"] == "COMPLETE"
    failed = {node["name"]: node.get("state") for node in json.loads(steps["failed"]["out"])["nodes"]}
    assert (failed["estimate"], failed["release"]) == ("FAIL", "FAIL")
