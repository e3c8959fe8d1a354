"""Figure 2 of RON-Gauss (001): membership inference by a neural attacker against epsilon, and what utility it costs.

    python -m benchmarks.papers.ron_gauss.membership [--runs N] [--quick] [--full]

After Shokri et al.: a neural network learns from ten shadow releases of known membership to tell members from
others, and guesses once about each of many fresh releases; half of the candidates are members, so a blind guess is
right half of the time. Tables of 45 and of 300 rows of waveform40 stand in for Realdisp, with the class as
one more attribute of a record. The releases are RON-Gauss's class mixtures (Algorithm 5) in 8 dimensions, with noise
at its true scale and as published, and the model without noise. `utility` is the accuracy on held-out real rows of
logistic regression that is trained on a release of a table of that size. No attack on a corrected release exceeds
e^epsilon / (1 + e^epsilon). The intervals of the attack are Clopper and Pearson's at 99.9 %.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.common import (
    Curve,
    Floats,
    Summary,
    arguments,
    progress,
    run_seed,
    show,
    summary,
    write_plot,
    write_results,
)
from benchmarks.datasets import Dataset, load
from benchmarks.papers.classification import accuracies
from benchmarks.papers.methods import Gaussians, RonMap, encoded, published_ron_classes, ron_classes, unit_length
from benchmarks.papers.table import Printed
from dpcore.auditing.membership import MembershipFigure, infer_membership
from dpcore.noise.sources import draw_seed, public_generator

EPSILONS = (0.25, 0.5, 1.0, 1.5, 2.0, 5.0, 10.0)
DIMENSION, CLASSES = 8, 3
SIZES = (45, 300)
"""Rows of the tables: few, which the model without noise betrays, and more."""

GUESSES = 400
NO_NOISE = 1e5
"""An epsilon at which noise is negligible for tables of these sizes."""

PRINTED = (
    Printed("001, Figure 2, left", "attack on RON-Gauss (refuted)", "close to one half for ε up to 1.5"),
    Printed("001, Figure 2, right", "RON-Gauss (refuted), leakage below 10 %", "almost 88 % accuracy"),
)

NOTES = (
    "An accuracy near one half is no evidence of privacy: with 300 rows the attack fails without any noise as well.",
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
    """Records (point, class) of the stand-in, held-out ones, and the number of rows of a table."""

    points: Floats
    labels: np.ndarray
    test: Floats
    truth: np.ndarray
    rows: int

    @staticmethod
    def of(data: Dataset, rows: int) -> Experiment:
        """Return the records of a data set as points of length 1 with their classes."""
        points, test = (unit_length(encoded(data, frame)) for frame in (data.train, data.test))
        return Experiment(points, data.outcomes(data.train), test, data.outcomes(data.test), rows)

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
            rows=self.rows,
            guesses=guesses,
            epsilon=epsilon,
            seed=run_seed("attack", 0),
            attacker="neural",
        )

    def utility(self, model: Model, epsilon: float, run: int) -> float:
        """Return the accuracy on real rows of logistic regression trained on a release of the same size."""
        chosen = public_generator(run_seed("membership", run), "table").permutation(len(self.points))[: self.rows]
        space, found = model(
            self.points[chosen],
            self.labels[chosen],
            epsilon,
            public_generator(run_seed("membership", run), "projection"),
        )
        drawn, classes = found.sample(2_000, public_generator(run_seed("membership", run), "sampling"))
        scores = accuracies(drawn, classes, space(self.test), self.truth, classes=CLASSES, run=run, names="LR")
        return scores["LR"]


WAYS: dict[str, Model] = {"RON-Gauss, corrected": corrected, "RON-Gauss, published, refuted": published}


@dataclass(slots=True)
class Findings:
    """Lines of the table, curves of both plots, and whether no attack exceeds what a corrected release allows."""

    rows: list[list[str]]
    attacks: list[Curve]
    tradeoffs: list[Curve]
    holds: bool


def as_summary(figure: MembershipFigure) -> Summary:
    """Return the attacker's accuracy with its interval, for a plot."""
    low, high = figure.interval
    return Summary(figure.accuracy, low, high, figure.guesses)


def compare(experiment: Experiment, epsilons: Sequence[float], guesses: int, runs: int) -> Findings:
    """Attack the corrected and the published release at every epsilon, and the corrected one without noise."""
    found = Findings([], [], [], True)
    for name, model in WAYS.items():
        attacks, worth = [], []
        for epsilon in progress(epsilons, f"{name}, {experiment.rows} rows"):
            attacks.append(experiment.attack(model, epsilon, guesses))
            worth.append(summary([experiment.utility(model, epsilon, run) for run in range(runs)]))
            ceiling = f"{attacks[-1].ceiling:.3f}" if model is corrected else "none"
            found.rows.append(
                [name, str(experiment.rows), f"{epsilon:g}", _shown(attacks[-1]), ceiling, str(worth[-1])]
            )
        dashed = model is published
        found.holds = found.holds and (dashed or all(figure.holds for figure in attacks))
        found.attacks.append(Curve(name, epsilons, [as_summary(figure) for figure in attacks], dashed))
        found.tradeoffs.append(Curve(name, [figure.accuracy - 0.5 for figure in attacks], worth, dashed))
    bare = experiment.attack(corrected, NO_NOISE, guesses)
    worth_bare = summary([experiment.utility(corrected, NO_NOISE, run) for run in range(runs)])
    found.rows.append(["RON-Gauss, without noise", str(experiment.rows), "", _shown(bare), "", str(worth_bare)])
    found.attacks.append(Curve("without noise", epsilons, [as_summary(bare)] * len(epsilons)))
    ceilings = [Summary(MembershipFigure(1, 1, epsilon, 0.0).ceiling, 0, 0, 1) for epsilon in epsilons]
    found.attacks.append(Curve("largest accuracy of any attack", epsilons, ceilings, dashed=True))
    return found


def main() -> int:
    """Run the benchmark."""
    asked = arguments(__doc__)
    guesses, epsilons = (20, (1.0,)) if asked.quick else (GUESSES, EPSILONS)
    data = load("waveform40")
    found = {rows: compare(Experiment.of(data, rows), epsilons, guesses, asked.runs) for rows in SIZES}
    title = f"waveform40: neural membership inference, {guesses} guesses each"
    columns = ["release", "rows", "epsilon", "accuracy of the attack, 99.9 %", "largest of any attack", "utility, LR"]
    rows = [row for size in SIZES for row in found[size].rows]
    show(title, columns, rows, notes=NOTES)
    body = {"title": title, "columns": columns, "rows": rows, "printed": PRINTED, "notes": NOTES}
    write_results("papers/membership", body)
    attacks = {f"tables of {size} rows": found[size].attacks for size in SIZES}
    write_plot("papers/membership", attacks, x="epsilon", y="share of right guesses")
    write_plot(
        "papers/membership_tradeoff",
        {f"tables of {size} rows": found[size].tradeoffs for size in SIZES},
        x="accuracy of the attack above one half",
        y="accuracy of LR on real rows",
        log_x=False,
    )
    return 0 if all(found[size].holds for size in SIZES) else 1


def _shown(figure: MembershipFigure) -> str:
    low, high = figure.interval
    return f"{figure.accuracy:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    sys.exit(main())
