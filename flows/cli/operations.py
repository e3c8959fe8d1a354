"""`dprelease ledger`, `backup` and `restore`: what an operator does besides releasing."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flows.cli.output import JsonFlag, WorkspaceOption, console, operator, print_json

if TYPE_CHECKING:
    from tasks.spec import ReleaseSpec
    from tasks.workspace.folders import Workspace

OwnerUrl = typer.Option(
    None, "--owner-url", help="The database address of the tables' owner, if `ledger` names another role."
)

ledger_app = typer.Typer(help="Export, reconcile or share the budget ledger.", no_args_is_help=True)


def open_place(folder: Path) -> tuple[Workspace, ReleaseSpec]:
    """A workspace and its specification."""
    from tasks.spec import load_spec
    from tasks.workspace.folders import Workspace

    workspace = Workspace(folder.resolve())
    workspace.require()
    return workspace, load_spec(workspace.spec_path)


# ---------------------------------------------------------------- ledger


@ledger_app.command("export")
def export(
    out: Path | None = typer.Option(None, "--out", help="The file to write; standard output without it."),
    workspace: Path = WorkspaceOption,
    as_json: bool = JsonFlag,
) -> None:
    """Write every ledger entry as a line of JSON, with its hash and signature."""
    from contextlib import closing

    from tasks.ledger.export import export_lines, write_new
    from tasks.ledger.opening import readable_ledger

    place, _ = open_place(workspace)
    with closing(readable_ledger(place)) as ledger:
        entries, head = ledger.entries(), ledger.state().head
    text = "".join(export_lines(entries))
    if out is not None:
        write_new(out, lambda draft: _write(draft, text))
    if as_json:
        shown = str(out) if out else None
        print_json({"entries": len(entries), "head": head.hash if head else None, "out": shown})
    elif out is None:
        sys.stdout.write(text)
    else:
        console().print(f"wrote {len(entries)} entries to {out}", soft_wrap=True)


def _write(draft: Path, text: str) -> None:
    draft.write_text(text)


@ledger_app.command("reconcile")
def reconcile(
    reason: str = typer.Option(..., "--reason", help="What happened to the ledger; the ledger keeps the reason."),
    nothing_was_spent: bool = typer.Option(
        False, "--nothing-was-spent", help="Declare that nothing was released after the backup."
    ),
    charge: list[str] = typer.Option(
        [],
        "--charge",
        metavar="[POPULATION=]EPSILON",
        help="The epsilon that was or may have been spent and is not in the ledger; once for each population.",
    ),
    owner: str | None = OwnerUrl,
    vouch: list[str] = typer.Option(
        [],
        "--vouch",
        metavar="KEY_ID",
        help="Vouch for a key that announced itself before keys were enrolled, and for what it wrote.",
    ),
    workspace: Path = WorkspaceOption,
    as_json: bool = JsonFlag,
) -> None:
    """Declare what was spent but is missing from the ledger, or vouch for older keys, so that releases may go on."""
    from dpcore.errors import RefusedError
    from tasks.ledger import reconcile as reconciliation
    from tasks.ledger.entries.bodies import Reconciliation

    if vouch and not nothing_was_spent and not charge:
        _vouch(workspace, vouch, reason, as_json=as_json)
        return
    if vouch or nothing_was_spent == bool(charge):
        raise RefusedError(
            "a reconciliation must state what was spent after the last remaining entry",
            rule="charge-missing",
            where="--charge",
            hint="add --nothing-was-spent, or --charge EPSILON with all that may have been spent; not both",
        )
    charges = _charges(charge) if charge else None
    place, spec = open_place(workspace)
    entry = reconciliation.reconcile(place, spec, reason=reason, who=operator(), charges=charges, owner_url=owner)
    body = entry.parse(Reconciliation)
    if as_json:
        shown = {name: float(cost.epsilon) for name, cost in body.charges.items()}
        print_json({"entry": entry.seq, "charged": shown, "lost": len(body.lost)})
    else:
        said = "with a charge for the lost releases" if body.charges else "with your statement that nothing was spent"
        console().print(f"reconciled in ledger entry {entry.seq}, {said}; releases may go on")


def _vouch(workspace: Path, key_ids: list[str], reason: str, *, as_json: bool) -> None:
    from tasks.ledger.reconcile import vouch_for_keys

    (place, spec), who = open_place(workspace), operator()
    entry, signed = vouch_for_keys(place, spec, key_ids, reason=reason, who=who)
    if as_json:
        print_json({"entry": entry.seq, "vouched": signed, "who": who})
        return
    words = ", ".join(f"{key_id} and the {count} entries it signed" for key_id, count in signed.items())
    console().print(f"{who} vouches for {words} (ledger entry {entry.seq}); releases may go on")


def _charges(texts: list[str]) -> dict[str, Fraction]:
    from dpcore.errors import RefusedError

    pairs = [_charge(text) for text in texts]
    if len({population for population, _ in pairs}) < len(pairs):
        raise RefusedError(
            "a population is charged twice",
            rule="charge-twice",
            where="--charge",
            hint="add the charges up and give one --charge per population",
        )
    return dict(pairs)


def _charge(text: str) -> tuple[str, Fraction]:
    from dpcore.errors import RefusedError
    from tasks.workspace.redaction import ErrorBoundary

    population, _, figure = text.rpartition("=")
    invalid = RefusedError(
        "a charge is an epsilon of at least 0",
        rule="charge-invalid",
        where="--charge",
        hint="write --charge 1.5, or --charge clinic-patients=1.5",
    )
    with ErrorBoundary(ValueError, ZeroDivisionError, refusal=lambda _: invalid):
        epsilon = Fraction(figure)
    if epsilon < 0:
        raise invalid
    return population, epsilon


@ledger_app.command("roles")
def roles(
    writer: str = typer.Option(..., "--writer", help="The role that releases: it appends and reads."),
    auditor: str = typer.Option(..., "--auditor", help="The role that audits: it reads."),
    owner: str | None = OwnerUrl,
    workspace: Path = WorkspaceOption,
    as_json: bool = JsonFlag,
) -> None:
    """Give two PostgreSQL roles exactly the rights that they need on the ledger."""
    from tasks.keys.signing import signing_key
    from tasks.ledger.opening import ledger_address
    from tasks.ledger.sharing import give_roles

    place, spec = open_place(workspace)
    place.create()
    give_roles(owner or ledger_address(place, spec), signing_key(place.keys), writer=writer, auditor=auditor)
    if as_json:
        print_json({"writer": writer, "auditor": auditor})
    else:
        console().print(f"{writer} may append and read, {auditor} may read", markup=False)


@ledger_app.command("grant")
def grant(
    population: str = typer.Argument(..., metavar="POPULATION", help="The population whose budget is shared."),
    role: str = typer.Option(..., "--to", metavar="ROLE", help="The PostgreSQL role that may write to it."),
    as_owner: bool = typer.Option(False, "--as-owner", help="The role may also raise the cap and grant."),
    revoke: bool = typer.Option(False, "--revoke", help="Take the role's rights to the population away."),
    owner: str | None = OwnerUrl,
    workspace: Path = WorkspaceOption,
    as_json: bool = JsonFlag,
) -> None:
    """Let another PostgreSQL role spend from a population's budget; only the population's owner can."""
    from tasks.ledger.opening import ledger_address
    from tasks.ledger.sharing import grant_population

    place, spec = open_place(workspace)
    grant_population(owner or ledger_address(place, spec), population, role, as_owner=as_owner, revoke=revoke)
    if as_json:
        right = None if revoke else "owner" if as_owner else "writer"
        print_json({"population": population, "role": role, "right": right})
    else:
        may = "may no longer write to" if revoke else "owns" if as_owner else "may write to"
        console().print(f"{role} {may} {population}", markup=False)


@ledger_app.command("set-aside")
def set_aside(owner: str | None = OwnerUrl, workspace: Path = WorkspaceOption, as_json: bool = JsonFlag) -> None:
    """Move entries that no program can read out of a shared ledger, and keep them as evidence."""
    from tasks.keys.signing import signing_key
    from tasks.ledger import sharing
    from tasks.ledger.opening import ledger_address

    place, spec = open_place(workspace)
    done = sharing.set_aside(owner or ledger_address(place, spec), signing_key(place.keys), who=operator())
    if as_json:
        shown = {"first": done.first, "entries": done.entries, "roles": list(done.roles)}
        print_json({**shown, "entry": done.restore.seq})
        return
    roles = ", ".join(done.roles) or "an unknown role"
    console().print(
        f"set aside {done.entries} entries from entry {done.first} on, which {roles} appended", markup=False
    )
    console().print("next: dprelease ledger reconcile, to state what they spent")


# ---------------------------------------------------------------- backup and restore


def backup(
    out: Path | None = typer.Option(None, "--out", metavar="FILE.tar", help="The archive to write; it must be new."),
    workspace: Path = WorkspaceOption,
    as_json: bool = JsonFlag,
) -> None:
    """Archive specification, ledger, bundles, lineage and keys; the archive is as secret as the keys."""
    from tasks.backup.archive import back_up
    from tasks.ledger.store import utc_now

    place, spec = open_place(workspace)
    place.create()
    now = utc_now()
    target = (out or Path(f"{spec.name}-{now:%Y%m%dT%H%M%SZ}.tar")).absolute()
    made = back_up(place, target, now=now)
    if as_json:
        print_json({"out": str(target), **made.as_json()})
    else:
        console().print(f"wrote {made.files} files and {made.entries} ledger entries to {target}", soft_wrap=True)
        console().print("keep the archive secret: it contains the signing key")


def restore(
    archive: Path = typer.Argument(..., metavar="ARCHIVE", help="An archive that `dprelease backup` wrote."),
    workspace: Path = typer.Option(..., "--workspace", "-w", help="A new or empty folder."),
    ledger_url: str | None = typer.Option(
        None, "--ledger-url", help="Restore the ledger there, and name it in the specification."
    ),
    as_json: bool = JsonFlag,
) -> None:
    """Restore a workspace from an archive; nothing is released in it until `ledger reconcile`."""
    from tasks.backup import archive as archives

    root = workspace.resolve()
    made = archives.restore(archive, root, who=operator(), ledger_url=ledger_url)
    if as_json:
        print_json({"workspace": str(root), **made.as_json()})
        return
    out = console()
    out.print(f"restored {made.files} files and {made.entries} ledger entries to {root}", soft_wrap=True)
    out.print(
        "next: dprelease audit, then dprelease ledger reconcile to state what was spent since the backup",
        soft_wrap=True,
    )
