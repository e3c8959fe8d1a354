"""Figure 2 of RON-Gauss (001): membership inference by a neural attacker against epsilon, and what utility it costs.

    python -m benchmarks.papers.ron_gauss.membership [--runs N] [--quick] [--full]

After Shokri et al.: a neural network learns from ten shadow releases of known membership to tell members from
others, and guesses once about each of many fresh releases; half of the candidates are members, so a blind guess is
right half of the time. Realdisp is not available; tables of 300 rows of waveform40 stand in, with the class as
one more attribute of a record. The releases are RON-Gauss's class mixtures (Algorithm 5) in 8 dimensions, with noise
at its true scale and as published, and the model without noise. `utility` is the accuracy on held-out real rows of
logistic regression that is trained on a release of a table of that size. No attack on a corrected release exceeds
e^epsilon / (1 + e^epsilon). The intervals of the attack are Clopper and Pearson's at 99.9 %.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.common import (
    Curve,
    Dataset,
    Floats,
    Summary,
    arguments,
    load,
    progress,
    run_seed,
    show,
    summary,
    write_plot,
    write_results,
)
from benchmarks.papers.classification import accuracies
from benchmarks.papers.methods import Gaussians, RonMap, encoded, published_ron_classes, ron_classes, unit_length
from benchmarks.papers.table import Printed
from dpcore.auditing.membership import MembershipFigure, infer_membership
from dpcore.noise.sources import draw_seed, public_generator

EPSILONS = (0.25, 0.5, 1.0, 1.5, 2.0, 5.0, 10.0)
ROWS, DIMENSION, CLASSES = 300, 8, 3
GUESSES = 400
NO_NOISE = 1e5
"""An epsilon at which noise is negligible for 300 rows."""

PRINTED = (
    Printed("001, Figure 2, left", "attack on RON-Gauss (refuted)", "close to one half for ε up to 1.5"),
    Printed("001, Figure 2, right", "RON-Gauss (refuted), leakage below 10 %", "almost 88 % accuracy"),
)

Model = Callable[[Floats, np.ndarray, float, np.random.Generator], tuple[RonMap, Gaussians]]


def corrected(
    rows: Floats, labels: np.ndarray, epsilon: float, generator: np.random.Generator
) -> tuple[RonMap, Gaussians]:
    """RON-Gauss, Algorithm 5, with noise at its true scale."""
    return ron_classes(rows, labels, CLASSES, DIMENSION, epsilon, generator)


def published(
    rows: Floats, labels: np.ndarray, epsilon: float, generator: np.random.Generator
) -> tuple[RonMap, Gaussians]:
    """RON-Gauss, Algorithm 5, as published: refuted."""
    return published_ron_classes(rows, labels, CLASSES, DIMENSION, epsilon, generator)


@dataclass(frozen=True, slots=True)
class Experiment:
    """Records (point, class) of the stand-in, and held-out ones."""

    points: Floats
    labels: np.ndarray
    test: Floats
    truth: np.ndarray

    @staticmethod
    def of(data: Dataset) -> Experiment:
        """Return the records of a data set as points of length 1 with their classes."""
        points, test = (unit_length(encoded(data, frame)) for frame in (data.train, data.test))
        return Experiment(points, data.outcomes(data.train), test, data.outcomes(data.test))

    @property
    def population(self) -> Floats:
        """All records as the attacker sees them: the point and the class."""
        return np.column_stack([self.points, self.labels])

    def attack(self, model: Model, epsilon: float, guesses: int) -> MembershipFigure:
        """Return how often the neural attacker is right about fresh releases."""

        def release(records: Floats) -> Floats:
            """Release a table with a fresh projection, fresh noise and fresh rows, lifted to all coordinates."""
            points, labels = records[:, :-1], records[:, -1].astype(np.int64)
            space, found = model(points, labels, epsilon, public_generator(draw_seed(), "release"))
            drawn, classes = found.sample(len(records), public_generator(draw_seed(), "sampling"))
            return np.column_stack([drawn @ space.basis.T, classes])

        return infer_membership(
            release,
            self.population,
            rows=ROWS,
            guesses=guesses,
            epsilon=epsilon,
            seed=run_seed("attack", 0),
            attacker="neural",
        )

    def utility(self, model: Model, epsilon: float, run: int) -> float:
        """Return the accuracy on real rows of logistic regression trained on a release of the same size."""
        chosen = public_generator(run_seed("membership", run), "table").permutation(len(self.points))[:ROWS]
        space, found = model(
            self.points[chosen],
            self.labels[chosen],
            epsilon,
            public_generator(run_seed("membership", run), "projection"),
        )
        drawn, classes = found.sample(2_000, public_generator(run_seed("membership", run), "sampling"))
        scores = accuracies(drawn, classes, space(self.test), self.truth, classes=CLASSES, run=run, names="LR")
        return scores["LR"]


def as_summary(figure: MembershipFigure) -> Summary:
    """Return the attacker's accuracy with its interval, for a plot."""
    low, high = figure.interval
    return Summary(figure.accuracy, low, high, figure.guesses)


def main() -> int:
    """Run the benchmark."""
    asked = arguments(__doc__)
    experiment = Experiment.of(load("waveform40"))
    guesses, epsilons = (20, (1.0,)) if asked.quick else (GUESSES, EPSILONS)
    ways: tuple[tuple[str, Model], ...] = (
        ("RON-Gauss, corrected", corrected),
        ("RON-Gauss, published, refuted", published),
    )
    rows, attacks, tradeoffs, good = [], [], [], True
    for name, model in ways:
        found, worth = [], []
        for epsilon in progress(epsilons, name):
            found.append(experiment.attack(model, epsilon, guesses))
            worth.append(summary([experiment.utility(model, epsilon, run) for run in range(asked.runs)]))
            ceiling = f"{found[-1].ceiling:.3f}" if model is corrected else "none"
            rows.append([name, f"{epsilon:g}", _shown(found[-1]), ceiling, str(worth[-1])])
        dashed = model is published
        good &= dashed or all(figure.holds for figure in found)
        attacks.append(Curve(name, epsilons, [as_summary(figure) for figure in found], dashed))
        tradeoffs.append(Curve(name, [figure.accuracy - 0.5 for figure in found], worth, dashed))
    bare = experiment.attack(corrected, NO_NOISE, guesses)
    worth_bare = summary([experiment.utility(corrected, NO_NOISE, run) for run in range(asked.runs)])
    rows.append(["RON-Gauss, without noise", "", _shown(bare), "", str(worth_bare)])
    ceilings = [Summary(figure.ceiling, 0, 0, 1) for figure in (MembershipFigure(1, 1, e, 0.0) for e in epsilons)]
    attacks.append(Curve("largest accuracy of any attack", epsilons, ceilings, dashed=True))
    title = f"waveform40: neural membership inference, tables of {ROWS} rows, {guesses} guesses each"
    columns = ["release", "epsilon", "accuracy of the attack, 99.9 %", "largest of any attack", "utility, LR"]
    show(title, columns, rows)
    write_results("papers/membership", {"title": title, "columns": columns, "rows": rows, "printed": PRINTED})
    write_plot("papers/membership", {"accuracy of the attack": attacks}, x="epsilon", y="share of right guesses")
    write_plot(
        "papers/membership_tradeoff",
        {"utility against leakage": tradeoffs},
        x="accuracy of the attack above one half",
        y="accuracy of LR on real rows",
        log_x=False,
    )
    return 0 if good else 1


def _shown(figure: MembershipFigure) -> str:
    low, high = figure.interval
    return f"{figure.accuracy:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    sys.exit(main())
