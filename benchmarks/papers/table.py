"""Run the rows of a paper's table, compare methods at the same true epsilon, print and plot."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.common import ROOT, Summary, paired, results_file, show, summary, write_results

Scores = dict[str, float]


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the table: the claimed and the true epsilon, and a function for one run.

    `truly` is the true epsilon; None if there is none, or if none is needed.
    """

    name: str
    claims: str
    truly: str
    run: Callable[[int], Scores]
    once: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """A corrected mechanism and the published calibration at whose true epsilon it runs, for some scores or all."""

    ours: str
    theirs: str
    scores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Printed:
    """A figure that a paper prints."""

    where: str
    method: str
    figure: str


def run_all(methods: Sequence[Method], runs: int) -> dict[str, dict[str, list[float]]]:
    """Return every method's scores, run by run, and show progress on standard error."""
    found: dict[str, dict[str, list[float]]] = {}
    for method in methods:
        start = time.perf_counter()
        scores = [method.run(run) for run in range(1 if method.once else runs)]
        found[method.name] = {name: [score[name] for score in scores] for name in scores[0]}
        print(f"{method.name}: {len(scores)} runs, {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return found


def verdict(difference: Summary) -> str:
    """Return the verdict of a paired interval of ours minus theirs, where larger is better."""
    if difference.runs < 2:
        return "one run says nothing"
    if difference.low >= 0:
        return "better" if difference.high > 0 else "equal"
    return "worse" if difference.high < 0 else "no difference shown"


def compared(
    found: Mapping[str, Mapping[str, list[float]]], pairs: Sequence[Pair], *, less_is_better: bool = False
) -> list[tuple[Pair, str, Summary, str]]:
    """Return the paired interval and the verdict of each pair, score by score."""
    result = []
    for pair in pairs:
        for score in pair.scores or found[pair.ours]:
            if score in found[pair.theirs]:
                ours, theirs = found[pair.ours][score], found[pair.theirs][score]
                difference = paired(theirs, ours) if less_is_better else paired(ours, theirs)
                result.append((pair, score, difference, verdict(difference)))
    return result


def report(
    name: str,
    title: str,
    methods: Sequence[Method],
    found: Mapping[str, Mapping[str, list[float]]],
    pairs: Sequence[Pair],
    *,
    printed: Sequence[Printed] = (),
    notes: Sequence[str] = (),
    less_is_better: bool = False,
) -> bool:
    """Print, write and plot; return whether no corrected mechanism is significantly worse at the same epsilon."""
    scores = list(dict.fromkeys(score for method in methods for score in found[method.name]))
    summaries = {m.name: {s: summary(v) for s, v in found[m.name].items()} for m in methods}
    rows = [(m.name, m.claims, m.truly, *(summaries[m.name].get(s) for s in scores)) for m in methods]
    show(title, ["method", "claims", "true ε", *scores], rows, notes=notes)
    verdicts = compared(found, pairs, less_is_better=less_is_better)
    if verdicts:
        lines = [(p.ours, p.theirs, s, f"{d.mean:+.4f} [{d.low:+.4f}, {d.high:+.4f}]", v) for p, s, d, v in verdicts]
        gain = "theirs - ours" if less_is_better else "ours - theirs"
        show(f"{title}: at the same true ε", ["ours", "theirs", "score", f"{gain}, 95 %", "ours is"], lines)
    if printed:
        show(
            "printed in the papers, on their data",
            ["where", "method", "figure"],
            [(p.where, p.method, p.figure) for p in printed],
        )
    write_results(
        name,
        {
            "title": title,
            "methods": [{"name": m.name, "claims": m.claims, "truly": m.truly, **summaries[m.name]} for m in methods],
            "runs": found,
            "printed": printed,
            "notes": notes,
            "same_epsilon": [
                {"ours": p.ours, "theirs": p.theirs, "score": s, "difference": d, "verdict": v}
                for p, s, d, v in verdicts
            ],
        },
    )
    write_dots(name, title, {m.name: summaries[m.name] for m in methods}, scores)
    return all(v != "worse" for *_, v in verdicts)


def write_dots(name: str, title: str, summaries: Mapping[str, Mapping[str, Summary]], scores: Sequence[str]) -> None:
    """Write a PNG with one panel per score, and a dot and an interval per method."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3 + 2.6 * len(scores), 0.9 + 0.27 * len(summaries)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(scores), sharey=True, squeeze=False)[0]
    for axes, score in zip(panels, scores, strict=True):
        for height, (method, found) in enumerate(summaries.items()):
            if score in found:
                value = found[score]
                colour = "tab:red" if "published" in method else "black" if "real" in method else "tab:blue"
                half = (value.high - value.low) / 2 if value.runs > 1 else 0.0
                axes.errorbar(value.mean, height, xerr=half, fmt="o", ms=4, color=colour, capsize=2)
        axes.set_xlabel(score)
        axes.grid(alpha=0.3)
    panels[0].set_yticks(range(len(summaries)), list(summaries), fontsize=8)
    panels[0].invert_yaxis()
    figure.suptitle(title, fontsize=10)
    path = results_file(f"{name}.png")
    figure.savefig(path, dpi=120)
    print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)
