"""The release report: one self-contained page, a pure function of the release record.

Nothing here reads data. Every figure comes from the record, whose numbers are noisy
measurements or statistics of synthetic rows, so the page costs no privacy. Text from
the record is untrusted and escaped wherever it lands.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tasks.bundle.projection_text import published_output, rule_words
from tasks.bundle.sampling_text import sampling_words
from tasks.report import plots, wording
from tasks.report.fit import fit_of, scores_of
from tasks.report.plots import utility_plot
from tasks.spec.relations import is_unproved

MOST_MOVED = 5
"""The columns that rules moved most, as many as the report shows."""

__all__ = ["render_report", "utility_plot", "view_of"]


def render_report(record: dict[str, Any]) -> str:
    """Render the report of a release as an HTML page that needs no script and no other file."""
    parts = {
        "correlation": correlation_of(record["utility"].get("correlation")),
        "spectrum": _spectrum(record["utility"]),
        "fit": fit_of(record["utility"]),
        "scores": scores_of(record),
        "rules": _rules_view(record["utility"].get("rules")),
        "seeds": _seeds(record["model"]),
        "together": record["model"].get("sampling") == "rounded",
        "sampling": sampling_words(record["model"]),
        "output": published_output(record),
        "dimension_rule": rule_words(record["model"]["projection"]),
    }
    return pages().get_template("report.html.j2").render(record=record, **view_of(record), **parts)


def view_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the site shows as well: verdict, checks, budget, and plots of the columns."""
    return {
        "verdict": _verdict(record["checks"]),
        "checks": [_check_view(check) for check in record["checks"]],
        "budget": _budget_view(record["budget"]),
        "marginals": marginals_of(record["utility"]["columns"]),
    }


@cache
def pages() -> Environment:
    """Return the template environment, with the functions of `wording` as filters."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for filter_ in (
        wording.number,
        wording.rounded_up,
        wording.rounded_down,
        wording.share,
        wording.share_of_rows,
        wording.moment,
        wording.short_hash,
        wording.spaced,
        wording.relation,
    ):
        templates.filters[filter_.__name__] = filter_
    templates.tests["unproved"] = is_unproved
    return templates


def _rules_view(effect: dict[str, Any] | None) -> dict[str, Any] | None:
    """What the rules moved, the columns that moved most first; None without rules."""
    if effect is None:
        return None
    moved = sorted(effect["shifts"], key=lambda column: -column["shift"])
    return {**effect, "moved": moved[:MOST_MOVED]}


# -- budget and checks -------------------------------------------------------------


def _budget_view(budget: dict[str, Any]) -> dict[str, Any]:
    """Split the lifetime budget into three parts, for each kind, and for the first kind as widths of a bar."""
    rows = [_budget_row(budget, kind) for kind in budget["lifetime"]]
    main = next((row for row in rows if row["lifetime"] > 0), rows[0])
    parts = [("Spent before", "before"), ("Added by this release", "this"), ("Remaining", "left")]
    whole = sum(main[key] for _, key in parts) or 1.0
    segments = [
        {"label": label, "key": key, "shown": _rounded_part(key, main[key]), "width": 100 * main[key] / whole}
        for label, key in parts
    ]
    return {"rows": rows, "kind": main["kind"], "lifetime": main["lifetime"], "segments": segments}


def _budget_row(budget: dict[str, Any], kind: str) -> dict[str, Any]:
    lifetime, before, after = (budget[when].get(kind) or 0.0 for when in ("lifetime", "before", "after"))
    spent, left = _difference(after, before), _difference(lifetime, after)
    return {"kind": kind, "lifetime": lifetime, "before": before, "this": spent, "left": left}


def _rounded_part(part: str, value: float) -> str:
    """Round what is spent up, and what remains down."""
    return wording.rounded_down(value) if part == "left" else wording.rounded_up(value)


def _difference(larger: float, smaller: float) -> float:
    """Subtract without the rounding error of floating point: 0.3 - 0.1 is 0.2."""
    return float(f"{max(larger - smaller, 0.0):.12g}")


SIGNS = {"at-least": "≥", "at-most": "≤"}


def _check_view(check: dict[str, Any]) -> dict[str, Any]:
    return {**check, "sign": _threshold_sign(check), "verdict": _check_verdict(check)}


def _check_verdict(check: dict[str, Any]) -> str:
    if not _is_judged(check):
        return "for information"
    return "passed" if check["ok"] else "failed"


def _is_judged(check: dict[str, Any]) -> bool:
    """Whether a check can fail: it has a threshold, or it is one that holds or does not."""
    return check["threshold"] is not None or check.get("direction") == "holds"


def _threshold_sign(check: dict[str, Any]) -> str:
    """Return whether the threshold is a ceiling or a floor: as stated, or else as the verdict implies."""
    if check.get("direction") in SIGNS:
        return SIGNS[check["direction"]] if check["threshold"] is not None else ""
    value, threshold = check["value"], check["threshold"]
    if not (wording.is_number(value) and wording.is_number(threshold)) or value == threshold:
        return ""
    return "≤" if (value < threshold) == bool(check["ok"]) else "≥"


def _verdict(checks: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarise all checks for the head of the page."""
    judged = [check for check in checks if _is_judged(check)]
    failed = sum(not check["ok"] for check in judged)
    if failed:
        return {"ok": False, "text": f"{failed} of {len(judged)} checks failed"}
    passed = "1 check passed" if len(judged) == 1 else f"all {len(judged)} checks passed"
    return {"ok": True, "text": passed if judged else "no checks"}


# -- marginals ---------------------------------------------------------------------


def marginals_of(columns: list[dict[str, Any]], against: str = "measured") -> dict[str, Any]:
    """Return a card for each column that is shown; `against` names what the synthetic rows are compared with."""
    shown = plots.shown_columns(columns)
    cards = [_column_card(column, key=f"column-{place}", against=against) for place, column in enumerate(shown)]
    kinds = {plots.is_nominal(column) for column in shown}
    return {"cards": cards, "hidden": len(columns) - len(shown), "nominal": True in kinds, "interval": False in kinds}


def _column_card(column: dict[str, Any], *, key: str, against: str) -> dict[str, Any]:
    nominal = plots.is_nominal(column)
    facts = [] if nominal else _facts(column)
    svg = plots.column_svg(column, key=key, alt=_column_alt(column, facts, against))
    card = {"name": column["name"], "kind": column["kind"], "role": column.get("role"), "facts": facts}
    levels = _level_rows(column) if nominal else []
    hidden = len(levels) - len(plots.shown_levels(column)) if nominal else 0
    return {**card, "svg": Markup(svg), "levels": levels, "hidden_levels": hidden}  # noqa: S704  (built escaped)


def _facts(column: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the rows of a comparison: name, measured value, synthetic value."""
    kind, synthetic, measured = column["kind"], column["synthetic"], column.get("measured") or {}
    decimals = wording.places(measured.get("mean_margin"))
    mean = wording.with_margin(measured.get("mean"), measured.get("mean_margin"), kind)
    sd, drawn_sd = (wording.length(side.get("sd"), kind, decimals) for side in (measured, synthetic))
    facts = [("Mean", mean, wording.quantity(synthetic["mean"], kind, decimals)), ("Std. dev.", sd, drawn_sd)]
    missing, measured_missing = synthetic.get("missing_share"), column.get("measured_missing_share")
    if missing or measured_missing is not None:
        facts.append(("Missing", wording.share(measured_missing), wording.share(missing)))
    return facts


def _level_rows(column: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the same for each level of a nominal column."""
    measured = column.get("measured") or {}
    nothing = [None] * len(column["levels"])
    shares, margins = measured.get("shares") or nothing, measured.get("margins") or nothing
    rows = zip(column["levels"], shares, margins, column["synthetic"]["shares"], strict=True)
    return [(str(level), wording.share(share, margin), wording.share(drawn)) for level, share, margin, drawn in rows]


def _column_alt(column: dict[str, Any], facts: list[tuple[str, str, str]], against: str) -> str:
    """Describe the plot of a column for readers who cannot see it."""
    if plots.is_nominal(column):
        return f"{column['name']}: share of each level, synthetic as bars, {against} as points; a table follows"
    figures = "; ".join(f"{name} {against} {other}, synthetic {synthetic}" for name, other, synthetic in facts)
    return f"{column['name']}: histogram of the synthetic rows with the {against} mean. {figures}".replace("\n", " ")


# -- correlation and spectrum ------------------------------------------------------


def correlation_of(correlation: dict[str, Any] | None, against: str = "measured") -> dict[str, Any] | None:
    """Return the measured and the synthetic map, and the pair that differs most; `against` names the former."""
    if not correlation or len(correlation["names"]) < 2:
        return None
    names = correlation["names"]
    sides = {against: correlation["measured"], "synthetic": correlation["synthetic"]}
    maps = [_correlation_map(names, matrix, which) for which, matrix in sides.items()]
    count = len(names)
    drawn = {"count": count, "drawn": min(count, plots.MOST_NAMES), "labelled": count <= plots.MOST_LABELS}
    return {"maps": maps, "gap": _largest_gap(correlation), **drawn}


def _correlation_map(names: list[str], matrix: list[list[float]], which: str) -> dict[str, Any]:
    alt = f"{which} correlations of {len(names)} coordinates as a map from −1 to 1"
    return {"which": which, "svg": Markup(plots.correlation_svg(names, matrix, key=f"correlation-{which}", alt=alt))}  # noqa: S704


def _largest_gap(correlation: dict[str, Any]) -> dict[str, Any] | None:
    names, measured, synthetic = correlation["names"], correlation["measured"], correlation["synthetic"]
    gaps = [
        (abs(measured[i][j] - synthetic[i][j]), i, j)
        for i in range(len(names))
        for j in range(i)
        if wording.is_number(measured[i][j]) and wording.is_number(synthetic[i][j])
    ]
    if not gaps:
        return None
    size, i, j = max(gaps)
    return {
        "first": names[j],
        "second": names[i],
        "measured": measured[i][j],
        "synthetic": synthetic[i][j],
        "size": size,
    }


def _spectrum(utility: dict[str, Any]) -> dict[str, Any] | None:
    """Return a card for each class block, all on the same scale."""
    spectrum = utility.get("spectrum")
    if not spectrum or not spectrum["blocks"]:
        return None
    noise = spectrum.get("noise_level")
    blocks = [{**block, "label": _block_name(block, utility["columns"])} for block in spectrum["blocks"]]
    limits = plots.spectrum_limits(blocks, noise)
    cards = [
        _spectrum_card(block, noise, limits, f"spectrum-{place}")
        for place, block in enumerate(blocks[: plots.MOST_BLOCKS])
    ]
    return {"cards": cards, "noise_level": noise, "hidden": len(blocks) - len(cards)}


def _block_name(block: dict[str, Any], columns: list[dict[str, Any]]) -> str:
    """Name the class of a block, with the label column if the table has one."""
    label = next((column for column in columns if column.get("role") == "label"), None)
    return f"{label['name']} = {block['label']}" if label else str(block["label"])


def _spectrum_card(block: dict[str, Any], noise: float | None, limits: tuple[float, float], key: str) -> dict[str, Any]:
    values = block["eigenvalues"]
    above = sum(wording.is_number(value) and value > (noise or 0.0) for value in values)
    summary = f"{above} of {len(values)} directions are above the noise"
    svg = plots.spectrum_svg(values, noise, limits, key=key, alt=f"Eigenvalues of {block['label']}: {summary}")
    return {"label": block["label"], "summary": summary, "svg": Markup(svg)}  # noqa: S704


# -- provenance --------------------------------------------------------------------


def _seeds(model: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [("Projection seed", model["projection"].get("seed")), ("Sampling seed", model.get("sampling_seed"))]
