"""`dprelease approve`: a person's decision on a release that waits for approval."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flows.cli.output import JsonFlag, WorkspaceOption, console, operator, print_json
from tasks.ledger.entries.status import ReleaseStatus

if TYPE_CHECKING:
    from tasks.keys.decision import SignedDecision
    from tasks.ledger.entries.entry import Entry
    from tasks.workspace.folders import Workspace


def approve(
    release_id: str = typer.Argument(
        metavar="RELEASE", help="A release that waits for approval, as `history` lists it."
    ),
    workspace: Path = WorkspaceOption,
    reason: str = typer.Option("", "--reason", help="The reason for the decision; the ledger keeps it."),
    who: str | None = typer.Option(None, "--who", help="Who decides.", show_default="the account's name"),
    refuse: bool = typer.Option(False, "--refuse", help="Do not publish it; what it cost stays spent."),
    key: Path | None = typer.Option(
        None, "--key", help="The approver's key: a PEM file, or an OpenSSH public key that an agent signs for."
    ),
    bundle: Path | None = typer.Option(
        None, "--bundle", help="With --key and --out: the sealed bundle that the approver read; no workspace is needed."
    ),
    out: Path | None = typer.Option(
        None, "--out", help="With --bundle: write the signed decision to this file, for --add."
    ),
    add: Path | None = typer.Option(
        None, "--add", help="Add the decision in this file, which an approver signed elsewhere."
    ),
    as_json: bool = JsonFlag,
) -> None:
    """Publish a release that waits for approval, or refuse it."""
    from tasks.keys.signing import read_signer
    from tasks.ledger.entries.bodies import Refusal
    from tasks.release import approval
    from tasks.workspace.folders import Workspace

    person = operator() if who is None else who
    _require_sensible(key, bundle, out, add)
    signer = read_signer(key) if key else None
    if bundle and out and signer:
        signed = approval.decide_apart(bundle, release_id, signer, refuse=refuse, who=person, reason=reason)
        _write(signed, out, as_json=as_json)
        return
    place = Workspace(workspace.resolve())
    place.require()
    said: dict[str, Any] = {"who": person, "reason": reason, "signer": signer}
    if add:
        signed = approval.read_decision(add)
        said = {"who": signed.content.who, "reason": signed.content.reason, "signed": signed}
        refuse = signed.content.decision == Refusal.kind
    if refuse:
        entry = approval.refuse_release(place, release_id, **said)
        content = {"release_id": release_id, "status": ReleaseStatus.REFUSED, **_decision_facts(entry)}
    else:
        folder, record, entry = approval.approve(place, release_id, **said)
        published = folder.is_dir()
        status = ReleaseStatus.PUBLISHED if published else ReleaseStatus.AWAITING_APPROVAL
        content = {"release_id": release_id, "status": status}
        content |= ({"bundle": str(folder)} if published else {}) | _cost(record) | _decision_facts(entry)
        if published:
            _update_history(place, record["flow_run_id"], entry)
    print_json(content) if as_json else _show_decision(content)


def _require_sensible(key: Path | None, bundle: Path | None, out: Path | None, add: Path | None) -> None:
    """Require options of one use: sign a decision here, sign it for another machine, or add a signed one."""
    from dpcore.errors import RefusedError

    if bool(bundle) != bool(out) or (out and not key) or (add and (key or out)):
        raise RefusedError(
            "these options cannot be combined",
            rule="options-conflict",
            where="approve",
            hint="use --key alone, --key with --bundle and --out, or --add alone",
        )


def _write(signed: SignedDecision, out: Path, *, as_json: bool) -> None:
    import json

    from tasks.ledger.export import write_new

    write_new(out, lambda draft: _write_text(draft, json.dumps(signed.as_json(), indent=2) + "\n"))
    if as_json:
        print_json({"out": str(out), "approver": signed.approver, "decision": signed.content.decision})
    else:
        console().print(
            f"wrote the decision signed by {signed.approver} to {out}; the operator adds it with --add", soft_wrap=True
        )


def _write_text(draft: Path, text: str) -> None:
    draft.write_text(text)


def _cost(record: dict[str, Any]) -> dict[str, Any]:
    privacy = record["privacy"]
    return {name: privacy[name] for name in ("epsilon", "delta", "delta_num")} | {"rows": record["rows"]}


def _decision_facts(entry: Entry) -> dict[str, Any]:
    from tasks.ledger.entries.bodies import BundleDecision, Refusal

    body = entry.parse(BundleDecision)
    by = "refused_by" if entry.is_a(Refusal) else "approved_by"
    key = body.approver or entry.key_id
    return {by: body.who, "reason": body.reason, "key": key, "ledger_entry": entry.seq}


def _update_history(place: Workspace, flow_run_id: str, approval: Entry) -> None:
    """Mark the flow run as published in Prefect's history if a server answers; the ledger holds the approval anyway."""
    from flows.run_labels import ENTRY_TAG
    from flows.server.connection import ServerUnreachableError, known_server
    from tasks.ledger.entries.bodies import Approval

    server = known_server(place)
    state = {"type": "COMPLETED", "name": "Published", "message": f"approved by {approval.parse(Approval).who}"}
    if server is None:
        return
    with suppress(ServerUnreachableError):
        run = f"/flow_runs/{flow_run_id}"
        tags = server.ask("GET", run, seconds=5)["tags"]
        written = [f"{ENTRY_TAG}{seq}" for seq in (approval.seq, approval.seq + 1)]  # the approval and the publication
        server.ask("PATCH", run, {"tags": list(dict.fromkeys([*tags, *written]))}, seconds=5)
        server.ask("POST", f"{run}/set_state", {"state": state, "force": True}, seconds=5)


def _show_decision(content: dict[str, Any]) -> None:
    out = console()
    by = content.get("approved_by") or content["refused_by"]
    out.print(f"[bold]{content['release_id']}[/]: {content['status']}", end="")
    out.print(f" (by {by}, ledger entry {content['ledger_entry']})", markup=False)
    if "bundle" in content:
        out.print(f"  bundle  {content['bundle']}", soft_wrap=True)
