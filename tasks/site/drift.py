"""The drift page: changes between published months beyond noise, from released values only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from dpcore.series.drift import LEVEL, Change, DriftVerdict, critical_value
from tasks.report.quantities import LeftOut, Name
from tasks.report.wording import DAYS_PER_UNIT, length, number, places, plain_label, quantity, share
from tasks.site.frame import Site
from tasks.site.months import Comparison, Month, comparisons, names_with_months
from tasks.site.panels import Panel, panel_svg

PATH = "drift.html"
MOST_MARKS, MOST_PANELS = 200, 8
TONES = {DriftVerdict.NOISE: "plain", DriftVerdict.CHANCE: "accent", DriftVerdict.DRIFT: "caution"}


def drift_page(site: Site) -> str:
    """Render the page."""
    names = [_drift_of_name(name, months) for name, months in names_with_months(site).items()]
    return site.render("drift.html.j2", PATH, names=names, level=LEVEL)


def _drift_of_name(name: str, months: list[Month]) -> dict[str, Any]:
    pairs = comparisons(months)
    marks = [mark for pair in reversed(pairs) for mark in _marks(pair)]
    counts = [len(pair.changes) for pair in pairs]
    return {
        "name": name,
        "months": months,
        "pairs": pairs,
        "drifted": [mark for mark in marks if mark["verdict"] is DriftVerdict.DRIFT][:MOST_MARKS],
        "beyond": [mark for mark in marks if mark["verdict"] is DriftVerdict.CHANCE][:MOST_MARKS],
        "compared": (min(counts), max(counts)) if counts else (0, 0),
        "expected": LEVEL * len(pairs),
        "apart": [(pair.after.period, pair.apart) for pair in pairs if pair.apart],
        "silent": [month for month in months if not month.quantities],
        "bounded": [month.period for month in months if month.left_out is LeftOut.MEASURED],
        "mixed": [month.period for month in months if month.left_out is LeftOut.PUBLIC],
        "columns": list(_columns(months, pairs)) if months else [],
    }


def _marks(pair: Comparison) -> Iterator[dict[str, Any]]:
    kinds = {column["name"]: column["kind"] for column in pair.after.columns}
    for name, change in pair.changes.items():
        if change.verdict is not DriftVerdict.NOISE:
            kind = kinds.get(name.column, "")
            yield {
                "pair": pair,
                "what": quantity_title(name),
                "verdict": change.verdict,
                "words": describe_change(name, change, kind),
            }


def quantity_title(name: Name) -> str:
    """Name a quantity in words."""
    if not name.column:
        return "number of rows (noisy)"
    return f"{name.column} = {name.level}" if name.level is not None else name.column


def describe_change(name: Name, change: Change, kind: str) -> str:
    """Write a change with the margin of its noise."""
    sign = "+" if change.change >= 0 else "−"
    if name.level is not None:
        return f"{sign}{100 * abs(change.change):.1f} ± {100 * change.margin:.1f} points"
    decimals = places(change.margin)
    return f"{sign}{length(abs(change.change), kind, decimals)} ± {length(change.margin, kind, decimals)}"


# ---------------------------------------------------------------- small multiples


def _columns(months: list[Month], pairs: list[Comparison]) -> Iterator[dict[str, Any]]:
    """Yield a card for the number of rows and for each column of any month, in the order of the last month."""
    kinds = {column["name"]: column["kind"] for month in months for column in month.columns}
    names = {name: None for month in reversed(months) for name in month.quantities}
    for column in dict.fromkeys(["", *kinds]):
        mine = [name for name in names if name.column == column]
        if mine:
            yield _drift_card(column, kinds.get(column, ""), mine, months, pairs)


def _drift_card(
    column: str, kind: str, names: list[Name], months: list[Month], pairs: list[Comparison]
) -> dict[str, Any]:
    found = [pair.changes[name].verdict for pair in pairs for name in names if name in pair.changes]
    worst = (
        DriftVerdict.DRIFT
        if DriftVerdict.DRIFT in found
        else DriftVerdict.CHANCE
        if DriftVerdict.CHANCE in found
        else DriftVerdict.NOISE
    )
    shown = names[:MOST_PANELS]
    return {
        "title": column or "Number of rows",
        "kind": kind or "noisy count",
        "worst": worst if worst is not DriftVerdict.NOISE else None,
        "tone": TONES[worst],
        "panels": [(_label(name), _panel(name, kind, months, pairs, dated=name == shown[-1])) for name in shown],
        "hidden": max(len(names) - MOST_PANELS, 0),
        "rows": [_change_row(name, kind, pair) for pair in reversed(pairs) for name in names if name in pair.changes],
    }


def _label(name: Name) -> str:
    return "" if name.level is None else plain_label(name.level, 36)


def _change_row(name: Name, kind: str, pair: Comparison) -> dict[str, Any]:
    change = pair.changes[name]
    words = describe_change(name, change, kind)
    return {
        "period": pair.after.period,
        "level": name.level,
        "words": words,
        "verdict": change.verdict,
        "tone": TONES[change.verdict],
    }


def _panel(name: Name, kind: str, months: list[Month], pairs: list[Comparison], *, dated: bool) -> Markup:
    verdicts = {pair.after.period: pair.changes[name].verdict for pair in pairs if name in pair.changes}
    shown = [month for month in months if name in month.quantities]
    points = [
        (month.period, month.quantities[name].value, critical_value(LEVEL) * month.quantities[name].noise)
        for month in shown
    ]
    marks = {period: verdict.name.lower() for period, verdict in verdicts.items() if verdict is not DriftVerdict.NOISE}
    panel = Panel(
        points=points,
        marks=marks,
        words=lambda value: axis_label(name, kind, value),
        small=name.level is not None,
        dated=dated,
    )
    return panel_svg(panel, alt=_panel_alt(name, kind, points, marks))


def axis_label(name: Name, kind: str, value: float) -> str:
    """Write a figure beside a panel."""
    if name.level is not None:
        return share(value)
    return quantity(value, kind)[2:10] if kind in DAYS_PER_UNIT else number(value, 4)  # a date without its century


def _panel_alt(name: Name, kind: str, points: list[tuple[str, float, float]], marks: dict[str, str]) -> str:
    if not points:
        return f"{quantity_title(name)}: no figures"
    (first, start, _), (last, end, _) = points[0], points[-1]
    values = f"from {axis_label(name, kind, start)} in {first} to {axis_label(name, kind, end)} in {last}"
    marked = f"marked: {', '.join(marks)}" if marks else "no change beyond noise"
    return f"{quantity_title(name)} {values}; {marked}"
