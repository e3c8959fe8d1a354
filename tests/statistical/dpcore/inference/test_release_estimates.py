"""Intervals from a release: coverage, agreement with textbooks without noise, and refusals of unknown quantities."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.dpcore.samplers import (
    NEVER,
    SIGMAS,
    gaussian_triangles,
    generator,
    laplace_triangles,
    wishart_difference,
    wishart_trace,
)

from benchmarks.coverage import SCHEMA, Draw, Setting, bulk_noise, exact_sum, people, settings, simulate
from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.inference.functionals import NotIdentifiedError
from dpcore.inference.intervals import Estimand, Interval
from dpcore.inference.release_estimates import ReleaseInference
from dpcore.measure import PrivateGram, exact_gram, gram_sum, measure_gram, measure_vector
from dpcore.measurements.groups import cells_of_columns
from dpcore.measurements.histograms import exact_histograms, histograms_query
from dpcore.measurements.measurement_frame import Directions, Frame
from dpcore.measurements.noise_law import ROTATION_INVARIANT, NoiseCovariance, draw_gram_noise, noise_facts
from dpcore.measurements.projection import Projection, no_projection, principal_projection, ron_projection
from dpcore.mechanisms.base import UNIT, GramEvent, Output
from dpcore.mechanisms.catalogue import ENTRIES
from dpcore.mechanisms.registry import gram_mechanism, mechanism_of, vector_mechanism
from dpcore.mechanisms.sensitivity import best_l1_weight
from dpcore.noise.sources import SeededNoise
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout, GramSum, integer_records
from dpcore.records.schema import Cells, IntervalColumn, Kind, Neighbours, RecordSchema, Role

Floats = np.ndarray[Any, np.dtype[np.float64]]

R1, AR = Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE
PURE, CONCENTRATED = Epsilon(Fraction(1)), Rho(Fraction(1, 8))
LOUD = Epsilon(Fraction(10**7))
"""A budget at which the noise is negligible."""

LAWS: dict[str, tuple[Neighbours, Budget]] = {
    "wishart-difference-trace": (R1, PURE),
    "wishart-difference": (AR, PURE),
    "gaussian": (R1, CONCENTRATED),
    "laplace": (R1, PURE),
}


def test_every_gram_mechanism_has_draws_of_its_noise_and_a_stranger_has_none() -> None:
    named = {entry.name: entry.mechanism for entry in ENTRIES if entry.mechanism is not None}
    grams = {name for name, mechanism in named.items() if mechanism.output is Output.GRAM}
    assert grams - set(LAWS) == {"nuclear-k-norm"}, "which alone has no exact law to compare with"
    layout, basis = GramLayout(2, 1, Fraction(1, 2)), np.eye(2)
    for name in grams:
        event = event_of(name, layout, CONCENTRATED if name == "gaussian" else PURE)
        assert draw_gram_noise(event, basis, 3).shape == (3, 1, 2, 2)
    stranger = replace(event, mechanism="stranger")
    with pytest.raises(KeyError, match="stranger"):
        draw_gram_noise(stranger, basis, 3)
    with pytest.raises(KeyError, match="stranger"):
        NoiseCovariance.of(stranger)
    assert set(ROTATION_INVARIANT) == grams


def event_of(name: str, layout: GramLayout, budget: Budget | None = None) -> GramEvent:
    neighbours, usual = LAWS.get(name, (R1, PURE))
    return gram_mechanism(name).calibrate(layout, neighbours, budget or usual)


def second_implementation(event: GramEvent, size: int) -> Floats:
    """Draw whole noise matrices, by code that is independent of dpcore."""
    rng, p, blocks, parameter = generator(3), event.layout.dimension, event.layout.blocks, float(event.noise)
    if event.mechanism == "wishart-difference":
        return wishart_difference(p, blocks, parameter, size, rng)
    if event.mechanism == "wishart-difference-trace":
        return wishart_trace(p, blocks, parameter, size, rng)
    if event.mechanism == "gaussian":
        drawn = [gaussian_triangles(p, parameter / UNIT, size, rng) for _ in range(blocks)]
    else:
        assert event.mechanism == "laplace", f"{event.mechanism} needs a second sampler here"
        weight = float(best_l1_weight(event.neighbours))
        drawn = [laplace_triangles(p, parameter / UNIT, weight, size, rng) for _ in range(blocks)]
    return np.stack(drawn, axis=1)


# ---------------------------------------------------------------- the law of the noise


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("name", LAWS)
def test_noise_in_a_frame_has_the_law_of_the_whole_noise_seen_in_that_frame(name: str, blocks: int) -> None:
    event = event_of(name, GramLayout(5, blocks, Fraction(1, 2)))
    basis = np.linalg.qr(generator(1).standard_normal((5, 3)))[0]
    ours = draw_gram_noise(event, basis, 20_000)
    theirs = basis.T @ second_implementation(event, 20_000) @ basis
    contrast = generator(2).standard_normal((blocks, 3, 3))
    for functional in (contrast, np.ones((blocks, 1, 1)) * np.eye(3), np.eye(3)[None] * [[[1.0]], [[-1.0]]][:blocks]):
        along = [np.einsum("nbij,bij->n", draws, functional) for draws in (ours, theirs)]
        assert stats.ks_2samp(*along).pvalue > 1e-6
        assert stats.ks_2samp(1.2 * along[0], along[1]).pvalue < 1e-6, "the test can tell a fifth"


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("name", LAWS)
def test_the_stated_covariance_is_that_of_the_noise(name: str, blocks: int) -> None:
    event = event_of(name, GramLayout(3, blocks, Fraction(1, 2)))
    draws, stated = second_implementation(event, 200_000), NoiseCovariance.of(event)
    pairs = {
        (0, 0, 0, 0, 0): stated.diagonal,
        (0, 0, 1, 0, 1): stated.off_diagonal,
        (0, 0, 0, 1, 1): stated.diagonals_of_a_block,
        (0, 0, 0, 0, 1): 0.0,
        (0, 0, 1, 0, 2): 0.0,
    }
    for (block, i, j, k, m), expected in pairs.items():
        products = draws[:, block, i, j] * draws[:, block, k, m]
        assert abs(products.mean() - expected) <= SIGMAS * products.std() / math.sqrt(len(products))
    if blocks > 1:
        products = draws[:, 0, 0, 0] * draws[:, 1, 1, 1]
        assert stated.diagonals_of_two_blocks is not None
        assert abs(products.mean() - stated.diagonals_of_two_blocks) <= SIGMAS * products.std() / math.sqrt(
            len(products)
        )
    if name == "wishart-difference-trace":
        assert stated.diagonals_of_a_block < 0, "the factor on the trace ties diagonals"


@pytest.mark.parametrize("blocks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_noise_that_stands_in_for_the_nuclear_law_is_no_smaller_and_hardly_larger(blocks: int) -> None:
    event = event_of("nuclear-k-norm", GramLayout(3, blocks, Fraction(1, 2)))
    real = np.array(
        [measure_gram(PrivateGram(GramSum(event.layout)), event, SeededNoise(i)).matrices() for i in range(2000)]
    )
    ours = draw_gram_noise(event, np.eye(3), 20_000)
    for block, i, j in [(0, 0, 0), (0, 0, 1), (blocks - 1, 1, 1)]:
        ratio = ours[:, block, i, j].std() / real[:, block, i, j].std()
        assert 0.85 < ratio < 1.4
    contrast = [draws[:, 0, 0, 0] - draws[:, -1, 1, 1] for draws in (ours, real)]
    assert contrast[0].std() > 0.85 * contrast[1].std()


@pytest.mark.parametrize("name", [*LAWS, "nuclear-k-norm", "laplace-sums"])
def test_the_facts_of_the_record_name_law_parameter_and_variances(name: str) -> None:
    layout = GramLayout(3, 1, Fraction(1, 2))
    neighbours, budget = LAWS.get(name, (R1, PURE))
    mechanism = mechanism_of(name)
    event = mechanism.calibrate(layout, neighbours, budget)  # type: ignore[attr-defined]
    facts = noise_facts(event)
    assert facts["law"] == name
    assert all(value is None or math.isfinite(value) for value in facts["covariance"].values())
    assert max(facts["covariance"].values()) > 0
    half = noise_facts(replace(event, noise=event.noise * 2))
    larger = facts if "wishart" in name or "nuclear" in name else half  # a rate, or a scale
    smaller = half if larger is facts else facts
    assert max(larger["covariance"].values()) == pytest.approx(4 * max(smaller["covariance"].values()))


# ---------------------------------------------------------------- without noise: textbook formulas


ROWS = 3000
CELLS = people(ROWS, generator(11))
ENCODING = Encoding(SCHEMA)


def layout_of(encoding: Encoding, **more: Any) -> GramLayout:
    return GramLayout(encoding.width + 1, encoding.schema.class_count, Fraction(1, 2), **more)


def release_of(cells: Cells, encoding: Encoding, budget: Budget, **more: Any) -> ReleaseInference:
    event = event_of("wishart-difference-trace", layout_of(encoding, **more), budget)
    gram = exact_gram([(cells, None)], encoding, event.layout, no_projection(encoding))
    return ReleaseInference.from_released(encoding, measure_gram(gram, event, SeededNoise(1)), draws=4000)


@functools.cache
def loud(**more: Any) -> ReleaseInference:
    """A release of the people with negligible noise."""
    return release_of(CELLS, ENCODING, LOUD, **more)


def numbers(name: str) -> Floats:
    return np.asarray(CELLS[name], dtype=np.float64)


def close(interval: Interval, estimate: float, deviation: float) -> None:
    assert interval.estimate == pytest.approx(estimate, rel=2e-3, abs=2e-4)
    assert interval.width == pytest.approx(2 * 1.96 * deviation, rel=0.06)
    assert interval.low < interval.estimate < interval.high


def test_without_noise_the_population_s_interval_of_a_mean_is_the_textbook_s() -> None:
    age = numbers("age")
    close(loud().mean("age"), age.mean(), age.std() / math.sqrt(ROWS))


def test_a_mean_is_of_the_present_cells_where_missing_ones_are_apart() -> None:
    visits = numbers("visits")
    present = visits[~np.isnan(visits)]
    close(loud().mean("visits"), present.mean(), present.std() / math.sqrt(len(present)))
    share = 1 - len(present) / ROWS
    close(loud().proportion("visits", "(missing)"), share, math.sqrt(share * (1 - share) / ROWS))


@pytest.mark.parametrize(("column", "level", "code"), [("sex", "m", 1), ("smoker", True, 1), ("ill", "no", 0)])
def test_without_noise_a_share_s_interval_is_the_textbook_s(column: str, level: Any, code: int) -> None:
    share = float(np.mean(CELLS[column] == code))
    close(loud().proportion(column, level), share, math.sqrt(share * (1 - share) / ROWS))


def test_a_class_is_asked_by_its_label() -> None:
    age = numbers("age")[CELLS["ill"] == 1]
    close(loud().mean("age", given={"ill": "yes"}), age.mean(), age.std() / math.sqrt(len(age)))
    male = float(np.mean(CELLS["sex"][CELLS["ill"] == 0] == 1))
    of_class = math.sqrt(male * (1 - male) / np.sum(CELLS["ill"] == 0))
    close(loud().proportion("sex", "m", given={"ill": "no"}), male, of_class)


def textbook(features: list[Floats], response: Floats) -> tuple[Floats, Floats]:
    """Least squares and its standard errors."""
    design = np.column_stack([np.ones(len(response)), *features])
    solution, residuals, *_ = np.linalg.lstsq(design, response)
    variance = residuals[0] / (len(response) - design.shape[1])
    return solution, np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))


@pytest.mark.parametrize("within", [None, 1])
def test_without_noise_a_regression_is_the_textbook_s(within: int | None) -> None:
    rows = slice(None) if within is None else CELLS["ill"] == within
    sex = CELLS["sex"]
    features = [numbers("age"), (sex == 1).astype(float), (sex == 2).astype(float), numbers("smoker")]
    solution, errors = textbook([f[rows] for f in features], numbers("income")[rows])
    found = loud().regression("income", ["age", "sex", "smoker"], given=None if within is None else {"ill": "yes"})
    assert list(found) == ["intercept", "age", "sex = m", "sex = x", "smoker = True"]
    for interval, estimate, error in zip(found.values(), solution, errors, strict=True):
        close(interval, estimate, error)


def test_label_and_gaps_are_regressors_and_a_level_may_be_the_target() -> None:
    visits = numbers("visits")
    gap = np.isnan(visits)
    features = [np.where(gap, 10.0, visits), gap.astype(float), numbers("ill")]
    solution, errors = textbook(features, numbers("smoker"))
    found = loud().regression(("smoker", True), ["visits", "ill"])
    assert list(found) == ["intercept", "visits", "visits missing", "ill = yes"]
    for interval, estimate, error in zip(found.values(), solution, errors, strict=True):
        assert interval.width == pytest.approx(2 * 1.96 * error, rel=0.06)
        assert abs(interval.estimate - estimate) < error / 10


def test_for_the_table_there_is_only_noise() -> None:
    inference = loud()
    for interval, truth in [
        (inference.mean("age", estimand=Estimand.TABLE), numbers("age").mean()),
        (inference.proportion("sex", "x", estimand=Estimand.TABLE), float(np.mean(CELLS["sex"] == 2))),
    ]:
        assert interval.low <= truth <= interval.high
        assert interval.width < 1e-4 * max(1.0, truth)
        assert interval.noise_share == 1.0


def test_an_interval_allows_for_the_grid() -> None:
    """Every value is truncated towards the middle: without an allowance the interval would miss the truth."""
    schema = RecordSchema((IntervalColumn(name="x", kind=Kind.NUMERIC, lower=-1, upper=1),))
    cells: Cells = {"x": np.full(ROWS, 0.5 + 0.9 * 2.0**-16)}
    interval = release_of(cells, Encoding(schema), Epsilon(Fraction(10**9))).mean("x", estimand=Estimand.TABLE)
    assert interval.estimate < interval.low + 1.1 * 2.0**-16
    assert interval.low <= 0.5 + 0.9 * 2.0**-16 <= interval.high


def test_two_readers_of_one_release_get_the_same_figures() -> None:
    event = event_of("gaussian", layout_of(ENCODING))
    gram = exact_gram([(CELLS, None)], ENCODING, event.layout, no_projection(ENCODING))
    released = measure_gram(gram, event, SeededNoise(1))
    first, second = (ReleaseInference.from_released(ENCODING, released) for _ in range(2))
    assert first.mean("age") == second.mean("age")
    assert first.regression("income", ["age"]) == second.regression("income", ["age"])


def test_several_rows_a_person_widen_the_population_s_interval_and_not_the_table_s() -> None:
    one, four = loud(), loud(rows_per_unit=4)
    assert four.mean("age").width == pytest.approx(2 * one.mean("age").width, rel=0.02)
    wide, narrow = (r.regression("income", ["age"])["age"].width for r in (four, one))
    assert wide == pytest.approx(2 * narrow, rel=0.02)


# ---------------------------------------------------------------- unknown quantities are refused


def test_what_a_projection_leaves_out_is_refused_and_what_it_keeps_is_answered() -> None:
    schema = RecordSchema(tuple(replace(c, role=Role.TARGET) if c.name == "income" else c for c in SCHEMA.columns))
    encoding = Encoding(schema)
    for projection, known in [
        (ron_projection(encoding, 4, "1"), False),
        (ron_projection(encoding, encoding.feature_width, "1"), True),
    ]:
        event = event_of("wishart-difference-trace", GramLayout(projection.dimension + 1, 2, Fraction(1, 2)), LOUD)
        gram = exact_gram([(CELLS, None)], encoding, event.layout, projection)
        released = measure_gram(gram, event, SeededNoise(1))
        inference = ReleaseInference.from_released(encoding, released, projection=projection, draws=1000)
        close(inference.mean("income"), numbers("income").mean(), numbers("income").std() / math.sqrt(ROWS))
        close(inference.proportion("ill", "yes"), *_share(CELLS["ill"] == 1))
        if known:
            close(inference.mean("age"), numbers("age").mean(), numbers("age").std() / math.sqrt(ROWS))
            continue
        for ask in (
            lambda i: i.mean("age"),
            lambda i: i.proportion("sex", "f"),
            lambda i: i.regression("income", ["age"]),
        ):
            with pytest.raises(NotIdentifiedError, match="leaves a part of it out"):
                ask(inference)


def _share(indicator: Any) -> tuple[float, float]:
    share = float(np.mean(indicator))
    return share, math.sqrt(share * (1 - share) / ROWS)


def test_what_components_leave_out_is_answered_by_the_gram_behind_them() -> None:
    whole = event_of("wishart-difference-trace", GramLayout(ENCODING.width + 1, 1, Fraction(1, 2)), LOUD)
    gram = exact_gram([(CELLS, None)], ENCODING, whole.layout, no_projection(ENCODING))
    components = measure_gram(gram, whole, SeededNoise(1))
    covariance = np.diag(np.arange(ENCODING.width, dtype=np.float64))
    projection = principal_projection(
        "private-pca", ENCODING, mean=np.zeros(ENCODING.width), covariance=covariance, dimension=2
    )
    event = event_of("wishart-difference-trace", GramLayout(3, 2, Fraction(1, 2)), LOUD)
    moments = measure_gram(exact_gram([(CELLS, None)], ENCODING, event.layout, projection), event, SeededNoise(1))
    inference = ReleaseInference.from_measurements(ENCODING, {"moments": moments, "projection": components}, projection)
    close(inference.mean("age"), numbers("age").mean(), numbers("age").std() / math.sqrt(ROWS))
    close(inference.proportion("ill", "yes"), *_share(CELLS["ill"] == 1))
    with pytest.raises(NotIdentifiedError, match="all classes together"):
        inference.mean("age", given={"ill": "yes"})


def test_components_out_of_the_moments_leave_nothing_out() -> None:
    event = event_of("wishart-difference-trace", layout_of(ENCODING), LOUD)
    gram = exact_gram([(CELLS, None)], ENCODING, event.layout, no_projection(ENCODING))
    basis = Projection("private-pca", ENCODING.width, 2, np.eye(ENCODING.width)[:, :2] * 2**20)
    measured = {"moments": measure_gram(gram, event, SeededNoise(1))}
    inference = ReleaseInference.from_measurements(ENCODING, measured, basis)
    close(inference.mean("income"), numbers("income").mean(), numbers("income").std() / math.sqrt(ROWS))


def test_in_a_frame_that_draws_points_back_only_the_classes_sizes_are_known() -> None:
    projection = replace(no_projection(ENCODING), frame=Frame.around_middle(ENCODING.width, 0.5))
    event = event_of("wishart-difference-trace", layout_of(ENCODING), LOUD)
    released = measure_gram(exact_gram([(CELLS, None)], ENCODING, event.layout, projection), event, SeededNoise(1))
    for kind in ("none", "private-pca"):
        own = replace(projection, kind=kind)
        inference = ReleaseInference.from_measurements(ENCODING, {"moments": released}, own)
        close(inference.proportion("ill", "yes"), *_share(CELLS["ill"] == 1))
        with pytest.raises(NotIdentifiedError, match="drawn back"):
            inference.mean("age")


def test_of_points_of_one_length_only_the_classes_sizes_are_known() -> None:
    frame = replace(Frame.around_middle(ENCODING.width), directions=Directions.of(ENCODING, 0.5))
    projection = replace(no_projection(ENCODING), frame=frame)
    event = event_of("wishart-difference-trace", layout_of(ENCODING), LOUD)
    released = measure_gram(exact_gram([(CELLS, None)], ENCODING, event.layout, projection), event, SeededNoise(1))
    inference = ReleaseInference.from_measurements(ENCODING, {"moments": released}, projection)
    close(inference.proportion("ill", "yes"), *_share(CELLS["ill"] == 1))
    with pytest.raises(NotIdentifiedError, match="brought to one length"):
        inference.mean("age")


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (lambda i: i.mean("weight"), "no column"),
        (lambda i: i.mean("sex"), "has levels"),
        (lambda i: i.mean("ill"), "is the label"),
        (lambda i: i.proportion("sex", "q"), "has no level 'q'; it has f, m, x"),
        (lambda i: i.proportion("smoker", 1), "has no level 1"),
        (lambda i: i.proportion("age", "old"), "has no level"),
        (lambda i: i.mean("age", given={"sex": "f"}), "told apart by the label 'ill' only, not by sex"),
        (lambda i: i.mean("age", given={"ill": "perhaps"}), "has no level"),
        (lambda i: i.regression("visits", ["age"]), "missing cells apart"),
        (lambda i: i.regression("sex", ["age"]), "has levels"),
        (lambda i: i.proportion("ill", "yes", given={"ill": "no"}), "all records of a class share its 'ill'"),
        (lambda i: i.proportion("ill", "yes", given={"ill": "yes"}), "all records of a class share its 'ill'"),
        (lambda i: i.regression(("ill", "yes"), ["age"], given={"ill": "no"}), "all records of a class share"),
        (lambda i: i.regression("income", ["age", "ill"], given={"ill": "yes"}), "all records of a class share"),
    ],
)
def test_what_a_release_cannot_know_is_refused_with_the_reason(ask: Any, why: str) -> None:
    with pytest.raises(NotIdentifiedError, match=why):
        ask(loud())


@pytest.mark.parametrize(
    "ask", [lambda i, e: i.mean("age", estimand=e), lambda i, e: i.regression("income", ["age"], estimand=e)]
)
def test_an_estimand_may_be_written_as_text_but_not_wrongly(ask: Any) -> None:
    inference = loud()
    assert ask(inference, "population") == ask(inference, Estimand.POPULATION) != ask(inference, "table")
    with pytest.raises(ValueError, match="sample"):
        ask(inference, "sample")


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_a_confidence_is_a_probability(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence must lie between 0 and 1"):
        loud().mean("age", confidence=confidence)


def test_a_regression_needs_a_feature() -> None:
    with pytest.raises(ValueError, match="at least one column"):
        loud().regression("income", [])


@pytest.mark.parametrize(
    ("target", "features"), [("age", ["income", "age"]), (("sex", "m"), ["sex"]), ("age", ["income", "income"])]
)
def test_a_regression_takes_a_column_once(target: Any, features: list[str]) -> None:
    """A column explains itself without error, and one that is named twice has no coefficient."""
    with pytest.raises(ValueError, match="different columns"):
        loud().regression(target, features)


def test_where_noise_drowns_everything_nothing_is_claimed() -> None:
    event = event_of("wishart-difference-trace", layout_of(ENCODING), Epsilon(Fraction(1, 10_000)))
    total = gram_sum([(CELLS, None)], ENCODING, event.layout, no_projection(ENCODING))
    silent = []
    for seed in range(20):
        released = measure_gram(PrivateGram(total), event, SeededNoise(seed))
        inference = ReleaseInference.from_released(ENCODING, released, draws=2000)
        for interval in inference.regression("income", ["age", "hours"]).values():
            assert (interval.low, interval.high) == (-math.inf, math.inf)
            assert "stand out of the noise" in interval.remark
        age = inference.mean("age")
        silent.append((age.low, age.high) == (0.0, 100.0) and "stand out" in age.remark)
    assert sum(silent) >= 16, "the bounds are public; one count in forty seems to stand out"


@given(
    estimate=st.floats(-3, 3),
    down=st.floats(0, 2),
    up=st.floats(0, 2),
)
def test_an_interval_within_bounds_holds_all_that_is_possible_and_is_never_narrower_for_lying_outside(
    estimate: float, down: float, up: float
) -> None:
    whole = Interval(estimate, estimate - down, estimate + up, 0.95, Estimand.TABLE, 1.0)
    cut = whole.within(0.0, 1.0)
    assert 0 <= cut.low <= cut.estimate <= cut.high <= 1
    for value in np.linspace(0, 1, 11):
        assert not whole.low <= value <= whole.high or cut.low <= value <= cut.high
    if estimate < 0:
        assert cut.high == pytest.approx(min(1.0, up), abs=1e-12)
    if estimate > 1:
        assert cut.low == pytest.approx(max(0.0, 1 - down), abs=1e-12)


# ---------------------------------------------------------------- other layouts


def test_with_labels_in_one_block_classes_have_means_but_no_regressions() -> None:
    layout = GramLayout(ENCODING.width + 2, 1, Fraction(1, 2), labels=2)
    event = event_of("wishart-difference-trace", layout, LOUD)
    gram = exact_gram([(CELLS, None)], ENCODING, layout, no_projection(ENCODING))
    inference = ReleaseInference.from_released(ENCODING, measure_gram(gram, event, SeededNoise(1)), draws=2000)
    age, ill = numbers("age"), CELLS["ill"] == 1
    within = np.concatenate([age[ill] - age[ill].mean(), age[~ill] - age[~ill].mean()]).std()
    close(inference.mean("age", given={"ill": "yes"}), age[ill].mean(), within / math.sqrt(ill.sum()))
    close(inference.mean("age"), age.mean(), age.std() / math.sqrt(ROWS))
    close(inference.proportion("ill", "yes"), *_share(ill))
    with pytest.raises(NotIdentifiedError, match="all classes together"):
        inference.regression("income", ["age"], given={"ill": "yes"})


def histogram_releases(budget: Budget, count: int) -> Iterator[ReleaseInference]:
    """Releases of the people by histograms, each with independent noise."""
    query, layout, noise = histograms_query(SCHEMA.encoded_columns), GramLayout(5, 2, Fraction(1, 4)), SeededNoise(7)
    name = "histogram-gaussian" if isinstance(budget, Rho) else "histogram-laplace"
    event = vector_mechanism(name).calibrate(query, R1, budget)
    groups = event_of("gaussian", layout, budget if isinstance(budget, Rho) else CONCENTRATED)
    exact = exact_histograms([(CELLS, None)], cells_of_columns(SCHEMA.encoded_columns), query)
    total, codes = GramSum(layout), np.asarray(CELLS["ill"], dtype=np.int64)
    total.add(integer_records(np.zeros((ROWS, 4)), None, layout, classes=codes), codes)
    for _ in range(count):
        histograms = measure_vector(exact, event, noise)
        moments = measure_gram(PrivateGram(total), groups, noise)
        yield ReleaseInference.from_histograms(ENCODING, histograms, moments, draws=1000)


@pytest.mark.parametrize("budget", [Epsilon(Fraction(20)), Rho(Fraction(20))])
def test_histograms_answer_means_and_shares_of_all_rows(budget: Budget) -> None:
    (inference,) = histogram_releases(budget, 1)
    visits = numbers("visits")
    for estimand in Estimand:
        for interval, truth in [
            (inference.mean("age", estimand=estimand), numbers("age").mean()),
            (inference.mean("visits", estimand=estimand), np.nanmean(visits)),
            (inference.proportion("sex", "x", estimand=estimand), np.mean(CELLS["sex"] == 2)),
            (inference.proportion("visits", "(missing)", estimand=estimand), np.mean(np.isnan(visits))),
            (inference.proportion("ill", "yes", estimand=estimand), np.mean(CELLS["ill"] == 1)),
        ]:
            assert interval.low - interval.width < truth < interval.high + interval.width
            assert 0 < interval.width < truth
    for ask in (lambda: inference.mean("age", given={"ill": "yes"}), lambda: inference.regression("income", ["age"])):
        with pytest.raises(NotIdentifiedError, match="groups of values"):
            ask()


@pytest.mark.parametrize("budget", [Epsilon(Fraction(2)), Rho(Fraction(1, 4))])
def test_intervals_out_of_histograms_cover(budget: Budget) -> None:
    covered = {"f": 0, "missing": 0, "age": 0}
    runs = 150
    for inference in histogram_releases(budget, runs):
        share = inference.proportion("sex", "f", estimand=Estimand.TABLE)
        gaps = inference.proportion("visits", "(missing)", estimand=Estimand.TABLE)
        age = inference.mean("age", estimand=Estimand.TABLE)
        covered["f"] += share.low <= np.mean(CELLS["sex"] == 0) <= share.high
        covered["missing"] += gaps.low <= np.mean(np.isnan(numbers("visits"))) <= gaps.high
        covered["age"] += age.low <= numbers("age").mean() <= age.high
    for name in ("f", "missing"):
        assert stats.binomtest(covered[name], runs, 0.95).pvalue > 1e-6
    assert stats.binomtest(covered["age"], runs, 0.95, "less").pvalue > 1e-6


# ---------------------------------------------------------------- coverage


def door(seed: int) -> Draw:
    """Measure through the real mechanisms."""
    noise = SeededNoise(seed)
    return lambda _, event, total: measure_gram(PrivateGram(total), event, noise)


def test_the_tables_of_the_coverage_benchmark_are_summed_as_a_release_sums_them() -> None:
    times = generator(4).integers(0, 3, ROWS).astype(np.float64)
    for layout in (layout_of(ENCODING), GramLayout(ENCODING.width + 2, 1, Fraction(1, 2), labels=2)):
        classes = ENCODING.classes(CELLS)
        records = integer_records(ENCODING.encode(CELLS), None, layout, classes=classes)
        table = {name: np.repeat(values, times.astype(int)) for name, values in CELLS.items()}
        real = gram_sum([(table, None)], ENCODING, layout, no_projection(ENCODING))
        assert exact_sum(records, classes, times, layout).upper_triangles() == real.upper_triangles()


@pytest.mark.parametrize("name", ["wishart-difference-trace", "wishart-difference", "gaussian", "laplace"])
def test_the_benchmark_s_noise_has_the_law_of_the_mechanism(name: str) -> None:
    event, measure = event_of(name, GramLayout(3, 2, Fraction(1, 2))), door(5)
    real = np.array([measure("", event, GramSum(event.layout)).matrices() for _ in range(600)])
    ours = bulk_noise(event, 20_000, generator(6))
    for functional in (lambda z: z[:, 0, 0, 0], lambda z: z[:, 0, 0, 1], lambda z: z[:, 0, 0, 0] - z[:, 1, 1, 1]):
        assert stats.ks_2samp(functional(ours), functional(real)).pvalue > NEVER
        sizes = [np.abs(functional(draws)) for draws in (ours, real)]  # tell scales apart better
        assert stats.ks_2samp(*sizes).pvalue > NEVER
        assert stats.ks_2samp(2 * sizes[0], sizes[1]).pvalue < NEVER


@pytest.mark.parametrize("index", [1, 4], ids=["pure", "gaussian"])
def test_intervals_hold_the_truth_as_often_as_they_say_with_the_mechanisms_own_noise(index: int) -> None:
    setting, runs = settings(False)[index], 100
    assert setting.epsilon == 1
    tallies = simulate(setting, simulations=runs, rows=20_000, draw=door(9))
    held = {question: sum(tally.held) for question, tally in tallies.items()}
    assert len(held) == 26
    assert min(stats.binomtest(count, runs, 0.95).pvalue for count in held.values()) > 1e-6
    share = sum(held.values()) / (runs * len(held))
    assert 0.92 < share < 0.98, "a noise of half the size would cover three quarters"


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting", [settings(False)[0], settings(False)[5], settings(True)[2]], ids=lambda setting: setting.name
)  # `python -m benchmarks.coverage` looks at all of them
def test_coverage_is_95_percent_over_two_thousand_simulations(setting: Setting) -> None:
    tallies = simulate(setting, simulations=2000, rows=40_000)
    assert {name: tally.coverage for name, tally in tallies.items() if not 0.935 <= tally.coverage <= 0.965} == {}
    assert all(np.isfinite(tally.widths).all() for tally in tallies.values())


@pytest.mark.slow
def test_coefficients_as_weak_as_the_noise_get_intervals_that_are_too_wide_rather_than_too_narrow() -> None:
    setting = settings(False)[0]
    assert setting.epsilon == Fraction(1, 4)
    tallies = simulate(setting, simulations=800, rows=5000)
    weak = {key: tally for key, tally in tallies.items() if key[0].startswith("income")}
    assert min(tally.coverage for tally in weak.values()) > 0.935
    bounded = np.mean([np.isfinite(tally.widths) for tally in weak.values()])
    assert 0.05 < bounded < 0.95, "the noise is neither negligible nor overwhelming"
