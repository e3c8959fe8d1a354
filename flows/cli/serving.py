"""`dprelease serve`: schedules, landing trigger and nightly audit, until Ctrl-C."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

from flows.cli.output import JsonFlag, WorkspaceOption
from tasks.intake.settling import SETTLE_SECONDS

WorkspacesOption = typer.Option(
    ["."], "--workspace", "-w", help="A workspace folder; may be repeated.", show_default="current folder"
)
OpenServerOption = typer.Option(
    None, "--accept-open-server", metavar="URL", help="Use this configured server although it asks for no password."
)


def serve(
    workspace: Path = WorkspaceOption,
    port: int = typer.Option(
        4200, "--port", min=0, max=65535, help="The port of the server's pages; 0 takes any free port."
    ),
    auditor_port: int | None = typer.Option(
        None,
        "--auditor-port",
        min=0,
        max=65535,
        help="A read-only port for auditors; 0 takes any free port.",
    ),
    poll: bool = typer.Option(
        False, "--poll", help="Poll landing/ instead of waiting for file events: for network mounts."
    ),
    settle: float = typer.Option(
        SETTLE_SECONDS,
        "--settle",
        min=0.1,
        help="Seconds without a change after which a file is complete, for the trigger and every run.",
    ),
    pool: str | None = typer.Option(None, "--pool", help="Hand the flows to the workers of this Prefect work pool."),
    accept_open_server: str | None = OpenServerOption,
    as_json: bool = JsonFlag,
) -> None:
    """Run the schedule, the landing trigger and the nightly audit, with a Prefect server if none is configured."""
    from tasks.spec import load_spec
    from tasks.spec.plan import plan_run
    from tasks.workspace.folders import Workspace

    place = Workspace(workspace.resolve())
    place.require()
    plan_run(load_spec(place.spec_path))
    options = {
        "--port": str(port),
        "--auditor-port": None if auditor_port is None else str(auditor_port),
        "--settle": f"{settle:g}",
        "--pool": pool,
        "--accept-open-server": accept_open_server,
    }
    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    flags = [name for name, wanted in (("--poll", poll), ("--json", as_json)) if wanted]
    _become("deployments.serve", str(place.root), *given, *flags)


def worker(
    pool: str = typer.Option(..., "--pool", help="The Prefect work pool to take runs from."),
    workspaces: list[Path] = WorkspacesOption,
    accept_open_server: str | None = OpenServerOption,
) -> None:
    """Run the flows that `serve --pool` hands to a Prefect work pool, for these workspaces only."""
    from tasks.workspace.folders import Workspace

    places = [Workspace(folder.resolve()) for folder in workspaces]
    for place in places:
        place.require()
    accepted = ["--accept-open-server", accept_open_server] if accept_open_server else []
    roots = [str(place.root) for place in places]
    _become("deployments.process", "deployments.worker", *roots, "--pool", pool, *accepted)


def _become(module: str, *arguments: str) -> None:
    """Go on as another program: the room above is not imported from here."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])  # noqa: S606  our own interpreter
