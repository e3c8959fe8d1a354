"""The effect of the dimension (PCA-Gauss's Figure 1) on RON-Gauss and PCA-Gauss, in all three experiments.

    python -m benchmarks.papers.dimension [clustering classification regression] [--runs N] [--quick] [--full]

Clustering on gfe (silhouette of held-out real rows, K = 2), classification on covertype (accuracy of
logistic regression), regression on acs_nist_income (root mean square error with the opposite sign).
At every dimension: the corrected mechanism at epsilon 1, the published calibration at its claim of 1, and
the corrected mechanism at the true epsilon of the published one, which depends on the dimension.

PCA-Gauss has the components of public rows, the first 5 % of the training rows, as in the paper's figure. In
clustering the mean is that of the public rows as well, and the published noise is that of Algorithm 1, which the paper
adds along components of the private rows; no real row could be assigned along those, since they are not released. The
published class mixtures (Algorithm 3) have no finite epsilon, so their true epsilon has no curve.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import (
    Curve,
    Floats,
    arguments,
    paired,
    progress,
    run_seed,
    show,
    summary,
    write_plot,
    write_results,
)
from benchmarks.datasets import load
from benchmarks.papers import epsilon as true_epsilon
from benchmarks.papers.classification import accuracies
from benchmarks.papers.clustering import FEWER, JUDGED, real_silhouette, without_label
from benchmarks.papers.methods import (
    Codes,
    Gaussians,
    class_gaussians,
    encoded,
    joint_gaussian,
    published_ron_classes,
    published_ron_supervised,
    published_ron_unsupervised,
    ron_classes,
    ron_supervised,
    ron_unsupervised,
)
from benchmarks.papers.pca_gauss import (
    pca_gauss,
    pca_unsupervised,
    public_components,
    published_classes,
    published_joint,
    published_pca_unsupervised,
)
from benchmarks.papers.regression import RMSE, error
from benchmarks.papers.table import verdict
from dpcore.noise.sources import public_generator

DIMENSIONS = (2, 4, 8, 16, 32)
EPSILON = 1.0
MEAN = true_epsilon.RON_MEAN * EPSILON
SYNTHETIC = 2_000
CORRECTED, PUBLISHED, AT_TRUTH = "corrected", "published", "corrected at the true ε"
RON, PCA = "RON-Gauss", "PCA-Gauss"

Found = tuple[Callable[[Floats], Floats], Gaussians]
Fit = Callable[[int, float, np.random.Generator], Found]
"""A map and a model at a dimension and an epsilon; the generator is public."""


@dataclass(frozen=True, slots=True)
class Family:
    """One paper's method at any dimension; `truth` is None if no epsilon is true of the published calibration."""

    corrected: Fit
    published: Fit
    held_out: Floats
    truth: Callable[[int], float] | None


@dataclass(frozen=True, slots=True)
class Task:
    """An experiment at any dimension; a larger score is better."""

    data: str
    name: str
    score: Callable[[Found, Floats, int], float]
    families: Mapping[str, Family]

    def run(self, family: Family, fit: Fit, dimension: int, epsilon: float, run: int) -> float:
        """Return the score of one run."""
        generator = public_generator(run_seed(self.data, run), "projection")
        return self.score(fit(dimension, epsilon, generator), family.held_out, run)


def drawn(data: str, model: Gaussians, run: int) -> tuple[Floats, Codes]:
    """Draw synthetic rows with the public seed of a run."""
    return model.sample(SYNTHETIC, public_generator(run_seed(data, run), "sampling"))


def clustering(*, quick: bool, full: bool) -> Task:
    """K-means on gfe."""
    data = without_label(load("gfe", train_rows=2_000 if quick else None))
    cube, judged = data.features(data.train), data.features(data.test)[:JUDGED]
    ball = encoded(data, data.train)

    def score(found: Found, held_out: Floats, run: int) -> float:
        space, model = found
        return real_silhouette(drawn("gfe", model, run)[0], space(held_out), judged, FEWER, run)

    ron = Family(
        lambda p, epsilon, generator: ron_unsupervised(ball, p, MEAN, epsilon - MEAN, generator),
        lambda p, epsilon, generator: published_ron_unsupervised(ball, p, epsilon, generator),
        encoded(data, data.test)[:JUDGED],
        lambda p: true_epsilon.ron_gauss(p, EPSILON),
    )
    pca = Family(
        lambda p, epsilon, _: pca_unsupervised(cube, p, epsilon),
        lambda p, epsilon, generator: published_pca_unsupervised(cube, p, epsilon, generator),
        judged,
        lambda p: true_epsilon.pca_gauss_along(p, EPSILON),
    )
    return Task("gfe", "silhouette of real rows", score, {RON: ron, PCA: pca})


def classification(*, quick: bool, full: bool) -> Task:
    """Logistic regression on covertype."""
    rows = None if full else 2_000 if quick else 40_000
    data = load("covertype", train_rows=rows, test_rows=500 if quick else 4_000)
    cube, ball = data.features(data.train), encoded(data, data.train)
    labels, marks = data.outcomes(data.train), data.outcomes(data.test)
    classes = len(data.outcome.levels)  # type: ignore[union-attr]

    def score(found: Found, held_out: Floats, run: int) -> float:
        points, codes = drawn("covertype", found[1], run)
        return accuracies(points, codes, found[0](held_out), marks, classes=classes, run=run, names="LR")["LR"]

    def pca(p: int, epsilon: float, _: np.random.Generator) -> Found:
        def model(points: Floats, mine: Codes, rest: float) -> Gaussians:
            return class_gaussians(points, mine, classes, rest)

        return pca_gauss(public_components, model, cube, labels, p, epsilon)

    def pca_published(p: int, epsilon: float, generator: np.random.Generator) -> Found:
        def model(points: Floats, mine: Codes, rest: float) -> Gaussians:
            return published_classes(points, mine, classes, rest, generator)

        return pca_gauss(public_components, model, cube, labels, p, epsilon)

    ron = Family(
        lambda p, epsilon, generator: ron_classes(ball, labels, classes, p, epsilon, generator),
        lambda p, epsilon, generator: published_ron_classes(ball, labels, classes, p, epsilon, generator),
        encoded(data, data.test),
        lambda p: true_epsilon.ron_gauss(p, EPSILON),
    )
    families = {RON: ron, PCA: Family(pca, pca_published, data.features(data.test), None)}
    return Task("covertype", "accuracy", score, families)


def regression(*, quick: bool, full: bool) -> Task:
    """Kernel ridge on incomes."""
    data = load("acs_nist_income", train_rows=2_000 if quick else None, test_rows=500 if quick else 4_000)
    cube, ball = data.features(data.train), encoded(data, data.train)
    targets, marks = data.outcomes(data.train), data.outcomes(data.test)

    def score(found: Found, held_out: Floats, run: int) -> float:
        both = drawn("acs", found[1], run)[0]
        return -error(both[:, :-1], np.clip(both[:, -1], -1, 1), found[0](held_out), marks)[RMSE]

    def pca_published(p: int, epsilon: float, generator: np.random.Generator) -> Found:
        return pca_gauss(public_components, partial(published_joint, generator=generator), cube, targets, p, epsilon)

    ron = Family(
        lambda p, epsilon, generator: ron_supervised(ball, targets, p, MEAN, epsilon - MEAN, generator),
        lambda p, epsilon, generator: published_ron_supervised(ball, targets, p, epsilon, generator),
        encoded(data, data.test),
        lambda p: true_epsilon.ron_gauss_supervised(p, 1.0, EPSILON),
    )
    pca = Family(
        lambda p, epsilon, _: pca_gauss(public_components, joint_gaussian, cube, targets, p, epsilon),
        pca_published,
        data.features(data.test),
        lambda p: true_epsilon.pca_gauss_supervised(p, EPSILON),
    )
    return Task("acs", "-RMSE", score, {RON: ron, PCA: pca})


TASKS = {"clustering": clustering, "classification": classification, "regression": regression}


def run_dimension(task: Task, family: Family, dimension: int, runs: int) -> dict[str, list[float]]:
    """Return the scores of one paper's method at one dimension, run by run."""
    ways = {CORRECTED: (family.corrected, EPSILON), PUBLISHED: (family.published, EPSILON)}
    if family.truth is not None:
        ways[AT_TRUTH] = (family.corrected, family.truth(dimension))
    return {
        way: [task.run(family, fit, dimension, epsilon, run) for run in range(runs)]
        for way, (fit, epsilon) in ways.items()
    }


def line(name: str, family: Family, dimension: int, found: Mapping[str, list[float]]) -> tuple[Any, ...]:
    """Return a row of the table: summaries, the true epsilon, and the comparison at it."""
    start = (name, dimension, summary(found[CORRECTED]), summary(found[PUBLISHED]))
    if family.truth is None:
        return (*start, None, "none", "", "")
    difference = paired(found[AT_TRUTH], found[PUBLISHED])
    interval = f"{difference.mean:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]"
    return (*start, summary(found[AT_TRUTH]), f"{family.truth(dimension):.2f}", interval, verdict(difference))


COLUMNS = (
    "method", "dimension", CORRECTED, PUBLISHED, AT_TRUTH, "true ε", "at the true ε, less published", "ours is"
)  # fmt: skip


def run_task(name: str, task: Task, runs: int) -> bool:
    """Run one task, and write its table and plot; return whether no corrected mechanism is worse."""
    lines, panels, kept = [], {}, {}
    for method, family in task.families.items():
        found = [run_dimension(task, family, p, runs) for p in progress(DIMENSIONS, f"{name}, {method}, dimensions")]
        lines += [line(method, family, p, scores) for p, scores in zip(DIMENSIONS, found, strict=True)]
        panels[f"{name}, {method}"] = [
            Curve(way, DIMENSIONS, [summary(scores[way]) for scores in found], way == PUBLISHED) for way in found[0]
        ]
        kept[method] = found
    title = f"{name}: {task.name}, claimed ε = {EPSILON:g}"
    show(title, COLUMNS, lines)
    body = {"title": title, "columns": COLUMNS, "rows": lines, "dimensions": DIMENSIONS, "runs": kept}
    write_results(f"papers/dimension_{name}", body)
    write_plot(f"papers/dimension_{name}", panels, x="dimension", y=f"{task.name}, more is better")
    return all(row[-1] != "worse" for row in lines)


def main() -> int:
    """Run the benchmark."""
    asked = arguments(__doc__, sets=tuple(TASKS))
    good = [run_task(name, TASKS[name](quick=asked.quick, full=asked.full), asked.runs) for name in asked.sets]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
