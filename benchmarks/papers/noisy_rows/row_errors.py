"""Figure 2 of Jiang et al. (002): the squared error of noisy rows of adult over k components and six epsilons.

    python -m benchmarks.papers.noisy_rows.row_errors [--runs N] [--quick] [--full]

Rows of adult in the paper's coordinates, numbers in [0, 1] and indicators of categories, are released with noise
along k = 1 to 10 components. Half of epsilon measures the components from all training rows, and the other half
releases 400 of them; the error is the mean squared distance from the true row. The baselines release all
coordinates of a row: Laplace noise on raw cells at the true sensitivity, and the exponential mechanism that
prefers outputs near the row in the L1 norm, which draws every coordinate from a truncated Laplace law. Both are
simulated. `published` measures the components with the paper's calibration for categories, which is refuted.
Rows are compared before categories are decoded, as released and clamped to [0, 1]. Student's t-test over runs
compares each k with the baselines.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy import stats

from benchmarks.common import Curve, Floats, arguments, progress, run_seed, show, summary, write_plot, write_results
from benchmarks.datasets import Dataset, load
from benchmarks.papers.methods import pure
from benchmarks.papers.noisy_rows.jiang_pca import (
    column_counts,
    narrowed,
    noisy_moments,
    published_moments,
    unit_points,
)
from dpcore.estimators.local_rows import RowBasis, publish_rows
from dpcore.mechanisms.vectors import UnitCoordinates
from dpcore.noise.sources import SystemNoise, public_generator
from dpcore.records.encoding import Encoding
from dpcore.synthesis.jiang_greedy import PooledMoments

EPSILONS = (0.1, 0.25, 0.5, 1.0, 1.25, 1.5)
COMPONENTS = tuple(range(1, 11))
RELEASED = 400
"""Number of rows whose noisy version is compared."""

CORRECTED = "differential PCA, corrected"
LAPLACE, EXPONENTIAL = "Laplace noise on raw cells", "exponential mechanism on raw cells"
SIGNIFICANT = 0.01
"""The paper's level of significance."""


def laplace_cells(
    rows: Floats, numeric: int, categorical: int, epsilon: float, generator: np.random.Generator
) -> Floats:
    """Return rows with Laplace noise: a record moves numbers by at most 1 and a category's indicators by 2."""
    return rows + generator.laplace(scale=(numeric + 2 * categorical) / epsilon, size=rows.shape)


def exponential_cells(
    rows: Floats, numeric: int, categorical: int, epsilon: float, generator: np.random.Generator
) -> Floats:
    """Return draws from the exponential mechanism over [0, 1]^p whose utility is minus the L1 distance from the row.

    The utility moves by at most the L1 diameter D of the rows, so the density is exp(-epsilon |x - r| / (2 D)): every
    coordinate follows a Laplace law around its cell, cut off at 0 and 1, which is drawn by its inverse distribution.
    """
    scale = 2 * (numeric + 2 * categorical) / epsilon
    return truncated_laplace(rows, scale, generator.random(rows.shape))


def truncated_laplace(centre: Floats, scale: float, uniform: Floats) -> Floats:
    """Return the quantiles of Laplace laws around points of [0, 1], cut off at 0 and 1."""
    below, above = -np.expm1(-centre / scale), -np.expm1((centre - 1) / scale)  # masses on the two sides
    place = uniform * (below + above)
    left = centre + scale * np.log1p(np.minimum(place - below, 0.0))
    right = centre - scale * np.log1p(-np.maximum(place - below, 0.0))
    return np.where(place < below, left, right)


def errors_by_components(
    coordinates: UnitCoordinates, rows: Floats, moments: PooledMoments, epsilon: float
) -> tuple[list[float], list[float]]:
    """Return the errors of rows released along the leading 1, 2, ... measured components, as released and clamped."""
    covariance = moments.within * np.outer(coordinates.scale, coordinates.scale)
    directions = np.linalg.eigh(covariance)[1][:, ::-1]
    centre, points = coordinates.encoded(moments.means[0]), coordinates.encoded(rows)
    released = []
    for count in COMPONENTS:
        basis = RowBasis.of(directions[:, :count], centre)
        numbers = publish_rows(points, basis, pure(epsilon), SystemNoise()).numbers()
        moved = basis.lift(numbers.reshape(len(points), count)) - points
        released.append(rows + moved / coordinates.scale)
    return [squared_error(rows, noisy) for noisy in released], [squared_error(rows, clamped(n)) for n in released]


def squared_error(rows: Floats, noisy: Floats) -> float:
    """Return the mean squared distance of noisy rows from the true ones."""
    return float(np.mean(((noisy - rows) ** 2).sum(axis=1)))


def clamped(noisy: Floats) -> Floats:
    """Return rows clamped to the public range of the coordinates, which costs nothing."""
    return np.clip(noisy, 0.0, 1.0)


def one_run(data: Dataset, epsilon: float, run: int) -> dict[str, list[float]]:
    """Return the errors of every method: by k for those along components, the same for all k for the others."""
    coordinates = UnitCoordinates(Encoding(data.schema))
    rows = unit_points(data, coordinates)[:RELEASED]
    counts, generator = column_counts(data), public_generator(run_seed("row errors", run), f"{epsilon}")
    half = epsilon / 2
    laplace = laplace_cells(rows, *counts, epsilon, generator)
    exponential = exponential_cells(rows, *counts, epsilon, generator)
    ours = errors_by_components(coordinates, rows, noisy_moments(data, coordinates, half), half)
    theirs = errors_by_components(coordinates, rows, published_moments(data, coordinates, half, generator), half)
    return {
        CORRECTED: ours[0],
        "differential PCA, published, refuted": theirs[0],
        f"{CORRECTED}, clamped": ours[1],
        LAPLACE: [squared_error(rows, laplace)] * len(COMPONENTS),
        f"{LAPLACE}, clamped": [squared_error(rows, clamped(laplace))] * len(COMPONENTS),
        EXPONENTIAL: [squared_error(rows, exponential)] * len(COMPONENTS),
    }


def significantly_smaller(ours: list[float], theirs: list[float]) -> str:
    """Return the verdict of the paper's t-test on the errors of several runs."""
    if len(ours) < 2:
        return "one run says nothing"
    smaller = float(stats.ttest_ind(ours, theirs, alternative="less").pvalue) < SIGNIFICANT
    larger = float(stats.ttest_ind(ours, theirs, alternative="greater").pvalue) < SIGNIFICANT
    return "smaller" if smaller else "larger" if larger else "no difference shown"


def main() -> int:
    """Run the benchmark."""
    asked = arguments(__doc__)
    data = narrowed(load("adult", train_rows=2_000 if asked.quick else None, test_rows=10))
    found: dict[float, list[dict[str, list[float]]]] = {epsilon: [] for epsilon in EPSILONS}
    for run in progress(range(asked.runs), "row errors"):
        for epsilon in EPSILONS:
            found[epsilon].append(one_run(data, epsilon, run))
    panels, rows = {}, []
    for epsilon, runs in found.items():
        errors = {name: np.array([run[name] for run in runs]).T for name in runs[0]}
        panels[f"epsilon {epsilon:g}"] = [
            Curve(name, COMPONENTS, [summary(np.log10(values)) for values in of_k], "published" in name)
            for name, of_k in errors.items()
        ]
        for count in (1, 5, 10):
            ours = errors[CORRECTED][count - 1].tolist()
            verdicts = [
                significantly_smaller(ours, errors[name][count - 1].tolist()) for name in (LAPLACE, EXPONENTIAL)
            ]
            means = [f"{values[count - 1].mean():,.1f}" for values in errors.values()]
            rows.append([f"{epsilon:g}", str(count), *means, *verdicts])
    columns = ["epsilon", "k", *errors, "corrected against Laplace", "against exponential"]
    title = f"adult: squared error of {RELEASED} noisy rows, {asked.runs} runs; t-tests at {SIGNIFICANT:g}"
    notes = [
        f"The exact mean row in place of every row has the error {_error_of_the_mean(data):.2f}.",
        "The exponential mechanism stays in [0, 1], which alone makes its error small; clamping the others does too.",
    ]
    show(title, columns, rows, notes=notes)
    write_results("papers/row_errors", {"title": title, "columns": columns, "rows": rows, "notes": notes})
    write_plot(
        "papers/row_errors", panels, x="components k", y="log10 of the mean squared error", log_x=False, most_columns=3
    )
    return 0


def _error_of_the_mean(data: Dataset) -> float:
    rows = unit_points(data, UnitCoordinates(Encoding(data.schema)))
    return float(((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean())


if __name__ == "__main__":
    sys.exit(main())
