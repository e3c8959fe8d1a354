"""`dprelease budget`: what is spent and what is left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flows.cli.output import JsonFlag, WorkspaceOption, console, operator, print_json, table

if TYPE_CHECKING:
    from dpcore.planning.plan import Plan
    from tasks.ledger.entries.entry import Entry
    from tasks.ledger.state import LedgerState
    from tasks.spec import ReleaseSpec
    from tasks.workspace.folders import Workspace

budget_app = typer.Typer(
    help="Show the balance of the population's lifetime budget, or raise its cap.", invoke_without_command=True
)


def open_planned(folder: Path) -> tuple[Workspace, ReleaseSpec, Plan, LedgerState]:
    """A workspace, its specification, the plan and the ledger's state.

    Raises: LedgerError where the specification's costs do not add to its population's, as a run does.
    """
    from tasks.ledger.opening import ledger_state
    from tasks.spec import load_spec
    from tasks.workspace.folders import Workspace

    workspace = Workspace(folder.resolve())
    workspace.require()
    spec = load_spec(workspace.spec_path)
    state = ledger_state(workspace)
    return workspace, spec, plan_against(state, spec), state


def plan_against(state: LedgerState, spec: ReleaseSpec) -> Plan:
    """The plan of a specification whose costs add to those in the ledger.

    Raises: SpecError where it cannot be planned; LedgerError where its costs do not add.
    """
    from tasks.ledger.refusals import require_adding_up
    from tasks.spec.plan import basis_of, plan_release

    planned = plan_release(spec)
    known = state.populations.get(spec.privacy.population)
    if known is not None:
        require_adding_up(known, basis_of(spec))
    return planned


def balance(spec: ReleaseSpec, plan: Plan, state: LedgerState) -> dict[str, Any]:
    """The population's balance as `budget --json` shows it."""
    from dpcore.accounting import CapKind
    from tasks.bundle.record import balances_under_relations, odometer
    from tasks.ledger.store import utc_now
    from tasks.schedule.outlook import Outlook, left

    population, outlook = spec.privacy.population, Outlook(spec, plan, state, utc_now())
    known, committed, relation = state.populations.get(population), outlook.balance, outlook.standing.relation
    spent = known.balance(relation, reserved=False) if known else committed
    held = known.reserved_balance(relation) if known else committed
    figures = {name: float(getattr(outlook.cap, name)) for name in ("epsilon", "delta", "delta_num")}
    return {
        "population": population,
        "lifetime": figures,
        "spent": spent.statement.as_json(),
        "reserved": held.statement.as_json(),
        "remaining": {name: left(figures[name], getattr(committed.statement, name)) for name in figures},
        "releases_left": outlook.standing.left(plan, outlook.first),
        "kind": (outlook.cap.kind or CapKind.of(plan.cost)).value,
        "span": committed.span,
        "relations": balances_under_relations(known) if known else None,
        "odometer": odometer(known, relation) if known and committed.span else None,
        "retracted": [r.release_id for r in state.releases.values() if r.retraction and r.population == population],
        "warnings": outlook.warnings,
        "cap_set": _cap_set(known.cap_entry) if known else None,
    }


def _cap_set(entry: Entry) -> dict[str, Any]:
    """When, by whom and why the present cap was written; earlier versions did not write who."""
    from tasks.ledger.entries.bodies import CapChange

    body = entry.parse(CapChange)
    return {"at": entry.at, "who": body.who, "reason": body.reason, "ledger_entry": entry.seq}


@budget_app.callback()
def budget(context: typer.Context, workspace: Path = WorkspaceOption, as_json: bool = JsonFlag) -> None:
    """Show the balance of the population's lifetime budget."""
    if context.invoked_subcommand is not None:
        return
    _, spec, planned, state = open_planned(workspace)
    content = balance(spec, planned, state)
    if as_json:
        print_json(content)
        return
    from tasks.spec.relations import at_least, at_most

    within = "" if content["span"] is None else f" within any {months_in_words(content['span'])}"
    rows = table(f"budget of {content['population']}{within}", "", "epsilon", "delta", "delta_num")
    for name in ("lifetime", "spent", "reserved", "remaining"):
        figures = content[name]
        rounded = at_least if name == "remaining" else at_most
        shown = ("-" if figures[key] is None else rounded(figures[key]) for key in ("epsilon", "delta", "delta_num"))
        rows.add_row(f"[dim]{name}[/]", *shown)
    console().print(rows)
    show_warnings(content["warnings"])
    for words in (*_relation_words(content), *_odometer_words(content)):
        console().print(words, markup=False)
    console().print(f"releases left at this epsilon: {releases_in_words(content['releases_left'])}")
    if content["retracted"]:
        console().print(f"retracted, and still spent: {', '.join(content['retracted'])}", soft_wrap=True)
    if content["cap_set"]:
        console().print(_cap_words(content["cap_set"]), markup=False)


def _relation_words(content: dict[str, Any]) -> list[str]:
    """What is spent for the values of a unit, and for its being in the data."""
    from tasks.spec.relations import RELATION_WORDS, at_most

    figures = content["relations"] or {}
    known = {
        name: "not known" if one is None else f"epsilon {at_most(one['epsilon'])}" for name, one in figures.items()
    }
    return [f"spent for {RELATION_WORDS[name]}: {words}" for name, words in known.items()]


def _odometer_words(content: dict[str, Any]) -> list[str]:
    """The sum over all months, which a span does not cap."""
    from tasks.spec.relations import at_most

    if content["odometer"] is None:
        return []
    epsilon = at_most(content["odometer"]["epsilon"])
    return [f"for somebody in all months so far, if the schedule was fixed beforehand: epsilon {epsilon} (not capped)"]


def months_in_words(span: int) -> str:
    """A number of months in words."""
    return "one month" if span == 1 else f"{span} consecutive months"


def releases_in_words(left: int | None) -> str:
    """How many more releases fit; None where months that leave the window make room for new ones."""
    return "one every month, without end" if left is None else str(left)


def show_warnings(warnings: list[str]) -> None:
    """Say what keeps a release from the cap, or makes the cap shorter than it need be."""
    for warning in warnings:
        console().print(f"! {warning}", style="yellow", markup=False)


def _cap_words(cap: dict[str, Any]) -> str:
    who = cap["who"] or "an account that was not recorded"
    why = f": {cap['reason']}" if cap["reason"] else " on first use"
    return f"cap set by {who} on {cap['at'][:10]} (ledger entry {cap['ledger_entry']}){why}"


@budget_app.command("raise")
def raise_cap(
    reason: str = typer.Option(..., "--reason", help="Why the cap changes; the ledger keeps the reason."),
    workspace: Path = WorkspaceOption,
    who: str | None = typer.Option(None, "--who", help="Who decides.", show_default="the account's name"),
    as_json: bool = JsonFlag,
) -> None:
    """Write `privacy.lifetime` of the specification into the ledger as the new cap."""
    from dpcore.errors import RefusedError
    from tasks.ledger.opening import writable_ledger
    from tasks.spec.plan import basis_of, cap_of, windows_of

    if not reason.strip():
        raise RefusedError(
            "the reason is empty", rule="reason-missing", where="--reason", hint="state why the cap changes"
        )
    person = operator() if who is None else who.strip()
    if not person:
        raise RefusedError("--who is empty", rule="who-missing", where="--who", hint="name the person who decides")
    place, spec, planned, _ = open_planned(workspace)
    ledger = writable_ledger(place, spec)
    ledger.raise_cap(
        spec.privacy.population,
        cap_of(spec),
        basis_of(spec),
        reason.strip(),
        windows=windows_of(spec),
        cost=planned.cost,
        who=person,
    )
    content = balance(spec, planned, ledger.state())
    if as_json:
        print_json(content)
    else:
        from tasks.spec.relations import at_most

        console().print(f"the cap of {content['population']} is now epsilon {at_most(content['lifetime']['epsilon'])}")
