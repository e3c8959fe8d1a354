"""How a report shows the fit to the measurements, and what models of the synthetic rows reached on the real ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from tasks.report import wording
from tasks.report.canvas import COLOURS, draw_once, figure_of, svg_of

INSIDE = 1.96
"""Standard deviations within which 94 of 100 gaps of Laplace noise lie, and 95 of Gaussian noise or chance."""

MOST_GAPS = 5
WORDS = {
    "accuracy": "A classifier of {of}, trained on the synthetic rows, is right about this share of the real ones.",
    "rmse": "A prediction of {of} trained on the synthetic rows is off by so much on the real ones "
    "(root mean squared error, in the column's unit).",
    "silhouette": "How well the real rows fall into clusters of the synthetic ones: 0 is between two clusters, "
    "1 is at a centre (simplified silhouette).",
}


def fit_of(utility: dict[str, Any]) -> dict[str, Any] | None:
    """The gaps of means and pairs as cards, and the coverage of categories; None in records without them."""
    if "fit" not in utility:
        return None
    titles = {"columns": "Means and shares", "pairs": "Pairs of columns"}
    cards = [_gaps_card(title, utility["fit"][key], key=f"gaps-{key}") for key, title in titles.items()]
    return {"cards": cards, "coverage": utility["coverage"]}


def _gaps_card(title: str, gaps: dict[str, Any], *, key: str) -> dict[str, Any]:
    told = f"{gaps['inside']} of {gaps['of']} inside" if gaps["of"] else "nothing of the kind was measured"
    largest = [
        (gap["name"], *(wording.number(gap[name], 3) for name in ("measured", "synthetic", "deviations")))
        for gap in gaps["largest"][:MOST_GAPS]
    ]
    svg = _gaps_svg(gaps["edges"], gaps["counts"], key=key, alt=f"{title}, gaps in standard deviations: {told}")
    return {"title": title, "told": told, "largest": largest, "svg": Markup(svg)}  # noqa: S704  (built escaped)


@draw_once
def _gaps_svg(edges: Sequence[float], counts: Sequence[int], *, key: str, alt: str) -> str:
    """A histogram of gaps; those that noise and chance explain in one colour, the others in another."""
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
    """A card for each score that was bought."""
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
        "words": WORDS.get(score["name"], "").format(of=score["of"]),
        "value": value,
        "range": f"{low} to {high}",
        "on_synthetic": synthetic,
        "entry": measurement["ledger_entry"]["seq"] if measurement else None,
        "svg": Markup(_score_svg(score, threshold, alt=alt)),  # noqa: S704  (built escaped)
    }


@draw_once
def _score_svg(score: dict[str, Any], threshold: float | None, *, alt: str) -> str:
    """The noisy value with its margin, the value on synthetic rows, and the threshold, on one line."""
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
