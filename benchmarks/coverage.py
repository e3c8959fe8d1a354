"""Coverage and width of the intervals of `dpcore.inference.release_estimates`.

    python -m benchmarks.coverage [--simulations 2000] [--rows 40000] [--variants]

The population is a pool of invented people. Each simulation draws a table from it, sums it as a real release does,
adds noise and computes 95 % intervals: for the statistics of the table (noise only) and of the population (noise and
sampling). Tables are drawn with replacement, so their exact sums follow from how often each person was drawn. The
noise is drawn in bulk, in floating point, from the laws with the parameters that the real mechanisms calibrated;
`tests/statistical/dpcore/inference/test_release_estimates.py` does the same with the mechanisms themselves.
`--variants` runs the other layouts and mechanisms at epsilon 1. The exit code is 1 if a coverage lies outside
95 % +- 1.5 %.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Curve, show, summary, write_plot, write_results
from dpcore.inference.intervals import Estimand, Interval
from dpcore.inference.release_estimates import ReleaseInference
from dpcore.measure import Released
from dpcore.measurements.projection import no_projection, ron_projection
from dpcore.mechanisms.base import UNIT, GramEvent, Output
from dpcore.mechanisms.names import MEAN, MOMENTS
from dpcore.mechanisms.registry import mechanism_of
from dpcore.mechanisms.sensitivity import best_l1_weight
from dpcore.noise.sources import public_generator
from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout, GramSum, integer_records
from dpcore.records.schema import (
    Cells,
    IntervalColumn,
    Kind,
    Neighbours,
    NominalColumn,
    PrivacyUnit,
    RecordSchema,
    Role,
)

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

SEED = "5eed"
SIMULATIONS, ROWS, PEOPLE = 2000, 40_000, 4000
DRAWS = 1 << 13
"""Draws of the noise for each interval; the library takes four times as many by default."""

CONFIDENCE, TOLERANCE = 0.95, 0.015
EPSILONS = (Fraction(1, 4), Fraction(1), Fraction(4))
DELTA = Fraction(1, 10**6)


# ---- the population ---------------------------------------------------------------------------------


def interval_column(name: str, upper: float, **more: Any) -> IntervalColumn:
    """Return a numeric column with the lower bound 0."""
    return IntervalColumn(name=name, kind=Kind.NUMERIC, lower=0, upper=upper, **more)


SCHEMA = RecordSchema(
    (
        interval_column("age", 100),
        interval_column("hours", 80),
        interval_column("visits", 20, missing_level=True),
        interval_column("income", 150),
        NominalColumn(name="sex", kind=Kind.CATEGORICAL, levels=("f", "m", "x")),
        NominalColumn(name="smoker", kind=Kind.BOOLEAN, levels=(False, True)),
        NominalColumn(name="ill", kind=Kind.CATEGORICAL, levels=("no", "yes"), role=Role.LABEL),
    )
)

FEATURES = ("age", "hours", "sex", "smoker")


def people(count: int, rng: np.random.Generator) -> Cells:
    """Draw the cells of invented people; all values lie within the bounds."""
    age, hours = 100 * rng.beta(2, 3, count), 80 * rng.beta(2, 2, count)
    sex = rng.choice(3, size=count, p=(0.5, 0.4, 0.1))
    smoker, ill = (rng.random(count) < 0.1 + slope * age / 100 for slope in (0.4, 0.5))
    visits = np.where(rng.random(count) < 0.8, 20 * rng.beta(1, 3, count), np.nan)
    income = 20 + 0.4 * age + 0.3 * hours + np.array([0, 8, -4])[sex] + 6 * smoker + 15 * rng.uniform(-1, 1, count)
    whole = {"sex": sex, "smoker": smoker, "ill": ill}
    floats: Cells = {"age": age, "hours": hours, "visits": visits, "income": income}
    return floats | {name: values.astype(np.int64) for name, values in whole.items()}


def truths(cells: Cells, times: Floats) -> dict[str, float]:
    """Return the exact answers for a table that holds each person of the pool so many times."""
    age, sex, ill = cells["age"].astype(np.float64), cells["sex"], cells["ill"] == 1
    visits, present = np.nan_to_num(cells["visits"].astype(np.float64)), ~np.isnan(cells["visits"].astype(np.float64))

    def average(values: NDArray[Any], among: NDArray[Any] | None = None) -> float:
        counted = times if among is None else among * times
        return float(values @ counted / counted.sum())

    columns = [np.ones(PEOPLE), age, cells["hours"], sex == 1, sex == 2, cells["smoker"]]
    design = np.column_stack(columns) * np.sqrt(times)[:, None]
    response = cells["income"].astype(np.float64) * np.sqrt(times)
    names = ("intercept", "age", "hours", "sex = m", "sex = x", "smoker = True")
    return {
        "mean age": average(age),
        "mean visits": average(visits, present),
        "share sex = f": average(sex == 0),
        "share sex = x": average(sex == 2),
        "share smoker = True": average(cells["smoker"] == 1),
        "share ill = yes": average(ill),
        "mean age | ill = yes": average(age, ill),
    } | dict(zip([f"income ~ {name}" for name in names], np.linalg.lstsq(design, response)[0].tolist(), strict=True))


def answers(release: ReleaseInference, estimand: Estimand, *, labelled: bool) -> dict[str, Interval]:
    """Return the intervals for the same questions from a release."""
    found = {
        "mean age": release.mean("age", estimand=estimand),
        "mean visits": release.mean("visits", estimand=estimand),
        "share sex = f": release.proportion("sex", "f", estimand=estimand),
        "share sex = x": release.proportion("sex", "x", estimand=estimand),
        "share smoker = True": release.proportion("smoker", True, estimand=estimand),
        "share ill = yes": release.proportion("ill", "yes", estimand=estimand),
    }
    if labelled:
        found["mean age | ill = yes"] = release.mean("age", given={"ill": "yes"}, estimand=estimand)
    coefficients = release.regression("income", FEATURES, estimand=estimand)
    return found | {f"income ~ {name}": interval for name, interval in coefficients.items()}


# ---- a release whose noise is drawn in bulk -----------------------------------------------------------


def _symmetric(upper: Floats) -> Floats:
    return np.triu(upper) + np.swapaxes(np.triu(upper, 1), -1, -2)


def _wisharts(shape: tuple[int, int], p: int, rng: np.random.Generator) -> Floats:
    factors = rng.standard_normal((*shape, p, p + 1))
    return factors @ np.swapaxes(factors, -1, -2)


def bulk_noise(event: GramEvent, draws: int, rng: np.random.Generator) -> Floats:
    """Draw noise matrices from the laws, in records, of shape (draws, blocks, P, P); for sums their first rows only."""
    p, blocks, parameter = event.layout.dimension, event.layout.blocks, float(event.noise)
    shape, diagonal = (draws, blocks), np.eye(p, dtype=bool)
    if mechanism_of(event.mechanism).output is Output.SUMS:
        return rng.laplace(scale=parameter / UNIT, size=(draws, blocks, p))
    if event.mechanism == "gaussian":
        return _symmetric(rng.standard_normal((*shape, p, p)) * np.where(diagonal, 1, 0.5**0.5)) * parameter / UNIT
    if event.mechanism == "laplace":
        scale = np.where(diagonal, 1, 1 / float(best_l1_weight(event.neighbours)))
        return _symmetric(rng.laplace(size=(*shape, p, p)) * scale) * parameter / UNIT
    plus, minus = (_wisharts(shape, p, rng) / (2 * parameter) for _ in range(2))
    if event.mechanism == "wishart-difference-trace":
        n = blocks * p * (p + 1) / 2
        larger = rng.gamma(2 * n, 1 / (2 * parameter), draws)
        traces = np.sort(np.stack([larger, larger * rng.random(draws) ** (1 / n)]), axis=0)
        traces = np.where(rng.random(draws) < 0.5, traces, traces[::-1])
        for side, trace in zip((plus, minus), traces, strict=True):
            side *= (trace / np.einsum("nkii->n", side))[:, None, None, None]
    return plus - minus


def exact_sum(records: Floats, classes: Codes, times: Floats, layout: GramLayout) -> GramSum:
    """Return the sum of a table that holds every record so many times; exact below 2^53, like `GramSum.add`."""
    total = GramSum(layout)
    for block in range(layout.blocks):
        own = times if layout.blocks == 1 else times * (classes == block)
        total.blocks[block] += (records.T @ (records * own[:, None])).astype(np.int64).astype(object)
    return total


def released(event: GramEvent, total: GramSum, noise: Floats) -> Released:
    """Return the measurement with this noise, rounded to its step."""
    p, exact = event.layout.dimension, np.array(total.upper_triangles())
    if mechanism_of(event.mechanism).output is Output.SUMS:
        exact, added = exact[:, :p], noise
    else:
        added = noise[(slice(None), *np.triu_indices(p))]
    values = np.rint((exact + added * UNIT) / event.step).astype(np.int64)
    return Released(event, tuple(tuple(block) for block in values.tolist()), seeded=True)


@dataclass(frozen=True, eq=False)
class Setting:
    """One kind of release."""

    name: str
    epsilon: Fraction = Fraction(1)
    delta: Fraction = Fraction(0)
    choices: Mapping[str, Any] = field(default_factory=dict)

    def plan(self, rows: int) -> Plan:
        """Return the plan of the real release."""
        usual = {"projection": "none", "neighbours": Neighbours.REPLACE_ONE, "generator": "mixture"}
        more: dict[str, Any] = usual | dict(self.choices)
        return make_plan(
            PlanRequest(
                schema=SCHEMA, unit=PrivacyUnit(), epsilon=self.epsilon, delta=self.delta, expected_rows=rows, **more
            )
        )


def settings(variants: bool) -> list[Setting]:
    """Return pure and Gaussian noise at several epsilons, or the other variants at epsilon 1."""
    if not variants:
        pure = [Setting(f"pure {float(e):g}", e) for e in EPSILONS]
        gaussian = {"mechanism": "gaussian"}
        return pure + [Setting(f"({float(e):g}, 1e-6)", e, DELTA, gaussian) for e in EPSILONS]
    apart = {MEAN: Fraction(3, 10), MOMENTS: Fraction(7, 10)}
    return [
        Setting("add-remove", choices={"neighbours": Neighbours.ADD_REMOVE}),
        Setting("laplace", choices={"mechanism": "laplace"}),
        Setting("label in one block", choices={"generator": "lda"}),
        Setting("label as a feature", choices={"generator": "gaussian"}),
        Setting("mean measured apart", choices={"allocation": apart}),
        Setting("all coordinates, rotated", choices={"projection": "ron", "dimension": 9}),
    ]


# ---- simulations ----------------------------------------------------------------------------------------


@dataclass
class Tally:
    """The intervals of one figure: how many hold the truth, and their widths."""

    held: list[bool] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    noise_shares: list[float] = field(default_factory=list)

    def add(self, interval: Interval, truth: float) -> None:
        """Count one interval."""
        self.held.append(interval.low <= truth <= interval.high)
        self.widths.append(interval.width)
        self.noise_shares.append(interval.noise_share)

    @property
    def coverage(self) -> float:
        """The share of intervals that hold the truth."""
        return float(np.mean(self.held))


Tallies = dict[tuple[str, Estimand], Tally]
Draw = Callable[[str, GramEvent, GramSum], Released]


def gram_events(plan: Plan) -> dict[str, GramEvent]:
    """Return the events of a plan that measure Gram matrices."""
    return {name: event for name, event in plan.events.items() if isinstance(event, GramEvent)}


def draw_in_bulk(plan: Plan, simulations: int, rng: np.random.Generator) -> Draw:
    """Return a function that measures with noise drawn beforehand, all at once."""
    noise = {name: iter(bulk_noise(event, simulations, rng)) for name, event in gram_events(plan).items()}
    return lambda name, event, total: released(event, total, next(noise[name]))


def simulate(setting: Setting, *, simulations: int, rows: int, draw: Draw | None = None) -> Tallies:
    """Tally every question for the table and for the population, over many tables."""
    rng, plan = public_generator(SEED, f"coverage {setting.name}"), setting.plan(rows)
    events, draw = gram_events(plan), draw or draw_in_bulk(plan, simulations, rng)
    pool, encoding = people(PEOPLE, rng), Encoding(plan.schema)
    projection = no_projection(encoding)
    if plan.projection == "ron":
        projection = ron_projection(encoding, plan.dimension, SEED)
    points, classes = encoding.encode(pool), encoding.classes(pool)
    records = {
        name: integer_records(points, projection.columns, event.layout, classes=classes)
        for name, event in events.items()
    }
    of_all, tallies = truths(pool, np.ones(PEOPLE)), defaultdict[tuple[str, Estimand], Tally](Tally)
    for _ in range(simulations):
        times = np.bincount(rng.integers(PEOPLE, size=rows), minlength=PEOPLE).astype(np.float64)
        measured = {
            name: draw(name, event, exact_sum(records[name], classes, times, event.layout))
            for name, event in events.items()
        }
        release = ReleaseInference.from_released(
            encoding, measured[MOMENTS], projection=projection, sums=measured.get(MEAN), draws=DRAWS
        )
        right = {Estimand.TABLE: truths(pool, times), Estimand.POPULATION: of_all}
        for estimand in Estimand:
            for name, interval in answers(release, estimand, labelled=plan.schema.label is not None).items():
                tallies[name, estimand].add(interval, right[estimand][name])
    return tallies


def facts(tallies: Tallies) -> list[dict[str, Any]]:
    """Return the rows of a setting's table."""
    return [
        {
            "figure": name,
            "of the": estimand.value,
            "coverage": tally.coverage,
            "median width": float(np.median(tally.widths)),
            "noise share": float(np.median(tally.noise_shares)),
            "unbounded": float(np.mean(~np.isfinite(tally.widths))),
        }
        for (name, estimand), tally in tallies.items()
    ]


def print_table(title: str, rows: list[dict[str, Any]]) -> None:
    """Print one setting's table; coverages outside the tolerance are marked."""
    cells = [
        [
            row["figure"],
            row["of the"],
            f"{row['coverage']:.1%}" + ("" if is_right(row["coverage"]) else " !"),
            f"{row['median width']:.3g}",
            f"{row['noise share']:.0%}",
            f"{row['unbounded']:.1%}",
        ]
        for row in rows
    ]
    show(title, list(rows[0]), cells)


def is_right(coverage: float) -> bool:
    """Return whether a coverage is within the tolerance."""
    return abs(coverage - CONFIDENCE) <= TOLERANCE


def plot(found: dict[Setting, Tallies]) -> None:
    """Plot the coverage against epsilon, with intervals over the simulations."""
    panels = {}
    for kind, delta in (("pure", Fraction(0)), ("delta 1e-6", DELTA)):
        chosen = {setting: tallies for setting, tallies in found.items() if setting.delta == delta}
        epsilons = [float(setting.epsilon) for setting in chosen]
        for estimand in Estimand:
            names = [name for name, of in next(iter(chosen.values())) if of is estimand]
            panels[f"{kind}: {estimand.value}"] = [
                Curve(name, epsilons, [summary(t[name, estimand].held) for t in chosen.values()]) for name in names
            ]
    write_plot("coverage", panels, x="epsilon", y="coverage", most_columns=2)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=SIMULATIONS)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--variants", action="store_true", help="the other layouts and mechanisms, at epsilon 1")
    options = parser.parse_args()
    found = {}
    for setting in settings(options.variants):
        found[setting] = simulate(setting, simulations=options.simulations, rows=options.rows)
        print_table(setting.name, facts(found[setting]))
    name = "coverage_variants" if options.variants else "coverage"
    write_results(name, {setting.name: facts(tallies) for setting, tallies in found.items()})
    if not options.variants:
        plot(found)
    return 0 if all(is_right(t.coverage) for tallies in found.values() for t in tallies.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
