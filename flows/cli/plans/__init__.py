"""`dprelease plan`: what a release costs, how good it will be, how long the budget lasts, what changes buy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from flows.cli.budgets import balance, months_in_words, open_planned, plan_against, releases_in_words, show_warnings
from flows.cli.output import JsonFlag, WorkspaceOption, console, print_json, table
from flows.cli.plans.plots import draw, require_drawable

if TYPE_CHECKING:
    from rich.table import Table

    from dpcore.planning.plan import Plan
    from flows.cli.plans.what_if import Comparison
    from tasks.schedule.outlook import Alternative, Outlook
    from tasks.workspace.folders import Workspace

MonthsOption = typer.Option(12, "--months", min=1, max=120, help="How many months to look ahead.")
PlotOption = typer.Option(
    None, "--plot", help="Draw the months ahead and the alternatives of the present plan into this .svg or .png file."
)
WhatIfOption = typer.Option(
    [],
    "--what-if",
    metavar="KEY=VALUE",
    help="Show beside the plan what a change of the specification would buy, such as privacy.epsilon=0.5, "
    "'columns.age.bounds=[0, 100]', columns.age=drop to leave a column out, or model.generator= to leave out a key. "
    "Several are one change. Nothing is written.",
)


def plan(
    workspace: Path = WorkspaceOption,
    months: int = MonthsOption,
    plot: Path | None = PlotOption,
    what_if: list[str] = WhatIfOption,
    as_json: bool = JsonFlag,
) -> None:
    """Show what a release will cost, how good it will be and how long the budget lasts; no data are touched."""
    from tasks.ledger.store import utc_now
    from tasks.schedule.outlook import Outlook

    if plot is not None:
        require_drawable(plot)
    place, spec, planned, state = open_planned(workspace)
    _require_drawn_rows(planned)
    outlook = Outlook(spec, planned, state, utc_now(), months)
    content = _plan_content(outlook) | outlook.as_json()
    if plot is not None:
        draw(outlook, plot)
        content["plot"] = str(plot)
    if what_if:
        comparison = _compare(place, outlook, content, what_if)
        content["what_if"] = comparison.as_json()
    if as_json:
        print_json(content)
        return
    comparison.show(console()) if what_if else _show_plan(outlook, content)
    if plot is not None:
        console().print(f"wrote the plot to {plot}", markup=False)


def _compare(place: Workspace, outlook: Outlook, content: dict[str, Any], written: list[str]) -> Comparison:
    """The plan of the changed specification, against the same ledger at the same moment.

    Raises: SpecError, LedgerError where the change cannot be read or planned.
    """
    from flows.cli.plans.what_if import Comparison
    from tasks.spec import read_document
    from tasks.spec.structure.changes import changed_spec, naming_columns

    spec, changes = changed_spec(read_document(place.spec_path), written)
    with naming_columns([column.name for column in spec.columns]):
        planned = plan_against(outlook.state, spec)
        _require_drawn_rows(planned)
    changed = replace(outlook, spec=spec, plan=planned)
    return Comparison(changes, content, _plan_content(changed) | changed.as_json())


def _require_drawn_rows(planned: Plan) -> None:
    from tasks.spec.rules.drawable import refuse_undrawable_rules

    refuse_undrawable_rules(planned.schema, planned.generator)


def _plan_content(outlook: Outlook) -> dict[str, Any]:
    """One release, and the balance after it."""
    from dpcore.planning.forecast import expected_signal
    from tasks.schedule.outlook import left
    from tasks.spec.plan import stated_guarantee
    from tasks.spec.relations import relation_figures

    spec, planned, state = outlook.spec, outlook.plan, outlook.state
    now = balance(spec, planned, state)
    after = outlook.balance.adding(outlook.first, outlook.standing.cost(planned)).statement
    lifetime, stated = now["lifetime"], stated_guarantee(spec, planned)
    return {
        "unit": spec.protects,
        **stated,
        **relation_figures(planned.events.values(), spec.neighbours, stated),
        **planned.as_json(),
        "signal": expected_signal(planned),
        "remaining_after": {name: left(lifetime[name], getattr(after, name)) for name in lifetime},
        **{key: now[key] for key in ("releases_left", "kind", "span")},
        **({"rules": [rule.words for rule in spec.schema.rules]} if spec.schema.rules else {}),
    }


# -- for people --------------------------------------------------------------------


def _show_plan(outlook: Outlook, content: dict[str, Any]) -> None:
    from tasks.bundle.query_text import query_words

    out = console()
    _show_release(out, outlook.spec.name, content)
    show_warnings(content["warnings"])
    for words in query_words(outlook.spec):
        out.print(words, markup=False)
    _show_year(out, outlook, content)
    _show_alternatives(out, outlook)
    _show_columns(out, outlook, content["columns"])
    _show_rules(out, content.get("rules", []))


def _show_rules(out: Console, rules: list[str]) -> None:
    if not rules:
        return
    out.print()
    out.print("[dim]rules that every released row will obey; they cost nothing[/]")
    for rule in rules:
        out.print(f"  - {rule}", markup=False)


def _dimension(content: dict[str, Any]) -> str:
    """The dimension that is planned; where the released spectrum will decide it, at most all."""
    return f"{'at most ' if content['dimension_rule'] == 'share' else ''}{content['dimension']}"


def _show_release(out: Console, name: str, content: dict[str, Any]) -> None:
    from dpcore.planning.class_structure import about
    from dpcore.planning.forecast import LEAST_SIGNAL
    from tasks.spec.relations import at_least, at_most, in_words

    error = content["expected_error"]
    rows = {
        "epsilon, delta": f"{at_most(content['epsilon'])}, {at_most(content['delta'])} per release",
        **in_words(content),
        "projection": f"{content['projection']}, {content['encoded_width']} coordinates to {_dimension(content)}",
        "mechanism": content["mechanism"],
        "generator": content["generator"],
        "budget split": ", ".join(f"{name} {share:g}" for name, share in content["allocation"].items()),
        "expected noise": f"operator norm {error['operator']:.3g} rows, Frobenius {error['frobenius']:.3g} rows",
        "noise of a mean": f"standard deviation {100 * error['mean_sd']:.2g} % of the unit ball's radius",
        "signal to noise": f"{about(error['signal_to_noise'], 3)} (average eigenvalue divided by the noise's operator "
        "norm)",
        "foreseen signal": f"{at_least(content['signal'], 3)} (below {LEAST_SIGNAL:g} a release is mostly noise)",
        "gain over loss": f"{error['sir']:.3g} (noise saved by projecting, divided by the variance lost)"
        if "sir" in error
        else "",
        "protected together": "" if content["span"] is None else f"what falls into {months_in_words(content['span'])}",
        "budget left": _epsilon_left(content["remaining_after"]["epsilon"]),
        "releases left": releases_in_words(content["releases_left"]),
    }
    facts = table(f"plan for {name}", "", "")
    for name, value in rows.items():
        if value:
            facts.add_row(f"[dim]{name}[/]", value)
    out.print(facts)
    out.print("[dim]reasons for the choices[/]")
    for reason in content["reasons"]:
        out.print(f"  - {reason}", markup=False)


def _epsilon_left(left: float | None) -> str:
    from tasks.spec.relations import at_least

    if left is None or left < 0:
        return "none: the cap does not allow this release"
    return f"epsilon {at_least(left)}"


def _figures_table(title: str, *columns: str) -> Table:
    """A table of numbers, set off from what is above, with every column but the first to the right."""
    result = table(title, *columns)
    for column in result.columns[1:]:
        column.justify = "right"
    return result


def _show_year(out: Console, outlook: Outlook, content: dict[str, Any]) -> None:
    from tasks.spec.relations import at_least, at_most

    steps = content["year"]
    deltas = {"delta_spent": "delta", "delta_num_spent": "delta_num"}
    shown = {key: name for key, name in deltas.items() if any(step[key] for step in steps)}
    year = _figures_table("the months ahead", "data of", "costs", "spent after", *shown.values(), "left", "")
    year.columns[-1].justify = "left"
    for step in steps:
        spent = [_number(step[key], at_most) for key in ("epsilon", "epsilon_spent", *shown)]
        year.add_row(step["period"], *spent, _number(step["epsilon_remaining"], at_least), _verdict(step))
    out.print()
    if steps:
        out.print(year)
    for sentence in year_sentences(outlook):
        out.print(sentence, markup=False)


def _number(figure: float | None, rounded: Callable[[float, int], str]) -> str:
    return "-" if figure is None else rounded(figure, 4)


def _verdict(step: dict[str, Any]) -> str:
    if step["counted"]:
        return "[dim]in the ledger[/]"
    return "[green]allowed[/]" if step["allowed"] else "[red]refused[/]"


def year_sentences(outlook: Outlook) -> list[str]:
    """When the cap is reached, and what would fit."""
    from tasks.spec.relations import at_most

    count = sum(not step.counted for step in outlook.year)
    cap, population = at_most(outlook.cap.epsilon), outlook.spec.privacy.population
    if outlook.cap_reached:
        ends = f"The cap of epsilon {cap} is reached: {outlook.cap_reached} and later months are refused."
    elif not outlook.year:
        ends = f"The schedule releases nothing in the next {outlook.months} months."
    else:
        ends = f"The cap of epsilon {cap} lasts {_duration(outlook.present)}."
    sentences = [ends]
    if count:
        sentences.append(_what_fits(outlook, count))
    return [
        *sentences,
        f"The forecast covers this specification only; other releases about {population} also spend budget.",
    ]


def _what_fits(outlook: Outlook, count: int) -> str:
    from tasks.spec.relations import at_least

    these = f"all {count} releases" if count > 1 else "this release"
    fits = outlook.fits_the_year
    return (
        f"Under the cap, no epsilon allows {these}."
        if fits is None
        else f"Under the cap, an epsilon of at most {at_least(float(fits))} allows {these}."
    )


def _duration(present: Alternative) -> str:
    if present.releases_left is None:
        return "without end: what a month spends is free again when the month has left the window"
    if present.months is None:
        return "longer than 50 years"
    return f"until the data of {present.lasts_until}"


def _show_alternatives(out: Console, outlook: Outlook) -> None:
    widths = {other.plan.encoded_width for other in outlook.alternatives}
    of = f"of {widths.pop()}" if len(widths) == 1 else "measured"  # a copula's groups have coordinates of their own
    names = ("epsilon", "releases", "last one", "mean noise", "share noise", "signal to", "coordinates")
    units = ("per release", "left", "", "% of range", "points", "noise", of)
    result = _figures_table("forecast for other values of epsilon", *names)
    result.add_row(*(f"[dim]{unit}[/]" for unit in units))
    for other in outlook.alternatives:
        row = _alternative_row(other)
        now = other.epsilon == outlook.spec.privacy.epsilon
        result.add_row(f"{row[0]} (now)" if now else row[0], *row[1:], style="bold" if now else "")
    out.print()
    out.print(result)


def _alternative_row(other: Alternative) -> list[str]:
    from dpcore.planning.class_structure import about
    from tasks.spec.relations import at_most

    content = other.as_json()
    error = content["expected_error"]
    last = other.lasts_until or ("-" if other.months is not None else "> 50 years")
    sizes = (error.get("mean_percent_of_range"), error.get("share_points"), error["signal_to_noise"])
    shown = ["-" if size is None else about(size) for size in sizes]
    left = "no end" if other.releases_left is None else str(other.releases_left)
    last = "-" if other.releases_left is None else last
    return [at_most(other.epsilon), left, last, *shown, str(content["dimension"])]


def _show_columns(out: Console, outlook: Outlook, columns: list[dict[str, Any]]) -> None:
    result = _figures_table(f"noise at {outlook.spec.expected_rows:,} rows", "column", "of", "from", "to", "")
    result.columns[1].justify = result.columns[-1].justify = "left"
    for names, column in _grouped(columns):
        ends = (f"{column['noise_sd'][end]:.3g}" for end in ("least", "most"))
        result.add_row(names, "mean" if column["of"] == "mean" else "share", *ends, column["unit"] or "")
    out.print()
    out.print(result)
    notes = ["Standard deviations: smallest midway between the bounds or for equal shares, largest at a bound."]
    if not all(column["known"] for column in columns):
        notes.append("The projection omits coordinates, so errors of means exceed the noise.")
    for note in notes:
        out.print(note, style="dim")


def _grouped(columns: Iterable[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Columns with the same figures in one row, under the first one's name."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for column in columns:
        key = (column["of"], column["unit"], *(f"{size:.3g}" for size in column["noise_sd"].values()))
        groups.setdefault(key, []).append(column)
    return [(_group_name([column["name"] for column in group]), group[0]) for group in groups.values()]


def _group_name(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} others"
