"""Scores of models on records: bounded, independent of a record's position, from models that learn, with fair noise."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.linear_model import LogisticRegression, Ridge
from support.dpcore.samplers import NEVER, generator
from support.dpcore.scores import AR, MECHANISMS, QUERIES, R1
from support.dpcore.strategies import as_cells, hostile_cell

from dpcore.accounting import Epsilon, Rho
from dpcore.measure import ReleasedVector, measure_vector
from dpcore.measurements.scores import (
    ACCURACY,
    RMSE,
    SILHOUETTE,
    TRAINING_ROWS,
    ClusterScorer,
    Scorer,
    exact_score,
    readable_score,
    scored_schema,
    sum_scores,
    train_scorer,
)
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.entry import Status
from dpcore.mechanisms.queries import GRID, ScoreQuery
from dpcore.mechanisms.registry import cost_of, vector_mechanism
from dpcore.mechanisms.vectors import SCORE_GAUSSIAN, SCORE_LAPLACE, PrivateVector, VectorEvent
from dpcore.noise.sources import SeededNoise, SystemNoise
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Cells, IntervalColumn, Kind, Neighbours, NominalColumn, RecordSchema, Role

SEED = "5eed" * 8
ROWS = 3000
FEATURES = (
    IntervalColumn(name="a", kind=Kind.NUMERIC, lower=-4.0, upper=4.0, missing_level=True),
    IntervalColumn(name="b", kind=Kind.NUMERIC, lower=-4.0, upper=4.0),
    NominalColumn(name="flag", kind=Kind.BOOLEAN, levels=(False, True)),
    NominalColumn(name="level", kind=Kind.CATEGORICAL, levels=("x", "y", "z"), missing_level=True),
)
LABEL = NominalColumn(name="class", kind=Kind.CATEGORICAL, levels=("k", "l", "m"), role=Role.LABEL)
TARGET = IntervalColumn(name="cost", kind=Kind.NUMERIC, lower=0.0, upper=50.0, role=Role.TARGET)
SCHEMAS = {
    ACCURACY: RecordSchema((*FEATURES, LABEL)),
    RMSE: RecordSchema((*FEATURES, TARGET)),
    SILHOUETTE: RecordSchema((*FEATURES, LABEL)),
}


def table(score: str, seed: int, rows: int = ROWS) -> Cells:
    """Draw rows whose classes are separable with some errors."""
    rng = generator(seed)
    kind = rng.integers(0, 3, rows)
    common = rng.normal(size=rows) + 1.5 * (kind - 1)
    cells: Cells = {
        "a": np.where(rng.random(rows) < 0.1, np.nan, np.clip(common, -4, 4)),
        "b": np.clip(rng.normal(0, 0.7, rows) - kind, -4, 4),
        "flag": (rng.random(rows) < 0.4).astype(np.int64),
        "level": rng.integers(-1, 3, rows),
    }
    if score == RMSE:
        return cells | {"cost": np.clip(25 + 6 * common + rng.normal(0, 2, rows), 0, 50)}
    return cells | {"class": kind}


def scorer_of(score: str) -> Scorer:
    return train_scorer(QUERIES[score], SCHEMAS[score], table(score, 1), SEED)


SCORERS = {score: scorer_of(score) for score in QUERIES}


# ---- bounds (GUARANTEE.md, S8) ---------------------------------------------------------------------


@given(data=st.data(), score=st.sampled_from(sorted(QUERIES)))
def test_no_hostile_unit_moves_a_sum_beyond_the_bound(data: st.DataObject, score: str) -> None:
    schema, scorer = SCHEMAS[score], SCORERS[score]
    units = [
        as_cells(schema, [{c.name: data.draw(hostile_cell(c)) for c in schema.columns} for _ in range(rows)])
        for rows in (1, data.draw(st.integers(1, 7)))
    ]
    sums = [sum_scores([(unit, np.full(len(unit["b"]), 1 / len(unit["b"])))], scorer) for unit in units]
    assert all(0 <= total <= GRID for total in sums)
    assert abs(sums[0] - sums[1]) <= QUERIES[score].l1_sensitivity(R1)
    most = len(units[1]["b"])
    counted = ScoreQuery(score, rows_per_unit=most)
    assert 0 <= sum_scores([(units[1], None)], scorer) <= counted.l1_sensitivity(AR) == most * GRID


@given(data=st.data(), score=st.sampled_from(sorted(QUERIES)))
def test_the_score_of_a_record_does_not_depend_on_the_others(data: st.DataObject, score: str) -> None:
    schema, scorer = SCHEMAS[score], SCORERS[score]
    rows = [{c.name: data.draw(hostile_cell(c)) for c in schema.columns} for _ in range(5)]
    together = scorer.scores(as_cells(schema, rows))
    alone = np.concatenate([scorer.scores(as_cells(schema, [row])) for row in rows])
    assert np.array_equal(together, alone)
    assert np.array_equal(together, np.rint(together))


@pytest.mark.parametrize("score", QUERIES)
def test_chunks_and_order_do_not_change_one_bit(score: str) -> None:
    cells, scorer = table(score, 2), SCORERS[score]
    order = generator(3).permutation(ROWS)
    parts = [({n: v[order[i : i + 97]] for n, v in cells.items()}, None) for i in range(0, ROWS, 97)]
    assert sum_scores(parts, scorer) == sum_scores([(cells, None)], scorer)


def test_the_bound_is_attained_by_a_record_that_is_right_and_one_that_is_wrong() -> None:
    cells, scorer = table(ACCURACY, 2), SCORERS[ACCURACY]
    scores = scorer.scores(cells)
    right, wrong = (int(np.flatnonzero(scores == value)[0]) for value in (GRID, 0))
    one, two = (sum_scores([({n: v[[i]] for n, v in cells.items()}, None)], scorer) for i in (right, wrong))
    assert one - two == QUERIES[ACCURACY].l1_sensitivity(R1) == QUERIES[ACCURACY].l1_sensitivity(AR)


def test_the_bound_is_attained_by_a_prediction_at_the_other_bound() -> None:
    """A target that equals a feature in training, and a record in which it is opposite."""
    low, high = np.full(200, -4.0), np.full(200, 4.0)
    cells = table(RMSE, 1, 400) | {"b": np.concatenate([low, high]), "cost": np.repeat([0.0, 50.0], 200)}
    scorer = train_scorer(QUERIES[RMSE], SCHEMAS[RMSE], cells, SEED)
    liar = {name: values[:1] for name, values in cells.items()} | {"cost": np.array([50.0])}
    assert sum_scores([(liar, None)], scorer) == pytest.approx(GRID, rel=0.02)


def test_a_prediction_far_beyond_the_bounds_scores_no_more_than_one_at_a_bound() -> None:
    cells, scorer = table(RMSE, 2), SCORERS[RMSE]
    steep = replace(scorer, unit=1000 * scorer.unit)
    scores = steep.scores(cells)
    assert scores.min() >= 0
    assert 0.9 * GRID < scores.max() <= GRID, "some predictions are at the other bound, and none beyond"


# ---- recipes ---------------------------------------------------------------------------------------


def test_the_classifier_is_logistic_regression() -> None:
    train, test = table(ACCURACY, 1), table(ACCURACY, 2)
    encoding = Encoding(SCHEMAS[ACCURACY])
    model = LogisticRegression(max_iter=300).fit(encoding.encode(train) * encoding.scale, train["class"])
    right = model.predict(encoding.encode(test) * encoding.scale) == test["class"]
    assert 0.6 < right.mean() < 0.95
    assert np.mean((SCORERS[ACCURACY].scores(test) == GRID) != right) < 0.002


def test_the_prediction_is_ridge_regression() -> None:
    train, test = table(RMSE, 1), table(RMSE, 2)
    encoding = Encoding(SCHEMAS[RMSE])
    inputs = [encoding.encode(cells)[:, :-1] * encoding.scale for cells in (train, test)]
    predicted = np.clip(Ridge(alpha=1.0).fit(inputs[0], train["cost"]).predict(inputs[1]), 0, 50)
    truth = math.sqrt(float(np.mean((predicted - test["cost"]) ** 2)))
    mean = sum_scores([(test, None)], SCORERS[RMSE]) / GRID / ROWS
    assert readable_score(QUERIES[RMSE], SCHEMAS[RMSE], mean) == pytest.approx(truth, rel=1e-3)


def test_the_silhouette_is_that_of_distances_to_centres() -> None:
    test, scorer = table(SILHOUETTE, 2), SCORERS[SILHOUETTE]
    assert isinstance(scorer, ClusterScorer)
    points, centres = Encoding(SCHEMAS[SILHOUETTE]).encode(test), scorer.centres / (1 << 20)
    distances = np.sort(np.linalg.norm(points[:, None, :] - centres[None, :, :], axis=2), axis=1)
    silhouette = (distances[:, 1] - distances[:, 0]) / distances[:, 1]
    assert scorer.scores(test) / GRID == pytest.approx(silhouette, abs=1e-4)
    assert len(centres) == 3


def test_a_model_of_unlike_rows_does_worse_on_the_real_ones() -> None:
    mixed = table(ACCURACY, 1)
    mixed["class"] = generator(5).permutation(mixed["class"])
    test = [(table(ACCURACY, 2), None)]
    guess = train_scorer(QUERIES[ACCURACY], SCHEMAS[ACCURACY], mixed, SEED)
    assert sum_scores(test, guess) < 0.6 * sum_scores(test, SCORERS[ACCURACY])


def test_a_label_that_the_release_counts_among_its_features_is_predicted_all_the_same() -> None:
    columns = (replace(c, role=Role.FEATURE) for c in SCHEMAS[ACCURACY].columns)
    schema = RecordSchema(tuple(columns))
    assert scored_schema(schema, QUERIES[ACCURACY]) == SCHEMAS[ACCURACY]
    found = train_scorer(QUERIES[ACCURACY], schema, table(ACCURACY, 1), SEED).scores(table(ACCURACY, 2))
    assert np.array_equal(found, SCORERS[ACCURACY].scores(table(ACCURACY, 2)))


@pytest.mark.parametrize("kept", [[0], [0, 2], [1, 2]])
def test_classes_that_no_synthetic_row_has_are_never_predicted(kept: list[int]) -> None:
    cells, test = table(ACCURACY, 1), table(ACCURACY, 2)
    some = {name: values[np.isin(cells["class"], kept)] for name, values in cells.items()}
    scores = train_scorer(QUERIES[ACCURACY], SCHEMAS[ACCURACY], some, SEED).scores(test)
    assert not scores[~np.isin(test["class"], kept)].any()
    assert scores[np.isin(test["class"], kept)].mean() > 0.6 * GRID


@pytest.mark.parametrize("score", QUERIES)
@pytest.mark.parametrize("rows", [1, 2])
def test_one_synthetic_row_or_two_are_a_model_too(score: str, rows: int) -> None:
    scorer = train_scorer(QUERIES[score], SCHEMAS[score], table(score, 1, rows), SEED)
    scores = scorer.scores(table(score, 2))
    assert scores.min() >= 0
    assert scores.max() <= GRID


def test_a_model_is_trained_on_the_first_rows_and_its_seed_repeats_it() -> None:
    many = table(SILHOUETTE, 1, TRAINING_ROWS + 500)
    first = {name: values[:TRAINING_ROWS] for name, values in many.items()}
    models = [train_scorer(QUERIES[SILHOUETTE], SCHEMAS[SILHOUETTE], cells, SEED) for cells in (many, first)]
    assert all(isinstance(model, ClusterScorer) for model in models)
    assert np.array_equal(models[0].centres, models[1].centres)  # type: ignore[attr-defined]


@pytest.mark.parametrize("relation", Neighbours)
@pytest.mark.parametrize("name", MECHANISMS)
def test_an_event_costs_its_budget_and_is_read_back_from_its_own_words(name: str, relation: Neighbours) -> None:
    budget = MECHANISMS[name]
    for query in (*QUERIES.values(), ScoreQuery(ACCURACY, of="class", rows_per_unit=4)):
        event = vector_mechanism(name).calibrate(query, relation, budget)
        again = VectorEvent.from_json(event.as_json())
        assert again == event
        cost = cost_of(again)
        assert 0 <= budget.value - (cost.epsilon or cost.rho) < Fraction(1, 10**4)


def test_with_frozen_noise_a_neighbour_moves_the_release_by_what_its_record_scores() -> None:
    cells, scorer, query = table(ACCURACY, 2), SCORERS[ACCURACY], QUERIES[ACCURACY]
    other = {name: values.copy() for name, values in cells.items()}
    other["class"][7] = (cells["class"][7] + 1) % 3
    event = SCORE_LAPLACE.calibrate(query, R1, Epsilon(Fraction(1, 10)))
    one, two = (measure_vector(exact_score([(c, None)], scorer, query), event, SeededNoise(4)) for c in (cells, other))
    moved = abs(one.values[0] - two.values[0])
    assert moved in (0, GRID)
    assert moved <= query.l1_sensitivity(R1)


def test_the_error_of_a_mean_score_falls_with_rows_and_budget() -> None:
    scorer, query = SCORERS[ACCURACY], QUERIES[ACCURACY]

    def error(rows: int, epsilon: Fraction) -> float:
        exact = sum_scores([(table(ACCURACY, 2, rows), None)], scorer)
        event = SCORE_LAPLACE.calibrate(query, R1, Epsilon(epsilon))
        drawn = np.array(SCORE_LAPLACE.draw([exact] * 2000, event, SystemNoise()), dtype=np.float64)
        return float(np.abs(drawn - exact).mean() / GRID / rows)

    few, many, rich = error(500, Fraction(1, 10)), error(4000, Fraction(1, 10)), error(500, Fraction(8, 10))
    for other in (many, rich):  # a ratio of means of exponential variables has an F distribution
        assert stats.f.sf(few / other / 8, 4000, 4000) > NEVER
        assert stats.f.cdf(few / other / 8, 4000, 4000) > NEVER


def test_a_released_score_knows_its_own_error() -> None:
    event = SCORE_GAUSSIAN.calibrate(QUERIES[ACCURACY], R1, Rho(Fraction(1, 200)))
    released = measure_vector(PrivateVector(event.query, [100 * GRID]), event, SystemNoise())
    assert isinstance(released, ReleasedVector)
    assert released.deviation() == pytest.approx(10.0, rel=1e-6)


def test_the_registry_has_both_as_proved_checks() -> None:
    for name in MECHANISMS:
        assert (BY_NAME[name].kind, BY_NAME[name].status) == ("check", Status.PROVED)


@pytest.mark.parametrize("wrong", [{"clusters": 1}, {"rows_per_unit": 0}])
def test_what_cannot_be_asked_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="score"):
        ScoreQuery(SILHOUETTE, **wrong)  # type: ignore[arg-type]
