"""`dprelease audit` and `dprelease mechanisms`."""

from __future__ import annotations

from pathlib import Path

import typer

from flows.cli.output import FAILED, JsonFlag, WorkspaceOption, console, print_json, table


def audit(
    release_id: str | None = typer.Argument(None, metavar="[RELEASE]", help="One release; all without it."),
    workspace: Path = WorkspaceOption,
    as_json: bool = JsonFlag,
) -> None:
    """Verify ledger, bundles and records against each other; exit 0 only if all holds."""
    from tasks.stores.audit import audit_workspace
    from tasks.stores.workspace import Workspace

    place = Workspace(workspace.resolve())
    checks = audit_workspace(place, release_id)
    ok = all(check.ok for check in checks)
    if as_json:
        print_json({"ok": ok, "checks": [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in checks]})
    else:
        out = console()
        for number, check in enumerate(checks, 1):
            mark = "[green]ok[/]    " if check.ok else "[bold red]BROKEN[/]"
            out.print(f"{number:3} {mark} ", end="")
            out.print(f"{check.name}: {check.detail}", markup=False, soft_wrap=True)
        out.print("everything holds" if ok else "[bold red]the audit failed[/]")
    if not ok:
        raise SystemExit(FAILED)


def mechanisms(as_json: bool = JsonFlag) -> None:
    """List every mechanism with its paper, guarantee and proof status."""
    from dpcore.registry import ENTRIES

    if as_json:
        print_json({"mechanisms": [entry.as_json() for entry in ENTRIES]})
        return
    rows = table("mechanisms", "name", "kind", "status", "guarantee", "why")
    colours = {"proved": "green", "approximate": "yellow", "refuted": "red"}
    for entry in ENTRIES:
        status = f"[{colours[entry.status]}]{entry.status.value}[/]"
        rows.add_row(entry.name, entry.kind, status, entry.guarantee, entry.reason)
    console().print(rows)
