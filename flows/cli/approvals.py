"""`dprelease approve`: a person's word on a release that waits for it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flows.cli.output import JsonFlag, WorkspaceOption, console, operator, print_json

if TYPE_CHECKING:
    from tasks.stores.ledger_state import Entry
    from tasks.stores.workspace import Workspace


def approve(
    release_id: str = typer.Argument(metavar="RELEASE", help="A release that waits, as `history` lists them."),
    workspace: Path = WorkspaceOption,
    reason: str = typer.Option(..., "--reason", help="Why; it is kept in the ledger."),
    who: str | None = typer.Option(None, "--who", help="Who decides.", show_default="the account's name"),
    refuse: bool = typer.Option(False, "--refuse", help="Do not publish it; what it cost stays spent."),
    as_json: bool = JsonFlag,
) -> None:
    """Publish a release that waits for approval, or refuse it."""
    from tasks.stores import approval
    from tasks.stores.workspace import Workspace

    place = Workspace(workspace.resolve())
    place.require()
    person = operator() if who is None else who
    if refuse:
        entry = approval.refuse(place, release_id, who=person, reason=reason)
        content = {"release_id": release_id, "status": "refused", **_said(entry)}
    else:
        folder, record, entry = approval.approve(place, release_id, who=person, reason=reason)
        content = {"release_id": release_id, "status": "published", "bundle": str(folder), **_cost(record)}
        content |= _said(entry)
        _tell_history(place, record["flow_run_id"], entry)
    print_json(content) if as_json else _show(content)


def _cost(record: dict[str, Any]) -> dict[str, Any]:
    privacy = record["privacy"]
    return {name: privacy[name] for name in ("epsilon", "delta", "delta_num")} | {"rows": record["rows"]}


def _said(entry: Entry) -> dict[str, Any]:
    facts = entry.facts
    by = "refused_by" if entry.kind == "refuse" else "approved_by"
    return {by: facts["who"], "reason": facts["reason"], "ledger_entry": entry.seq}


def _tell_history(place: Workspace, flow_run_id: str, approval: Entry) -> None:
    """Let the orchestrator's history show that the wait is over, if it is at hand; the ledger has it anyway."""
    from flows.connection import ServerUnreachableError, known_server
    from flows.history import ENTRY_TAG

    server = known_server(place)
    state = {"type": "COMPLETED", "name": "Published", "message": f"approved by {approval.facts['who']}"}
    if server is None:
        return
    with suppress(ServerUnreachableError):
        run = f"/flow_runs/{flow_run_id}"
        tags = server.ask("GET", run, seconds=5)["tags"]
        written = [f"{ENTRY_TAG}{seq}" for seq in (approval.seq, approval.seq + 1)]  # the approval and the publication
        server.ask("PATCH", run, {"tags": list(dict.fromkeys([*tags, *written]))}, seconds=5)
        server.ask("POST", f"{run}/set_state", {"state": state, "force": True}, seconds=5)


def _show(content: dict[str, Any]) -> None:
    out = console()
    by = content.get("approved_by") or content["refused_by"]
    out.print(f"[bold]{content['release_id']}[/]: {content['status']}", end="")
    out.print(f" (by {by}, ledger entry {content['ledger_entry']})", markup=False)
    if "bundle" in content:
        out.print(f"  bundle  {content['bundle']}", soft_wrap=True)
