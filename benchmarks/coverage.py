"""How often the intervals of `dpcore.inference` hold the truth, and how wide they are.

    python -m benchmarks.coverage [--simulations 2000] [--rows 10000] [--variants]

Each simulation draws a table of invented people from a population whose means, shares and coefficients are known in
closed form, sums it with the classes of a real release, adds noise and asks for 95 % intervals: of what the table
says (noise only) and of what the population says (noise and sampling). The noise is drawn in bulk, in floating point,
at the parameters that the real mechanisms calibrated; `tests/dpcore/test_dpcore_inference.py` runs the same through
the mechanisms themselves. `--variants` tries the other layouts and mechanisms at epsilon 1. The exit code is 1 if a
coverage lies outside of 95 % +- 1.5 %.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from dpcore.encoding import Encoding
from dpcore.inference import ReleaseInference
from dpcore.intervals import Estimand, Interval
from dpcore.measure import Released, summed
from dpcore.mechanisms.base import UNIT, Gives, GramEvent
from dpcore.noise import public_generator
from dpcore.planning import Plan, make_plan
from dpcore.projection import Projection, no_projection, ron_projection
from dpcore.registry import mechanism_of
from dpcore.schema import Cells, IntervalColumn, Kind, Neighbours, NominalColumn, PrivacyUnit, RecordSchema, Role
from dpcore.sensitivity import best_l1_weight
from dpcore.wishes import MEAN, MOMENTS, Wishes

Floats = NDArray[np.float64]

SEED = "5eed"
SIMULATIONS, ROWS = 2000, 10_000
DRAWS = 1 << 13
"""Draws of the noise behind each interval; a release takes four times as many."""

CONFIDENCE, TOLERANCE = 0.95, 0.015
EPSILONS = (Fraction(1, 4), Fraction(1), Fraction(4))
DELTA = Fraction(1, 10**6)


# ---- the population ---------------------------------------------------------------------------------


def interval_column(name: str, upper: float, **more: Any) -> IntervalColumn:
    """A numeric column from 0 on."""
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

SEX_SHARES = (0.5, 0.45, 0.05)
PRESENT = 0.8
COEFFICIENTS = {"intercept": 20.0, "age": 0.4, "hours": 0.3, "sex = m": 8.0, "sex = x": -4.0, "smoker = True": 6.0}
FEATURES = ("age", "hours", "sex", "smoker")
AGE_MEAN, AGE_SQUARE = 40.0, 2000.0
"""Moments of 100 Beta(2, 3)."""
ILL_AT_BIRTH, ILL_AT_100 = 0.1, 0.6
SMOKER_AT_BIRTH, SMOKER_AT_100 = 0.1, 0.5


def people(rows: int, rng: np.random.Generator) -> Cells:
    """A table of people who do not exist; no value leaves the bounds."""
    age, hours = 100 * rng.beta(2, 3, rows), 80 * rng.beta(2, 2, rows)
    sex = rng.choice(3, size=rows, p=SEX_SHARES)
    smoker = rng.random(rows) < SMOKER_AT_BIRTH + (SMOKER_AT_100 - SMOKER_AT_BIRTH) * age / 100
    ill = rng.random(rows) < ILL_AT_BIRTH + (ILL_AT_100 - ILL_AT_BIRTH) * age / 100
    visits = np.where(rng.random(rows) < PRESENT, 20 * rng.beta(1, 3, rows), np.nan)
    shares = COEFFICIENTS
    income = shares["intercept"] + shares["age"] * age + shares["hours"] * hours + shares["smoker = True"] * smoker
    income += np.array([0.0, shares["sex = m"], shares["sex = x"]])[sex] + 15 * (2 * rng.beta(3, 3, rows) - 1)
    return {
        "age": age,
        "hours": hours,
        "visits": visits,
        "income": income,
        "sex": sex.astype(np.int64),
        "smoker": smoker.astype(np.int64),
        "ill": ill.astype(np.int64),
    }


ILL_SHARE = ILL_AT_BIRTH + (ILL_AT_100 - ILL_AT_BIRTH) * AGE_MEAN / 100
SMOKER_SHARE = SMOKER_AT_BIRTH + (SMOKER_AT_100 - SMOKER_AT_BIRTH) * AGE_MEAN / 100


@dataclass(frozen=True)
class Question:
    """What is asked of a release, what the population's answer is, and how an exact table answers."""

    name: str
    ask: Callable[[ReleaseInference, Estimand], Interval]
    population: float
    table: Callable[[Cells], float]


def _mean(column: str, population: float) -> Question:
    return Question(
        f"mean {column}",
        lambda release, estimand: release.mean(column, estimand=estimand),
        population,
        lambda cells: float(np.nanmean(np.asarray(cells[column], dtype=np.float64))),
    )


def _share(column: str, level: str | bool, code: int, population: float) -> Question:
    return Question(
        f"share {column} = {level}",
        lambda release, estimand: release.proportion(column, level, estimand=estimand),
        population,
        lambda cells: float(np.mean(cells[column] == code)),
    )


QUESTIONS = (
    _mean("age", AGE_MEAN),
    _mean("visits", 5.0),
    _share("sex", "f", 0, SEX_SHARES[0]),
    _share("sex", "x", 2, SEX_SHARES[2]),
    _share("smoker", True, 1, SMOKER_SHARE),
    _share("ill", "yes", 1, ILL_SHARE),
    Question(
        "mean age | ill = yes",
        lambda release, estimand: release.mean("age", given={"ill": "yes"}, estimand=estimand),
        (ILL_AT_BIRTH * AGE_MEAN + (ILL_AT_100 - ILL_AT_BIRTH) * AGE_SQUARE / 100) / ILL_SHARE,
        lambda cells: float(np.mean(cells["age"][cells["ill"] == 1])),  # type: ignore[arg-type]
    ),
)


def least_squares(cells: Cells) -> dict[str, float]:
    """The coefficients of an exact table."""
    sex = cells["sex"]
    design = np.column_stack(
        [np.ones(len(sex)), cells["age"], cells["hours"], sex == 1, sex == 2, cells["smoker"]]  # type: ignore[list-item]
    )
    solution = np.linalg.lstsq(design, np.asarray(cells["income"], dtype=np.float64), rcond=None)[0]
    return dict(zip(COEFFICIENTS, solution.tolist(), strict=True))


# ---- a release whose noise is drawn in bulk -----------------------------------------------------------


def _symmetric(upper: Floats) -> Floats:
    return np.triu(upper) + np.swapaxes(np.triu(upper, 1), -1, -2)


def _wisharts(shape: tuple[int, int], p: int, rng: np.random.Generator) -> Floats:
    factors = rng.standard_normal((*shape, p, p + 1))
    return factors @ np.swapaxes(factors, -1, -2)


def bulk_noise(event: GramEvent, draws: int, rng: np.random.Generator) -> Floats:
    """Whole noise matrices by the definitions of the laws, in records: (draws, blocks, P, P), or first rows of sums."""
    p, blocks, parameter = event.layout.dimension, event.layout.blocks, float(event.noise)
    shape, diagonal = (draws, blocks), np.eye(p, dtype=bool)
    if mechanism_of(event.mechanism).gives is Gives.SUMS:
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


def released(event: GramEvent, sums: list[list[int]], noise: Floats) -> Released:
    """The measurement with this noise, rounded to its step."""
    p = event.layout.dimension
    if mechanism_of(event.mechanism).gives is Gives.SUMS:
        rows = np.array([block[:p] for block in sums], dtype=np.float64) + noise * UNIT
        return Released(event, tuple(tuple(int(x) for x in row) for row in np.rint(rows)), seeded=True)
    upper = np.triu_indices(p)
    values = [
        np.rint((np.array(block, dtype=np.float64) + own[upper] * UNIT) / event.step).astype(np.int64).tolist()
        for block, own in zip(sums, noise, strict=True)
    ]
    return Released(event, tuple(tuple(block) for block in values), seeded=True)


@dataclass(frozen=True)
class Setting:
    """One kind of release."""

    name: str
    epsilon: Fraction = Fraction(1)
    delta: Fraction = Fraction(0)
    wishes: Mapping[str, Any] = field(default_factory=dict)

    def plan(self, rows: int) -> Plan:
        """The plan of the real release."""
        more: dict[str, Any] = {"projection": "none", "neighbours": Neighbours.REPLACE_ONE} | dict(self.wishes)
        return make_plan(
            Wishes(
                schema=SCHEMA, unit=PrivacyUnit(), epsilon=self.epsilon, delta=self.delta, expected_rows=rows, **more
            )
        )


def settings(variants: bool) -> list[Setting]:
    """Pure and Gaussian noise at several epsilons; or everything else at epsilon 1."""
    if not variants:
        pure = [Setting(f"pure {float(e):g}", e) for e in EPSILONS]
        wish = {"mechanism": "gaussian"}
        return pure + [Setting(f"({float(e):g}, 1e-6)", e, DELTA, wish) for e in EPSILONS]
    apart = {MEAN: Fraction(3, 10), MOMENTS: Fraction(7, 10)}
    return [
        Setting("add-remove", wishes={"neighbours": Neighbours.ADD_REMOVE}),
        Setting("laplace", wishes={"mechanism": "laplace"}),
        Setting("label in one block", wishes={"generator": "lda"}),
        Setting("label as a feature", wishes={"generator": "gaussian"}),
        Setting("mean measured apart", wishes={"allocation": apart}),
        Setting("all coordinates, rotated", wishes={"projection": "ron", "dimension": 11}),
    ]


# ---- simulations ----------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What was found of one figure."""

    held: list[bool] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    noise_shares: list[float] = field(default_factory=list)

    def add(self, interval: Interval, truth: float) -> None:
        """Count one interval; the edges' rounding in floating point is no miss."""
        self.held.append(interval.low - 1e-9 <= truth <= interval.high + 1e-9)
        self.widths.append(interval.width)
        self.noise_shares.append(interval.noise_share)

    @property
    def coverage(self) -> float:
        """The share of intervals that hold the truth."""
        return float(np.mean(self.held))


Tallies = dict[tuple[str, Estimand], Tally]
Measure = Callable[[Plan, Encoding, Projection, Cells], dict[str, Released]]


def bulk_measure(plan: Plan, simulations: int, rng: np.random.Generator) -> Measure:
    """Measurements with noise that is drawn beforehand, all at once."""
    noise = {name: iter(bulk_noise(event, simulations, rng)) for name, event in plan.events.items()}

    def measure(plan: Plan, encoding: Encoding, projection: Projection, cells: Cells) -> dict[str, Released]:
        events = plan.events
        sums = {
            name: summed([(cells, None)], encoding, event.layout, projection).upper_triangles()
            for name, event in events.items()
        }
        return {name: released(event, sums[name], next(noise[name])) for name, event in events.items()}

    return measure


def simulate(setting: Setting, *, simulations: int, rows: int, measure: Measure | None = None) -> Tallies:
    """Every question, for the table and for the population, over many tables."""
    rng, plan = public_generator(SEED, f"coverage {setting.name}"), setting.plan(rows)
    encoding = Encoding(plan.schema)
    projection = no_projection(encoding)
    if plan.projection == "ron":
        projection = ron_projection(encoding, plan.dimension, SEED)
    measure = measure or bulk_measure(plan, simulations, rng)
    tallies: Tallies = {}
    for _ in range(simulations):
        cells = people(rows, rng)
        measured = measure(plan, encoding, projection, cells)
        inference = ReleaseInference.from_released(
            encoding, measured[MOMENTS], projection=projection, sums=measured.get(MEAN), draws=DRAWS
        )
        for name, estimand, interval, truth in answers(inference, cells, labelled=plan.schema.label is not None):
            tallies.setdefault((name, estimand), Tally()).add(interval, truth)
    return tallies


def answers(
    inference: ReleaseInference, cells: Cells, *, labelled: bool
) -> Iterator[tuple[str, Estimand, Interval, float]]:
    """Every interval with the truth that it should hold."""
    exact = least_squares(cells)
    for estimand in Estimand:
        for question in QUESTIONS:
            if "|" not in question.name or labelled:
                truth = question.table(cells) if estimand is Estimand.TABLE else question.population
                yield question.name, estimand, question.ask(inference, estimand), truth
        truths = exact if estimand is Estimand.TABLE else COEFFICIENTS
        for name, interval in inference.regression("income", FEATURES, estimand=estimand).items():
            yield f"income ~ {name}", estimand, interval, truths[name]


def show(setting: Setting, tallies: Tallies, console: Console) -> bool:
    """Print the table of one setting; whether every coverage is as it should be."""
    table = Table("figure", "of the", "coverage", "median width", "noise share", "unbounded", title=setting.name)
    good = True
    for (name, estimand), tally in tallies.items():
        fits = abs(tally.coverage - CONFIDENCE) <= TOLERANCE
        good = good and fits
        unbounded = float(np.mean(~np.isfinite(tally.widths)))
        cells = (f"{tally.coverage:.1%}", f"{np.median(tally.widths):.3g}", f"{np.median(tally.noise_shares):.0%}")
        table.add_row(name, estimand.value, *cells, f"{unbounded:.1%}", style=None if fits else "red")
    console.print(table)
    return good


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=SIMULATIONS)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--variants", action="store_true", help="the other layouts and mechanisms, at epsilon 1")
    options = parser.parse_args()
    console, good = Console(width=100), True
    for setting in settings(options.variants):
        tallies = simulate(setting, simulations=options.simulations, rows=options.rows)
        good = show(setting, tallies, console) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
