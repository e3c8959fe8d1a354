"""OpenLineage endpoints on loopback, well-behaved and not; real servers, each in a thread of its own."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANG_UP = 0
"""Instead of a status: close the connection without an answer."""


class Collector:
    """Keeps what it is sent; `judge` gives the status for an event."""

    def __init__(self, judge: Callable[[dict[str, Any]], int] = lambda _: 201, port: int = 0) -> None:
        self.judge = judge
        self.bodies: list[bytes] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = collector.take(self.path, dict(self.headers), body)
                if status == HANG_UP:
                    self.close_connection = True
                    return
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", f"{collector.url}/elsewhere")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        self.bodies.append(body)
        self.requests.append((path, headers))
        return self.judge(json.loads(body))

    @property
    def lines(self) -> list[str]:
        return [body.decode() for body in self.bodies]

    def __enter__(self) -> Collector:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Hanging:
    """Takes connections and never answers."""

    def __init__(self, server: socket.socket) -> None:
        self._server, self.url = server, f"http://127.0.0.1:{server.getsockname()[1]}"

    def connections(self) -> int:
        """How many there were since the last look."""
        self._server.setblocking(False)
        count = 0
        with suppress(BlockingIOError):
            while True:
                self._server.accept()[0].close()
                count += 1
        return count


@contextmanager
def hanging() -> Iterator[Hanging]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield Hanging(server)


@contextmanager
def saying(*pieces: bytes, pause: float = 0.0) -> Iterator[str]:
    """Answers every connection with these bytes, whatever it is asked."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        worker = threading.Thread(target=_say, args=(server, pieces, pause, stop), daemon=True)
        worker.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        stop.set()
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        worker.join(5)


def _say(server: socket.socket, pieces: tuple[bytes, ...], pause: float, stop: threading.Event) -> None:
    while not stop.is_set():
        with suppress(OSError):
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                for piece in pieces:
                    connection.sendall(piece)
                    if stop.wait(pause):
                        break
