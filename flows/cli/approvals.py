"""`dprelease approve` and `retract`: a person's decision on a release that waits, or on one that was published."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flows.cli.output import JsonFlag, WorkspaceOption, console, operator, print_json, stderr
from tasks.ledger.entries.status import ReleaseStatus

SECONDS = 5
"""How long a server, or an endpoint for lineage, may take."""

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
    from tasks.ledger.entries.bodies import Approval, Refusal
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
            words = f"approved by {entry.parse(Approval).who}"
            seqs = (entry.seq, entry.seq + 1)  # the approval and the publication
            _update_history(place, record["flow_run_id"], "Published", words, seqs)
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


def _update_history(place: Workspace, flow_run_id: str, name: str, words: str, seqs: Sequence[int]) -> None:
    """Give the flow run a new state in Prefect's history if a server answers; the ledger holds the decision anyway."""
    from flows.run_labels import ENTRY_TAG
    from flows.server.connection import ServerUnreachableError, known_server

    server = known_server(place)
    state = {"type": "COMPLETED", "name": name, "message": words}
    if server is None:
        return
    with suppress(ServerUnreachableError):
        run = f"/flow_runs/{flow_run_id}"
        tags = server.ask("GET", run, seconds=SECONDS)["tags"]
        written = [f"{ENTRY_TAG}{seq}" for seq in seqs]
        server.ask("PATCH", run, {"tags": list(dict.fromkeys([*tags, *written]))}, seconds=SECONDS)
        server.ask("POST", f"{run}/set_state", {"state": state, "force": True}, seconds=SECONDS)


def _show_decision(content: dict[str, Any]) -> None:
    out = console()
    by = content.get("approved_by") or content["refused_by"]
    out.print(f"[bold]{content['release_id']}[/]: {content['status']}", end="")
    out.print(f" (by {by}, ledger entry {content['ledger_entry']})", markup=False)
    if "bundle" in content:
        out.print(f"  bundle  {content['bundle']}", soft_wrap=True)


# ---------------------------------------------------------------- retract


def retract(
    release_id: str = typer.Argument(metavar="RELEASE", help="A published release, as `history` lists it."),
    workspace: Path = WorkspaceOption,
    reason: str = typer.Option(
        ..., "--reason", help="Why nobody should use it. The ledger never forgets the reason, so name nobody in it."
    ),
    who: str | None = typer.Option(None, "--who", help="Who decides.", show_default="the account's name"),
    as_json: bool = JsonFlag,
) -> None:
    """Retract a published release: nobody should use it any more, and what it cost stays spent.

    Its bundle is marked, and stays until somebody deletes its folder. Its month is not released again by itself.
    """
    from tasks.ledger.entries.bodies import Retraction
    from tasks.release import retraction
    from tasks.workspace.folders import Workspace

    place = Workspace(workspace.resolve())
    place.require()
    done = retraction.retract(place, release_id, who=operator() if who is None else who, reason=reason)
    said = done.entry.parse(Retraction)
    if done.flow_run_id is not None:
        _update_history(place, done.flow_run_id, "Retracted", f"retracted by {said.who}", [done.entry.seq])
    content = {
        "release_id": release_id,
        "status": ReleaseStatus.RETRACTED,
        "retracted_by": said.who,
        "reason": said.reason,
        "key": done.entry.key_id,
        "ledger_entry": done.entry.seq,
        "bundle": str(done.bundle) if done.bundle else None,
        "mark": str(done.mark) if done.mark else None,
    }
    print_json(content) if as_json else _show_retraction(content)
    _send_lineage(place)


def _show_retraction(content: dict[str, Any]) -> None:
    out = console()
    out.print(f"[bold]{content['release_id']}[/]: {content['status']}", end="")
    out.print(f" (by {content['retracted_by']}, ledger entry {content['ledger_entry']})", markup=False)
    if content["mark"]:
        out.print(f"  mark    {content['mark']}", soft_wrap=True)
    else:
        out.print("  its bundle is not in this workspace")
    out.print("  what it cost stays spent")


def _send_lineage(place: Workspace) -> None:
    """Tell the endpoint at once, if the specification names one; what it does not take now waits for the next run."""
    from dpcore.errors import RefusedError
    from tasks.lineage.endpoint import endpoint_of
    from tasks.lineage.outbox import Outbox
    from tasks.spec import load_spec

    with suppress(RefusedError):
        spec = load_spec(place.spec_path)
        if spec.lineage is None:
            return
        delivery = Outbox(place).deliver(endpoint_of(place, spec.lineage), seconds=SECONDS)
        if not delivery.waiting:
            return
    stderr().print("lineage does not tell of the retraction yet: `dprelease lineage --flush` sends it", markup=False)
