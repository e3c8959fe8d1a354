"""Common parts of the benchmarks: intervals over runs, tables and plots."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from rich.table import Table
from scipy import stats

Floats = NDArray[np.float64]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
CONFIDENCE = 0.95


# ---- intervals over runs --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Summary:
    """The mean over runs and its 95 % interval by Student's t."""

    mean: float
    low: float
    high: float
    runs: int

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if self.runs < 2 else f"{self.mean:.3f} ± {(self.high - self.low) / 2:.3f}"


def summary(values: ArrayLike) -> Summary:
    """Return mean and interval of independent runs; a single run has no interval."""
    numbers = np.asarray(values, dtype=np.float64)
    mean = float(numbers.mean())
    if len(numbers) < 2:
        return Summary(mean, -math.inf, math.inf, len(numbers))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(numbers) - 1) * stats.sem(numbers))
    return Summary(mean, mean - half, mean + half, len(numbers))


def paired(ours: ArrayLike, theirs: ArrayLike) -> Summary:
    """Return the mean of the differences ours minus theirs, paired by run."""
    return summary(np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64))


# ---- running and showing --------------------------------------------------------------------------


def arguments(doc: str | None, *, runs: int = 10, sets: Sequence[str] = ()) -> argparse.Namespace:
    """Parse `--runs`, `--quick` and `--full`, which every benchmark accepts, and the data sets if there are several."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if sets:
        parser.add_argument("sets", nargs="*", default=list(sets), help=f"data sets: {', '.join(sets)} (all)")
    parser.add_argument("--runs", type=int, default=runs, help=f"independent runs of everything random ({runs})")
    parser.add_argument("--quick", action="store_true", help="two runs on few rows, to see that it works")
    parser.add_argument("--full", action="store_true", help="all rows; may take hours")
    asked = parser.parse_args()
    if asked.quick:
        asked.runs = min(asked.runs, 2)
    return asked


def progress(items: Sequence[Any], what: str) -> Iterator[Any]:
    """Yield the items and print a line on standard error for each one done."""
    start = time.perf_counter()
    for count, item in enumerate(items, 1):
        yield item
        print(f"{what}: {count} of {len(items)}, {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)


def run_seed(name: str, run: int) -> str:
    """Return the public seed of a run's sampling and models, never of its noise."""
    return (f"{name} {run}".encode()).hex()


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, notes: Sequence[str] = ()) -> None:
    """Print a table, and notes below it."""
    console = Console(width=int(os.environ.get("COLUMNS", "140")))
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    console.print(table)
    for note in notes:
        console.print(f"  {note}", highlight=False)


def results_file(name: str) -> Path:
    """Return the path of a file of results, and make its folder."""
    path = RESULTS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_results(name: str, body: Mapping[str, Any]) -> Path:
    """Write the figures of a benchmark as JSON beside its plots."""
    path = results_file(f"{name}.json")
    path.write_text(json.dumps(body, indent=1, default=_plain) + "\n")
    print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)
    return path


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a plot: summaries over a public parameter; dashed if the stated epsilon does not hold."""

    name: str
    x: Sequence[float]
    y: Sequence[Summary]
    dashed: bool = False


MOST_INSIDE, MOST_COLOURS = 5, 10
"""The largest number of curves whose legend fits into a panel and whose colours are easily distinguished."""


def write_plot(
    name: str, panels: Mapping[str, Sequence[Curve]], *, x: str, y: str, log_x: bool = True, most_columns: int = 4
) -> Path:
    """Write a PNG with one panel per group of curves and bands for the intervals."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(most_columns, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(4.2 * columns + 1.6, 3.4 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    for index, (title, curves) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(lines, columns, index)
        axes.set_prop_cycle(color=colormaps["tab20"].colors[:: 1 if len(curves) > MOST_COLOURS else 2])
        for curve in curves:
            (line,) = axes.plot(
                curve.x, [s.mean for s in curve.y], "--" if curve.dashed else "-", marker="o", ms=3, label=curve.name
            )
            known = [s for s in curve.y if s.runs > 1]
            if len(known) == len(curve.y):
                low, high = [s.low for s in known], [s.high for s in known]
                axes.fill_between(curve.x, low, high, alpha=0.2, color=line.get_color())
        axes.set(title=title, xlabel=x, ylabel=y)
        if log_x:
            axes.set_xscale("log")
            places = sorted({place for curve in curves for place in curve.x})
            axes.set_xticks(places, [f"{place:g}" for place in places])
            axes.minorticks_off()
        axes.grid(alpha=0.3)
        if len(curves) <= MOST_INSIDE:
            axes.legend(fontsize=6)
        elif index == len(panels):
            axes.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.01, 0.5))  # panels share their curves
    path = results_file(f"{name}.png")
    figure.savefig(path, dpi=120)
    print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)
    return path
