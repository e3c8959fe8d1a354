"""MNIST: logistic regression on decoded synthetic pictures, tested on real ones, and the pictures themselves.

    python -m benchmarks.mnist [--runs 10] [--quick] [--fresh]

Every release measures the 60,000 training pictures anew with the real mechanisms, under replace-one, and draws
20,000 synthetic ones; LR is LogisticRegression(max_iter=300) on all 784 pixels in [-1, 1], tested on the 10,000
test pictures. Finished runs are stored, so the benchmark can be run in parts; `--fresh` starts again.

`library`: generator and frame by the library's own rules, no projection. With pure epsilon the noise on
784 coordinates hides their whole covariance, so fewer are measured: random directions (RON-Gauss), or public smooth
ones, the principal components of a Gaussian process on the pixels with a length scale of 2 (no real picture is used).
`without noise` is the same release at epsilon 10^6. It shows what the model can reach in these dimensions: the gap
to the real pictures is due to the model, the gap below it to the noise.
benchmarks.numeric describes how the estimators and their constants were chosen; dimensions and length scale were
chosen on training pictures, 10,000 of them held out.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.common import RESULTS, ROOT, Curve, Floats, run_seed, show, write_plot, write_results
from benchmarks.datasets import Dataset, load
from benchmarks.repeated import Runs, Scores
from dpcore.estimators.moment_mixture import MomentMixture
from dpcore.estimators.ron_gauss import RonGauss
from dpcore.measurements.projection import Projection, principal_projection

SIDE, CLASSES = 28, 10
SYNTHETIC = 20_000
LENGTH = 2.0
"""Length scale of the Gaussian process, in pixels."""

NO_NOISE = 1e6
"""An epsilon at which the noise is negligible."""

PRINTED = (("class blocks on 64 private components, sketch", "1, 1e-06", ".82", ""),)
"""A figure of another library, measured once."""


class SmoothPictures(MomentMixture):
    """Moments along public smooth directions."""

    projection_kind: ClassVar[str] = "public-pca"

    def _public_projection(self) -> Projection:
        """Principal components of a Gaussian process on the pixels' grid."""
        place = np.stack(np.divmod(np.arange(SIDE**2), SIDE), axis=1)
        squared = ((place[:, None] - place) ** 2).sum(axis=2)
        return principal_projection(
            self.projection_kind,
            self.encoding_,
            mean=np.zeros(SIDE**2),
            covariance=np.exp(-squared / (2 * LENGTH**2)),
            dimension=self.plan_.dimension,
        )


@dataclass(frozen=True, slots=True)
class Release:
    """One row of the table."""

    name: str
    kind: type[MomentMixture]
    delta: float
    dimension: int | None = None
    epsilon: float = 1.0

    @property
    def privacy(self) -> str:
        """The privacy parameters as the table shows them."""
        return "without noise" if self.epsilon == NO_NOISE else f"{self.epsilon:g}, {self.delta:g}"

    def model(self, data: Dataset, seed: str) -> MomentMixture:
        """Return the estimator, not yet fitted."""
        options: dict[str, Any] = {} if self.dimension is None else {"n_components": self.dimension}
        return self.kind(
            epsilon=Fraction(self.epsilon),
            delta=self.delta,
            bounds=(-1.0, 1.0),
            classes=list(range(CLASSES)),
            expected_rows=len(data.train),
            generator="lda",
            radius="auto",
            random_state=seed,
            **options,
        )


MAIN = (
    Release("library, all pixels", MomentMixture, 1e-6),
    Release("smooth, 64 dimensions", SmoothPictures, 0.0, 64),
    Release("random, 64 dimensions", RonGauss, 0.0, 64),
)
DIMENSIONS = (16, 32, 128)
ANALYSIS = tuple(
    Release(f"{word}, {dimension} dimensions", kind, 0.0, dimension)
    for word, kind in (("smooth", SmoothPictures), ("random", RonGauss))
    for dimension in DIMENSIONS
)
CEILINGS = (
    Release("library, all pixels, no noise", MomentMixture, 1e-6, None, NO_NOISE),
    Release("smooth, 64 dimensions, no noise", SmoothPictures, 0.0, 64, NO_NOISE),
    Release("random, 64 dimensions, no noise", RonGauss, 0.0, 64, NO_NOISE),
)
REAL = "real pictures, as many"
FEW = 3
"""Number of runs of releases that serve the analysis only."""


def accuracy(data: Dataset, rows: Floats, classes: np.ndarray) -> float:
    """Return the accuracy of LR on the real test pictures."""
    model = LogisticRegression(max_iter=300).fit(rows, classes)
    return float(model.score(data.features(data.test), data.outcomes(data.test)))


def release_pictures(data: Dataset, release: Release, seed: str, rows: int) -> tuple[Floats, np.ndarray, MomentMixture]:
    """Make one release and return its synthetic pictures, their classes, and the model."""
    model = release.model(data, seed).fit(data.features(data.train), data.outcomes(data.train))
    pictures, classes = model.sample(rows)
    return pictures, classes, model


def run_once(data: Dataset, release: Release, run: int) -> Scores:
    """Make one release and return the accuracy of LR trained on it."""
    pictures, classes, model = release_pictures(data, release, run_seed("mnist", run), SYNTHETIC)
    return {"LR": accuracy(data, pictures, classes), "radius": model.projection_.frame.radius}


def draw_pictures(data: Dataset, name: str) -> None:
    """Draw real and synthetic pictures, one column per class."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = [("real", data.features(data.train), data.outcomes(data.train))]
    for release in MAIN:
        pictures, classes, _ = release_pictures(data, release, run_seed("mnist", 0), 2_000)
        groups.append((f"{release.name}\n({release.privacy})", pictures, classes))
    each = 3
    figure = Figure(figsize=(CLASSES * 0.8 + 2, len(groups) * each * 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(groups) * each, CLASSES)
    for group, (title, pictures, classes) in enumerate(groups):
        for digit in range(CLASSES):
            for row, picture in enumerate(pictures[classes == digit][:each]):
                axis = axes[group * each + row, digit]
                axis.imshow(picture.reshape(SIDE, SIDE), cmap="gray", vmin=-1, vmax=1)
                axis.set_xticks([])
                axis.set_yticks([])
                if digit == 0 and row == each // 2:
                    axis.set_ylabel(title, rotation=0, ha="right", va="center", fontsize=8)
    path = RESULTS / f"{name}_pictures.png"
    figure.savefig(path, dpi=90)
    print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)


def draw_dimensions(runs: Runs) -> None:
    """Plot the accuracy against the dimension at pure epsilon 1."""
    curves = []
    for word in ("smooth", "random"):
        known = [r for r in (*MAIN, *ANALYSIS) if r.name.startswith(word) and r.name in runs.scores]
        known.sort(key=lambda release: release.dimension or 0)
        x, y = [float(r.dimension or 0) for r in known], [runs.summaries(r.name, ["LR"])["LR"] for r in known]
        curves.append(Curve(word, x, y))
    write_plot("mnist", {"mnist, pure epsilon 1, replace-one": curves}, x="dimension", y="LR on real test pictures")


def main() -> None:
    """Run what is missing, print the table, write the figures and draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="independent releases of each main row (10)")
    parser.add_argument("--quick", action="store_true", help="one run of the main rows on 6,000 pictures")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    asked = parser.parse_args()
    data = load("mnist", train_rows=6_000 if asked.quick else None)
    runs = Runs("mnist_quick" if asked.quick else "mnist", fresh=asked.fresh or asked.quick)
    x, y = data.features(data.train)[:SYNTHETIC], data.outcomes(data.train)[:SYNTHETIC]
    runs.add(REAL, 1, lambda _: {"LR": accuracy(data, x, y)})
    rows: list[tuple[object, ...]] = [(REAL, "", runs.summaries(REAL, ["LR"])["LR"], "")]
    releases = MAIN if asked.quick else (*MAIN, *ANALYSIS, *CEILINGS)
    for release in releases:
        wanted = 1 if asked.quick else asked.runs if release in MAIN else min(FEW, asked.runs)
        runs.add(release.name, wanted, lambda run, release=release: run_once(data, release, run))
        found = runs.summaries(release.name, ["LR"])
        rows.append((release.name, release.privacy, found["LR"], f"{runs.seconds(release.name):.0f}"))
    columns = ("pictures from", "epsilon, delta", "LR", "seconds")
    show("mnist: accuracy on 10,000 real test pictures", columns, [*rows, *PRINTED])
    write_results(runs.name, {release.name: runs.summaries(release.name, ["LR", "radius"]) for release in releases})
    if not asked.quick:
        draw_dimensions(runs)
    draw_pictures(data, runs.name)


if __name__ == "__main__":
    main()
