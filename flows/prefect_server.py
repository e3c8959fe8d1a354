"""Prefect's server on a socket that its parent opened: `python -P -m flows.prefect_server DESCRIPTOR`.

Nobody else can take the port between the choice of it and the server's start, or between two starts.
"""

from __future__ import annotations

import socket
import sys

import uvicorn


def main() -> None:
    """Serve until terminated."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    config = uvicorn.Config(
        "prefect.server.api.server:create_app", factory=True, log_level="critical", lifespan="on", server_header=False
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
