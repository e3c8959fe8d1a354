"""The PCA family of Imtiaz and Sarwate (003) and Xu et al. (004): captured variance against epsilon and rows.

    python -m benchmarks.papers.components.pca [synthetic covertype mnist waveform40 semeion] [--runs N] [--quick]

Captured variance is tr(Vᵀ A V) of the released directions over that of the best ones, where A is the second
moment around a public origin. `SVM` is the papers' second score at epsilon 1: a linear support vector machine
trained and tested on real rows along the released directions; these rows are not private. The covariance of the
synthetic set is not in the paper; `directions.synthetic_spectrum` has the recipe. Replace-one, delta 1e-5 if
needed. Pictures are scaled down, mnist to 14 x 14 and semeion to 8 x 8 pixels, unless `--full` is given.

A published calibration is compared with the corrected mechanism at its true epsilon: LIP adds more noise than
its claim needs, Analyze Gauss and Lap-PCA less, and SN has no finite epsilon. The claim of the power method is
for one changed entry; a changed row costs more, so it is compared at the claim.

A second table has the number of directions at 90 % of the variance, from the exact and from noisy spectra.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from benchmarks.common import Curve, Floats, arguments, progress, run_seed, show, summary, write_plot, write_results
from benchmarks.papers import epsilon as true_epsilon
from benchmarks.papers.components import directions as of
from benchmarks.papers.components.directions import DELTA, Directions, Rows, leading_of, rows_of
from benchmarks.papers.methods import leading
from benchmarks.papers.table import Method, Pair, Printed, Scores, report, run_all
from dpcore.measurements.contribution import components_for_share
from dpcore.noise.sources import public_generator

SETS = ("synthetic", "covertype", "mnist", "waveform40", "semeion")
EPSILONS = (0.1, 0.3, 1.0, 3.0)
SHARES_OF_ROWS = (0.1, 0.25, 0.5, 1.0)
LINEAR_ROWS = 3_000
SHARE = 0.9
"""The share of the variance at which 003 sets the number of directions."""

MOST_COMPONENTS = 20
"""Up to so many directions, the exponential mechanism is quick enough to be drawn for every point of the curves."""

CAPTURED, SVM = "captured", "SVM"

PRINTED = (
    Printed("003, Figure 1", "captured variance", "AG best, SN meets it at large ε, PPM far below"),
    Printed("003, Figure 2", "captured variance", "AG, SN and PPCA rise steeply with n, PPM has too much noise"),
    Printed("003, section 4", "directions at 90 % of the variance", "synthetic and covertype 10, mnist 50"),
)

EXPONENTIAL = "exponential mechanism (PPCA), approximate"
CURVES: dict[str, tuple[Directions, bool]] = {
    "Wishart difference, pure": (leading_of(of.WISHART), False),
    "Laplace, true scale, pure": (leading_of(of.LAPLACE), False),
    "Gaussian, with a delta": (leading_of(of.GAUSSIAN), False),
    "noisy power method, with a delta": (of.POWER, False),
    EXPONENTIAL: (of.EXPONENTIAL, False),
    "SN, published, refuted": (leading_of(of.published_sn), True),
    "LIP's basis, published": (leading_of(of.published_lip), True),
    "AG, published, refuted": (leading_of(of.published_ag), True),
    "PPM, published, refuted": (of.published_ppm, True),
    "Lap-PCA, published, refuted": (leading_of(of.published_lap_pca), True),
    "random directions": (of.random_directions, True),
}
"""The methods that are plotted against epsilon; True for dashed lines, whose epsilon does not hold."""


# ---- scores ---------------------------------------------------------------------------------------


def captured(second: Floats, directions: Floats) -> float:
    """Return the variance along the directions over the largest that as many directions can have."""
    best = float(np.linalg.eigvalsh(second)[-directions.shape[1] :].sum())
    return float(np.trace(directions.T @ second @ directions)) / best


def linear_accuracy(rows: Rows, directions: Floats, run: int) -> float:
    """Return the accuracy of a linear support vector machine on real rows along the directions."""
    train, test = rows.points[:LINEAR_ROWS] @ directions, rows.test @ directions
    scale = float(np.abs(train).max())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LinearSVC(random_state=run, max_iter=300).fit(train / scale, rows.labels[:LINEAR_ROWS])
    return float(np.mean(model.predict(test / scale) == rows.truth))


def table(name: str, rows: Rows) -> tuple[list[Method], list[Pair]]:
    """Return the rows of the table at epsilon 1."""
    second = rows.second

    def method(
        title: str, directions: Directions, epsilon: float, claims: str, truly: str, once: bool = False
    ) -> Method:
        def run_once(run: int) -> Scores:
            found = directions(rows, epsilon, public_generator(run_seed(name, run), "published"))
            score = {CAPTURED: captured(second, found)}
            return score | {SVM: linear_accuracy(rows, found, run)} if len(rows.labels) else score

        return Method(title, claims, truly, run_once, once)

    lip, ag = true_epsilon.lip(rows.features, 1.0), true_epsilon.analyze_gauss(1.0, DELTA)
    lap = true_epsilon.lap_pca(rows.features, 1.0)
    wishart, gaussian = leading_of(of.WISHART), leading_of(of.GAUSSIAN)
    methods = [
        method("exact PCA", leading_of(of.exact), 1.0, "", "", once=True),
        method("random directions", of.random_directions, 1.0, "", ""),
        *(
            method(title, directions, 1.0, "(1, 1e-5)" if "delta" in title else "1", "1")
            for title, (directions, dashed) in CURVES.items()
            if not dashed
        ),
        method("SN, published, refuted", leading_of(of.published_sn), 1.0, "1", "none"),
        method("LIP's basis, published", leading_of(of.published_lip), 1.0, "1", f"{lip:.2f}"),
        method(f"Wishart difference at {lip:.2f}", wishart, lip, f"{lip:.2f}", f"{lip:.2f}"),
        method("AG, published, refuted", leading_of(of.published_ag), 1.0, "(1, 1e-5)", f"{ag:.2f}"),
        method(f"Gaussian at {ag:.2f}", gaussian, ag, f"({ag:.2f}, 1e-5)", f"{ag:.2f}"),
        method("PPM, published, refuted", of.published_ppm, 1.0, "(1, 1e-5)", "above 1"),
        method("Lap-PCA, published, refuted", leading_of(of.published_lap_pca), 1.0, "1", f"{lap:g}"),
        method(f"Wishart difference at {lap:g}", wishart, lap, f"{lap:g}", f"{lap:g}"),
    ]
    pairs = [
        Pair(f"Wishart difference at {lip:.2f}", "LIP's basis, published", (CAPTURED,)),
        Pair(f"Gaussian at {ag:.2f}", "AG, published, refuted", (CAPTURED,)),
        Pair("Gaussian, with a delta", "PPM, published, refuted", (CAPTURED,)),
        Pair(f"Wishart difference at {lap:g}", "Lap-PCA, published, refuted", (CAPTURED,)),
    ]
    return methods, pairs


def curves(name: str, rows: Rows, runs: int, points: Sequence[float], *, over_rows: bool) -> list[Curve]:
    """Return the curves of captured variance against epsilon, or against the number of rows at epsilon 1."""
    quick = {title: c for title, c in CURVES.items() if title != EXPONENTIAL or rows.components <= MOST_COMPONENTS}
    found: dict[str, list[list[float]]] = {title: [[] for _ in points] for title in quick}
    second = rows.second
    for run in progress(range(runs), f"{name}, curves against {'rows' if over_rows else 'epsilon'}"):
        for place, x in enumerate(points):
            part, epsilon = (rows.first(int(x)), 1.0) if over_rows else (rows, x)
            for title, (directions, _) in quick.items():
                basis = directions(part, epsilon, public_generator(run_seed(name, run), title))
                found[title][place].append(captured(second, basis))
    return [
        Curve(title, points, [summary(values) for values in found[title]], dashed)
        for title, (_, dashed) in quick.items()
    ]


# ---- the number of directions ---------------------------------------------------------------------

Spectrum = Callable[[Rows, np.random.Generator], tuple[Floats, float]]
"""A noisy second moment, and the size up to which its eigenvalues count as noise."""


def _as_it_is(noisy: of.Noisy) -> Spectrum:
    return lambda rows, generator: (noisy(rows, 1.0, generator), 0.0)


def _above_noise(mechanism: str) -> Spectrum:
    return lambda rows, _: of.measured(rows, 1.0, mechanism)


SPECTRA: Mapping[str, Spectrum] = {
    "exact spectrum, not private": _as_it_is(of.exact),
    "Wishart difference, pure": _as_it_is(of.WISHART),
    "Wishart difference, eigenvalues above its noise": _above_noise("wishart-difference-trace"),
    "Gaussian, with a delta": _as_it_is(of.GAUSSIAN),
    "Gaussian, eigenvalues above its noise": _above_noise("gaussian"),
    "SN, published, refuted": _as_it_is(of.published_sn),
    "AG, published, refuted": _as_it_is(of.published_ag),
    "LIP's basis, published": _as_it_is(of.published_lip),
}


def components_above(matrix: Floats, noise: float, share: float = SHARE) -> int:
    """Return the number of directions at a share of a spectrum, in which eigenvalues up to the noise count as 0."""
    values = np.linalg.eigvalsh((matrix + matrix.T) / 2)
    return components_for_share(np.where(values > noise, values, 0.0), share)


def write_dimensions(name: str, rows: Rows, runs: int) -> None:
    """Write the number of directions that each spectrum asks for, and the share of the variance that they capture."""
    second = rows.second
    whole, lines = float(np.trace(second)), []

    def share(directions: Floats) -> float:
        return float(np.trace(directions.T @ second @ directions)) / whole

    for title, spectrum in SPECTRA.items():
        counts, own, fixed = [], [], []
        for run in range(1 if title.startswith("exact") else runs):
            matrix, noise = spectrum(rows, public_generator(run_seed(name, run), f"spectrum {title}"))
            counts.append(components_above(matrix, noise))
            own.append(share(leading(matrix, counts[-1])))
            fixed.append(share(leading(matrix, rows.components)))
        lines.append([title, *(summary(values) for values in (counts, own, fixed))])
    columns = ["spectrum", "directions at 90 %", "share that they capture", f"share that {rows.components} capture"]
    title = f"{name}: the number of directions at 90 % of the variance, epsilon 1"
    notes = [
        "Symmetric noise makes half of the eigenvalues positive, so with much noise the rule asks for about a third of "
        "the columns, whatever the rows are; SN's noise is one-sided and asks for more. The size of the noise is "
        "public: eigenvalues below it may count as 0."
    ]
    show(title, columns, lines, notes=notes)
    write_results(f"papers/pca_{name}_dimension", {"title": title, "columns": columns, "rows": lines, "notes": notes})


def main() -> int:
    """Run the benchmark."""
    asked = arguments(__doc__, sets=SETS)
    good = True
    for name in asked.sets:
        rows = rows_of(name, quick=asked.quick, full=asked.full)
        methods, pairs = table(name, rows)
        found = run_all(methods, asked.runs)
        shape = f"{len(rows.points):,} rows, {rows.features} columns, {rows.components} directions"
        title = f"{name}: {shape}, epsilon 1"
        good &= report(f"papers/pca_{name}", title, methods, found, pairs, printed=PRINTED)
        write_dimensions(name, rows, asked.runs)
        sizes = [round(share * len(rows.points)) for share in SHARES_OF_ROWS]
        by_epsilon = curves(name, rows, asked.runs, EPSILONS, over_rows=False)
        by_rows = curves(name, rows, asked.runs, sizes, over_rows=True)
        panel = f"{name}: {rows.features} columns, k = {rows.components}"
        write_plot(f"papers/pca_{name}_epsilon", {panel: by_epsilon}, x="epsilon", y="captured variance")
        write_plot(f"papers/pca_{name}_rows", {f"{panel}, epsilon 1": by_rows}, x="rows", y="captured variance")
        write_results(f"papers/pca_{name}_curves", {"epsilon": by_epsilon, "rows": by_rows})
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
