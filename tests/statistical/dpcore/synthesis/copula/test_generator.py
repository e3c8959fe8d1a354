"""The copula generator, from invented rows to synthetic ones: every kind of column is reproduced."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_circles, make_moons
from sklearn.ensemble import HistGradientBoostingClassifier
from support.dpcore.samplers import generator

from dpcore.evaluation.copula_fit import measured_summary
from dpcore.measure import (
    Released,
    ReleasedVector,
    exact_gram,
    measure_gram,
    measure_vector,
    measurement_from_json,
)
from dpcore.measurements.groups import cells_of_columns
from dpcore.measurements.histograms import exact_histograms
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection
from dpcore.mechanisms.queries import HistogramsQuery
from dpcore.noise.sources import SeededNoise
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PlanRequest
from dpcore.records.binning import ColumnCells
from dpcore.records.encoding import Encoding
from dpcore.records.schema import (
    MISSING,
    UNKNOWN,
    Cells,
    Column,
    IntervalColumn,
    Kind,
    Neighbours,
    NominalColumn,
    PrivacyUnit,
    RecordSchema,
    Role,
)
from dpcore.synthesis.copula.generator import Copula, grouped_encoding
from dpcore.synthesis.generators import synthetic_rows

ROWS = 20_000
AMOUNT = IntervalColumn(name="amount", kind=Kind.NUMERIC, lower=0.0, upper=1e6)
HOURS = IntervalColumn(name="hours", kind=Kind.INTEGER, lower=1.0, upper=99.0)
VISITS = IntervalColumn(name="visits", kind=Kind.INTEGER, lower=0.0, upper=10_000.0, missing_level=True)
DAY = IntervalColumn(name="day", kind=Kind.DATE, lower=10_000.0, upper=20_000.0)
SKEWED = IntervalColumn(name="skewed", kind=Kind.NUMERIC, lower=0.0, upper=1.0)
DEBT = IntervalColumn(name="debt", kind=Kind.NUMERIC, lower=-5000.0, upper=5000.0)
LEVEL = NominalColumn(name="level", kind=Kind.CATEGORICAL, levels=tuple("abcdefghij"))
MAYBE = NominalColumn(name="maybe", kind=Kind.BOOLEAN, levels=(False, True), missing_level=True)
THREE = NominalColumn(name="class", kind=Kind.CATEGORICAL, levels=("x", "y", "z"), role=Role.LABEL)
MIXED = RecordSchema((AMOUNT, HOURS, THREE, VISITS, DAY, SKEWED, DEBT, LEVEL, MAYBE))


def people(rows: int, seed: int = 1) -> Cells:
    """Zero-inflated heavy tails, atoms, counts with gaps, seasons, skew, both signs, rare levels; three classes."""
    rng = generator(seed)
    classes = rng.choice(3, rows, p=[0.5, 0.3, 0.2])
    rich = rng.normal(size=rows) + classes
    return {
        "amount": np.where(rng.random(rows) < 0.6, 0.0, np.minimum(np.exp(7 + 1.5 * rich), 1e6)),
        "hours": np.where(rng.random(rows) < 0.45, 40, np.clip(np.rint(rng.normal(38, 12, rows)), 1, 99)),
        "class": classes,
        "visits": np.where(rng.random(rows) < 0.15, np.nan, np.minimum(rng.geometric(0.03, rows) - 1, 10_000)),
        "day": np.rint(rng.triangular(12_000, 18_000, 19_000, rows)),
        "skewed": rng.beta(0.6, 6.0, rows),
        "debt": rng.laplace(200, 600, rows).clip(-5000, 5000),
        "level": np.minimum(rng.geometric(0.4, rows) - 1 + classes, 9),
        "maybe": rng.choice([0, 1, MISSING], rows, p=[0.5, 0.3, 0.2]),
    }


def released(
    schema: RecordSchema, cells: Cells, *, epsilon: Fraction = Fraction(1), seed: int = 1, **request: Any
) -> Copula:
    """Measure as the flow does, with seeded noise."""
    chosen: dict[str, Any] = {"delta": Fraction(1, 10**5), "unit": PrivacyUnit()} | request
    plan = make_plan(
        PlanRequest(
            schema=schema,
            neighbours=Neighbours.REPLACE_ONE,
            epsilon=epsilon,
            expected_rows=ROWS,
            projection="none",
            generator="copula",
            **chosen,
        )
    )
    event, noise = plan.marginals_event, SeededNoise(seed)
    assert event is not None
    assert isinstance(event.query, HistogramsQuery)
    counts = exact_histograms([(cells, None)], cells_of_columns(schema.encoded_columns), event.query)
    marginals = measure_vector(counts, event, noise)
    encoding = grouped_encoding(schema, marginals, plan.event)
    everything = Projection("none", encoding.width, encoding.width, None)
    gram = exact_gram([(cells, None)], encoding, plan.event.layout, everything)
    moments = NoisyMoments.from_released(measure_gram(gram, plan.event, noise))
    return Copula(schema, replace(moments, marginals=marginals))


def synthetic(copula: Copula, rows: int = ROWS, seed: str = "5eed") -> Cells:
    return synthetic_rows(Encoding(copula.schema), copula, rows, seed).cells()


@pytest.fixture(scope="module")
def table() -> Cells:
    return people(ROWS)


@pytest.fixture(scope="module")
def copula(table: Cells) -> Copula:
    return released(MIXED, table, epsilon=Fraction(4))


@pytest.fixture(scope="module")
def made(copula: Copula) -> Cells:
    return synthetic(copula)


# ---- the measurements of each column ------------------------------------------------------------------


def test_measured_means_and_shares_are_the_table_s_within_their_margins(copula: Copula, table: Cells) -> None:
    """Seeded noise; each of nearly thirty figures lies within one and a half of its 95 % margins."""
    measured = measured_summary(Encoding(MIXED), copula.moments, copula.projection)
    for column in MIXED.columns:
        found = measured.column(column)
        if isinstance(column, IntervalColumn):
            values = present(table, column)
            assert abs(found["mean"] - values.mean()) <= 1.5 * found["mean_margin"], column.name
            if column is not AMOUNT:  # whose tail lies in few wide cells
                assert found["sd"] == pytest.approx(values.std(), rel=0.05), column.name
        else:
            level = np.where(table[column.name] == MISSING, column.level_count - 1, table[column.name])
            gaps = np.array(found["shares"]) - np.bincount(level, minlength=column.level_count) / ROWS
            assert (np.abs(gaps) <= 3 * np.array(found["margins"])).all(), column.name
            assert max(found["margins"]) < 0.002, column.name
        if column is not VISITS:
            assert measured.missing_share(column) is None
    assert measured.missing_share(VISITS) == pytest.approx(np.isnan(table["visits"]).mean(), abs=0.002)


# ---- each column on its own ----------------------------------------------------------------------------


def test_every_cell_is_one_that_the_schema_allows(made: Cells) -> None:
    assert list(made) == [column.name for column in MIXED.columns]
    for column in MIXED.columns:
        values = made[column.name]
        assert len(values) == ROWS
        if isinstance(column, NominalColumn):
            assert set(values.tolist()) <= {*range(len(column.levels)), *([MISSING] if column.missing_level else [])}
            continue
        present = values[~np.isnan(values)]
        assert len(present) == ROWS or column.missing_level
        assert present.min() >= column.lower
        assert present.max() <= column.upper
        assert not column.is_whole or (present == np.rint(present)).all()


def present(cells: Cells, column: IntervalColumn) -> np.ndarray:
    return cells[column.name][~np.isnan(cells[column.name])]


def rank_gap(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference of two distribution functions (Kolmogorov-Smirnov)."""
    places = np.sort(np.concatenate([one, other]))
    ranks = [np.searchsorted(np.sort(x), places, side="right") / len(x) for x in (one, other)]
    return float(np.abs(ranks[0] - ranks[1]).max())


@pytest.mark.parametrize("column", [c for c in MIXED.columns if isinstance(c, IntervalColumn)], ids=lambda c: c.name)
def test_numbers_dates_and_counts_keep_their_distribution(column: IntervalColumn, table: Cells, made: Cells) -> None:
    """Noise of 13 units per cell: three times that on half of a group's hundred cells is 1.4 % of the rows."""
    assert rank_gap(present(table, column), present(made, column)) < 0.03


@pytest.mark.parametrize(("delta", "epsilon", "gap"), [(Fraction(1, 10**5), 1, 0.07), (Fraction(0), 2, 0.1)])
def test_with_four_times_the_noise_distributions_blur_and_keep_their_place(
    table: Cells, delta: Fraction, epsilon: int, gap: float
) -> None:
    """Noise of 44 and of 51 units per cell: normal, and Laplace for pure epsilon."""
    copula = released(MIXED, table, epsilon=Fraction(epsilon), delta=delta)
    assert copula.marginals.event.mechanism == ("histogram-gaussian" if delta else "histogram-laplace")
    again = synthetic(copula)
    for column in MIXED.columns:
        if isinstance(column, IntervalColumn):
            assert rank_gap(present(table, column), present(again, column)) < gap, column.name
    assert np.mean(again["amount"] == 0) == pytest.approx(np.mean(table["amount"] == 0), abs=0.02)
    assert np.mean(again["debt"] < 0) == pytest.approx(np.mean(table["debt"] < 0), abs=0.03)


@pytest.mark.parametrize("column", [LEVEL, MAYBE, THREE], ids=lambda c: c.name)
def test_levels_keep_their_shares(column: NominalColumn, table: Cells, made: Cells) -> None:
    one, other = (np.bincount(cells[column.name] + 1, minlength=12) / ROWS for cells in (table, made))
    assert other == pytest.approx(one, abs=0.02)


def test_a_pile_at_zero_comes_out_as_zero_and_the_tail_beside_it_keeps_its_orders_of_magnitude(
    table: Cells, made: Cells
) -> None:
    assert np.mean(made["amount"] == 0) == pytest.approx(np.mean(table["amount"] == 0), abs=0.02)
    one, other = (np.log10(cells["amount"][cells["amount"] > 0]) for cells in (table, made))
    at = [0.1, 0.25, 0.5, 0.75, 0.9]
    assert np.quantile(other, at) == pytest.approx(np.quantile(one, at), abs=0.2)


def test_a_pile_among_whole_numbers_is_kept(table: Cells, made: Cells) -> None:
    for hours in (39, 40, 41):
        assert np.mean(made["hours"] == hours) == pytest.approx(np.mean(table["hours"] == hours), abs=0.02)


def test_missing_numbers_are_as_many_as_they_were(table: Cells, made: Cells) -> None:
    assert np.isnan(made["visits"]).mean() == pytest.approx(np.isnan(table["visits"]).mean(), abs=0.02)


def test_both_signs_come_out_in_their_shares(table: Cells, made: Cells) -> None:
    assert np.mean(made["debt"] < 0) == pytest.approx(np.mean(table["debt"] < 0), abs=0.03)


# ---- columns together ----------------------------------------------------------------------------------


def test_classes_keep_what_tells_them_apart(table: Cells, made: Cells) -> None:
    for k in range(3):
        one, other = (cells["level"][cells["class"] == k].mean() for cells in (table, made))
        assert other == pytest.approx(one, abs=0.25)
        spent, again = (np.log1p(cells["amount"][cells["class"] == k]).mean() for cells in (table, made))
        assert again == pytest.approx(spent, abs=0.4)


def follower(rows: int, seed: int) -> Cells:
    """Two correlated numbers and two associated levels; the second class has the stronger dependence."""
    rng = generator(seed)
    label = rng.integers(0, 2, rows)
    x = rng.normal(size=rows)
    y = np.where(label == 1, 0.9, 0.3) * x + rng.normal(size=rows) * np.where(label == 1, 0.44, 0.95)
    return {
        "x": x.clip(-4, 4),
        "y": y.clip(-4, 4),
        "sign": (x + 0.5 * rng.normal(size=rows) > 0).astype(np.int64),
        "label": label,
    }


PAIR = RecordSchema(
    (
        IntervalColumn(name="x", kind=Kind.NUMERIC, lower=-4.0, upper=4.0),
        IntervalColumn(name="y", kind=Kind.NUMERIC, lower=-4.0, upper=4.0),
        NominalColumn(name="sign", kind=Kind.BOOLEAN, levels=(False, True)),
        NominalColumn(name="label", kind=Kind.BOOLEAN, levels=(False, True), role=Role.LABEL),
    )
)


def correlations(cells: Cells) -> np.ndarray:
    found = [
        np.corrcoef([cells[name][cells["label"] == k] for name in ("x", "y", "sign")])[np.triu_indices(3, 1)]
        for k in (0, 1)
    ]
    return np.concatenate(found)


def test_correlations_come_out_in_each_class() -> None:
    """Ten ranges per column keep about nine tenths of a correlation."""
    cells = follower(ROWS, 3)
    one, other = correlations(cells), correlations(synthetic(released(PAIR, cells, epsilon=Fraction(2))))
    assert other == pytest.approx(one, abs=0.12)
    assert other[0] < 0.45 < 0.7 < other[3], "x and y: weak in one class, strong in the other"


@pytest.mark.parametrize("seed", range(3))
def test_without_a_budget_nothing_is_made_up(seed: int) -> None:
    """At epsilon 1/500 the tables are pure noise: columns are independent, not correlated at random."""
    made = synthetic(released(PAIR, follower(2000, 4), epsilon=Fraction(1, 500), seed=seed))
    assert abs(np.corrcoef(made["x"], made["y"])[0, 1]) < 0.05


# ---- edges ---------------------------------------------------------------------------------------------


def one_column(column: Column, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    made = synthetic(released(RecordSchema((column,)), {column.name: values}, epsilon=Fraction(1)))
    return values, made[column.name]


def test_one_column_without_a_label() -> None:
    one, other = one_column(HOURS, people(ROWS)["hours"])
    assert rank_gap(one, other) < 0.02
    one, other = one_column(LEVEL, people(ROWS)["level"])
    assert np.bincount(other, minlength=10) / ROWS == pytest.approx(np.bincount(one, minlength=10) / ROWS, abs=0.015)


def test_a_column_in_which_everybody_is_alike() -> None:
    schema = RecordSchema((AMOUNT, HOURS, LEVEL))
    cells = people(ROWS)
    made = synthetic(released(schema, {"amount": np.zeros(ROWS), "hours": cells["hours"], "level": cells["level"]}))
    assert np.mean(made["amount"] == 0) > 0.98
    assert rank_gap(made["hours"], cells["hours"]) < 0.03


def test_a_nearly_empty_class_is_seldom_and_lawful() -> None:
    cells = people(ROWS)
    cells["class"] = np.where(np.arange(ROWS) < 4, 2, cells["class"] % 2)
    made = synthetic(released(MIXED, cells))
    assert np.mean(made["class"] == 2) < 0.02
    assert np.mean(made["class"] == 1) == pytest.approx(np.mean(cells["class"] == 1), abs=0.02)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 1000)])
def test_an_empty_table_gives_rows_all_the_same(epsilon: Fraction) -> None:
    cells = {name: values[:0] for name, values in people(1).items()}
    made = synthetic(released(MIXED, cells, epsilon=epsilon), rows=500)
    for column in MIXED.columns:
        assert len(made[column.name]) == 500
        if isinstance(column, IntervalColumn):
            assert (ColumnCells(column).codes(made[column.name]) >= 0).all()


def test_hostile_cells_are_taken_in_and_do_not_come_out() -> None:
    cells = people(ROWS)
    cells["amount"][::50] = np.inf
    cells["debt"][::50] = np.nan
    cells["day"][::50] = -1e308
    cells["level"][::50] = UNKNOWN
    cells["class"][::50] = 77
    made = synthetic(released(MIXED, cells))
    for column in MIXED.columns:
        if isinstance(column, IntervalColumn) and not column.missing_level:
            assert np.isfinite(made[column.name]).all()
    assert set(made["level"].tolist()) <= set(range(10))


@pytest.mark.parametrize("shape", ["circles", "moons"])
def test_declaring_a_label_does_not_hurt_who_predicts_it(shape: str) -> None:
    """A class between two curves; models are trained on synthetic rows and tested on other rows of the law."""
    shapes = {"circles": partial(make_circles, noise=0.1, factor=0.5), "moons": partial(make_moons, noise=0.2)}
    (points, classes), (others, truth) = (shapes[shape](ROWS, random_state=seed) for seed in (1, 2))
    cells: Cells = {"east": points[:, 0], "north": points[:, 1], "class": classes.astype(np.int64)}
    right = {}
    for role in (Role.LABEL, Role.FEATURE):
        sides = (IntervalColumn(name=name, kind=Kind.NUMERIC, lower=-2.0, upper=3.0) for name in ("east", "north"))
        kinds = NominalColumn(name="class", kind=Kind.CATEGORICAL, levels=("inner", "outer"), role=role)
        made = synthetic(released(RecordSchema((*sides, kinds)), cells))
        model = HistGradientBoostingClassifier(random_state=0)
        model.fit(np.column_stack([made["east"], made["north"]]), made["class"])
        right[role] = model.score(others, truth)
    assert right[Role.LABEL] > right[Role.FEATURE] - 0.015
    assert right[Role.LABEL] > 0.95


# ---- reproducible ----------------------------------------------------------------------------------------


def test_whoever_has_both_measurements_and_the_seed_has_the_rows(copula: Copula, made: Cells) -> None:
    """The measurements are those that ledger and bundle store: the generator needs nothing else of the table."""
    marginals, released = (measurement_from_json(m.as_json()) for m in (copula.marginals, copula.moments.released))
    assert isinstance(marginals, ReleasedVector)
    assert isinstance(released, Released)
    again = Copula(MIXED, replace(NoisyMoments.from_released(released), marginals=marginals))
    for name, values in synthetic(again).items():
        assert np.array_equal(values, made[name], equal_nan=True)


def test_another_seed_gives_other_rows(copula: Copula, made: Cells) -> None:
    assert not np.array_equal(made["day"], synthetic(copula, seed="ab")["day"])


def test_chunks_do_not_repeat_each_other(copula: Copula, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpcore.synthesis.generators.ROWS_AT_ONCE", 1000)
    rows = synthetic_rows(Encoding(MIXED), copula, 2500, "5eed")
    parts = [rows.chunk(index)["day"] for index in range(rows.chunks)]
    assert [len(part) for part in parts] == [1000, 1000, 500]
    assert not np.array_equal(np.sort(parts[0]), np.sort(parts[1]))


def test_what_was_measured_follows_from_the_schema_alone(copula: Copula) -> None:
    """Shapes do not depend on the rows: another table with the same specification has the same shapes."""
    other = released(
        MIXED, {name: values[:50] for name, values in people(ROWS, 9).items()}, epsilon=Fraction(4), seed=7
    )
    assert copula.projection.dimension == other.projection.dimension
    assert copula.moments.released.event == other.moments.released.event
    assert copula.marginals.event == other.marginals.event
