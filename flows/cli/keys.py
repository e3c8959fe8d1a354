"""`dprelease keys`: who may write the ledger, and with which key this workspace signs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from flows.cli.operations import open_place
from flows.cli.output import JsonFlag, WorkspaceOption, console, operator, print_json, table

keys_app = typer.Typer(help="The keys that sign the ledger.", no_args_is_help=True)


@keys_app.command("show")
def show_keys(workspace: Path = WorkspaceOption, as_json: bool = JsonFlag) -> None:
    """Show the keys that the ledger knows, and the one that signs now."""
    from tasks.ledger.opening import known_keys, own_public_key

    place, _ = open_place(workspace)
    present = own_public_key(place)  # an auditor's copy has none, and is not given one
    keys: list[dict[str, Any]] = [
        {
            "key_id": key_id,
            "active": key.active,
            "vouched": key.vouched,
            "vouched_by": key.vouched_by,
            "roles": list(key.roles),
            "name": key.name,
            "public_key": _pem(key.public),
        }
        for key_id, key in known_keys(place).items()
    ]
    content: dict[str, Any] = {"keys": keys, "signing": None, "public_key": None}
    if present is not None:
        content |= {"signing": present.key_id, "public_key": present.pem}
    if as_json:
        print_json(content)
        return
    rows = table("keys of the ledger", "key", "", "roles", "name", "enrolled by")
    for key in keys:
        status = "active" if key["active"] else "revoked"
        by = key["vouched_by"] or ("itself" if key["vouched"] else "itself: NOT VOUCHED FOR")
        rows.add_row(key["key_id"], status, ", ".join(key["roles"]), key["name"], by)
    out = console()
    out.print(rows)
    if present is not None:
        out.print(f"this workspace signs with {present.key_id}")
        out.print(present.pem, markup=False)


def _pem(public: str) -> str:
    from tasks.keys.signing import PublicKey

    return PublicKey.from_text(public).pem


@keys_app.command("enrol")
def enrol(
    public: str = typer.Argument(metavar="PUBLIC", help="A file with an Ed25519 public key, or its text."),
    role: list[str] = typer.Option(
        ..., "--role", metavar="release|cap|approve", help="What the key may sign; may be repeated."
    ),
    name: str = typer.Option("", "--name", help="Whose key it is; `approve: {by: [NAME]}` names this person."),
    workspace: Path = WorkspaceOption,
    as_json: bool = JsonFlag,
) -> None:
    """Let another key write to the ledger; this workspace's key, which needs the role cap, vouches for it."""
    from dpcore.errors import RefusedError
    from tasks.ledger.entries.bodies import KeyEnrolment
    from tasks.ledger.entries.keys import ROLES
    from tasks.ledger.key_changes import enrol_key, given_public_key

    if not set(role) <= set(ROLES):
        raise RefusedError(
            "there is no role of this name",
            rule="role-unknown",
            where="--role",
            hint=f"use {', '.join(ROLES)}; repeat --role",
        )
    place, spec = open_place(workspace)
    entry = enrol_key(place, spec, given_public_key(public), roles=role, name=name.strip())
    enrolment = entry.parse(KeyEnrolment)
    if as_json:
        print_json({"key_id": enrolment.key_id, "roles": enrolment.roles, "name": enrolment.name, "entry": entry.seq})
        return
    roles = enrolment.roles or ()
    words = f"{'role' if len(roles) == 1 else 'roles'} {', '.join(roles)}"
    console().print(f"{enrolment.key_id} has the {words} (ledger entry {entry.seq})", markup=False)
    if roles != ("approve",):
        words = "send keys/signing.pub to the holder of the key, who runs `dprelease keys trust` with it"
        console().print(words, markup=False)


@keys_app.command("revoke")
def revoke(
    key_id: str = typer.Argument(metavar="KEY_ID", help="As `keys show` lists it."),
    reason: str = typer.Option(..., "--reason", help="The reason; the ledger keeps it."),
    workspace: Path = WorkspaceOption,
    as_json: bool = JsonFlag,
) -> None:
    """Revoke a key: it may sign nothing more, and what it signed before stays valid."""
    from tasks.ledger.key_changes import revoke_key

    place, spec = open_place(workspace)
    entry = revoke_key(place, spec, key_id, reason=reason, who=operator())
    if as_json:
        print_json({"key_id": key_id, "entry": entry.seq})
    else:
        console().print(f"{key_id} is revoked (ledger entry {entry.seq})", markup=False)


@keys_app.command("trust")
def trust(
    public: str = typer.Argument(metavar="PUBLIC", help="The public key of the ledger's owner, as they sent it."),
    workspace: Path = WorkspaceOption,
    as_json: bool = JsonFlag,
) -> None:
    """Trust the owner of a shared ledger that this workspace is new to."""
    from tasks.ledger.key_changes import given_public_key, trust_owner

    place, _ = open_place(workspace)
    place.create()
    key = given_public_key(public)
    trust_owner(place, key)
    if as_json:
        print_json({"key_id": key.key_id})
    else:
        console().print(f"this workspace trusts a ledger that {key.key_id} began or signed", markup=False)


@keys_app.command("rotate")
def rotate(
    agent: str | None = typer.Option(
        None, "--agent", metavar="PUBLIC", help="Use this key, which an SSH agent keeps, as the new one."
    ),
    workspace: Path = WorkspaceOption,
    as_json: bool = JsonFlag,
) -> None:
    """Give the workspace a new signing key; the old one enrols it in the ledger, and is revoked."""
    from tasks.ledger.entries.bodies import KeyEnrolment
    from tasks.ledger.key_changes import given_public_key, rotate_key

    place, spec = open_place(workspace)
    place.create()
    public, entry = rotate_key(place, spec, who=operator(), agent=given_public_key(agent) if agent else None)
    replaced = entry.parse(KeyEnrolment).replaces
    if as_json:
        print_json({"key_id": public.key_id, "replaces": replaced, "entry": entry.seq, "public_key": public.pem})
    else:
        console().print(f"the ledger is now signed with {public.key_id}; {replaced} stays valid for what it signed")


@keys_app.command("encrypt")
def encrypt(workspace: Path = WorkspaceOption, as_json: bool = JsonFlag) -> None:
    """Encrypt the key file; the command asks for a passphrase, or reads the file in DPRELEASE_KEY_PASSPHRASE_FILE."""
    from tasks.keys.passphrase import ask_passphrase
    from tasks.ledger.key_changes import encrypt_key

    place, _ = open_place(workspace)
    place.create()
    public = encrypt_key(place, ask_passphrase("new passphrase: ", again="repeat the passphrase: "))
    if as_json:
        print_json({"key_id": public.key_id, "encrypted": True})
    else:
        console().print(f"keys/signing.key of {public.key_id} is encrypted; every release needs the passphrase")
