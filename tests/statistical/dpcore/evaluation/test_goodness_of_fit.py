"""Gaps between measured and synthetic tables: only gaps that noise and sampling explain are inside."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from support.dpcore.samplers import generator

from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.evaluation.copula_fit import measured_summary
from dpcore.evaluation.goodness_of_fit import (
    EDGES,
    Gaps,
    category_coverage,
    column_gaps,
    isotropy,
    pair_gaps,
    release_report,
)
from dpcore.evaluation.table_summary import TableSummary
from dpcore.evaluation.utility import MeasuredSummary, utility_report
from dpcore.measure import exact_gram, measure_gram, measure_vector
from dpcore.measurements.groups import cells_of_columns
from dpcore.measurements.histograms import exact_histograms
from dpcore.measurements.measurement_frame import Frame
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import no_projection, private_projection, ron_projection
from dpcore.mechanisms.laplace_sums import LAPLACE_SUMS
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SeededNoise
from dpcore.planning.planner import make_plan
from dpcore.planning.request import COPULA, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout
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
from dpcore.synthesis.copula.generator import grouped_encoding

R1 = Neighbours.REPLACE_ONE
ROWS = 20_000
LOUD: Budget = Epsilon(Fraction(1, 50))
"""A budget so small that the noise is far larger than the sampling error."""

SCHEMA = RecordSchema(
    (
        IntervalColumn(name="a", kind=Kind.NUMERIC, lower=-4.0, upper=4.0),
        IntervalColumn(name="b", kind=Kind.NUMERIC, lower=-4.0, upper=4.0),
        NominalColumn(name="flag", kind=Kind.BOOLEAN, levels=(False, True)),
        NominalColumn(name="level", kind=Kind.CATEGORICAL, levels=("x", "y", "z")),
        NominalColumn(name="class", kind=Kind.CATEGORICAL, levels=("k", "l", "m"), role=Role.LABEL),
    )
)


def invented(rows: int = ROWS) -> Cells:
    """Rows whose columns are correlated with each other and with the class."""
    rng = generator(11)
    kind = rng.choice(3, rows, p=[0.5, 0.3, 0.2])
    common = rng.normal(size=rows) + 0.5 * kind
    return {
        "a": np.clip(common + rng.normal(0, 0.5, rows), -4, 4),
        "b": np.clip(common + rng.normal(0, 0.5, rows), -4, 4),
        "flag": (common > 0.4).astype(np.int64),
        "level": np.digitize(common + rng.normal(0, 1, rows), [-0.5, 0.9]),
        "class": kind,
    }


CELLS = invented()


def summary_of(cells: Cells) -> TableSummary:
    """The summary of a table that takes the place of the synthetic one."""
    summary = TableSummary(Encoding(SCHEMA))
    summary.add(cells)
    return summary


def measured(variant: str, budget: Budget, seed: int) -> MeasuredSummary:
    """The noisy measurements of the invented table by each kind of measurement."""
    encoding, noise = Encoding(SCHEMA), SeededNoise(seed)
    sizes = {"projected": 3, "turned": encoding.width}
    projection = ron_projection(encoding, sizes[variant], "5eed" * 8) if variant in sizes else no_projection(encoding)
    if variant == "framed":
        projection = replace(projection, frame=Frame.around_middle(projection.width, 0.9))
    size, weight = projection.dimension, Fraction(1, 2)
    layout = GramLayout(size + 3, 1, weight, labels=3) if variant == "labels" else GramLayout(size + 1, 3, weight)
    name = "gaussian" if isinstance(budget, Rho) else "laplace" if variant == "laplace" else "wishart-difference-trace"
    event = gram_mechanism(name).calibrate(layout, R1, budget)
    released = measure_gram(exact_gram([(CELLS, None)], encoding, layout, projection), event, noise)
    sums = None
    if variant == "mean apart":
        apart = LAPLACE_SUMS.calibrate(replace(layout, count_weight=Fraction(1, 4)), R1, budget)
        sums = measure_gram(exact_gram([(CELLS, None)], encoding, apart.layout, projection), apart, noise)
    if variant == "components":
        kept = private_projection(released, encoding, 4)
        return measured_summary(encoding, NoisyMoments.from_released(released, kept.basis()), kept)
    return measured_summary(encoding, NoisyMoments.from_released(released, sums=sums), projection)


def measured_copula(epsilon: float, delta: float, seed: int) -> MeasuredSummary:
    """The noisy measurements of the invented table by histograms and a Gram of groups."""
    request = PlanRequest(
        schema=SCHEMA,
        neighbours=R1,
        unit=PrivacyUnit(),
        epsilon=Fraction(epsilon),
        delta=Fraction(delta),
        expected_rows=ROWS,
        projection="none",
        generator=COPULA,
    )
    plan, noise = make_plan(request), SeededNoise(seed)
    assert plan.marginals_event is not None
    query: Any = plan.marginals_event.query
    counts = exact_histograms([(CELLS, None)], cells_of_columns(SCHEMA.encoded_columns), query)
    marginals = measure_vector(counts, plan.marginals_event, noise)
    encoding = grouped_encoding(SCHEMA, marginals, plan.event)
    gram = exact_gram([(CELLS, None)], encoding, plan.event.layout, no_projection(Encoding(SCHEMA)))
    moments = NoisyMoments.from_released(measure_gram(gram, plan.event, noise))
    return measured_summary(Encoding(SCHEMA), replace(moments, marginals=marginals), no_projection(Encoding(SCHEMA)))


VARIANTS: dict[str, Budget] = {
    "blocks": LOUD,
    "gaussian": Rho(Fraction(1, 20_000)),
    "laplace": LOUD,
    "labels": LOUD,
    "projected": LOUD,
    "turned": LOUD,
    "components": LOUD,
    "mean apart": LOUD,
    "framed": LOUD,
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_gaps_that_are_nothing_but_noise_have_the_size_that_is_allowed(variant: str) -> None:
    """The table itself takes the place of the synthetic one, so noise is the only difference."""
    truth = summary_of(CELLS)
    sizes = np.array([pair_gaps(measured(variant, VARIANTS[variant], seed), truth).sizes for seed in range(40)])
    assert 0.8 < math.sqrt(float((sizes**2).mean())) < 1.2
    assert 0.92 < float((np.abs(sizes) < 1.96).mean()) < 0.99


@pytest.mark.parametrize("variant", ["blocks", "gaussian"])
def test_half_the_noise_or_twice_would_be_noticed(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above has power: a wrong size of the noise fails it."""
    truth = summary_of(CELLS)
    sizes = np.array([pair_gaps(measured(variant, VARIANTS[variant], seed), truth).sizes for seed in range(40)])
    for factor in (0.5, 2.0):
        assert not 0.8 < math.sqrt(float(((factor * sizes) ** 2).mean())) < 1.2


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (0.5, 1e-6)])
def test_gaps_of_a_mixed_table_are_about_as_large_as_allowed(epsilon: float, delta: float) -> None:
    """Pairs of levels only: numbers were measured by groups, and the table differs from its groups."""
    truth = summary_of(CELLS)
    gaps = [pair_gaps(measured_copula(epsilon, delta, seed), truth) for seed in range(12)]
    nominal = [i for i, name in enumerate(gaps[0].names) if " a" not in f" {name}" and " b" not in f" {name}"]
    sizes = np.array([gap.sizes[nominal] for gap in gaps])
    assert 0.6 < math.sqrt(float((sizes**2).mean())) < 1.2


def test_what_noise_cannot_explain_is_outside() -> None:
    """Columns that are shuffled independently keep their means and lose their correlations."""
    rng = generator(3)
    apart = {name: rng.permutation(cells) for name, cells in CELLS.items()}
    quiet = measured("blocks", Epsilon(Fraction(100)), 1)
    report = release_report(quiet, summary_of(apart))
    assert report["metrics"]["means_inside"] == 1.0
    assert report["metrics"]["pairs_inside"] < 0.2
    worst = report["fit"]["pairs"]["largest"][0]
    assert abs(worst["deviations"]) > 10
    assert release_report(quiet, summary_of(CELLS))["metrics"]["pairs_inside"] == 1.0


def test_a_shifted_column_is_named_first() -> None:
    shifted = CELLS | {"b": np.clip(CELLS["b"] + 0.5, -4, 4)}
    report = release_report(measured("blocks", Epsilon(Fraction(100)), 1), summary_of(shifted))
    assert report["fit"]["columns"]["largest"][0]["name"] == "b"
    assert report["metrics"]["means_inside"] < 1


def test_few_synthetic_rows_are_allowed_their_chance() -> None:
    """200 honest rows are inside; with the sampling error of many rows they would not be."""
    quiet = measured("blocks", Epsilon(Fraction(100)), 1)
    many = pair_gaps(quiet, summary_of(CELLS)).deviations
    drawn = [{name: cells[i : i + 200] for name, cells in CELLS.items()} for i in range(0, ROWS, 500)]
    gaps = [pair_gaps(quiet, summary_of(few)) for few in drawn]
    assert np.mean([gap.share for gap in gaps]) > 0.92
    assert np.mean([Gaps(gap.names, gap.measured, gap.synthetic, many).share for gap in gaps]) < 0.5


def test_pairs_are_those_of_different_columns_with_every_class() -> None:
    gaps = pair_gaps(measured("blocks", LOUD, 1), summary_of(CELLS))
    quantities = {"a": 1, "b": 1, "flag": 1, "level": 3}
    different = sum(m * n for i, m in enumerate(quantities.values()) for n in list(quantities.values())[:i])
    assert len(gaps.names) == len(set(gaps.names)) == different + 3 * sum(quantities.values())
    assert "a × b" in gaps.names
    assert "class = m × level = z" in gaps.names


def test_a_histogram_counts_every_gap_once() -> None:
    rng = generator(2)
    sizes = rng.normal(0, 5, 400)
    content = Gaps([str(i) for i in range(400)], np.zeros(400), sizes, np.ones(400)).as_json()
    assert sum(content["counts"]) == content["of"] == 400
    assert len(content["counts"]) == len(EDGES) - 1
    assert content["inside"] == int((np.abs(sizes) <= 1.959964).sum())
    assert [abs(gap["deviations"]) for gap in content["largest"]] == pytest.approx(sorted(np.abs(sizes))[:-9:-1])


def test_of_nothing_everything_is_inside() -> None:
    assert Gaps.of([]).share == 1.0
    assert Gaps.of([]).as_json()["of"] == 0
    unknown = {"name": "a", "measured": {"mean": None, "mean_margin": None}, "synthetic": {"mean": 1.0}}
    assert column_gaps([unknown], 10).as_json()["of"] == 0


def levels(shares: list[float | None], margins: list[float | None], drawn: list[float]) -> dict[str, Any]:
    return {
        "name": "level",
        "levels": list("xyz"),
        "measured": {"shares": shares, "margins": margins},
        "synthetic": {"shares": drawn},
    }


def test_only_levels_clearly_above_0_must_appear() -> None:
    content = category_coverage([levels([0.6, 0.3, 0.01], [0.02, 0.02, 0.02], [0.7, 0.3, 0.0])])
    assert (content["found"], content["of"], content["share"], content["missing"]) == (2, 2, 1.0, [])
    content = category_coverage([levels([0.6, 0.3, 0.1], [0.02, 0.02, 0.02], [0.7, 0.3, 0.0])])
    assert (content["found"], content["of"], content["missing"]) == (2, 3, ["level = z"])
    assert category_coverage([levels([None] * 3, [None] * 3, [1.0, 0.0, 0.0])])["share"] == 1.0


def test_the_spectrum_sinks_below_the_noise_with_the_budget() -> None:
    truth = summary_of(CELLS)
    shares = [
        release_report(measured("blocks", Epsilon(Fraction(e)), 1), truth)["metrics"]["spectrum_above_noise"]
        for e in (100, Fraction(1, 100))
    ]
    assert shares[0] == 1.0, "that the levels' indicators add up to a constant is no loss"
    assert shares[1] < 0.3


@pytest.mark.parametrize("variant", ["blocks", "labels", "turned", "components"])
def test_isotropy_is_that_of_the_exact_covariance_where_noise_is_small(variant: str) -> None:
    points = Encoding(SCHEMA).encode(CELLS)
    values = np.linalg.eigvalsh(np.cov(points.T))
    kept = values[-4:] if variant == "components" else values
    found = isotropy(measured(variant, Epsilon(Fraction(10**6)), 1))
    assert found == pytest.approx(kept.mean() / kept.max(), rel=0.02)


def test_isotropy_leaves_out_a_target_and_is_zero_without_any_variance() -> None:
    columns = [IntervalColumn(name=name, kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for name in "abc"]
    schema = RecordSchema((*columns[:2], replace(columns[2], role=Role.TARGET)))
    rng = generator(3)
    cells: Cells = {
        "a": rng.uniform(-1, 1, 4000),
        "b": rng.uniform(-0.5, 0.5, 4000),
        "c": rng.choice([-1.0, 1.0], 4000),
    }
    encoding, layout = Encoding(schema), GramLayout(4, 1, Fraction(1, 2))
    event = gram_mechanism("laplace").calibrate(layout, R1, Epsilon(Fraction(10**5)))

    def found(rows: Cells) -> float:
        projection = no_projection(encoding)
        released = measure_gram(exact_gram([(rows, None)], encoding, layout, projection), event, SeededNoise(1))
        return isotropy(measured_summary(encoding, NoisyMoments.from_released(released), projection))

    assert found(cells) == pytest.approx((1 + 0.25) / 2, rel=0.03)
    assert found({name: values[:0] for name, values in cells.items()}) == 0.0


def test_isotropy_of_a_copula_is_a_ratio_too() -> None:
    assert 0 < isotropy(measured_copula(1.0, 0.0, 1)) <= 1


def test_the_report_keeps_what_it_had() -> None:
    one, truth = measured("blocks", LOUD, 1), summary_of(CELLS)
    plain, whole = utility_report(one, truth), release_report(one, truth)
    assert {key: whole[key] for key in plain if key != "metrics"} == {k: v for k, v in plain.items() if k != "metrics"}
    assert plain["metrics"].items() <= whole["metrics"].items()
