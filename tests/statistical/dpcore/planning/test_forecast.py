"""Forecasts agree with the accountant's sums and with the noise of actual releases."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.dpcore.samplers import SIGMAS

from dpcore.accounting import Balance, Cap, Cost, Epsilon, Months, Rho, population_balance, rho_of_epsilon, times
from dpcore.evaluation.utility import MeasuredSummary
from dpcore.measure import PrivateGram, Released, exact_gram, measure_gram, measure_vector
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection, no_projection, private_projection, ron_projection
from dpcore.mechanisms.vectors import PrivateVector
from dpcore.noise.sources import SeededNoise
from dpcore.planning.forecast import (
    ColumnNoise,
    alternative_epsilons,
    burn_down,
    column_noise,
    largest_fitting,
    nice_below,
)
from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PlanRequest
from dpcore.records.binning import ColumnCells
from dpcore.records.encoding import Encoding, level_corners
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
from dpcore.synthesis.generators import ClassGaussians

# -- the year ahead ----------------------------------------------------------------

MONTHS = [f"2026-{month:02}" for month in range(1, 13)]
NOTHING = Cost()
PURE = Cost.of(Epsilon(Fraction(3, 10)))
GAUSSIAN = Cost.of(Rho(rho_of_epsilon(1.0, delta=1e-6)), delta_num=Fraction(1, 10**14))


def cap(epsilon: str, delta: str = "1/100000", delta_num: str = "1/1000000000") -> Cap:
    return Cap(Fraction(epsilon), Fraction(delta), Fraction(delta_num))


def held(limit: Cap, spent: Cost = NOTHING, span: int | None = None) -> Balance:
    return Balance(limit, span, Months({}, spent))


@pytest.mark.parametrize("span", [1, 2, 3, 12])
def test_within_windows_the_year_stops_only_where_a_window_is_full(span: int) -> None:
    limit = cap("0.6")
    steps = burn_down(held(limit, span=span), PURE, [(month, False) for month in MONTHS])
    assert all(step.spent.epsilon <= limit.epsilon for step in steps)
    allowed = [step.allowed for step in steps]
    assert allowed == ([True] * 12 if span <= 2 else [number % span < 2 for number in range(12)])


@pytest.mark.parametrize("each", [PURE, GAUSSIAN], ids=["pure", "gaussian"])
@pytest.mark.parametrize("spent", [Cost(), PURE, GAUSSIAN + PURE], ids=["nothing", "pure", "both"])
def test_the_year_stops_where_the_cap_allows_no_further_release(each: Cost, spent: Cost) -> None:
    limit = cap("2.5")
    steps = burn_down(held(limit, spent), each, [(month, False) for month in MONTHS])
    allowed = [step.allowed for step in steps]
    count = limit.releases_left(spent, each)
    assert 0 < count < 12
    assert allowed == [True] * count + [False] * (12 - count)
    assert [step.spent for step in steps[:count]] == [
        population_balance(spent + times(each, number), delta=limit.delta) for number in range(1, count + 1)
    ]
    assert {step.spent for step in steps[count:]} == {steps[count - 1].spent}, "a refused release spends nothing"


def test_gaussian_costs_grow_slower_than_their_number() -> None:
    steps = burn_down(held(cap("100")), GAUSSIAN, [(month, False) for month in MONTHS])
    first, last = float(steps[0].spent.epsilon), float(steps[-1].spent.epsilon)
    assert 2 * first < last < 6 * first
    assert steps[-1].spent.delta_num == 12 * GAUSSIAN.delta_num


def test_a_period_in_the_ledger_is_not_counted_again_even_under_a_full_cap() -> None:
    limit = cap("0.6")
    steps = burn_down(held(limit, PURE), PURE, list(zip(MONTHS, (True, False, True, False), strict=False)))
    assert [step.allowed for step in steps] == [True, True, True, False]
    assert [step.spent.epsilon for step in steps] == [
        Fraction(3, 10),
        Fraction(6, 10),
        Fraction(6, 10),
        Fraction(6, 10),
    ]


def test_the_finite_precision_of_many_releases_exhausts_a_cap_too() -> None:
    tight = cap("100", delta_num="3/100000000000000")
    assert [s.allowed for s in burn_down(held(tight), GAUSSIAN, [(m, False) for m in MONTHS[:5]])] == [
        True,
        True,
        True,
        False,
        False,
    ]


# -- other epsilons ----------------------------------------------------------------


@given(value=st.fractions(min_value=Fraction(1, 10**6), max_value=10**6))
@example(value=1 - Fraction(1, 10**20))  # whose logarithm rounds to 0
def test_a_nice_number_has_two_digits_and_is_just_below(value: Fraction) -> None:
    nice = nice_below(value)
    digits = f"{float(nice):.10e}".replace(".", "").partition("e")[0]
    assert digits[2:].strip("0") == ""
    assert nice <= value < nice * Fraction(11, 10)
    assert nice_below(nice) == nice


@given(limit=st.fractions(min_value=Fraction(1, 900), max_value=200), ceiling=st.fractions(min_value=1, max_value=100))
def test_the_largest_that_fits_is_the_nice_number_below_the_limit(limit: Fraction, ceiling: Fraction) -> None:
    asked: list[Fraction] = []

    def fits(epsilon: Fraction) -> bool:
        asked.append(epsilon)
        return epsilon <= limit

    assert largest_fitting(fits, at_most=ceiling) == nice_below(min(limit, ceiling))
    assert len(asked) <= 10
    assert max(asked) <= ceiling


def test_nothing_fits_where_even_the_smallest_does_not() -> None:
    assert largest_fitting(lambda _: False, at_most=Fraction(10)) is None
    assert largest_fitting(lambda _: True, at_most=Fraction(1, 2000)) is None


def test_alternatives_surround_the_present_epsilon_under_the_cap() -> None:
    assert [float(e) for e in alternative_epsilons(Fraction(1), at_most=Fraction(12))] == [0.25, 0.5, 0.75, 1, 1.5, 2]
    odd = alternative_epsilons(Fraction("0.333"), at_most=Fraction("0.5"))
    assert [float(e) for e in odd] == [0.083, 0.16, 0.24, 0.333, 0.49]


# -- noise of columns --------------------------------------------------------------

AGE = IntervalColumn(name="age", kind=Kind.NUMERIC, lower=0.0, upper=120.0)
SCORE = IntervalColumn(name="score", kind=Kind.NUMERIC, lower=-1.0, upper=1.0, role=Role.TARGET)
SMOKER = NominalColumn(name="smoker", kind=Kind.BOOLEAN, levels=(False, True))
SEX = NominalColumn(name="sex", kind=Kind.CATEGORICAL, levels=("f", "m", "x"))
LABEL = NominalColumn(name="class", kind=Kind.CATEGORICAL, levels=("no", "yes"), role=Role.LABEL)
ROWS, DRAWS = 3024, 900  # so that every level of every column is exactly as frequent as the others


def planned(*columns: IntervalColumn | NominalColumn, **changes: object) -> Plan:
    roles = {column.role for column in columns}
    gaussian = "mixture" if Role.LABEL in roles else "supervised" if Role.TARGET in roles else "gaussian"
    request = PlanRequest(
        schema=RecordSchema(columns),
        neighbours=Neighbours.REPLACE_ONE,
        unit=PrivacyUnit(),
        epsilon=Fraction(1),
        delta=Fraction(0),
        expected_rows=ROWS,
        projection="none",
        generator=gaussian,
    )
    return make_plan(replace(request, **changes))  # type: ignore[arg-type]


def balanced(schema: RecordSchema) -> Cells:
    """Return a table with all means in the middle of the bounds and all levels equally frequent."""
    turns = np.arange(ROWS)
    cells: Cells = {}
    for place, column in enumerate(schema.columns):
        if isinstance(column, IntervalColumn):
            cells[column.name] = np.where(turns % 2, column.lower, column.upper)
        else:
            cells[column.name] = (turns // 6**place) % column.level_count
    return cells


def noisy_figures(plan: Plan, cells: Cells, seed: int, draws: int = DRAWS) -> dict[str, np.ndarray]:
    """Return the means, in the column's unit, and the shares of the last level from several releases of one table."""
    encoding = Encoding(plan.schema)
    noise, found = SeededNoise(seed), []
    whole = no_projection(encoding)
    sums = plan.mean_event and exact_gram([(cells, None)], encoding, plan.mean_event.layout, whole)
    gram = None
    for draw in range(draws):
        ron = plan.projection == "ron"  # every release draws its own projection
        projection = ron_projection(encoding, plan.dimension, str(draw)) if ron else whole
        if ron or gram is None:
            gram = exact_gram([(cells, None)], encoding, plan.event.layout, projection)
        found.append(_figures(plan, encoding, gram, sums, projection, noise))
    return {name: np.array([figures[name] for figures in found]) for name in found[0]}


def _figures(
    plan: Plan,
    encoding: Encoding,
    gram: PrivateGram,
    sums: PrivateGram | None,
    projection: Projection,
    noise: SeededNoise,
) -> dict[str, float]:
    released = measure_gram(gram, plan.event, noise)
    apart: Released | None = measure_gram(sums, plan.mean_event, noise) if sums and plan.mean_event else None
    basis = None
    if plan.reuses_gram:
        projection = private_projection(released, encoding, plan.dimension)
        basis = projection.basis()
    mixture = ClassGaussians(NoisyMoments.from_released(released, basis, apart), projection)
    mean = MeasuredSummary.of(encoding, mixture).sums.mean * encoding.scale
    figures = {}
    for code in encoding.codes:
        vector = mean[code.start : code.stop]
        if isinstance(code.column, IntervalColumn):
            figures[code.column.name] = code.column.half_width * vector[0]
        else:
            count = code.column.level_count
            figures[code.column.name] = (1 + (count - 1) * level_corners(code.column)[-1] @ vector) / count
    label = encoding.schema.label
    return figures | ({label.name: mixture.moments.weights[-1]} if label else {})


def assert_agrees(noise: np.ndarray, expected: float) -> None:
    """Assert a standard deviation within its statistical error, for any kurtosis of the noise."""
    squares = (noise - noise.mean()) ** 2
    error = squares.std() / math.sqrt(len(squares))
    assert abs(squares.mean() - expected**2) < SIGMAS * error, (math.sqrt(squares.mean()), expected)
    assert SIGMAS * error < 0.6 * squares.mean(), "too few draws to tell"


PLANS = {
    "wishart, one block": planned(AGE, SMOKER, SEX),
    "wishart, a block for each class": planned(AGE, SMOKER, SEX, LABEL),
    "gaussian": planned(AGE, SEX, LABEL, mechanism="gaussian", delta=Fraction(1, 10**6)),
    "laplace, a target": planned(AGE, SEX, SCORE, mechanism="laplace"),
    "means measured apart": planned(
        AGE, SEX, LABEL, mechanism="laplace", allocation={"mean": Fraction(3, 10), "moments": Fraction(7, 10)}
    ),
    "components out of the moments": planned(AGE, SMOKER, SEX, projection="private-pca", dimension=2),
}


def by_name(plan: Plan) -> dict[str, ColumnNoise]:
    return {noise.column.name: noise for noise in column_noise(plan)}


@functools.cache
def figures_in_the_middle(case: str) -> dict[str, np.ndarray]:
    return noisy_figures(PLANS[case], balanced(PLANS[case].schema), seed=len(case))


@pytest.mark.parametrize("case", PLANS)
def test_columns_in_the_middle_carry_the_least_noise_that_was_forecast(case: str) -> None:
    for name, forecast in by_name(PLANS[case]).items():
        assert_agrees(figures_in_the_middle(case)[name], forecast.least)


@pytest.mark.parametrize("case", ["wishart, one block", "gaussian", "means measured apart"])
def test_columns_at_a_bound_carry_the_most_noise_that_was_forecast(case: str) -> None:
    plan = PLANS[case]
    for column in (AGE, SEX):
        cells = balanced(plan.schema)
        extreme = column.upper if isinstance(column, IntervalColumn) else len(column.levels) - 1
        cells[column.name] = np.full(ROWS, extreme)
        forecast = by_name(plan)[column.name]
        assert_agrees(noisy_figures(plan, cells, seed=5)[column.name], forecast.most)
        assert forecast.most > 1.1 * forecast.least


def test_a_forecast_of_half_the_noise_would_be_noticed() -> None:
    noise = figures_in_the_middle("gaussian")["age"]
    with pytest.raises(AssertionError):
        assert_agrees(noise, by_name(PLANS["gaussian"])["age"].least / 2)


def test_a_copula_s_forecast_is_the_noise_of_its_histograms() -> None:
    """For the share of a level, and for the mean over the counts of all cells."""
    plan, noise = planned(AGE, SEX, LABEL, generator="copula"), SeededNoise(5)
    event, forecast = plan.marginals_event, by_name(plan)
    assert event is not None
    nothing = PrivateVector(event.query, [0] * event.query.size)
    draws = [event.query.split(measure_vector(nothing, event, noise).numbers()) for _ in range(DRAWS)]
    positions, _ = ColumnCells(AGE).positions()
    assert_agrees(np.array([AGE.half_width * positions @ ages for ages, _ in draws]) / ROWS, forecast["age"].most)
    assert_agrees(np.array([sexes[0] for _, sexes in draws]) / ROWS, forecast["sex"].most)
    assert [forecast[name].is_share for name in ("age", "sex", "class")] == [False, True, True]


def test_a_random_projection_passes_on_the_part_of_the_noise_that_it_keeps() -> None:
    plan = planned(AGE, SMOKER, SEX, projection="ron", dimension=2)
    forecast = by_name(plan)
    figures = noisy_figures(plan, balanced(plan.schema), seed=8)
    for name, noise in forecast.items():
        assert not noise.known
        assert_agrees(figures[name], noise.least)


def test_means_are_known_where_nothing_is_left_out_or_a_centre_stands_in() -> None:
    narrow = {"projection": "ron", "dimension": 2}
    assert {n.known for n in column_noise(planned(AGE, SMOKER, SEX, projection="ron", dimension=5))} == {True}
    assert {n.column.name: n.known for n in column_noise(planned(AGE, SEX, SCORE, **narrow))} == {
        "age": False,
        "sex": False,
        "score": True,
    }
    assert {n.column.name: n.known for n in column_noise(planned(AGE, SEX, LABEL, **narrow))}["class"]
    assert {n.known for n in column_noise(PLANS["components out of the moments"])} == {True}


def test_noise_falls_as_one_over_rows_and_epsilon_and_follows_the_unit() -> None:
    wide = replace(AGE, upper=240.0)
    base = by_name(planned(AGE, SEX))["age"]
    assert by_name(planned(wide, SEX))["age"].most == pytest.approx(2 * base.most)
    assert by_name(planned(wide, SEX))["age"].part_of_range == pytest.approx(base.part_of_range)
    assert by_name(planned(AGE, SEX, expected_rows=10 * ROWS))["age"].most == pytest.approx(base.most / 10)
    assert by_name(planned(AGE, SEX, epsilon=Fraction(2)))["age"].most == pytest.approx(base.most / 2, rel=1e-3)
