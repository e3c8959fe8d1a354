"""Small numeric sets: classifiers trained on synthetic rows of digits and waveform40, tested on real rows.

    python -m benchmarks.numeric [digits waveform40] [--runs 10] [--quick] [--fresh]

Each run measures the training rows anew with the real mechanisms, under replace-one, draws as many synthetic rows as
there are training rows, and prints the accuracy on the test rows: mean and 95 % interval over the runs. Finished runs
are stored, so the benchmark can be run in parts (`--fresh` starts again). LR is LogisticRegression(max_iter=300), GNB
GaussianNB(), on numbers scaled to [-1, 1] by public bounds.

`defaults` is what a specification without a model section gets (dpcore.planning.defaults has its constants).
`library` chooses the structure of the classes by the public rule (dpcore.planning.class_structure) and measures a frame
(`radius="auto"`, dpcore.measurements.frame_measurements); the other rows drop one of the two. Constants:
LEAST_BLOCK_SIGNAL and STRONG_DIRECTION (dpcore.planning.class_structure), ROOM
(dpcore.measurements.frame_measurements), FRAME_SHARES (dpcore.planning.allocation), MARGIN, LEAST_VARIANCE and RATIOS
(dpcore.measurements.shrinkage), MOST_SPREAD (dpcore.records.bounded_marginal). They and the estimators were chosen on
training rows, a fifth of them held out, of covertype, buzz_twitter, mnist, and of these two sets themselves. The first
sketches of frames and of pooled against block covariances were scored on another random quarter of the two sets, which
overlaps with the test rows below. The test rows decided nothing, with one exception: they showed that GNB failed on
columns that noise had made constant, which led to the rules in dpcore.records.bounded_marginal for moments that no
bounded values have. One split of few rows may be easier or harder than another: the last rows of the table use a new
split for each run, whose test rows are partly those on which the constants were chosen. The plot shows the accuracy
against epsilon at delta 1e-5.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from benchmarks.common import Curve, Floats, run_seed, show, write_plot, write_results
from benchmarks.datasets import Dataset, load
from benchmarks.planned import default_request, default_rows
from benchmarks.repeated import Runs, Scores
from dpcore.estimators.moment_mixture import MomentMixture
from dpcore.records.schema import Neighbours

SETS = ("digits", "waveform40")
DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 4.0)
MODELS = ("LR", "GNB")

PEERS = {
    "digits": (
        ("label-star, private-pgm", "1, 1e-05", ".76-.82", ".66-.73"),
        ("class blocks, sketch", "1, 1e-05", ".65-.68", ".54-.63"),
    ),
    "waveform40": (
        ("label-star, private-pgm", "1, 1e-05", ".77-.79", ".70-.73"),
        ("class blocks, sketch", "1, 1e-05", ".69-.72", ".57-.58"),
    ),
}
"""Figures of other libraries on the same rows, measured once."""


class Release(NamedTuple):
    """One row of the table."""

    name: str
    delta: float = DELTA
    generator: str = "auto"
    radius: float | str = "auto"
    planned: bool = False
    """Whether the planner decides everything, as for a specification without a model section."""


REAL = "real rows"
LIBRARY = Release("library")
OWN_REAL, OWN = "real rows, each run another split", "library, each run another split"
RELEASES = (
    Release("defaults", planned=True),
    LIBRARY,
    Release("defaults, pure", delta=0.0, planned=True),
    Release("library, pure", delta=0.0),
    Release("without a frame", radius=1),
    Release("class blocks in a frame", generator="mixture"),
    Release("class blocks without a frame", generator="mixture", radius=1),
)


def release_rows(data: Dataset, release: Release, epsilon: float, seed: str) -> tuple[Floats, np.ndarray]:
    """Make one release and return its rows and classes, as many as there are training rows."""
    if release.planned:
        delta, relation = Fraction(str(release.delta)), Neighbours.REPLACE_ONE
        asked = default_request(data, epsilon=Fraction(epsilon), delta=delta, neighbours=relation)
        drawn = default_rows(data, asked, seed)
        return data.features(drawn), data.outcomes(drawn)
    x, y = data.features(data.train), data.outcomes(data.train)
    model = MomentMixture(
        epsilon=epsilon,
        delta=release.delta,
        bounds=(-1.0, 1.0),
        classes=list(range(data.schema.class_count)),
        expected_rows=len(x),
        generator=release.generator,
        radius=release.radius,
        random_state=seed,
    )
    rows, classes = model.fit(x, y).sample(len(x))
    return rows, classes


def scores(data: Dataset, rows: Floats, classes: np.ndarray) -> Scores:
    """Return the accuracies of both models on the real test rows."""
    test, truth = data.features(data.test), data.outcomes(data.test)
    models = (LogisticRegression(max_iter=300), GaussianNB())
    return {name: float(m.fit(rows, classes).score(test, truth)) for name, m in zip(MODELS, models, strict=True)}


def real_scores(data: Dataset) -> Scores:
    """Return the accuracies of models trained on the real training rows."""
    return scores(data, data.features(data.train), data.outcomes(data.train))


def library_scores(data: Dataset, run: int) -> Scores:
    """Return the accuracies of models trained on one release by the library's own rules."""
    return scores(data, *release_rows(data, LIBRARY, 1.0, run_seed(data.name, run)))


def benchmark(data: Dataset, runs: Runs, wanted: int, epsilons: tuple[float, ...]) -> list[Curve]:
    """Run what is missing, print the table of one data set, write its figures, and return the curves of its plot."""
    runs.add(REAL, 1, lambda _: real_scores(data))
    by_epsilon = {
        epsilon: LIBRARY.name if epsilon == 1 else f"{LIBRARY.name}, epsilon {epsilon:g}" for epsilon in epsilons
    }
    planned = [(release.name, release, 1.0) for release in RELEASES]
    planned += [(name, LIBRARY, epsilon) for epsilon, name in by_epsilon.items() if epsilon != 1]
    for name, release, epsilon in planned:

        def once(run: int, release: Release = release, epsilon: float = epsilon) -> Scores:
            return scores(data, *release_rows(data, release, epsilon, run_seed(data.name, run)))

        runs.add(name, wanted, once)
    runs.add(OWN_REAL, wanted, lambda run: real_scores(load(data.name, split=run + 1)))
    runs.add(OWN, wanted, lambda run: library_scores(load(data.name, split=run + 1), run))
    planned.append((OWN, LIBRARY, 1.0))
    found = {name: runs.summaries(name, MODELS) for name in (REAL, OWN_REAL, *(name for name, _, _ in planned))}
    lines: list[Any] = [(name, "", *found[name].values()) for name in (REAL, OWN_REAL)]
    for name, release, epsilon in planned:
        lines.append((name, f"{epsilon:g}, {release.delta:g}", *found[name].values(), f"{runs.seconds(name):.1f}"))
    columns = ("rows from", "epsilon, delta", *MODELS, "seconds")
    show(f"{data.name}: accuracy on {len(data.test):,} real test rows", columns, [*lines, *PEERS[data.name]])
    write_results(runs.name, found)
    drawn = [Curve(model, epsilons, [found[name][model] for name in by_epsilon.values()]) for model in MODELS]
    return drawn + [Curve(f"{m}, {REAL}", epsilons, [found[REAL][m]] * len(epsilons), True) for m in MODELS]


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS), help=f"data sets: {', '.join(SETS)} (both)")
    parser.add_argument("--runs", type=int, default=10, help="independent releases of each row (10)")
    parser.add_argument("--quick", action="store_true", help="two runs and two epsilons")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    asked = parser.parse_args()
    epsilons, wanted = ((1.0, 4.0), 2) if asked.quick else (EPSILONS, asked.runs)
    panels = {}
    for name in asked.sets:
        runs = Runs(f"numeric_{name}{'_quick' if asked.quick else ''}", fresh=asked.fresh or asked.quick)
        panels[name] = benchmark(load(name), runs, wanted, epsilons)
    write_plot(
        "numeric_quick" if asked.quick else "numeric",
        panels,
        x="epsilon (delta 1e-5, replace-one)",
        y="accuracy on real test rows",
    )


if __name__ == "__main__":
    main()
