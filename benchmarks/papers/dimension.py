"""The effect of the dimension (PCA-Gauss's Figure 1) on RON-Gauss, in all three experiments.

    python -m benchmarks.papers.dimension [clustering classification regression] [--runs N] [--quick] [--full]

Clustering on gfe (silhouette of held-out real rows, K = 2), classification on covertype (accuracy of
logistic regression), regression on acs_nist_income (root mean square error, plotted with the opposite sign).
At every dimension: the corrected mechanism at epsilon 1, the published calibration at its claim of 1, and
the corrected mechanism at the true epsilon of the published one, which grows with the dimension.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.common import (
    Curve,
    Floats,
    arguments,
    load,
    paired,
    progress,
    run_seed,
    show,
    summary,
    write_plot,
    write_results,
)
from benchmarks.papers import epsilon as true_epsilon
from benchmarks.papers.classification import accuracies
from benchmarks.papers.clustering import JUDGED, REAL_FEWER, silhouettes, without_label
from benchmarks.papers.methods import (
    Gaussians,
    RonMap,
    encoded,
    published_ron_classes,
    published_ron_supervised,
    published_ron_unsupervised,
    ron_classes,
    ron_supervised,
    ron_unsupervised,
)
from benchmarks.papers.regression import RMSE, error
from benchmarks.papers.table import verdict
from dpcore.noise.sources import public_generator

DIMENSIONS = (2, 4, 8, 16, 32)
EPSILON = 1.0
MEAN = true_epsilon.RON_MEAN * EPSILON
SYNTHETIC = 2_000
CORRECTED, PUBLISHED, AT_TRUTH = "corrected", "published, refuted", "corrected at the true ε"

Run = Callable[[int, int], float]
"""One run at a dimension; a larger score is better."""


@dataclass(frozen=True, slots=True)
class Task:
    """An experiment at any dimension."""

    score: str
    corrected: Run
    published: Run
    at_truth: Run
    truth: Callable[[int], float]


def clustering(*, quick: bool, full: bool) -> Task:
    """K-means on gfe."""
    data = without_label(load("gfe", train_rows=2_000 if quick else None))
    ball, held_out = encoded(data, data.train), encoded(data, data.test)[:JUDGED]
    judged = data.features(data.test)[:JUDGED]

    def truth(dimension: int) -> float:
        return true_epsilon.ron_gauss(dimension, EPSILON)

    def score(found: tuple[RonMap, Gaussians], run: int) -> float:
        space, model = found
        points, _ = model.sample(SYNTHETIC, public_generator(run_seed("gfe", run), "sampling"))
        return silhouettes(points, space(held_out), judged, run)[REAL_FEWER]

    def corrected(dimension: int, run: int, moments: float = EPSILON - MEAN) -> float:
        generator = public_generator(run_seed("gfe", run), "projection")
        return score(ron_unsupervised(ball, dimension, MEAN, moments, generator), run)

    def published(dimension: int, run: int) -> float:
        generator = public_generator(run_seed("gfe", run), "projection")
        return score(published_ron_unsupervised(ball, dimension, EPSILON, generator), run)

    return Task(
        "silhouette of real rows", corrected, published, lambda p, run: corrected(p, run, truth(p) - MEAN), truth
    )


def classification(*, quick: bool, full: bool) -> Task:
    """Logistic regression on covertype."""
    data = load("covertype", train_rows=None if full else 2_000 if quick else 40_000, test_rows=4_000)
    ball, held_out = encoded(data, data.train), encoded(data, data.test)
    labels, marks = data.outcomes(data.train), data.outcomes(data.test)
    classes = len(data.outcome.levels)  # type: ignore[union-attr]

    def truth(dimension: int) -> float:
        return true_epsilon.ron_gauss(dimension, EPSILON)

    def score(found: tuple[RonMap, Gaussians], run: int) -> float:
        space, model = found
        points, drawn = model.sample(SYNTHETIC, public_generator(run_seed("covertype", run), "sampling"))
        return accuracies(points, drawn, space(held_out), marks, classes=classes, run=run, names="LR")["LR"]

    def corrected(dimension: int, run: int, epsilon: float = EPSILON) -> float:
        generator = public_generator(run_seed("covertype", run), "projection")
        return score(ron_classes(ball, labels, classes, dimension, epsilon, generator), run)

    def published(dimension: int, run: int) -> float:
        generator = public_generator(run_seed("covertype", run), "projection")
        return score(published_ron_classes(ball, labels, classes, dimension, EPSILON, generator), run)

    return Task("accuracy", corrected, published, lambda p, run: corrected(p, run, truth(p)), truth)


def regression(*, quick: bool, full: bool) -> Task:
    """Kernel ridge on incomes."""
    data = load("acs_nist_income", train_rows=2_000 if quick else None, test_rows=4_000)
    ball, held_out = encoded(data, data.train), encoded(data, data.test)
    targets, marks = data.outcomes(data.train), data.outcomes(data.test)

    def truth(dimension: int) -> float:
        return true_epsilon.ron_gauss_supervised(dimension, 1.0, EPSILON)

    def score(found: tuple[RonMap, Gaussians], run: int) -> float:
        space, model = found
        both, _ = model.sample(SYNTHETIC, public_generator(run_seed("acs", run), "sampling"))
        points: Floats = both[:, :-1]
        return -error(points, np.clip(both[:, -1], -1, 1), space(held_out), marks)[RMSE]

    def corrected(dimension: int, run: int, moments: float = EPSILON - MEAN) -> float:
        generator = public_generator(run_seed("acs", run), "projection")
        return score(ron_supervised(ball, targets, dimension, MEAN, moments, generator), run)

    def published(dimension: int, run: int) -> float:
        generator = public_generator(run_seed("acs", run), "projection")
        return score(published_ron_supervised(ball, targets, dimension, EPSILON, generator), run)

    return Task("-RMSE", corrected, published, lambda p, run: corrected(p, run, truth(p) - MEAN), truth)


TASKS = {"clustering": clustering, "classification": classification, "regression": regression}


def main() -> int:
    """Run the benchmark."""
    asked = arguments(__doc__, sets=tuple(TASKS))
    good, panels, kept = True, {}, {}
    for name in asked.sets:
        task = TASKS[name](quick=asked.quick, full=asked.full)
        ways = {
            "corrected": task.corrected,
            "published, refuted": task.published,
            "corrected at the true ε": task.at_truth,
        }
        found: dict[str, list[list[float]]] = {way: [] for way in ways}
        lines = []
        for dimension in progress(DIMENSIONS, f"{name}, dimensions"):
            for way, run_once in ways.items():
                found[way].append([run_once(dimension, run) for run in range(asked.runs)])
            difference = paired(found[AT_TRUTH][-1], found[PUBLISHED][-1])
            good &= verdict(difference) != "worse"
            lines.append(
                (
                    dimension,
                    *(summary(found[way][-1]) for way in ways),
                    f"{task.truth(dimension):.2f}",
                    f"{difference.mean:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]",
                    verdict(difference),
                )
            )
        columns = ["dimension", *ways, "true ε", "at the true ε, less published", "ours is"]
        show(f"{name}: {task.score}, RON-Gauss, claimed ε = 1", columns, lines)
        panels[f"{name}: {task.score}"] = [
            Curve(way, DIMENSIONS, [summary(values) for values in found[way]], way == PUBLISHED) for way in ways
        ]
        kept[name] = found
    write_results("papers/dimension", {"dimensions": DIMENSIONS, "runs": kept})
    write_plot("papers/dimension", panels, x="dimension", y="score, more is better")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
