"""Table 1 of Imtiaz and Sarwate (003): the error of a linear support vector machine on two classes, in per cent.

    python -m benchmarks.papers.components.two_classes [--runs N] [--quick]

Directions are released from 4,000 or 6,000 training rows of two classes: two Gaussians, covertype 6 and 7, mnist 3
and 7. The machine is trained and tested on real rows along them, 4,000 of which are held out; these rows are not
private. Columns along the directions are standardised, as MATLAB's `svmtrain` does, with a penalty of 1. There are as
many directions as in the paper: 10, 10 and 50. The paper does not give the epsilon of its table; here it is 1, with
delta 1e-5 if needed. mnist is scaled down to 14 x 14 pixels.

The paper does not give the two Gaussians. Here they have the covariance of `directions.synthetic_spectrum` and means
at a distance at which the best possible error is that of the paper's exact PCA, 5.65 %.

Errors on real rows do not order mechanisms by their noise: directions that hold less of the variance may separate the
classes as well, so random directions stand beside them. Mechanisms are compared by the mean of the six errors.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from functools import cache

import numpy as np
from scipy import stats
from sklearn.svm import LinearSVC

from benchmarks.common import Floats, arguments, run_seed
from benchmarks.datasets import load
from benchmarks.papers import epsilon as true_epsilon
from benchmarks.papers.baselines import small_pictures
from benchmarks.papers.components import directions as of
from benchmarks.papers.components.directions import DELTA, SPACES, SYNTHETIC, Directions, Rows, leading_of
from benchmarks.papers.table import Method, Pair, Printed, Scores, report, run_all
from dpcore.noise.sources import public_generator

SIZES = (4_000, 6_000)
TEST_ROWS = 4_000
CLASSES = {"covertype": ("6", "7"), "mnist": ("3", "7")}
SETS = (SYNTHETIC, *CLASSES)
BEST_ERROR = 0.0565
"""The best possible error on the two Gaussians: that of exact PCA in the paper."""

MEAN = "mean"
QUICK_SHARE = 5
"""By this factor `--quick` has fewer rows; it has one size only."""

PRINTED = tuple(
    Printed("003, Table 1: synthetic, covertype, mnist, each with n = 4,000 and 6,000", method, figures)
    for method, figures in (
        ("exact PCA", "5.65, 5.80; 0.025, 0.025; 0.575, 0.25"),
        ("AG", "5.80, 5.75; 16.80, 5.775; 3.025, 3.125"),
        ("PPM", "9.00, 9.05; 22.00, 15.175; 3.10, 2.55"),
        ("PPCA", "6.375, 6.125; 31.85, 19.875; 2.725, 2.80"),
        ("SN (refuted)", "7.50, 7.075; 7.225, 0.35; 2.50, 2.00"),
    )
)


@cache
def two_classes(name: str, size: int, test_rows: int) -> Rows:
    """Return the first rows of two classes, labelled 0 and 1, and held-out rows behind the longest training set."""
    held_out = slice(SIZES[-1], SIZES[-1] + test_rows)
    if name == SYNTHETIC:
        points, labels = two_gaussians(held_out.stop)
        cube, components = points, of.SYNTHETIC_COMPONENTS
    else:
        space, data = SPACES[name], load(name, test_rows=1)
        chosen = data.train[data.train[data.outcome.name].isin(CLASSES[name])].iloc[: held_out.stop]
        small = small_pictures(replace(data, train=chosen.reset_index(drop=True)), space.shrink)
        cube = small.features(small.train)
        points, components = of.inside(cube, space), space.components
        codes = small.outcomes(small.train)
        labels = (codes == codes.max()).astype(np.int64)
    return Rows(points[:size], labels[:size], points[held_out], labels[held_out], cube[:size], components)


def two_gaussians(count: int) -> tuple[Floats, of.Labels]:
    """Draw rows of two Gaussians with means m and -m, equally far in all ten leading directions.

    The distance of the means is such that no rule has an error below `BEST_ERROR`.
    """
    generator = public_generator("003", "two classes")
    labels = generator.integers(0, 2, count)
    deviations = np.sqrt(of.synthetic_spectrum() / of.LONGEST)
    shift = np.zeros(of.SYNTHETIC_FEATURES)
    shift[: of.SYNTHETIC_COMPONENTS] = -stats.norm.ppf(BEST_ERROR) / math.sqrt(of.SYNTHETIC_COMPONENTS)
    normals = generator.standard_normal((count, of.SYNTHETIC_FEATURES))
    points = (normals + (2 * labels - 1)[:, None] * shift) * deviations
    return of.clipped(points @ of.synthetic_basis().T), labels


def error(rows: Rows, directions: Floats) -> float:
    """Return the percentage of held-out rows that a linear machine along the directions gets wrong."""
    train, test = rows.points @ directions, rows.test @ directions
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    model = LinearSVC(dual=False).fit((train - mean) / deviation, rows.labels)
    return 100 * float(np.mean(model.predict((test - mean) / deviation) != rows.truth))


def table(*, quick: bool) -> tuple[list[Method], list[Pair]]:
    """Return the rows of the table; each run gives the errors of all sets and sizes."""
    less, sizes = (QUICK_SHARE, SIZES[:1]) if quick else (1, SIZES)
    sets = {(n, s): two_classes(n, s // less, TEST_ROWS // less) for n in SETS for s in sizes}

    def method(
        title: str, directions: Directions, epsilon: float, claims: str, truly: str, once: bool = False
    ) -> Method:
        def run_once(run: int) -> Scores:
            scores = {}
            for (name, size), rows in sets.items():
                generator = public_generator(run_seed(f"{name} {size}", run), "published")
                scores[f"{name}, {size:,}"] = error(rows, directions(rows, epsilon, generator))
            return {MEAN: float(np.mean(list(scores.values())))} | scores

        return Method(title, claims, truly, run_once, once)

    ag = true_epsilon.analyze_gauss(1.0, DELTA)
    methods = [
        method("exact PCA", leading_of(of.exact), 1.0, "", "", once=True),
        method("random directions", of.random_directions, 1.0, "", ""),
        method("AG, published, refuted", leading_of(of.published_ag), 1.0, "(1, 1e-5)", f"{ag:.2f}"),
        method(f"Gaussian at {ag:.2f}", leading_of(of.GAUSSIAN), ag, f"({ag:.2f}, 1e-5)", f"{ag:.2f}"),
        method("Gaussian, with a delta", leading_of(of.GAUSSIAN), 1.0, "(1, 1e-5)", "1"),
        method("PPM, published, refuted", of.published_ppm, 1.0, "(1, 1e-5)", "above 1"),
        method("noisy power method, with a delta", of.POWER, 1.0, "(1, 1e-5)", "1"),
        method("exponential mechanism (PPCA), approximate", of.EXPONENTIAL, 1.0, "1", "1", quick),
        method("SN, published, refuted", leading_of(of.published_sn), 1.0, "1", "none"),
        method("Wishart difference, pure", leading_of(of.WISHART), 1.0, "1", "1"),
    ]
    pairs = [
        Pair(f"Gaussian at {ag:.2f}", "AG, published, refuted", (MEAN,)),
        Pair("Gaussian, with a delta", "PPM, published, refuted", (MEAN,)),
    ]
    return methods, pairs


def main() -> int:
    """Run the benchmark."""
    asked = arguments(__doc__)
    methods, pairs = table(quick=asked.quick)
    found = run_all(methods, asked.runs)
    notes = [
        "SN has no finite epsilon, so nothing is compared with it at the same one; PPM is compared at its claim, which "
        "is for one changed entry. Machines, test rows and their labels are not private, here as in the paper.",
        "The errors hardly tell mechanisms apart where random directions do as well.",
    ]
    good = report(
        "papers/two_classes",
        "Two classes: error of a linear support vector machine in per cent, epsilon 1",
        methods,
        found,
        pairs,
        printed=PRINTED,
        notes=notes,
        less_is_better=True,
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
