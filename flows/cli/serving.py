"""`dprelease serve`: schedules, landing trigger and nightly audit, until Ctrl-C."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

from flows.cli.output import JsonFlag, WorkspaceOption


def serve(
    workspace: Path = WorkspaceOption,
    port: int = typer.Option(4200, "--port", min=0, max=65535, help="Where the server's pages are; 0 is any."),
    poll: bool = typer.Option(False, "--poll", help="Look at landing/ again and again: for network mounts."),
    settle: float = typer.Option(5.0, "--settle", min=0.1, help="Seconds after which an unchanged file is complete."),
    pool: str | None = typer.Option(None, "--pool", help="Let workers of this Prefect work pool run the flows."),
    as_json: bool = JsonFlag,
) -> None:
    """Run the schedule, the landing trigger and the nightly audit, with a Prefect server if none is configured."""
    from tasks.stores.run import plan_release
    from tasks.stores.spec import load_spec
    from tasks.stores.workspace import Workspace

    place = Workspace(workspace.resolve())
    place.require()
    plan_release(load_spec(place.spec_path))
    options = ["--port", str(port), "--settle", f"{settle:g}", *(["--pool", pool] if pool else [])]
    flags = [name for name, given in (("--poll", poll), ("--json", as_json)) if given]
    command = [sys.executable, "-m", "deployments.serve", str(place.root), *options, *flags]
    sys.stdout.flush()
    os.execv(sys.executable, command)  # noqa: S606  our own interpreter; the room above is not imported from here
