"""What RON-Gauss's pre-processing gains and loses: releases with and without `normalise`, at the same epsilon.

    python -m benchmarks.papers.ron_gauss.normalisation [gfe waveform40] [--runs 10] [--quick] [--full]

Each run takes another split, measures its training rows with the real mechanisms (pure epsilon 1, replace-one, a random
projection to the dimension that the planner chooses), and draws as many synthetic rows. LR and GNB are the accuracies
of LogisticRegression(max_iter=300) and GaussianNB() that are trained on them and tested on real rows. `means` is the
mean absolute error of the columns' means and `spreads` that of their standard deviations, on the scale [-1, 1] of the
bounds; `correlations` is the root mean square error of the columns' correlations. Differences are paired by run: for
the errors, less is better. Without `--full` at most 4,000 training and 2,000 test rows of a set are used.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from benchmarks.common import Floats, arguments, paired, progress, run_seed, show, summary, write_results
from benchmarks.datasets import Dataset, load
from dpcore.estimators.ron_gauss import RonGauss

SETS = ("gfe", "waveform40")
EPSILON = 1.0
FEW = {"train_rows": 4_000, "test_rows": 2_000}
METRICS = ("LR", "GNB", "means", "spreads", "correlations")

Scores = dict[str, float]


class Release(NamedTuple):
    """One way to release a table."""

    name: str
    normalise: bool
    radius: float | str = 1


PAIRS = (
    (Release("plain", normalise=False), Release("normalised", normalise=True)),
    (Release("radius: auto", normalise=False, radius="auto"), Release("normalised, radius: auto", True, "auto")),
)


def release_rows(data: Dataset, release: Release, seed: str) -> tuple[Floats, np.ndarray]:
    """Release the training rows once; return as many synthetic rows, and their classes."""
    x, y = data.features(data.train), data.outcomes(data.train)
    model = RonGauss(
        epsilon=EPSILON,
        bounds=(-1.0, 1.0),
        classes=list(range(data.schema.class_count)),
        expected_rows=len(x),
        radius=release.radius,
        normalise=release.normalise,
        random_state=seed,
    )
    rows, classes = model.fit(x, y).sample(len(x))
    return rows, classes


def scores(data: Dataset, rows: Floats, classes: np.ndarray) -> Scores:
    """Return the accuracies on real test rows, and the errors of means, spreads and correlations."""
    real, test, truth = data.features(data.train), data.features(data.test), data.outcomes(data.test)
    several = len(np.unique(classes)) > 1  # one class alone trains no model
    found = {
        name: float(model.fit(rows, classes).score(test, truth)) if several else float(np.mean(truth == classes[0]))
        for name, model in (("LR", LogisticRegression(max_iter=300)), ("GNB", GaussianNB()))
    }
    gap = _correlations(rows) - _correlations(real)
    return found | {
        "means": float(np.abs(rows.mean(axis=0) - real.mean(axis=0)).mean()),
        "spreads": float(np.abs(rows.std(axis=0) - real.std(axis=0)).mean()),
        "correlations": float(np.sqrt(np.mean(gap**2))),
    }


def _correlations(rows: Floats) -> Floats:
    """Return the correlations of the columns; a constant column correlates with nothing."""
    spread = rows.std(axis=0)
    standard = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, np.inf)
    found: Floats = standard.T @ standard / len(rows)
    return found


def compare(name: str, runs: int, rows: dict[str, int]) -> dict[str, dict[str, list[float]]]:
    """Return the scores of every release in every run of one data set."""
    releases = [release for pair in PAIRS for release in pair]
    found: dict[str, dict[str, list[float]]] = {release.name: {m: [] for m in METRICS} for release in releases}
    for run in progress(range(runs), name):
        data = load(name, split=run + 1, **rows)
        for release in releases:
            for metric, value in scores(data, *release_rows(data, release, run_seed(name, run))).items():
                found[release.name][metric].append(value)
    return found


def main() -> None:
    """Run the comparison, print one table for each data set, and write the figures."""
    asked = arguments(__doc__, sets=SETS)
    lines: list[tuple[object, ...]] = []
    for name in asked.sets:
        found = compare(name, asked.runs, {} if asked.full else FEW)
        lines += [(name, method, *(summary(values[m]) for m in METRICS)) for method, values in found.items()]
        for before, after in PAIRS:
            gaps = (paired(found[after.name][m], found[before.name][m]) for m in METRICS)
            lines.append((name, f"{after.name} minus {before.name}", *gaps))
    title, columns = f"epsilon {EPSILON:g}, pure, {asked.runs} runs", ("set", "release", *METRICS)
    show(title, columns, lines)
    write_results("papers/normalisation", {"title": title, "columns": columns, "rows": lines})


if __name__ == "__main__":
    main()
