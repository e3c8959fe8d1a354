"""PCA-Gauss's ratio of sensitivity gain to information loss (SIR, Figure 2) on gfe, and the utility it is to predict.

    python -m benchmarks.papers.sir [--runs N] [--quick] [--full]

The gain is the sensitivity of all M coordinates over that of P components; the loss is the variance of all
coordinates over that along the first P components (section IX-A). The paper reads the spectrum off private rows; here
it is that of the public rows, the first 5 % of the training rows, around their mean. Four ratios:

- with the sensitivity P of Theorem 4, so that the gain is M / P, and with P² of Theorem 5, so that it is (M / P)²;
- with the noise that the corrected mechanism adds, by its operator norm, in place of the sensitivity;
- as a plan states it (`sir`) for random directions, from public constants alone.

The utility is the silhouette of held-out real rows, K = 2, at epsilon 1 as in `dimension`: for the first three ratios
that of PCA-Gauss along public components, for the last one that of RON-Gauss. The notes state Spearman's rank
correlation of each ratio with the mean utility, and which dimensions are not shown to be worse than the best.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from scipy.stats import spearmanr

from benchmarks.common import (
    CONFIDENCE,
    Curve,
    Floats,
    arguments,
    paired,
    progress,
    show,
    summary,
    write_plot,
    write_results,
)
from benchmarks.datasets import load
from benchmarks.papers.clustering import without_label
from benchmarks.papers.dimension import EPSILON, PCA, RON, clustering
from benchmarks.papers.methods import PURE, RELATION, pure
from benchmarks.papers.pca_gauss import public_rows
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.planning.layouts import NO_WEIGHT
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PlanRequest
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import PrivacyUnit, RecordSchema

DIMENSIONS = (2, 4, 8, 16, 32, 64, 128)
LINEAR, SQUARED, NOISE, PLAN = "sensitivity P", "sensitivity P²", "corrected noise", "plan, random directions"


def ratio(gain: float, spectrum: Floats, kept: int) -> float:
    """Return the gain over the information loss, the variance of all coordinates over that of the first ones kept."""
    return float(gain * spectrum[:kept].sum() / spectrum.sum())


def operator_noise(dimension: int) -> float:
    """Return the expected operator norm of the corrected noise on a second moment, in records."""
    event = gram_mechanism(PURE).calibrate(GramLayout(dimension + 1, 1, NO_WEIGHT), RELATION, pure(EPSILON))
    return gram_mechanism(PURE).expected_error(event).operator


def planned_ratio(schema: RecordSchema, rows: int, dimension: int) -> float:
    """Return `sir` of a plan that projects to random directions."""
    request = PlanRequest(
        schema=schema,
        neighbours=RELATION,
        unit=PrivacyUnit(),
        epsilon=Fraction(EPSILON),
        delta=Fraction(0),
        expected_rows=rows,
        projection="ron",
        dimension=dimension,
        mechanism=PURE,
        generator="gaussian",
    )
    return make_plan(request).expected_error()["sir"]


def ratios(schema: RecordSchema, cube: Floats) -> dict[str, list[float]]:
    """Return the four ratios at every dimension."""
    public = cube[public_rows(cube)]
    spectrum = np.maximum(np.linalg.eigvalsh(np.cov(public, rowvar=False))[::-1], 0.0)
    whole, all_noise = len(spectrum), operator_noise(len(spectrum))
    return {
        LINEAR: [ratio(whole / p, spectrum, p) for p in DIMENSIONS],
        SQUARED: [ratio((whole / p) ** 2, spectrum, p) for p in DIMENSIONS],
        NOISE: [ratio(all_noise / operator_noise(p), spectrum, p) for p in DIMENSIONS],
        PLAN: [planned_ratio(schema, len(cube), p) for p in DIMENSIONS],
    }


def utilities(*, quick: bool, full: bool, runs: int) -> dict[str, list[list[float]]]:
    """Return the silhouettes of both papers' corrected methods at every dimension, run by run."""
    task = clustering(quick=quick, full=full)
    return {
        name: [
            [task.run(family, family.corrected, p, EPSILON, run) for run in range(runs)]
            for p in progress(DIMENSIONS, f"{name}, dimensions")
        ]
        for name, family in task.families.items()
    }


def main() -> int:
    """Run the benchmark."""
    asked = arguments(__doc__)
    data = without_label(load("gfe", train_rows=2_000 if asked.quick else None))
    found = ratios(data.schema, data.features(data.train))
    utility = utilities(quick=asked.quick, full=asked.full, runs=asked.runs)
    scores = {name: [summary(values) for values in utility[name]] for name in (PCA, RON)}
    notes = []
    for name, values in found.items():
        judged = RON if name == PLAN else PCA
        notes.append(rank_note(name, values, judged, [score.mean for score in scores[judged]]))
    notes += [best_note(name, utility[name]) for name in scores]
    columns = ["dimension", *(f"SIR, {name}" for name in found), *(f"silhouette, {name}" for name in scores)]
    rows = [
        (p, *(f"{values[i]:.3g}" for values in found.values()), *(values[i] for values in scores.values()))
        for i, p in enumerate(DIMENSIONS)
    ]
    title = f"gfe: SIR and utility, {len(data.train):,} training rows, ε = {EPSILON:g}"
    show(title, columns, rows, notes=notes)
    body = {"title": title, "columns": columns, "rows": rows, "notes": notes, "ratios": found, "utility": utility}
    write_results("papers/sir", body)
    logs = [Curve(name, DIMENSIONS, [summary([np.log10(v)]) for v in values]) for name, values in found.items()]
    curves = [Curve(f"{name}, corrected", DIMENSIONS, values) for name, values in scores.items()]
    write_plot("papers/sir", {"log₁₀ SIR": logs, "silhouette of real rows, K = 2": curves}, x="dimension", y="")
    return 0


def rank_note(name: str, values: Sequence[float], method: str, utility: Sequence[float]) -> str:
    """Return a sentence on how well a ratio predicts the utility, by ranks over the dimensions."""
    found = spearmanr(values, utility)
    correlation, surely = float(found.statistic), float(found.pvalue) < 1 - CONFIDENCE
    told = "is not shown to rank" if not surely else "ranks" if correlation > 0 else "ranks in the opposite order"
    steps = np.diff(values)
    alone = ", as the dimension alone does" if surely and (np.all(steps < 0) or np.all(steps > 0)) else ""
    which = f"the dimensions by {method}'s utility"
    return f"SIR, {name}, {told} {which}{alone}: Spearman's rank correlation {correlation:+.2f}."


def best_note(method: str, utility: Sequence[Sequence[float]]) -> str:
    """Return a sentence on the dimensions among which a choice is not shown to matter."""
    best = max(utility, key=np.mean)
    level = [str(p) for p, scores in zip(DIMENSIONS, utility, strict=True) if paired(scores, best).high >= 0]
    return f"{method}: not shown to be worse than the best are {', '.join(level)} dimensions."


if __name__ == "__main__":
    sys.exit(main())
