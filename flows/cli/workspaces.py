"""`dprelease init` and `dprelease spec`: make a workspace, and help to write its specification."""

from __future__ import annotations

import shutil
from pathlib import Path

import typer

from dpcore.errors import WorkspaceError
from flows.cli.output import JsonFlag, console, print_json

EXAMPLE_NAME = "release.example.yaml"

spec_app = typer.Typer(help="Help to write the specification.", no_args_is_help=True)


def init(
    folder: Path = typer.Argument(
        ..., metavar="DIR", help="The folder to make; it may exist if it holds no workspace."
    ),
    demo: str = typer.Option("clinic", "--demo", help="Demo data: clinic, digits, or none."),
    as_json: bool = JsonFlag,
) -> None:
    """Make a workspace, with demo data to try everything on."""
    from flows.demos import DEMOS, write_demo
    from tasks.workspace.folders import SPEC_NAME, Workspace

    if demo not in (*DEMOS, "none"):
        raise WorkspaceError(
            f"there is no demo {demo!r}",
            rule="demo-unknown",
            where="--demo",
            hint=f"use {', '.join(DEMOS)}, or none",
        )
    workspace = Workspace(folder.resolve())
    if workspace.spec_path.exists():
        raise WorkspaceError(
            "the folder is already a workspace",
            rule="workspace-exists",
            where="DIR",
            hint="choose another folder, for data about other people: releases about the same people from two "
            "workspaces are not counted together unless the workspaces share a ledger",
        )
    is_new = not workspace.root.exists()
    try:
        workspace.create()
        if demo != "none":
            write_demo(demo, workspace.root)
        else:
            (workspace.root / EXAMPLE_NAME).write_text(DEMOS["clinic"].specification())
    except BaseException:
        if is_new:
            shutil.rmtree(workspace.root, ignore_errors=True)
        raise
    if as_json:
        print_json({"workspace": str(workspace.root), "demo": demo, "spec": str(workspace.spec_path)})
        return
    out = console()
    out.print(f"workspace [bold]{folder}[/] is ready" + (f" with the {demo} demo" if demo != "none" else ""))
    out.print("  landing/      put Parquet or CSV files here")
    if demo == "none":
        out.print(f"next: write {SPEC_NAME}; {EXAMPLE_NAME} is an example that explains every key")
    else:
        out.print(f"  {SPEC_NAME}  the specification")
        out.print(f"next: dprelease plan -w {folder}; dprelease run -w {folder}")


@spec_app.command("schema")
def schema(as_json: bool = JsonFlag) -> None:
    """Print the JSON Schema of release.yaml, with which editors complete, explain and check its keys."""
    from tasks.spec.structure.schema import spec_schema

    print_json(spec_schema())
