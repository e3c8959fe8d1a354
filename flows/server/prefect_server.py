"""Prefect's server on a socket that its parent opened: `python -P -m flows.server.prefect_server DESCRIPTOR [--wait]`.

No other program can take the port between its choice and the server's start, or between two starts. With `--wait`,
the server loads its libraries and starts when the parent writes a line to its standard input.
"""

from __future__ import annotations

import socket
import sys

import uvicorn

from flows.server.embedded import pause_garbage_collection
from flows.server.prefect_database import prepare_database

WAIT = "--wait"
GRACE_SECONDS = 3
"""Seconds for unfinished requests when the server ends."""


def main() -> None:
    """Serve until terminated."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    if WAIT in sys.argv[2:] and not is_wanted():
        return
    server_of().run(sockets=[listener])


def is_wanted() -> bool:
    """Load the server's libraries and wait for the parent; return False if it ended or refused the release."""
    _load()
    return bool(sys.stdin.readline())


def _load() -> None:
    """Load the server's libraries; garbage collection would take a sixth of the time and find nothing."""
    with pause_garbage_collection():
        import prefect.server.api.server  # noqa: F401


def server_of() -> uvicorn.Server:
    """A server whose libraries are loaded and whose database is ready."""
    _load()
    prepare_database()
    return uvicorn.Server(
        uvicorn.Config(
            "prefect.server.api.server:create_app",
            factory=True,
            log_level="critical",
            lifespan="on",
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )


if __name__ == "__main__":
    main()
