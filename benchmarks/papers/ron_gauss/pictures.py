"""Figure 3 of RON-Gauss (001): handwritten digits drawn from the model, without noise and as epsilon grows.

    python -m benchmarks.papers.ron_gauss.pictures [--runs N] [--quick] [--full]

Algorithm 5 on mnist: pictures are scaled to length 1, projected on random orthonormal directions, and every digit
gets a Gaussian of its own; pictures that are drawn from it are lifted back to 784 pixels. The paper uses 392
dimensions and no noise (epsilon to infinity), and reports that digits fade below 100 dimensions. Here the class
blocks are also measured with Gaussian noise at the true scale (replace-one, delta 1e-5), from epsilon 1 on.
`LR` is the accuracy on real test pictures of logistic regression that is trained on 2,000 drawn ones; at most three
runs.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from benchmarks.common import Floats, arguments, progress, results_file, run_seed, show, summary, write_results
from benchmarks.datasets import load
from benchmarks.papers.methods import Gaussians, gaussian, measure_points, moments_of, unit_length
from dpcore.measurements.projection import haar_basis
from dpcore.noise.sources import public_generator

SIDE, CLASSES = 28, 10
DIMENSION = 392
FEWER = (25, 50, 100, 196)
EPSILONS = (1.0, 10.0, 100.0, 1000.0)
DELTA = 1e-5
DRAWN, TESTED, SHOWN, MOST_RUNS = 2_000, 2_000, 2, 3
"""Pictures that a model is trained and tested on, pictures of each digit that are shown, and runs."""

Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the figure: a dimension, and an epsilon or none."""

    dimension: int
    epsilon: float | None

    @property
    def name(self) -> str:
        """The setting as table and figure name it."""
        noise = "without noise" if self.epsilon is None else f"epsilon {self.epsilon:g}"
        return f"{self.dimension} dimensions, {noise}"


SETTINGS = (
    *(Setting(DIMENSION, epsilon) for epsilon in EPSILONS),
    *(Setting(dimension, None) for dimension in (DIMENSION, *reversed(FEWER))),
)


def brightness(cube: Floats) -> Floats:
    """Return pictures in [-1, 1] as points of length 1, with black as the origin."""
    return unit_length((cube + 1) / 2)


def class_model(points: Floats, labels: Codes, epsilon: float | None) -> Gaussians:
    """Return a Gaussian for every digit, from exact moments or from class blocks with noise."""
    if epsilon is not None:
        budget = gaussian(epsilon, DELTA)
        return moments_of(measure_points(points, budget, mechanism="gaussian", classes=labels, class_count=CLASSES))
    groups = [points[labels == label] for label in range(CLASSES)]
    return Gaussians(
        np.array([len(group) for group in groups]) / len(points),
        np.array([group.mean(axis=0) for group in groups]),
        np.array([np.cov(group.T, bias=True) for group in groups]),
    )


def draw_pictures(setting: Setting, pictures: Floats, labels: Codes, run: int) -> tuple[Floats, Codes]:
    """Return drawn pictures of length 1 with their digits."""
    basis = haar_basis(SIDE**2, setting.dimension, public_generator(run_seed("pictures", run), "projection"))
    model = class_model(pictures @ basis, labels, setting.epsilon)
    points, digits = model.sample(DRAWN, public_generator(run_seed("pictures", run), "sampling"))
    return points @ basis.T, digits


def accuracy(drawn: Floats, digits: Codes, test: Floats, truth: Codes) -> float:
    """Return the accuracy on real pictures of logistic regression trained on drawn ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(max_iter=100).fit(10 * drawn, digits)
    return float(np.mean(model.predict(10 * test) == truth))


def write_pictures(shown: dict[str, tuple[Floats, Codes]]) -> None:
    """Write a PNG with a line of drawn digits for each setting."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.7 * len(shown)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, (drawn, digits)) in zip(figure.subplots(len(shown), 1), shown.items(), strict=True):
        some = [drawn[digits == digit][:SHOWN] for digit in range(CLASSES)]
        filled = [np.vstack([part, np.zeros((SHOWN - len(part), SIDE**2))]) for part in some]
        tiles = np.maximum(np.concatenate(filled), 0.0).reshape(-1, SIDE, SIDE)
        tiles = tiles / np.maximum(tiles.max(axis=(1, 2), keepdims=True), 1e-9)
        axes.imshow(np.hstack(list(tiles)), cmap="gray_r", aspect="equal")
        axes.set_title(name, fontsize=8, loc="left")
        axes.axis("off")
    figure.savefig(results_file("papers/pictures.png"), dpi=130)


def main() -> int:
    """Run the benchmark."""
    asked = arguments(__doc__)
    settings = SETTINGS[-2:] if asked.quick else SETTINGS
    data = load("mnist", train_rows=2_000 if asked.quick else None, test_rows=TESTED)
    pictures, labels = brightness(data.features(data.train)), data.outcomes(data.train)
    test, truth = brightness(data.features(data.test)), data.outcomes(data.test)
    runs = min(asked.runs, MOST_RUNS)
    scores: dict[str, list[float]] = {setting.name: [] for setting in settings}
    shown = {}
    for setting in progress(settings, "pictures"):
        for run in range(runs):
            drawn = draw_pictures(setting, pictures, labels, run)
            scores[setting.name].append(accuracy(*drawn, test, truth))
            shown.setdefault(setting.name, drawn)
    real = accuracy(pictures[:DRAWN], labels[:DRAWN], test, truth)
    title = f"mnist: {len(pictures):,} training pictures; accuracy of LR on real test pictures, {runs} runs"
    columns, rows = ["pictures from", "LR"], [["real data, as many", f"{real:.3f}"]]
    rows += [[f"RON-Gauss, {name}", str(summary(values))] for name, values in scores.items()]
    show(title, columns, rows)
    write_results("papers/pictures", {"title": title, "columns": columns, "rows": rows})
    write_pictures(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
