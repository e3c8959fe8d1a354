"""What limits the marginals of a copula: its cells, its model, the noise on pairs, or the drawing of rows.

    python -m benchmarks.limits [adult bank_marketing credit_default acs_nist] [--runs 5]

Each run measures the training rows once at epsilon 1, delta 1e-5 and add-remove, as a specification without a model
does, and compares rows with the training rows in the bins of `benchmarks.marginals`:

- release: as many synthetic rows as there are training rows
- ten times the rows: the same release without most of the error of drawing
- pairs without noise: the pairs of groups are measured ten thousand times as exactly, in the same groups, and the
  fitted law still shrinks them as far as the release's noise demands
- values inside groups: the training rows themselves, each value drawn anew inside its group

Only the first two are differentially private; the others say what a better measurement or better cells could gain.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial

import pandas as pd

from benchmarks.common import Summary, run_seed, show, write_results
from benchmarks.datasets import Dataset, load
from benchmarks.marginals import Bins, decimals, distances
from benchmarks.planned import default_request
from benchmarks.repeated import Runs, Scores
from dpcore.accounting import Rho
from dpcore.estimators.gaussian_copula import measure_copula
from dpcore.measure import Released, exact_gram, measure_gram
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SystemNoise, public_generator
from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Neighbours
from dpcore.synthesis.copula.generator import Copula
from dpcore.synthesis.generators import synthetic_rows

SETS = ("adult", "bank_marketing", "credit_default", "acs_nist")
SCORES = ("1-way", "2-way", "3-way", "label 3-way")
EXACT = Rho(Fraction(10**6))
MANY = 10


def drawn(data: Dataset, copula: Copula, seed: str, times: int = 1) -> pd.DataFrame:
    """Return synthetic rows, some times as many as there are training rows."""
    return data.frame(synthetic_rows(Encoding(copula.schema), copula, times * len(data.train), seed).cells())


def without_pair_noise(data: Dataset, plan: Plan, copula: Copula) -> Copula:
    """Return the copula with the pairs of its groups measured nearly exactly, said to have the release's noise."""
    gram = exact_gram([(data.cells(data.train), None)], copula.encoding, plan.event.layout, copula.projection)
    event = gram_mechanism("gaussian").calibrate(plan.event.layout, plan.event.neighbours, EXACT)
    exact = measure_gram(gram, event, SystemNoise())
    coarser = Fraction(event.step) / Fraction(plan.event.step)
    values = tuple(tuple(round(value * coarser) for value in part) for part in exact.values)
    return replace(copula, moments=replace(copula.moments, released=Released(plan.event, values, seeded=False)))


def with_values_inside_groups(data: Dataset, copula: Copula, seed: str) -> pd.DataFrame:
    """Return the training rows with every value drawn anew inside its group."""
    cells, generator = data.cells(data.train), public_generator(seed, "values inside groups")
    anew = {g.cells.column.name: g.values(g.codes(cells), generator) for g in copula.encoding.groups}
    return data.frame({column.name: anew.get(column.name, cells[column.name]) for column in data.schema.columns})


Made = Callable[[Dataset, Plan, Copula, str], pd.DataFrame]

ROWS: dict[str, Made] = {
    "release": lambda data, plan, copula, seed: drawn(data, copula, seed),
    "ten times the rows": lambda data, plan, copula, seed: drawn(data, copula, seed, MANY),
    "pairs without noise": lambda data, plan, copula, seed: drawn(data, without_pair_noise(data, plan, copula), seed),
    "values inside groups": lambda data, plan, copula, seed: with_values_inside_groups(data, copula, seed),
}
"""The rows that are compared."""


def compare(name: str, count: int) -> dict[str, dict[str, Summary]]:
    """Return the distances of one data set, in so many runs."""
    data, runs = load(name), Runs(f"limits-{name}", fresh=True)
    bins, cells = Bins.of(data), data.cells(data.train)
    asked = default_request(data, epsilon=Fraction(1), delta=Fraction(1, 10**5), neighbours=Neighbours.ADD_REMOVE)
    plan = make_plan(asked)
    measured = [measure_copula(cells, plan) for _ in range(count)]

    def once(run: int, make: Made) -> Scores:
        return distances(data, bins, make(data, plan, measured[run], run_seed(name, run)))

    for what, make in ROWS.items():
        runs.add(what, count, partial(once, make=make))
    return {what: runs.summaries(what, SCORES) for what in ROWS}


def main() -> None:
    """Run everything and print one table per data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS), help=f"data sets: {', '.join(SETS)} (all)")
    parser.add_argument("--runs", type=int, default=5, help="independent measurements (5)")
    options = parser.parse_args()
    for name in options.sets:
        found = compare(name, options.runs)
        shown = [(what, *(decimals(scores.get(score)) for score in SCORES)) for what, scores in found.items()]
        show(f"{name}: epsilon 1, delta 1e-05, add-remove", ("rows from", *SCORES), shown)
        write_results(f"limits-{name}", found)


if __name__ == "__main__":
    main()
