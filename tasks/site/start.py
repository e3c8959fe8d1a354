"""The start page: what was released, whether the audit passed, and how much budget is left."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dpcore.accounting import Balance
from tasks.bundle.record import balances_under_relations, odometer
from tasks.ledger.entries.bodies import CapChange, Refusal
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.populations import Population
from tasks.report.wording import months_in_a_row, rounded_up
from tasks.schedule.forecast import Forecast
from tasks.site.burn import NARROW, WIDE, Burn, burn_svg
from tasks.site.frame import Site
from tasks.site.rows import rows_of, strips, summary
from tasks.site.survey import moment_of
from tasks.spec.privacy import kind_of
from tasks.spec.relations import RELATION_WORDS

PATH = "index.html"
ROWS_AT_ONCE = 60
KINDS = {"epsilon": "ε", "delta": "δ", "delta_num": "δ, numerical"}


def start_page(site: Site) -> str:
    """Render the page."""
    rows = rows_of(site)
    populations = site.survey.state.populations
    return site.render(
        "start.html.j2",
        PATH,
        rows=rows[:ROWS_AT_ONCE],
        older=rows[ROWS_AT_ONCE:],
        strips=strips(rows),
        summary=summary(rows),
        refusals=list(_refusal_rows(site)),
        budgets=[_population_budget(site, name, known) for name, known in populations.items()],
        names=sorted({row.name for row in rows}),
    )


def _refusal_rows(site: Site) -> Iterator[dict[str, Any]]:
    """Yield every refusal in the ledger, the newest first."""
    for entry in reversed(site.survey.entries[: site.survey.verified]):
        if entry.is_a(Refusal):
            body = entry.parse(Refusal)
            href = site.release_href(entry.release_id)
            yield {"entry": entry, "rule": body.rule, "reason": body.reason, "who": body.who, "href": href}


# ---------------------------------------------------------------- budget


def _population_budget(site: Site, population: str, known: Population) -> dict[str, Any]:
    """Describe the budget of one population in words, figures and a drawing."""
    burn = _burn(site, population)
    forecast = site.survey.forecast
    foreseen = forecast if forecast and forecast.population == population else None
    alt = _burn_alt(population, burn, foreseen)
    return {
        "population": population,
        "basis": known.basis | {"unit": kind_of(known.basis.get("unit", ""))},
        "kinds": list(_kinds(known)),
        "span": months_in_a_row(known.windows.span),
        "odometer": odometer(known, known.neighbours)["epsilon"] if known.windows.span else None,
        "relations": list(_relations(known)),
        "drawings": [(kind, burn_svg(burn, width=width, alt=alt)) for kind, width in _widths()],
        "forecast": foreseen,
        "refused": bool(burn.refused),
        "coming": bool(burn.coming),
        "changes": len(burn.caps) - 1,
    }


def _relations(known: Population) -> Iterator[dict[str, Any]]:
    """Yield what is spent under each relation; nothing is known under one that an earlier version did not count."""
    for name, figures in balances_under_relations(known).items():
        yield {"words": RELATION_WORDS[name], "epsilon": figures and figures["epsilon"]}


def _widths() -> list[tuple[str, int]]:
    return [("wide-only", WIDE), ("narrow-only", NARROW)]


def _burn(site: Site, population: str) -> Burn:
    survey = site.survey
    good = survey.entries[: survey.verified]
    steps = survey.history.steps[population]
    forecast = survey.forecast if survey.forecast and survey.forecast.population == population else None
    return Burn(
        spent=list(_spent(good, steps)),
        caps=list(_caps(good, population)),
        coming=forecast.steps if forecast else (),
        refused=[
            (moment_of(entry), float(survey.history.at(population, entry.seq).cap.epsilon))
            for entry in good
            if entry.is_a(Refusal) and _is_of_budget(entry, population)
        ],
        now=survey.made_at,
    )


def _is_of_budget(entry: Entry, population: str) -> bool:
    return entry.population == population and entry.parse(Refusal).who is None


def _spent(entries: list[Entry], steps: list[tuple[int, Population]]) -> Iterator[tuple[Any, float]]:
    """Yield epsilon after each entry that spent something, under the cap of that time."""
    last: Balance | None = None
    for seq, known in steps:
        balance = known.balance(reserved=False)
        if last == balance:
            continue
        last, epsilon = balance, float(balance.statement.epsilon)
        if math.isfinite(epsilon):  # a cost that cannot be stated is infinite, which the figures show
            yield moment_of(entries[seq - 1]), epsilon


def _caps(entries: list[Entry], population: str) -> Iterator[tuple[Any, float]]:
    for entry in entries:
        if entry.is_a(CapChange) and entry.population == population:
            yield moment_of(entry), float(entry.parse(CapChange).epsilon)


def _kinds(known: Population) -> Iterator[dict[str, Any]]:
    """Yield lifetime, spent, reserved and left for each kind of budget that has a cap or was used."""
    spent, both = (known.balance(reserved=reserved).statement for reserved in (False, True))
    for kind, label in KINDS.items():
        cap, used, taken = (float(getattr(source, kind)) for source in (known.cap, spent, both))
        if kind == "epsilon" or used > 0 or (cap > 0 and kind == "delta"):
            left = {"reserved": _without_float_noise(taken - used), "left": _without_float_noise(cap - taken)}
            yield {"label": label, "cap": cap, "spent": used, **left}


def _without_float_noise(value: float) -> float:
    """Remove the rounding error of a floating-point difference."""
    return float(f"{max(value, 0.0):.12g}") if math.isfinite(value) else 0.0


def _burn_alt(population: str, burn: Burn, forecast: Forecast | None) -> str:
    """Describe the drawing in words."""
    spent = burn.spent[-1][1] if burn.spent else 0.0
    cap = burn.caps[-1][1] if burn.caps else 0.0
    words = f"Epsilon of {population} over time: {rounded_up(spent)} of {rounded_up(cap)} spent"
    if burn.refused:
        words += f", {len(burn.refused)} refused"
    if forecast:
        more = "one more release fits every month" if forecast.left is None else f"{forecast.left} more releases fit"
        words += f", {more}"
    return words
