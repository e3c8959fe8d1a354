"""The server that `run --keep-server` leaves: `python -P -m flows.server.kept_server WORKSPACE DESCRIPTOR SECONDS`.

Like any embedded server, it waits until its parent tells it to start. It then takes the lock of the workspace's only
server and ends when no run has used it for SECONDS. If another process holds the lock, it ends at once.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
from pathlib import Path

import uvicorn

from flows.server.connection import announce_server, serving_alone
from flows.server.embedded import forbid_core_dumps, own_server
from flows.server.isolation import isolate_process
from flows.server.keeping import await_idleness, kept_facts
from flows.server.prefect_server import is_wanted, server_of
from tasks.workspace.folders import Workspace


def main() -> None:
    """Serve until no run has used the server for the given time, or until terminated."""
    workspace, listener, idle = Workspace(Path(sys.argv[1])), socket.socket(fileno=int(sys.argv[2])), float(sys.argv[3])
    forbid_core_dumps()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that its files are removed
    with workspace.scratch() as scratch, isolate_process(workspace, scratch):
        if not is_wanted():
            return
        with serving_alone(workspace, patiently=True) as alone:
            if not alone:
                return
            with announce_server(workspace, own_server(listener), kept=kept_facts()):
                server = server_of()
                threading.Thread(target=_end_when_idle, args=[workspace, idle, server], daemon=True).start()
                server.run(sockets=[listener])


def _end_when_idle(workspace: Workspace, idle: float, server: uvicorn.Server) -> None:
    await_idleness(workspace, idle)
    server.should_exit = True


if __name__ == "__main__":
    main()
