"""GFE: K-means on synthetic rows, real rows assigned to its centres, against K-means on the real rows.

    python -m benchmarks.gfe [--runs 10] [--quick] [--fresh]

Centres are fitted on 4,000 synthetic rows, decoded to all 300 coordinates. 2,000 held-out real rows, the same in every
run, are assigned to the nearest centre, and the silhouette of that partition is computed in all coordinates (scaled to
[-1, 1] by public bounds). Pure epsilon 1, replace-one. K = 2 is the number of clusters at which K-means on the real
training rows has its largest silhouette (over K = 2 to 6), K = 4 the number that RON-Gauss used.
`defaults` is what a specification without a model section gets. `without noise` is the release of the library at
epsilon 10^6. One Gaussian has no clusters, so K-means can only cut it along its longest axis: the gap that remains
there is due to the model and common to all releases of moments.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score

from benchmarks.common import Curve, Floats, run_seed, show, write_plot, write_results
from benchmarks.datasets import Dataset, load
from benchmarks.planned import default_request, default_rows
from benchmarks.repeated import Runs, Scores
from dpcore.estimators.moment_mixture import MomentMixture
from dpcore.estimators.ron_gauss import RonGauss
from dpcore.records.schema import Neighbours, RecordSchema, Role

CLUSTERS = (2, 4)
TRIED = (2, 3, 4, 5, 6)
SYNTHETIC, JUDGED = 4_000, 2_000
NO_NOISE = 1e6

DEFAULTS = "defaults"
"""What a specification without a model section gets."""

Release = tuple[str, type[MomentMixture], float, dict[str, Any]]
RELEASES: tuple[Release, ...] = (
    ("library, in a bought frame", MomentMixture, 1.0, {"radius": "auto"}),
    ("library, without a frame", MomentMixture, 1.0, {}),
    ("random, 16 dimensions, in a bought frame", RonGauss, 1.0, {"radius": "auto", "n_components": 16}),
    ("library, without noise", MomentMixture, NO_NOISE, {"radius": "auto"}),
)


def silhouette(rows: Floats, judged: Floats, clusters: int, seed: int) -> float:
    """Return the silhouette of the real rows, assigned to centres of other rows; 0 if all have one centre."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = KMeans(clusters, n_init=4, random_state=seed).fit(rows).predict(judged)
    return float(silhouette_score(judged, labels)) if len(np.unique(labels)) > 1 else 0.0


def run_once(train: Floats, judged: Floats, release: Release, run: int) -> Scores:
    """Make one release and return its silhouettes."""
    _, kind, epsilon, options = release
    model = kind(
        epsilon=Fraction(epsilon),
        bounds=(-1.0, 1.0),
        expected_rows=len(train),
        random_state=run_seed("gfe", run),
        **options,
    )
    rows = np.asarray(model.fit(train).sample(SYNTHETIC))
    return _silhouettes(rows, judged, CLUSTERS, run)


def run_defaults(data: Dataset, judged: Floats, run: int) -> Scores:
    """Release the coordinates as a specification without a model section does, and return the silhouettes."""
    features = tuple(column for column in data.schema.columns if column.role is Role.FEATURE)
    unlabelled = replace(data, schema=RecordSchema(features))
    asked = default_request(unlabelled, epsilon=Fraction(1), delta=Fraction(0), neighbours=Neighbours.REPLACE_ONE)
    rows = unlabelled.features(default_rows(unlabelled, asked, run_seed("gfe", run)))
    return _silhouettes(rows[:SYNTHETIC], judged, CLUSTERS, run)


def _silhouettes(rows: Floats, judged: Floats, clusters: Sequence[int], run: int) -> Scores:
    return {f"K = {k}": silhouette(rows, judged, k, run) for k in clusters}


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="independent releases of each row (10)")
    parser.add_argument("--quick", action="store_true", help="one run of the first row")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    asked = parser.parse_args()
    data = load("gfe", test_rows=JUDGED)
    train, judged = data.features(data.train), data.features(data.test)
    runs = Runs("gfe_quick" if asked.quick else "gfe", fresh=asked.fresh or asked.quick)
    names = [f"K = {k}" for k in CLUSTERS]
    runs.add("real rows", min(3, asked.runs), lambda run: _silhouettes(train, judged, CLUSTERS, run))
    runs.add("training rows", 1, lambda run: _silhouettes(train, train[:JUDGED], TRIED, run))
    real = runs.summaries("real rows", names)
    lines: list[tuple[object, ...]] = [("real rows", "", *(real[name] for name in names))]
    kept: dict[str, Any] = {"real rows": real}
    makers: dict[str, Callable[[int], Scores]] = {DEFAULTS: lambda run: run_defaults(data, judged, run)}
    makers |= {release[0]: lambda run, release=release: run_once(train, judged, release, run) for release in RELEASES}
    budgets = {DEFAULTS: 1.0} | {name: epsilon for name, _, epsilon, _ in RELEASES}
    for name, epsilon in list(budgets.items())[: 2 if asked.quick else None]:
        wanted = 1 if asked.quick else asked.runs
        runs.add(name, wanted, makers[name])
        found = kept[name] = runs.summaries(name, names)
        shares = [f"{found[k].mean / real[k].mean:.0%}" for k in names]
        privacy = "none" if epsilon == NO_NOISE else f"{epsilon:g}, 0"
        lines.append((name, privacy, *found.values(), *shares, f"{runs.seconds(name):.0f}"))
    columns = ("centres of", "epsilon, delta", *names, *(f"{name}, of real" for name in names), "seconds")
    best = max(TRIED, key=lambda k: runs.scores["training rows"][0][f"K = {k}"])
    note = f"K-means on the real training rows has its largest silhouette at K = {best}"
    show(f"gfe: silhouette of {JUDGED:,} real rows", columns, lines, notes=[note])
    write_results(runs.name, kept)
    curves = [Curve(name, CLUSTERS, [found[k] for k in names]) for name, found in kept.items()]
    write_plot(runs.name, {"gfe, pure epsilon 1": curves}, x="clusters", y="silhouette of real rows", log_x=False)


if __name__ == "__main__":
    main()
