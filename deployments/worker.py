"""The worker of a pool: `dprelease worker --pool NAME -w WORKSPACE`, on every machine that runs releases.

It executes runs of the given workspaces' deployments and refuses all others: see `deployments.engine`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from deployments.serve import require_password
from dpcore.errors import RefusedError
from flows.server.connection import Server, known_server
from flows.server.embedded import embedded_settings
from flows.server.isolation import isolate_process
from tasks.workspace.folders import Workspace

AT_ONCE = 2


def work(workspaces: Sequence[Workspace], server: Server, pool: str) -> None:
    """Take runs from the pool until terminated; Prefect is loaded in a folder that nobody else can write to."""
    home = workspaces[0]
    for name, value in (embedded_settings(home) | server.settings()).items():
        os.environ.setdefault(name, value)
    with home.scratch() as scratch, isolate_process(home, scratch):
        from deployments.execution import ReleaseWorker

        worker = ReleaseWorker(work_pool_name=pool, limit=AT_ONCE)
        worker.workspaces = workspaces
        sys.stderr.write(f"running flows from the pool {pool} (Ctrl-C stops it)\n")
        sys.stderr.flush()
        asyncio.run(worker.start(printer=lambda *_: None))


def usable_server(workspace: Workspace, *, accepted: str | None) -> Server:
    """The configured server, or the one that serves the workspace on this machine.

    Raises: RefusedError if there is none, or if it requires no password.
    """
    server = known_server(workspace)
    if server is None or not server.answers():
        raise RefusedError(
            "no orchestration server is configured",
            rule="server-unreachable",
            where="PREFECT_API_URL",
            hint="set it to the server's address, and PREFECT_API_AUTH_STRING to its password",
        )
    require_password(server, accepted=accepted)
    return server


def main() -> None:
    """Work until terminated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workspaces", type=Path, nargs="+")
    parser.add_argument("--pool", required=True)
    parser.add_argument("--accept-open-server")
    asked = parser.parse_args()
    workspaces = [Workspace(root.resolve()) for root in asked.workspaces]
    try:
        for workspace in workspaces:
            workspace.require()
            workspace.require_writable()
        server = usable_server(workspaces[0], accepted=asked.accept_open_server)
    except RefusedError as error:
        sys.stderr.write(f"refused ({error.rule})\n  error  {error}\n  where  {error.where}\n  hint   {error.hint}\n")
        raise SystemExit(2) from None
    work(workspaces, server, asked.pool)


if __name__ == "__main__":
    main()
