"""`dprelease plan` and `dprelease budget`: what a release costs and what is left."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flows.cli.output import JsonFlag, WorkspaceOption, console, print_json, table

if TYPE_CHECKING:
    from dpcore.planning import Plan
    from tasks.stores.ledger_state import LedgerState
    from tasks.stores.spec import ReleaseSpec
    from tasks.stores.workspace import Workspace

budget_app = typer.Typer(help="The population's lifetime budget.", invoke_without_command=True)


def _open(folder: Path) -> tuple[Workspace, ReleaseSpec, Plan, LedgerState]:
    from tasks.stores.ledgers import ledger_state
    from tasks.stores.run import plan_release
    from tasks.stores.spec import load_spec
    from tasks.stores.workspace import Workspace

    workspace = Workspace(folder.resolve())
    workspace.require()
    spec = load_spec(workspace.spec_path)
    return workspace, spec, plan_release(spec), ledger_state(workspace)


def balance(spec: ReleaseSpec, plan: Plan, state: LedgerState) -> dict[str, Any]:
    """The population's balance as `budget --json` shows it."""
    from dpcore.accounting import compose
    from tasks.stores.run import cap_of

    population = spec.privacy.population
    known = state.populations.get(population)
    cap = known.cap if known else cap_of(spec)
    spent, committed = state.spent(population), state.committed(population)
    used = compose(committed, delta=cap.delta)
    figures = {name: float(getattr(cap, name)) for name in ("epsilon", "delta", "delta_num")}
    return {
        "population": population,
        "lifetime": figures,
        "spent": compose(spent, delta=cap.delta).as_json(),
        "reserved": compose(state.reserved(population), delta=cap.delta).as_json(),
        "remaining": {name: _left(figures[name], getattr(used, name)) for name in figures},
        "releases_left": cap.further(committed, plan.cost),
    }


def _left(cap: float, used: Fraction | float) -> float | None:
    """What is left under a cap, without the digits that floating point invents; None if nothing finite fits."""
    left = cap - float(used)
    return float(f"{left:.12g}") if math.isfinite(left) else None


def plan(workspace: Path = WorkspaceOption, as_json: bool = JsonFlag) -> None:
    """Show what a release will cost and how good it will be; no data are touched."""
    from dpcore.accounting import compose
    from tasks.stores.run import stated_guarantee

    _, spec, planned, state = _open(workspace)
    now = balance(spec, planned, state)
    population = spec.privacy.population
    known = state.populations.get(population)
    delta = known.cap.delta if known else spec.privacy.lifetime.delta
    after = compose(state.committed(population) + planned.cost, delta=delta)
    lifetime = now["lifetime"]
    content = {
        **stated_guarantee(spec, planned),
        **planned.as_json(),
        "remaining_after": {name: _left(lifetime[name], getattr(after, name)) for name in lifetime},
        "releases_left": now["releases_left"],
    }
    print_json(content) if as_json else _show_plan(spec, content)


def _show_plan(spec: ReleaseSpec, content: dict[str, Any]) -> None:
    out = console()
    facts = table(f"plan for {spec.name}", "", "")
    error = content["expected_error"]
    rows = {
        "epsilon, delta": f"{content['epsilon']:g}, {content['delta']:g} a release",
        "projection": f"{content['projection']}, {content['encoded_width']} coordinates to {content['dimension']}",
        "mechanism": content["mechanism"],
        "generator": content["generator"],
        "budget goes to": ", ".join(f"{name} {share:g}" for name, share in content["allocation"].items()),
        "expected noise": f"operator norm {error['operator']:.3g} rows, Frobenius {error['frobenius']:.3g} rows",
        "a mean's noise": f"standard deviation {100 * error['mean_sd']:.2g} % of the unit ball's radius",
        "signal to noise": f"{error['signal_to_noise']:.3g} (average eigenvalue over the noise's operator norm)",
        "gain over loss": f"{error['sir']:.3g} (less noise by projecting, over the variance it leaves out)"
        if "sir" in error
        else "",
        "budget left after": _epsilon_left(content["remaining_after"]["epsilon"]),
        "releases left": str(content["releases_left"]),
    }
    for name, value in rows.items():
        if value:
            facts.add_row(f"[dim]{name}[/]", value)
    out.print(facts)
    out.print("[dim]why[/]")
    for reason in content["reasons"]:
        out.print(f"  - {reason}", markup=False)


def _epsilon_left(left: float | None) -> str:
    if left is None or left < 0:
        return "none: the cap does not allow this release"
    return f"epsilon {left:g}"


@budget_app.callback()
def budget(context: typer.Context, workspace: Path = WorkspaceOption, as_json: bool = JsonFlag) -> None:
    """Show the balance of the population's lifetime budget."""
    if context.invoked_subcommand is not None:
        return
    _, spec, planned, state = _open(workspace)
    content = balance(spec, planned, state)
    if as_json:
        print_json(content)
        return
    rows = table(f"budget of {content['population']}", "", "epsilon", "delta", "delta_num")
    for name in ("lifetime", "spent", "reserved", "remaining"):
        figures = content[name]
        shown = ("-" if figures[key] is None else f"{figures[key]:g}" for key in ("epsilon", "delta", "delta_num"))
        rows.add_row(f"[dim]{name}[/]", *shown)
    console().print(rows)
    console().print(f"releases left at this epsilon: {content['releases_left']}")


@budget_app.command("raise")
def raise_cap(
    reason: str = typer.Option(..., "--reason", help="Why the cap changes; it is kept in the ledger."),
    workspace: Path = WorkspaceOption,
    as_json: bool = JsonFlag,
) -> None:
    """Write the spec's lifetime into the ledger as the new cap."""
    from dpcore.errors import RefusedError
    from tasks.stores.ledgers import writable_ledger
    from tasks.stores.run import basis_of, cap_of

    if not reason.strip():
        raise RefusedError("the reason is empty", rule="reason-missing", where="--reason", hint="say why")
    place, spec, planned, _ = _open(workspace)
    ledger = writable_ledger(place, spec)
    ledger.raise_cap(spec.privacy.population, cap_of(spec), basis_of(spec), reason.strip())
    content = balance(spec, planned, ledger.state())
    if as_json:
        print_json(content)
    else:
        console().print(f"the cap of {content['population']} is now epsilon {content['lifetime']['epsilon']:g}")
