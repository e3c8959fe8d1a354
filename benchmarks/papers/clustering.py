"""RON-Gauss's and PCA-Gauss's clustering experiment: K-means on private rows of gfe's 300 coordinates.

    python -m benchmarks.papers.clustering [--runs N] [--quick] [--full]

`real rows`: centres are fitted on the private rows, held-out real rows are assigned to the nearest centre in
the coordinates of the release, and the silhouette of that partition is computed over the real rows in all 300,
for K = 4 as in RON-Gauss and for K = 2. `own rows`: the papers' score, the silhouette of the private rows in
their own coordinates; fewer dimensions raise it for any data, so it is not used to compare methods.
`spectrum` is 1 minus the relative error of the released eigenvalues, for Algorithm 1 of PCA-Gauss. It does not
release the components, so no real row can be assigned; it is run on the 60 coordinates of every fifth point,
because certified eigenvalues take a minute at 300. Components that are released (Pub-PCA, from the first 5 % of the
training rows, which are then public; Lap-PCA, AG-PCA, rows set aside) let real rows be assigned, though the paper
runs them for supervised learning only; the Gaussian along them has its mean in the same measurement. All at epsilon 1,
the papers' own methods at epsilon 3 as well, replace-one, 8 dimensions.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score

from benchmarks.common import Floats, arguments, run_seed
from benchmarks.datasets import Dataset, load
from benchmarks.papers import epsilon as true_epsilon
from benchmarks.papers.methods import (
    RELATION,
    Gaussians,
    encoded,
    gram_of,
    laplace_level,
    library_rows,
    published_ron_unsupervised,
    pure,
    repaired,
    ron_unsupervised,
)
from benchmarks.papers.pca_gauss import (
    DELTA,
    PCA_SHARE,
    Components,
    components_set_aside,
    gaussian_components,
    one_gaussian,
    pca_gauss,
    private_components,
    public_components,
    public_rows,
    published_ag_pca,
)
from benchmarks.papers.table import Method, Pair, Printed, Scores, report, run_all
from dpcore.estimators.local_rows import BernoulliRows, JiangPca
from dpcore.measure import measure_gram
from dpcore.mechanisms.eigenvalues import EIGENVALUES
from dpcore.noise.sources import SystemNoise, public_generator
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import RecordSchema, Role

EPSILON, LARGER = 1.0, 3.0
CLUSTERS, FEWER, DIMENSION = 4, 2, 8
SYNTHETIC, JUDGED = 4_000, 2_000
"""Number of private rows, and of held-out real rows that are scored."""

EVERY = 5
"""Algorithm 1 uses the coordinates of every fifth point."""

REAL, REAL_FEWER, OWN, SPECTRUM = "real rows, K = 4", "real rows, K = 2", "own rows", "spectrum"

PRINTED = (
    Printed("000, Table II", "real data", ".286"),
    Printed("000, Table II", "PCA-Gauss, ε = 1", ".220 ± .003"),
    Printed("001, Table 3", "RON-Gauss, ε = 1 (refuted)", ".274 ± .015"),
    Printed("001, Table 3", "Li et al., Bernoulli rows, ε = 1", ".123 ± .000"),
    Printed("001, Table 3", "Jiang et al., PCA rows, ε = 1", ".123 ± .000"),
    Printed("001, Table 3", "Blum et al., exponential mechanism, ε = 1", ".026 ± .017"),
    Printed("001, Table 3", "Liu, Gaussian in all dimensions, ε = 1", ".092 ± .001"),
    Printed("000, Table II", "Blocki et al. adapted, (1, 1/N)", ".003 ± .000"),
)
Run = Callable[[int], Scores]


def without_label(data: Dataset) -> Dataset:
    """Return the data set without its label, since clusters are found in the coordinates alone."""
    columns = tuple(column for column in data.schema.columns if column.role is not Role.LABEL)
    return replace(data, schema=RecordSchema(columns))


def silhouettes(rows: Floats, real: Floats, judged: Floats, run: int) -> Scores:
    """Return all silhouettes; `rows` are private, `real` the held-out rows in the same coordinates, `judged` in all."""
    clusters, fewer = (_clusters(rows, k, run) for k in (CLUSTERS, FEWER))
    return {
        REAL: _silhouette(judged, clusters.predict(real)),
        REAL_FEWER: _silhouette(judged, fewer.predict(real)),
        OWN: _silhouette(rows[:JUDGED], clusters.labels_[:JUDGED]),
    }


def real_silhouette(rows: Floats, real: Floats, judged: Floats, clusters: int, run: int) -> float:
    """Return the silhouette of the held-out rows alone, for some number of clusters."""
    return _silhouette(judged, _clusters(rows, clusters, run).predict(real))


def _clusters(rows: Floats, count: int, run: int) -> KMeans:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # noise has made all rows equal
        return KMeans(count, n_init=4, random_state=run).fit(rows)


def _silhouette(rows: Floats, labels: np.ndarray) -> float:
    """Return the mean silhouette, and 0 if there is only one cluster."""
    return float(silhouette_score(rows, labels)) if len(np.unique(labels)) > 1 else 0.0


def spectrum_score(found: Floats, exact: Floats) -> Scores:
    """Return 1 minus the relative error of the eigenvalues in the L1 norm."""
    return {SPECTRUM: 1 - float(np.abs(found - exact).sum() / exact.sum())}


@dataclass(frozen=True, slots=True)
class Experiment:
    """The rows of gfe in all coordinates (`cube`) and in those of the unit ball, at a claimed epsilon."""

    data: Dataset
    epsilon: float
    cube: Floats
    ball: Floats
    judged: Floats
    ball_judged: Floats

    def generator(self, run: int, purpose: str) -> np.random.Generator:
        """Return a generator with the public seed of a run."""
        return public_generator(run_seed("gfe", run), purpose)

    def real(self, rows: slice) -> Run:
        """Return centres of some of the real rows."""
        return lambda run: silhouettes(self.cube[rows], self.judged, self.judged, run)

    def library(self, **options: Any) -> Run:
        """Return a release by the library."""

        def run_once(run: int) -> Scores:
            seed = run_seed("gfe", run)
            frame = library_rows(self.data, epsilon=self.epsilon, rows=SYNTHETIC, seed=seed, **options)
            return silhouettes(self.data.features(frame), self.judged, self.judged, run)

        return run_once

    def score_draw(self, space: Callable[[Floats], Floats], model: Gaussians, real: Floats, run: int) -> Scores:
        """Return the silhouettes by centres of rows drawn from a Gaussian."""
        points, _ = model.sample(SYNTHETIC, self.generator(run, "sampling"))
        return silhouettes(points, space(real), self.judged, run)

    def ron(self, epsilon: float) -> Run:
        """Return RON-Gauss, corrected; the mean has the paper's share of the claimed epsilon."""
        mean = true_epsilon.RON_MEAN * self.epsilon

        def run_once(run: int) -> Scores:
            generator = self.generator(run, "projection")
            found = ron_unsupervised(self.ball, DIMENSION, mean, epsilon - mean, generator)
            return self.score_draw(*found, self.ball_judged, run)

        return run_once

    def ron_published(self, run: int) -> Scores:
        """Run RON-Gauss as published."""
        generator = self.generator(run, "projection")
        found = published_ron_unsupervised(self.ball, DIMENSION, self.epsilon, generator)
        return self.score_draw(*found, self.ball_judged, run)

    def pca(self, source: Callable[..., Components], epsilon: float, **noise: str) -> Run:
        """Return one Gaussian along components of a source; a published source takes a generator for this purpose."""

        def run_once(run: int) -> Scores:
            seeded = {name: self.generator(run, purpose) for name, purpose in noise.items()}
            nothing = np.zeros(len(self.cube), dtype=np.int64)
            found = pca_gauss(partial(source, **seeded), one_gaussian, self.cube, nothing, DIMENSION, epsilon)
            return self.score_draw(*found, self.judged, run)

        return run_once

    def local(self, make: type[BernoulliRows] | type[JiangPca]) -> Run:
        """Return a baseline that releases noisy rows."""

        def run_once(run: int) -> Scores:
            model = make(epsilon=self.epsilon, bounds=(-1.0, 1.0), n_components=2).fit(self.cube[:SYNTHETIC])
            return silhouettes(model.rows_, self.judged, self.judged, run)

        return run_once


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Algorithm 1 of PCA-Gauss on some coordinates, points of the unit ball, with their exact leading eigenvalues."""

    points: Floats
    exact: Floats
    epsilon: float

    def score(self, covariance: Floats, run: int) -> Scores:
        """Return the silhouette of drawn rows in their own coordinates, and how near the spectrum is."""
        model = Gaussians(np.ones(1), np.zeros((1, DIMENSION)), covariance[None])
        points, _ = model.sample(SYNTHETIC, public_generator(run_seed("gfe", run), "sampling"))
        values = np.sort(np.linalg.eigvalsh(covariance))[::-1]
        own = silhouettes(points, points[:JUDGED], points[:JUDGED], run)[OWN]
        return {OWN: own, **spectrum_score(values, self.exact)}

    def corrected(self, epsilon: float) -> Run:
        """Return Algorithm 1 with the noise that eigenvalues need."""

        def run_once(run: int) -> Scores:
            layout = GramLayout(self.points.shape[1] + 1, 1, Fraction(1))  # the head is not measured
            event = EIGENVALUES.calibrate(layout, RELATION, pure(epsilon), components=DIMENSION)
            values = measure_gram(gram_of(self.points, layout), event, SystemNoise()).spectrum() / len(self.points)
            return self.score(np.diag(np.maximum(values, 0.0)), run)

        return run_once

    def published(self, run: int) -> Scores:
        """Run Algorithm 1 as published."""
        scale = DIMENSION / (len(self.points) * self.epsilon)
        noise = public_generator(run_seed("gfe", run), "published").laplace(scale=scale, size=(DIMENSION, DIMENSION))
        return self.score(repaired(np.diag(self.exact) + noise, laplace_level(scale, DIMENSION)), run)


def experiment(data: Dataset, epsilon: float) -> Experiment:
    """Return the experiment at a claimed epsilon."""
    cube, judged = data.features(data.train), data.features(data.test)[:JUDGED]
    ball, ball_judged = encoded(data, data.train), encoded(data, data.test)[:JUDGED]
    return Experiment(data, epsilon, cube, ball, judged, ball_judged)


def spectrum_of(cube: Floats, epsilon: float) -> Spectrum:
    """Return Algorithm 1's experiment on the coordinates of every fifth point."""
    rows = len(cube)
    some = cube.reshape(rows, -1, 3)[:, ::EVERY].reshape(rows, -1)
    points = some / math.sqrt(some.shape[1])
    exact = np.linalg.eigvalsh(points.T @ points / rows)[::-1][:DIMENSION].astype(np.float64)
    return Spectrum(points, exact, epsilon)


def main_methods(work: Experiment) -> tuple[list[Method], list[Pair]]:
    """Return the rows of the two papers' methods, and the library's."""
    epsilon, claim = work.epsilon, f"{work.epsilon:g}"
    first = spectrum_of(work.cube, epsilon)
    ron_truth, pca_truth = true_epsilon.ron_gauss(DIMENSION, epsilon), true_epsilon.pca_gauss(DIMENSION, epsilon)
    at_ron, at_pca, one = f"{ron_truth:.2f}", f"{pca_truth:g}", "PCA-Gauss, Algorithm 1"
    methods = [
        Method("library, auto", claim, claim, work.library()),
        Method("RON-Gauss, corrected", claim, claim, work.ron(epsilon)),
        Method("RON-Gauss, published, refuted", claim, at_ron, work.ron_published),
        Method(f"RON-Gauss, corrected at {at_ron}", at_ron, at_ron, work.ron(ron_truth)),
        Method(f"{one}, corrected", claim, claim, first.corrected(epsilon)),
        Method(f"{one}, published", claim, at_pca, first.published),
        Method(f"{one}, corrected at {at_pca}", at_pca, at_pca, first.corrected(pca_truth)),
        Method("PCA-Gauss, Pub-PCA, corrected", claim, claim, work.pca(public_components, epsilon)),
    ]
    pairs = [
        Pair(f"RON-Gauss, corrected at {at_ron}", "RON-Gauss, published, refuted", (REAL, REAL_FEWER)),
        Pair(f"{one}, corrected at {at_pca}", f"{one}, published", (SPECTRUM,)),
    ]
    return methods, pairs


def further_methods(work: Experiment) -> tuple[list[Method], list[Pair]]:
    """Return the other rows: more sources of components, the library with a delta, baselines."""
    epsilon, claim = work.epsilon, f"{work.epsilon:g}"
    truth = true_epsilon.analyze_gauss(PCA_SHARE * epsilon, DELTA) + (1 - PCA_SHARE) * epsilon
    at, ag = f"{truth:.3g}", "PCA-Gauss, AG-PCA"
    theirs = f"{ag}, published components"
    methods = [
        Method("PCA-Gauss, Lap-PCA, corrected", claim, claim, work.pca(private_components, epsilon)),
        Method(f"{ag}, corrected", f"({claim}, 1e-5)", claim, work.pca(gaussian_components, epsilon)),
        Method(theirs, f"({claim}, 1e-5)", at, work.pca(published_ag_pca, epsilon, generator="published")),
        Method(f"{ag}, corrected at {at}", f"({at}, 1e-5)", at, work.pca(gaussian_components, truth)),
        Method("PCA-Gauss, rows set aside, corrected", claim, claim, work.pca(components_set_aside, epsilon)),
        Method("library, auto, with a delta", f"({claim}, 1e-5)", claim, work.library(delta=DELTA)),
        Method("Liu, corrected", claim, claim, work.library(mechanism="laplace", generator="gaussian")),
        Method("Li et al., Bernoulli rows, corrected", f"{claim}, local", claim, work.local(BernoulliRows)),
        Method("Jiang et al., PCA rows, corrected", f"{claim}, local", claim, work.local(JiangPca)),
    ]
    return methods, [Pair(f"{ag}, corrected at {at}", theirs, (REAL, REAL_FEWER))]


def main() -> int:
    """Run the benchmark."""
    asked = arguments(__doc__)
    data = without_label(load("gfe", train_rows=2_000 if asked.quick else None))
    title = f"gfe: {len(data.train):,} training rows, 300 coordinates, silhouettes, ε = "
    work = experiment(data, EPSILON)
    real = [
        Method("real data", "", "", work.real(slice(SYNTHETIC))),
        Method("real public rows only", "", "", work.real(public_rows(work.cube))),
    ]
    (main_rows, pairs), (more, more_pairs) = main_methods(work), further_methods(work)
    methods, pairs = [*real, *main_rows, *more], [*pairs, *more_pairs]
    found = run_all(methods, asked.runs)
    good = report("papers/clustering", f"{title}{EPSILON:g}", methods, found, pairs, printed=PRINTED)
    larger, pairs = main_methods(replace(work, epsilon=LARGER))
    found = {method.name: found[method.name] for method in real} | run_all(larger, asked.runs)
    where = f"papers/clustering_{LARGER:g}"
    return 0 if report(where, f"{title}{LARGER:g}", [*real, *larger], found, pairs) and good else 1


if __name__ == "__main__":
    sys.exit(main())
