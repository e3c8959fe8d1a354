"""Figure 1 of Jiang et al. (002): noise along one component against noise on raw cells, for heights and weights.

    python -m benchmarks.papers.noisy_rows.heights [--runs N] [--quick] [--full]

The paper does not give its table of 100 men, so one is invented: heights are normal with mean 175 cm and standard
deviation 7 cm, and weights are 75 kg, plus 1.1 kg for every centimetre above 175, plus a normal deviation of 5 kg;
the correlation is 0.84. Both are clamped to public ranges, 140 to 210 cm and 40 to 110 kg. Every row is released
with noise by the library's mechanism `noisy-rows`: along the diagonal of the two ranges, which is common
knowledge; along a component that half of epsilon measures; or on both cells. The error is the mean over rows of
the squared distance from the true row, in cm² + kg².
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np

from benchmarks.common import Floats, arguments, progress, results_file, run_seed, show, summary, write_results
from benchmarks.papers.methods import pure
from benchmarks.papers.table import Printed
from dpcore.estimators.local_rows import JiangPca, RowBasis, publish_rows
from dpcore.measure import ReleasedVector
from dpcore.noise.sources import SystemNoise, public_generator

ROWS = 100
EPSILONS = (10.0, 5.0, 2.0, 1.0)
LOWER, UPPER = np.array([140.0, 40.0]), np.array([210.0, 110.0])
"""Public ranges of height in cm and weight in kg; they are equally wide."""

HALF_WIDTH = (UPPER - LOWER) / 2
BALL = HALF_WIDTH * math.sqrt(2)
"""The units in which the ranges lie in the unit ball."""

DIAGONAL: Floats = np.full((2, 1), math.sqrt(0.5))
"""The public component: tall men are heavy."""

COMPONENT, MEASURED, CELLS = "along a public component", "along a measured component", "on raw cells"
PRINTED = (
    Printed("002, Figure 1; ε = 1", "noise on raw cells", "6197.27"),
    Printed("002, Figure 1; ε = 1", "noise along a component", "2750.08"),
)

Release = Callable[[Floats, float], Floats]


def invent_men(seed: str) -> Floats:
    """Return heights in cm and weights in kg by the recipe above."""
    generator = public_generator(seed, "heights and weights")
    height = 175 + 7 * generator.standard_normal(ROWS)
    weight = 75 + 1.1 * (height - 175) + 5 * generator.standard_normal(ROWS)
    return np.clip(np.column_stack([height, weight]), LOWER, UPPER)


def release_along(directions: Floats) -> Release:
    """Return a release of every row with noise along public directions."""

    def release(men: Floats, epsilon: float) -> Floats:
        inside = (men - LOWER - HALF_WIDTH) / BALL
        basis = RowBasis.of(directions, np.zeros(2))
        return lifted(basis, publish_rows(inside, basis, pure(epsilon), SystemNoise()))

    return release


def release_along_measured(men: Floats, epsilon: float) -> Floats:
    """Release every row along one component that half of epsilon measures."""
    model = JiangPca(epsilon=epsilon, bounds=(LOWER.tolist(), UPPER.tolist()), n_components=1).fit(men)
    return lifted(model.basis_, model.released_)


def lifted(basis: RowBasis, released: ReleasedVector) -> Floats:
    """Return released rows in cm and kg, not clamped to the ranges."""
    return basis.lift(released.numbers().reshape(ROWS, basis.dimension)) * BALL + LOWER + HALF_WIDTH


WAYS: dict[str, Release] = {
    COMPONENT: release_along(DIAGONAL),
    MEASURED: release_along_measured,
    CELLS: release_along(np.eye(2)),
}


def squared_error(men: Floats, released: Floats) -> float:
    """Return the mean squared distance of released rows from the true ones."""
    return float(np.mean(((released - men) ** 2).sum(axis=1)))


def expected_error_on_cells(epsilon: float) -> float:
    """Return the error that Laplace noise on both cells has on average: each gets half of epsilon."""
    scale = 2 * (UPPER - LOWER) / epsilon
    return float((2 * scale**2).sum())


def write_scatter(men: Floats) -> None:
    """Write one panel per epsilon: the invented rows, and one release of each kind."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 8), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, epsilon in zip(figure.subplots(2, 2).flat, EPSILONS, strict=True):
        for name, mark, colour in ((CELLS, "o", "tab:red"), (COMPONENT, "^", "tab:blue")):
            noisy = WAYS[name](men, epsilon)
            axes.scatter(*noisy.T, marker=mark, s=14, facecolors="none", edgecolors=colour, label=name)
        axes.scatter(*men.T, marker="+", s=18, color="black", label="invented rows")
        axes.set(title=f"epsilon {epsilon:g}", xlabel="height in cm", ylabel="weight in kg")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.savefig(results_file("papers/heights.png"), dpi=110)


def main() -> int:
    """Run the benchmark."""
    asked = arguments(__doc__)
    errors: dict[tuple[str, float], list[float]] = {}
    for run in progress(range(asked.runs), "heights and weights"):
        men = invent_men(run_seed("heights", run))
        for epsilon in EPSILONS:
            for name, release in WAYS.items():
                errors.setdefault((name, epsilon), []).append(squared_error(men, release(men, epsilon)))
    columns = ["noise", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)]
    rows = [[name, *(f"{summary(errors[name, e]).mean:,.0f}" for e in EPSILONS)] for name in WAYS]
    rows.append(["on raw cells, by its formula", *(f"{expected_error_on_cells(e):,.0f}" for e in EPSILONS)])
    title = f"{ROWS} invented men, mean squared error in cm² + kg², {asked.runs} runs"
    notes = ["A measured component costs half of epsilon, and 100 rows hardly show it."]
    show(title, columns, rows, notes=notes)
    write_results(
        "papers/heights", {"title": title, "columns": columns, "rows": rows, "notes": notes, "printed": PRINTED}
    )
    write_scatter(invent_men(run_seed("heights", 0)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
