"""RON-Gauss's and PCA-Gauss's regression experiment: kernel ridge trained on private rows, tested on real ones.

    python -m benchmarks.papers.regression [california_housing acs_nist_income] [--runs N] [--quick] [--full]

The papers' own data (Twitter's regression file) are not available. The score is the root mean square error on
held-out real rows, with targets scaled to [-1, 1] by public bounds as in the papers. All at epsilon 1, replace-one,
and the papers' own methods at epsilon 3 as well. RON- and PCA-Gauss keep at most 8 dimensions. PCA-Gauss takes
its components from all rows (Lap-PCA, AG-PCA), from public rows (Pub-PCA, the first 5 % of the training rows, which
are then not among the private ones), or from rows set aside (section V-D).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.common import Floats, arguments, run_seed
from benchmarks.datasets import Dataset, load
from benchmarks.papers import epsilon as true_epsilon
from benchmarks.papers.baselines import bernoulli_targets, jiang_targets
from benchmarks.papers.methods import (
    Gaussians,
    encoded,
    joint_gaussian,
    library_rows,
    published_ron_supervised,
    ron_supervised,
)
from benchmarks.papers.pca_gauss import (
    DELTA,
    PCA_SHARE,
    Components,
    Source,
    components_set_aside,
    gaussian_components,
    pca_gauss,
    private_components,
    public_components,
    public_rows,
    published_ag_pca,
    published_joint,
    published_lap_pca,
    published_public,
)
from benchmarks.papers.public_baselines import public_pca_targets
from benchmarks.papers.table import Method, Pair, Printed, Scores, report, run_all
from dpcore.noise.sources import public_generator

EPSILON, LARGER = 1.0, 3.0
MOST_DIMENSIONS = 8
SYNTHETIC = 2_000
"""Number of rows, synthetic or real, that kernel ridge is trained on."""

ROWS = {"california_housing": (None, 4_000), "acs_nist_income": (None, 4_000)}
RMSE = "RMSE"

PRINTED = (
    Printed("000, Table IV; Twitter", "real data", "0.0021"),
    Printed("000, Table IV; Twitter", "PCA-Gauss, Lap-PCA, ε = 1 (refuted)", "0.0024 ± 0.0001"),
    Printed("000, Table IV; Twitter", "PCA-Gauss, Pub-PCA, ε = 1", "0.0021 ± 0.0001"),
    Printed("000, Table IV; Twitter", "PCA-Gauss, AG-PCA, (1, 1/N)", "0.0023 ± 0.0001"),
    Printed("000, Table IV; Twitter", "Blocki et al. adapted, (1, 1/N)", "0.4716 ± 0.0024"),
    Printed("000, section IX-B; Twitter", "public rows only", "0.07"),
    Printed("000, Table IV; Twitter", "Li et al., Bernoulli rows, ε = 1", "0.4527 ± 0.0041"),
    Printed("000, Table IV; Twitter", "Jiang et al., Pub-PCA rows, ε = 1", "0.4720 ± 0.0007"),
    Printed("000, Table IV; Twitter", "Blum et al., exponential mechanism, ε = 1", "0.4805 ± 0.0166"),
    Printed("001, Table 5; Twitter", "real data", "0.0021"),
    Printed("001, Table 5; Twitter", "RON-Gauss, ε = 1 (refuted)", "0.0021 ± 0.0001"),
    Printed("001, Table 5; Twitter", "Liu, all dimensions, ε = 1", "0.0100 ± 0.0012"),
    Printed("000 and 001; Twitter", "uniform guess", "0.578, 0.572"),
)
Run = Callable[[int], Scores]


def error(train: Floats, targets: Floats, test: Floats, truth: Floats) -> Scores:
    """Return the root mean square error of kernel ridge with a Gaussian kernel and fixed settings."""
    model = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf", alpha=1.0, gamma=0.1 / train.shape[1]))
    offset = float(targets.mean())  # kernel ridge has no intercept
    found = model.fit(train, targets - offset).predict(test) + offset
    return {RMSE: float(np.sqrt(np.mean((found - truth) ** 2)))}


@dataclass(frozen=True, slots=True)
class Experiment:
    """One data set in the coordinates of the models (`cube`) and in those of the unit ball, at a claimed epsilon."""

    data: Dataset
    epsilon: float
    cube: Floats
    cube_test: Floats
    ball: Floats
    ball_test: Floats
    targets: Floats
    truth: Floats

    @property
    def dimension(self) -> int:
        """The dimension of RON- and PCA-Gauss."""
        return min(MOST_DIMENSIONS, int(self.ball.shape[1]))

    def generator(self, run: int, purpose: str) -> np.random.Generator:
        """Return a generator with the public seed of a run."""
        return public_generator(run_seed(self.data.name, run), purpose)

    def real(self, rows: slice) -> Run:
        """Return a model of some of the real rows."""
        return lambda _: error(self.cube[rows], self.targets[rows], self.cube_test, self.truth)

    def guess(self, run: int) -> Scores:
        """Return the error of a uniform guess."""
        drawn = self.generator(run, "guess").uniform(-1, 1, len(self.truth))
        return {RMSE: float(np.sqrt(np.mean((drawn - self.truth) ** 2)))}

    def middle(self, _: int) -> Scores:
        """Return the error of the mean of all targets."""
        return {RMSE: float(np.sqrt(np.mean((self.targets.mean() - self.truth) ** 2)))}

    def library(self, **options: Any) -> Run:
        """Return a release by the library."""

        def run_once(run: int) -> Scores:
            seed = run_seed(self.data.name, run)
            frame = library_rows(self.data, epsilon=self.epsilon, rows=SYNTHETIC, seed=seed, **options)
            return error(self.data.features(frame), self.data.outcomes(frame), self.cube_test, self.truth)

        return run_once

    def score_draw(self, space: Callable[[Floats], Floats], model: Gaussians, test: Floats, run: int) -> Scores:
        """Return the error of a model trained on rows drawn from a Gaussian."""
        both, _ = model.sample(SYNTHETIC, self.generator(run, "sampling"))
        return error(both[:, :-1], np.clip(both[:, -1], -1, 1), space(test), self.truth)

    def ron(self, epsilon: float) -> Run:
        """Return RON-Gauss, corrected; the mean has the paper's share of the claimed epsilon."""
        mean = true_epsilon.RON_MEAN * self.epsilon

        def run_once(run: int) -> Scores:
            generator = self.generator(run, "projection")
            found = ron_supervised(self.ball, self.targets, self.dimension, mean, epsilon - mean, generator)
            return self.score_draw(*found, self.ball_test, run)

        return run_once

    def ron_published(self, run: int) -> Scores:
        """Run RON-Gauss as published."""
        generator = self.generator(run, "projection")
        found = published_ron_supervised(self.ball, self.targets, self.dimension, self.epsilon, generator)
        return self.score_draw(*found, self.ball_test, run)

    def pca(self, source: Source, epsilon: float) -> Run:
        """Return PCA-Gauss, corrected, along components of a source."""

        def run_once(run: int) -> Scores:
            found = pca_gauss(source, joint_gaussian, self.cube, self.targets, self.dimension, epsilon)
            return self.score_draw(*found, self.cube_test, run)

        return run_once

    def pca_published(self, source: Callable[..., Components]) -> Run:
        """Return PCA-Gauss as published, along components of a source that takes a generator."""

        def run_once(run: int) -> Scores:
            generator = self.generator(run, "published")
            start, model = partial(source, generator=generator), partial(published_joint, generator=generator)
            found = pca_gauss(start, model, self.cube, self.targets, self.dimension, self.epsilon)
            return self.score_draw(*found, self.cube_test, run)

        return run_once

    def local(self, make: Callable[..., tuple[Floats, Floats]]) -> Run:
        """Return a baseline that releases noisy rows."""

        def run_once(_: int) -> Scores:
            rows, numbers = make(self.cube[:SYNTHETIC], self.targets[:SYNTHETIC], self.epsilon)
            return error(rows, numbers, self.cube_test, self.truth)

        return run_once

    def local_public(self, _: int) -> Scores:
        """Run the baseline that releases noisy rows along components of public rows."""
        public = public_rows(self.cube)
        private = slice(public.stop, public.stop + SYNTHETIC)
        mine, others = ((self.cube[part], self.targets[part]) for part in (private, public))
        rows, numbers = public_pca_targets(mine, others, self.epsilon)
        return error(rows, numbers, self.cube_test, self.truth)


def experiment(data: Dataset, epsilon: float) -> Experiment:
    """Return the experiment on a data set at a claimed epsilon."""
    both = data.train, data.test
    cube, cube_test = (data.features(frame) for frame in both)
    ball, ball_test = (encoded(data, frame) for frame in both)
    targets, truth = (data.outcomes(frame) for frame in both)
    return Experiment(data, epsilon, cube, cube_test, ball, ball_test, targets, truth)


def real_methods(work: Experiment) -> list[Method]:
    """Return the rows that are not private."""
    return [
        Method("real data", "", "", work.real(slice(SYNTHETIC)), once=True),
        Method("real public rows only", "", "", work.real(public_rows(work.cube)), once=True),
        Method("uniform guess", "", "", work.guess),
        Method("the mean, always", "", "", work.middle, once=True),
    ]


def main_methods(work: Experiment) -> tuple[list[Method], list[Pair]]:
    """Return the rows of the two papers' methods, and the library's."""
    epsilon, claim = work.epsilon, f"{work.epsilon:g}"
    ron_truth = true_epsilon.ron_gauss_supervised(work.dimension, 1.0, epsilon)
    at_ron = f"{ron_truth:.3g}"
    methods = [
        Method("library, auto", claim, claim, work.library()),
        Method("RON-Gauss, corrected", claim, claim, work.ron(epsilon)),
        Method("RON-Gauss, published, refuted", claim, at_ron, work.ron_published),
        Method(f"RON-Gauss, corrected at {at_ron}", at_ron, at_ron, work.ron(ron_truth)),
    ]
    pairs = [Pair(f"RON-Gauss, corrected at {at_ron}", "RON-Gauss, published, refuted")]
    lap = true_epsilon.lap_pca(work.cube.shape[1], PCA_SHARE * epsilon)
    rest = true_epsilon.pca_gauss_supervised(work.dimension, (1 - PCA_SHARE) * epsilon)
    alone = true_epsilon.pca_gauss_supervised(work.dimension, epsilon)
    for found in (
        _three(work, "Lap-PCA", private_components, published_lap_pca, lap + rest, refuted=True),
        _three(work, "Pub-PCA", public_components, published_public, alone, refuted=False),
    ):
        methods, pairs = [*methods, *found[0]], [*pairs, found[1]]
    return methods, pairs


def _three(
    work: Experiment, name: str, source: Source, theirs: Callable[..., Components], truth: float, *, refuted: bool
) -> tuple[list[Method], Pair]:
    """Return PCA-Gauss along components of one source: corrected, as published, and corrected at the true epsilon."""
    delta = f", {DELTA:.0e}".replace("e-0", "e-") if source is gaussian_components else ""
    claim, at = f"{work.epsilon:g}", f"{truth:.3g}"
    stated = f"({claim}{delta})" if delta else claim
    ours, published = f"PCA-Gauss, {name}, corrected at {at}", f"PCA-Gauss, {name}, published"
    published += ", refuted" if refuted else ""
    methods = [
        Method(f"PCA-Gauss, {name}, corrected", stated, claim, work.pca(source, work.epsilon)),
        Method(published, stated, at, work.pca_published(theirs)),
        Method(ours, f"({at}{delta})" if delta else at, at, work.pca(source, truth)),
    ]
    return methods, Pair(ours, published)


def further_methods(work: Experiment) -> tuple[list[Method], list[Pair]]:
    """Return the other rows: more sources of components, more of the library, baselines."""
    epsilon, claim = work.epsilon, f"{work.epsilon:g}"
    ag = true_epsilon.analyze_gauss(PCA_SHARE * epsilon, DELTA)
    rest = true_epsilon.pca_gauss_supervised(work.dimension, (1 - PCA_SHARE) * epsilon)
    methods, pair = _three(work, "AG-PCA", gaussian_components, published_ag_pca, ag + rest, refuted=False)
    methods += [
        Method("PCA-Gauss, rows set aside, corrected", claim, claim, work.pca(components_set_aside, epsilon)),
        Method("library, auto, with a delta", f"({claim}, 1e-5)", claim, work.library(delta=DELTA)),
        Method("library, one Gaussian", claim, claim, work.library(generator="supervised")),
        Method("Liu, corrected", claim, claim, work.library(mechanism="laplace", generator="supervised")),
        Method("Li et al., Bernoulli rows, corrected", f"{claim}, local", claim, work.local(bernoulli_targets)),
        Method("Jiang et al., PCA rows, corrected", f"{claim}, local", claim, work.local(jiang_targets)),
        Method("Jiang et al., Pub-PCA rows", f"{claim}, local", claim, work.local_public),
    ]
    return methods, [pair]


def run_set(name: str, data: Dataset, runs: int) -> bool:
    """Run one data set at both epsilons; return whether no corrected mechanism is worse."""
    start = f"{name}: {len(data.train):,} training rows, {len(data.test):,} test rows, RMSE (less is better), ε = "
    work = experiment(data, EPSILON)
    real, (main_rows, pairs), (more, more_pairs) = real_methods(work), main_methods(work), further_methods(work)
    methods, pairs = [*real, *main_rows, *more], [*pairs, *more_pairs]
    found = run_all(methods, runs)
    where, title = f"papers/regression_{name}", f"{start}{EPSILON:g}"
    good = report(where, title, methods, found, pairs, printed=PRINTED, less_is_better=True)
    larger, pairs = main_methods(replace(work, epsilon=LARGER))
    found = {method.name: found[method.name] for method in real} | run_all(larger, runs)
    where, title = f"{where}_{LARGER:g}", f"{start}{LARGER:g}"
    return report(where, title, [*real, *larger], found, pairs, less_is_better=True) and good


def main() -> int:
    """Run the benchmark."""
    asked = arguments(__doc__, sets=tuple(ROWS))
    good = []
    for name in asked.sets:
        train, test = (None, None) if asked.full else (2_000, 500) if asked.quick else ROWS[name]
        good.append(run_set(name, load(name, train_rows=train, test_rows=test), asked.runs))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
