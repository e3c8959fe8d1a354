"""The report's sections on the fit to the measurements and on models that were tested on the real rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from tasks.report import wording
from tasks.report.canvas import COLOURS, draw_cached, figure_of, svg_of

INSIDE = 1.96
"""Standard deviations within which 94 of 100 gaps lie for Laplace noise, 95 for Gaussian noise or sampling."""

MOST_GAPS = 5
EXPLANATIONS = {
    "accuracy": "The share of real rows that a classifier of {of}, trained on the synthetic rows, gets right.",
    "rmse": "The error on the real rows of a prediction of {of} that was trained on the synthetic rows "
    "(root mean squared error, in the unit of the column).",
    "silhouette": "How well the real rows fit the clusters of the synthetic rows: 0 means midway between two "
    "clusters, 1 means at a centre (simplified silhouette).",
}


def fit_of(utility: dict[str, Any]) -> dict[str, Any] | None:
    """Return cards for the gaps of means and pairs, and the coverage of categories; None if the record has neither."""
    if "fit" not in utility:
        return None
    titles = {"columns": "Means and shares", "pairs": "Pairs of columns"}
    cards = [_gaps_card(title, utility["fit"][key], key=f"gaps-{key}") for key, title in titles.items()]
    return {"cards": cards, "coverage": utility["coverage"]}


def _gaps_card(title: str, gaps: dict[str, Any], *, key: str) -> dict[str, Any]:
    summary = f"{gaps['inside']} of {gaps['of']} inside the band" if gaps["of"] else "none were measured"
    largest = [
        (gap["name"], *(wording.number(gap[name], 3) for name in ("measured", "synthetic", "deviations")))
        for gap in gaps["largest"][:MOST_GAPS]
    ]
    svg = _gaps_svg(
        gaps["edges"], gaps["counts"], key=key, alt=f"{title}, differences in standard deviations: {summary}"
    )
    return {"title": title, "summary": summary, "largest": largest, "svg": Markup(svg)}  # noqa: S704  (built escaped)


@draw_cached
def _gaps_svg(edges: Sequence[float], counts: Sequence[int], *, key: str, alt: str) -> str:
    """Draw a histogram of gaps; those within noise and random variation in one colour, the others in another."""
    from matplotlib.ticker import MaxNLocator

    with figure_of(420, 190, key=key) as figure:
        axes = figure.add_subplot()
        axes.axvspan(-INSIDE, INSIDE, color=COLOURS["rule"], alpha=0.6, linewidth=0)
        middles = [(left + right) / 2 for left, right in pairwise(edges)]
        colours = [COLOURS["synthetic" if abs(middle) < INSIDE else "measured"] for middle in middles]
        widths = [right - left for left, right in pairwise(edges)]
        axes.bar(middles, counts, widths, color=colours, edgecolor=COLOURS["surface"], linewidth=0.7)
        axes.set_xticks([-6, -4, -2, 0, 2, 4, 6], ["≤ −6", "−4", "−2", "0", "2", "4", "≥ 6"])
        axes.set_xlim(edges[0], edges[-1])
        axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        axes.grid(axis="y")
        return svg_of(figure, alt)


def scores_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a card for each score that was measured."""
    thresholds = {check["name"]: check["threshold"] for check in record["checks"]}
    spent = {m["name"]: m for m in record["privacy"]["measurements"]}
    return [
        _score_card(score, thresholds.get(score["name"]), spent.get(score["name"]))
        for score in record["utility"].get("scores", [])
    ]


def _score_card(score: dict[str, Any], threshold: float | None, measurement: dict[str, Any] | None) -> dict[str, Any]:
    low, value, high, synthetic = (wording.number(score[k], 3) for k in ("low", "value", "high", "on_synthetic"))
    alt = f"{score['name']} on the real rows: {value}, between {low} and {high}; on the synthetic rows {synthetic}"
    if threshold is not None:
        alt += f"; threshold {wording.number(threshold, 3)}"
    return {
        "name": score["name"],
        "explanation": EXPLANATIONS.get(score["name"], "").format(of=score["of"]),
        "value": value,
        "range": f"{low} to {high}",
        "on_synthetic": synthetic,
        "entry": measurement["ledger_entry"]["seq"] if measurement else None,
        "svg": Markup(_score_svg(score, threshold, alt=alt)),  # noqa: S704  (built escaped)
    }


@draw_cached
def _score_svg(score: dict[str, Any], threshold: float | None, *, alt: str) -> str:
    """Draw the noisy value with its margin, the value on synthetic rows, and the threshold, on one line."""
    bounded = score["direction"] == "at-least"
    largest = 1.0 if bounded else 1.15 * max(score["high"], score["on_synthetic"], threshold or 0.0, 1e-9)
    with figure_of(420, 92, key=f"score-{score['name']}") as figure:
        axes = figure.add_subplot()
        axes.axhline(0, color=COLOURS["rule"], linewidth=6, solid_capstyle="round", zorder=0)
        if threshold is not None:
            axes.axvline(threshold, color=COLOURS["ink"], linewidth=1.5, linestyle=(0, (4, 3)))
        axes.plot([score["on_synthetic"]], [0], "s", color=COLOURS["synthetic"], markersize=8)
        axes.plot([score["low"], score["high"]], [0, 0], color=COLOURS["measured"], linewidth=2.4)
        axes.plot([score["value"]], [0], "o", color=COLOURS["measured"], markersize=7)
        axes.set(xlim=(0, largest), ylim=(-1, 1), yticks=[])
        axes.grid(axis="x")
        return svg_of(figure, alt)
