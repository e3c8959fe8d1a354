"""RON-Gauss's and PCA-Gauss's regression experiment: kernel ridge trained on private rows, tested on real ones.

    python -m benchmarks.papers.regression [california_housing acs_nist_income] [--runs N] [--quick] [--full]

The papers' own data (Twitter's regression file) are not available. The score is the root mean square error on
held-out real rows, with targets scaled to [-1, 1] by public bounds as in the papers. All at epsilon 1, replace-one.
RON- and PCA-Gauss keep at most 8 dimensions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.common import Dataset, Floats, arguments, load, run_seed
from benchmarks.papers import epsilon as true_epsilon
from benchmarks.papers.baselines import bernoulli_targets, jiang_targets
from benchmarks.papers.methods import (
    PCA_SHARE,
    Gaussians,
    encoded,
    library_rows,
    pca_supervised,
    published_pca_supervised,
    published_ron_supervised,
    ron_supervised,
)
from benchmarks.papers.table import Method, Pair, Printed, Scores, report, run_all
from dpcore.noise.sources import public_generator

EPSILON = 1.0
MOST_DIMENSIONS = 8
SYNTHETIC = 2_000
"""Number of rows, synthetic or real, that kernel ridge is trained on."""

ROWS = {"california_housing": (None, 4_000), "acs_nist_income": (None, 4_000)}
RMSE = "RMSE"

PRINTED = (
    Printed("000, Table IV; Twitter", "real data", "0.0021"),
    Printed("000, Table IV; Twitter", "PCA-Gauss, Lap-PCA, ε = 1 (refuted)", "0.0024 ± 0.0001"),
    Printed("000, Table IV; Twitter", "Li et al., Bernoulli rows, ε = 1", "0.4527 ± 0.0041"),
    Printed("000, Table IV; Twitter", "Jiang et al., public PCA, ε = 1", "0.4720 ± 0.0007"),
    Printed("000, Table IV; Twitter", "Blum et al., exponential mechanism, ε = 1", "0.4805 ± 0.0166"),
    Printed("001, Table 5; Twitter", "real data", "0.0021"),
    Printed("001, Table 5; Twitter", "RON-Gauss, ε = 1 (refuted)", "0.0021 ± 0.0001"),
    Printed("001, Table 5; Twitter", "Liu, all dimensions, ε = 1", "0.0100 ± 0.0012"),
    Printed("000 and 001; Twitter", "uniform guess", "0.578, 0.572"),
)


def error(train: Floats, targets: Floats, test: Floats, truth: Floats) -> Scores:
    """Return the root mean square error of kernel ridge with a Gaussian kernel and fixed settings."""
    model = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf", alpha=1.0, gamma=0.1 / train.shape[1]))
    offset = float(targets.mean())  # kernel ridge has no intercept
    found = model.fit(train, targets - offset).predict(test) + offset
    return {RMSE: float(np.sqrt(np.mean((found - truth) ** 2)))}


def experiment(name: str, data: Dataset) -> tuple[list[Method], list[Pair]]:
    """Return the rows of one data set's table."""
    cube, cube_test = data.features(data.train), data.features(data.test)
    ball, ball_test = encoded(data, data.train), encoded(data, data.test)
    targets, truth = data.outcomes(data.train), data.outcomes(data.test)
    dimension = min(MOST_DIMENSIONS, ball.shape[1])

    def real(_: int) -> Scores:
        return error(cube[:SYNTHETIC], targets[:SYNTHETIC], cube_test, truth)

    def guess(run: int) -> Scores:
        drawn = public_generator(run_seed(name, run), "guess").uniform(-1, 1, len(truth))
        return {RMSE: float(np.sqrt(np.mean((drawn - truth) ** 2)))}

    def middle(_: int) -> Scores:
        return {RMSE: float(np.sqrt(np.mean((targets.mean() - truth) ** 2)))}

    def library(**options: object) -> Callable[[int], Scores]:
        def run_once(run: int) -> Scores:
            frame = library_rows(
                data,
                epsilon=EPSILON,
                rows=SYNTHETIC,
                seed=run_seed(name, run),
                **options,  # type: ignore[arg-type]
            )
            return error(data.features(frame), data.outcomes(frame), cube_test, truth)

        return run_once

    def score_draw(space: Callable[[Floats], Floats], model: Gaussians, test: Floats, run: int) -> Scores:
        both, _ = model.sample(SYNTHETIC, public_generator(run_seed(name, run), "sampling"))
        return error(both[:, :-1], np.clip(both[:, -1], -1, 1), space(test), truth)

    def ron(mean: float, moments: float) -> Callable[[int], Scores]:
        def run_once(run: int) -> Scores:
            generator = public_generator(run_seed(name, run), "projection")
            space, model = ron_supervised(ball, targets, dimension, mean, moments, generator)
            return score_draw(space, model, ball_test, run)

        return run_once

    def ron_published(run: int) -> Scores:
        generator = public_generator(run_seed(name, run), "projection")
        space, model = published_ron_supervised(ball, targets, dimension, EPSILON, generator)
        return score_draw(space, model, ball_test, run)

    def pca(first: float, rest: float) -> Callable[[int], Scores]:
        def run_once(run: int) -> Scores:
            space, model = pca_supervised(cube, targets, dimension, first, rest)
            return score_draw(space, model, cube_test, run)

        return run_once

    def pca_published(run: int) -> Scores:
        generator = public_generator(run_seed(name, run), "published")
        space, model = published_pca_supervised(cube, targets, dimension, EPSILON, generator)
        return score_draw(space, model, cube_test, run)

    def local(make: Callable[..., tuple[Floats, Floats]]) -> Callable[[int], Scores]:
        def run_once(_: int) -> Scores:
            rows, numbers = make(cube[:SYNTHETIC], targets[:SYNTHETIC], EPSILON)
            return error(rows, numbers, cube_test, truth)

        return run_once

    mean = true_epsilon.RON_MEAN * EPSILON
    ron_truth = true_epsilon.ron_gauss_supervised(dimension, 1.0, EPSILON)
    lap = true_epsilon.lap_pca(cube.shape[1], PCA_SHARE * EPSILON)
    pca_truth = lap + true_epsilon.pca_gauss_supervised(dimension, (1 - PCA_SHARE) * EPSILON)
    at_ron, at_pca = f"{ron_truth:.3g}", f"{pca_truth:.3g}"
    methods = [
        Method("real data", "", "", real, once=True),
        Method("uniform guess", "", "", guess),
        Method("the mean, always", "", "", middle, once=True),
        Method("library, auto", "1", "1", library()),
        Method("library, auto, with a delta", "(1, 1e-5)", "1", library(delta=1e-5)),
        Method("library, one Gaussian", "1", "1", library(generator="supervised")),
        Method("RON-Gauss, corrected", "1", "1", ron(mean, EPSILON - mean)),
        Method("RON-Gauss, published, refuted", "1", at_ron, ron_published),
        Method(f"RON-Gauss, corrected at {at_ron}", at_ron, at_ron, ron(mean, ron_truth - mean)),
        Method("PCA-Gauss, corrected", "1", "1", pca(PCA_SHARE * EPSILON, (1 - PCA_SHARE) * EPSILON)),
        Method("PCA-Gauss, published, refuted", "1", at_pca, pca_published),
        Method(
            f"PCA-Gauss, corrected at {at_pca}", at_pca, at_pca, pca(PCA_SHARE * pca_truth, (1 - PCA_SHARE) * pca_truth)
        ),
        Method("Liu, corrected", "1", "1", library(mechanism="laplace", generator="supervised")),
        Method("Li et al., Bernoulli rows, corrected", "1, local", "1", local(bernoulli_targets)),
        Method("Jiang et al., PCA rows, corrected", "1, local", "1", local(jiang_targets)),
    ]
    pairs = [
        Pair(f"RON-Gauss, corrected at {at_ron}", "RON-Gauss, published, refuted"),
        Pair(f"PCA-Gauss, corrected at {at_pca}", "PCA-Gauss, published, refuted"),
    ]
    return methods, pairs


def main() -> int:
    """Run the benchmark."""
    asked = arguments(__doc__, sets=tuple(ROWS))
    good = True
    for name in asked.sets:
        train, test = (None, None) if asked.full else (2_000, 500) if asked.quick else ROWS[name]
        data = load(name, train_rows=train, test_rows=test)
        methods, pairs = experiment(name, data)
        found = run_all(methods, asked.runs)
        title = f"{name}: {len(data.train):,} training rows, {len(data.test):,} test rows, RMSE (less is better)"
        good &= report(f"papers/regression_{name}", title, methods, found, pairs, printed=PRINTED, less_is_better=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
