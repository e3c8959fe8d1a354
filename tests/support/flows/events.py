"""A small event API on loopback in place of Prefect's, watchers as real processes, and workspaces for them."""

from __future__ import annotations

import io
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from support import ROOT
from support.processes import blas_settings
from support.tasks.landing.landings import SPEC

from tasks.intake.settling import keep_settle
from tasks.workspace.folders import Workspace

LACKING = "age\n41\n"


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"age": [float(i % 90) for i in range(3000)], "sex": ["f", "m"] * 1500}), sink)
    return sink.getvalue()


def make_workspace(root: Path, spec: str = SPEC) -> Workspace:
    workspace = Workspace(root)
    workspace.create()
    workspace.spec_path.write_text(spec)
    return workspace


class EventApi(ThreadingHTTPServer):
    """Takes events; answers with `status`, or not at all while it is `holding` its answers back."""

    daemon_threads, block_on_close = True, False

    def __init__(self) -> None:
        api = self
        self.status, self.taken, self.refused, self.requests = 204, list[dict[str, Any]](), 0, list[str]()
        self.alive = list[str]()
        self.answering = threading.Event()
        self.answering.set()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                api.requests.append(f"{self.path}\n{self.headers}\n{body.decode()}")
                asks = self.path == "/api/flow_runs/filter"
                status = 200 if asks else api.take(self.path, json.loads(body))
                answer = json.dumps([{"parameters": {"arrival": token}} for token in api.alive]) if asks else ""
                api.answering.wait(120)
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer.encode())

            def log_message(self, *_args: object) -> None:
                return

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:  # the client was killed
                    return

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/api"

    def take(self, path: str, events: list[dict[str, Any]]) -> int:
        if path != "/api/events" or self.status >= 300:
            self.refused += 1
            return self.status if path == "/api/events" else 404
        self.taken += events
        return self.status

    @property
    def tokens(self) -> list[str]:
        return [event["payload"]["arrival"] for event in self.taken]


@contextmanager
def event_api() -> Iterator[EventApi]:
    with EventApi() as api:
        thread = threading.Thread(target=api.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield api
        finally:
            api.answering.set()
            api.shutdown()
            thread.join()


class MuteServer(socketserver.TCPServer):
    """Takes connections and hangs up; counts them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.asked, self.url = 0, f"http://127.0.0.1:{self.server_address[1]}/api"

    def process_request(self, request: Any, client_address: Any) -> None:
        self.asked += 1
        super().process_request(request, client_address)


@contextmanager
def mute_server() -> Iterator[MuteServer]:
    with MuteServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class WatcherProcess:
    """A watcher, and what it says."""

    def __init__(self, workspace: Workspace, url: str | None, *options: str) -> None:
        self._log = workspace.root.parent / f"watcher-{time.monotonic_ns()}.log"
        environment = (
            {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
            | blas_settings()
            | ({"PREFECT_API_URL": url} if url else {})
        )
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flows.watcher", str(workspace.root), *options],
                cwd=ROOT,
                stderr=log,
                stdout=log,
                env=environment,
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def watching(
    workspace: Workspace, url: str | None = None, *options: str, settle: float = 0.5
) -> Iterator[WatcherProcess]:
    with keep_settle(workspace, settle):
        watcher = WatcherProcess(workspace, url, *options)
        try:
            yield watcher
        finally:
            if watcher.process.poll() is None:
                watcher.end(signal.SIGKILL)


def wait_for(condition: Callable[[], object], what: str, seconds: float = 120.0) -> None:
    """Wait until something is so; a busy machine may take its time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.05)
