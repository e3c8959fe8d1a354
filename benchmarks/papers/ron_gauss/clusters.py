"""The number of clusters as RON-Gauss (001, section 5.2) chooses it: by silhouettes, here of synthetic rows.

    python -m benchmarks.papers.ron_gauss.clusters [--runs N] [--quick] [--full]

K-means with 2 to 8 clusters on the coordinates of gfe. The paper chooses the number on the real rows, which reads
them without noise. On synthetic rows the choice is post-processing and costs nothing. The table says how often each
number is chosen, and what the choice is worth: the silhouette of held-out real rows that are assigned to the centres
of the synthetic ones. The plot shows the silhouettes by which the choice is made. Epsilon 1, replace-one.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from benchmarks.common import Curve, Floats, arguments, progress, run_seed, show, summary, write_plot, write_results
from benchmarks.datasets import Dataset, load
from benchmarks.papers.clustering import JUDGED, without_label
from benchmarks.papers.methods import library_rows
from dpcore.evaluation.cluster_count import CANDIDATES, choose_clusters

SYNTHETIC = 2_000
REAL = "real data"
WAYS: dict[str, dict[str, object]] = {
    "library, auto": {},
    "library, auto, with a delta": {"delta": 1e-5},
    "RON-Gauss in 8 dimensions": {"projection": "ron", "dimension": 8, "generator": "gaussian"},
}
"""Releases whose synthetic rows choose the number of clusters, in all 300 coordinates."""


def rows_of(data: Dataset, name: str) -> Callable[[int], Floats]:
    """Return a function of the run that gives the rows on which the number is chosen."""
    if name == REAL:
        return lambda run: np.roll(data.features(data.train), -run * SYNTHETIC, axis=0)[:SYNTHETIC]

    def released(run: int) -> Floats:
        seed = run_seed("clusters", run)
        return data.features(library_rows(data, epsilon=1.0, rows=SYNTHETIC, seed=seed, **WAYS[name]))  # type: ignore[arg-type]

    return released


def held_out_silhouette(rows: Floats, clusters: int, judged: Floats, run: int) -> float:
    """Return the silhouette of real rows that are assigned to the centres of other rows, and 0 for one cluster."""
    labels = KMeans(clusters, n_init=4, random_state=run).fit(rows).predict(judged)
    return float(silhouette_score(judged, labels)) if len(np.unique(labels)) > 1 else 0.0


def main() -> int:
    """Run the benchmark."""
    asked = arguments(__doc__)
    data = without_label(load("gfe", train_rows=2_000 if asked.quick else None))
    judged = data.features(data.test)[:JUDGED]
    table, curves = [], []
    for name in progress((REAL, *WAYS), "numbers of clusters"):
        make, choices, worth = rows_of(data, name), [], []
        for run in range(asked.runs):
            rows = make(run)
            choices.append(choose_clusters(rows, seed=run_seed("clusters", run)))
            worth.append(held_out_silhouette(rows, choices[-1].clusters, judged, run))
        chosen = Counter(choice.clusters for choice in choices)
        table.append([name, ", ".join(f"{k}: {n}" for k, n in sorted(chosen.items())), str(summary(worth))])
        of_each = [summary([choice.silhouettes[k] for choice in choices]) for k in CANDIDATES]
        curves.append(Curve(name, CANDIDATES, of_each))
    title = f"gfe: number of clusters by the silhouette of {SYNTHETIC:,} rows, {asked.runs} runs"
    columns = ["chosen on", "number: times", "silhouette of real rows"]
    show(title, columns, table)
    write_results("papers/clusters", {"title": title, "columns": columns, "rows": table})
    write_plot("papers/clusters", {"gfe": curves}, x="clusters", y="silhouette of the rows", log_x=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
