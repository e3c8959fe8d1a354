"""Noisy rows: local privacy for the values of one row, along public or measured directions."""

from __future__ import annotations

import json
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator
from support.dpcore.samplers import generator, seed_the_noise

from dpcore import BernoulliRows, JiangPca, LopRows, Modips
from dpcore.accounting import Epsilon
from dpcore.estimators import local_rows
from dpcore.estimators.local_rows import NoisyRows, RowBasis, publish_rows
from dpcore.measure import measure_vector
from dpcore.measurements.projection import haar_basis
from dpcore.mechanisms.queries import RowsQuery
from dpcore.mechanisms.vectors import NOISY_ROWS, PrivateVector
from dpcore.noise.sources import SeededNoise
from dpcore.records.schema import Neighbours

ESTIMATORS = [JiangPca, BernoulliRows, LopRows]
CATEGORIES = {3: [10, 11, 12]}
GRID = 1 << 16


def rows(n: int = 2000) -> np.ndarray:
    """Return two correlated features, one of small variance, and a dependent category."""
    rng = generator(7)
    common = rng.normal(0, 0.4, n)
    numbers = np.column_stack([common, common, np.zeros(n)]) + rng.normal(0, 0.05, (n, 3))
    return np.column_stack([np.clip(numbers, -1, 1), np.digitize(common, [-0.2, 0.2]) + 10.0])


def basis_of(width: int = 5, dimension: int = 3, seed: int = 1) -> RowBasis:
    return RowBasis.of(haar_basis(width, dimension, generator(seed)), np.zeros(width))


# ---- one row moves the answer by no more than the ball's width --------------------------------------


@given(
    pair=hnp.arrays(np.float64, (2, 5), elements=st.floats(width=64, allow_nan=True, allow_infinity=True)),
    dimension=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_hostile_points_are_never_farther_apart_than_the_sensitivity(
    pair: np.ndarray, dimension: int, seed: int
) -> None:
    basis = basis_of(5, dimension, seed)
    flat = basis.project(pair)
    one, two = flat[:dimension], flat[dimension:]
    limit = RowsQuery(1, dimension).l1_sensitivity(Neighbours.REPLACE_ONE)
    assert sum(abs(a - b) for a, b in zip(one, two, strict=True)) <= limit
    assert sum(a * a for a in one) <= GRID**2


@pytest.mark.parametrize("dimension", [1, 2, 4])
def test_the_sensitivity_is_nearly_attained_by_opposite_diagonals(dimension: int) -> None:
    basis = RowBasis.of(np.eye(4)[:, :dimension], np.zeros(4))
    diagonal = np.zeros((1, 4))
    diagonal[0, :dimension] = 1 / math.sqrt(dimension)
    flat = basis.project(np.vstack([diagonal, -diagonal]))
    moved = sum(abs(a - b) for a, b in zip(flat[:dimension], flat[dimension:], strict=True))
    limit = float(RowsQuery(1, dimension).l1_sensitivity(Neighbours.REPLACE_ONE))
    assert 0.999 * limit <= moved <= limit


@pytest.mark.parametrize("make", [lambda g: haar_basis(30, 6, g), lambda g: np.sign(g.standard_normal((30, 6)))])
def test_directions_lengthen_no_point_whatever_they_were_made_from(make) -> None:
    for seed in range(20):
        basis = RowBasis.of(make(generator(seed)), np.zeros(30))
        assert np.array_equal(basis.columns, np.rint(basis.columns))
        assert np.linalg.norm(basis.columns / 2.0**20, 2) <= 1
    assert np.linalg.norm(basis_of(30, 6).columns / 2.0**20, 2) > 0.999


def test_a_neighbouring_table_with_frozen_noise_differs_in_one_row_only() -> None:
    basis, points = basis_of(), generator(3).uniform(-0.4, 0.4, (40, 5))
    other = points.copy()
    other[13] = [np.nan, 1e308, -1.0, 1.0, np.inf]
    one, two = (publish_rows(p, basis, Epsilon(Fraction(1)), SeededNoise(2)) for p in (points, other))
    assert one.event == two.event
    moved = (np.array(one.values) - np.array(two.values)).reshape(40, 3)
    assert np.flatnonzero(moved.any(axis=1)).tolist() == [13]
    assert np.abs(moved).sum() <= float(one.event.query.l1_sensitivity(Neighbours.REPLACE_ONE))


def test_rows_in_an_order_of_their_values_move_more_than_the_sensitivity() -> None:
    """A record of a table that is sorted by its first column goes from the first place to the last."""
    count, basis = 200, RowBasis.of(np.eye(2), np.zeros(2))
    table = np.column_stack([np.linspace(-0.5, 0.5, count), np.where(np.arange(count) % 2, 0.5, -0.5)])
    other = table.copy()
    other[0, 0] = 0.6
    sorted_again = other[np.argsort(other[:, 0])]
    limit = float(RowsQuery(count, 2).l1_sensitivity(Neighbours.REPLACE_ONE))

    def moved(one: np.ndarray, two: np.ndarray) -> int:
        return sum(abs(a - b) for a, b in zip(basis.project(one), basis.project(two), strict=True))

    assert moved(table, other) <= limit
    assert moved(table, sorted_again) > 0.99 * count * GRID
    assert moved(table, sorted_again) > 70 * limit


def test_at_epsilon_1_the_noise_along_two_directions_has_four_times_the_radius_of_the_ball() -> None:
    event = NOISY_ROWS.calibrate(RowsQuery(1000, 2), Neighbours.REPLACE_ONE, Epsilon(Fraction(1)))
    assert NOISY_ROWS.deviation(event) / GRID == pytest.approx(4, rel=1e-4)


def test_the_noise_of_a_row_is_that_of_the_whole_ball_however_many_rows_there_are() -> None:
    for count in (1, 100):
        event = NOISY_ROWS.calibrate(RowsQuery(count, 4), Neighbours.REPLACE_ONE, Epsilon(Fraction(1, 2)))
        assert float(event.noise) / GRID == pytest.approx(2 * math.sqrt(4) / 0.5, rel=1e-12)


def test_lifting_undoes_projecting_inside_the_span_and_keeps_the_centre_outside() -> None:
    directions, centre = haar_basis(5, 3, generator(1)), np.array([0.1, -0.2, 0.0, 0.3, 0.1])
    for made in (directions, np.sign(directions)):
        basis = RowBasis.of(made, centre)
        inside = generator(2).uniform(-0.2, 0.2, (10, 3)) @ made.T * 0.3
        projected = np.array(basis.project(inside)).reshape(10, 3) / GRID
        whole = basis.columns / 2.0**20
        assert basis.lift(projected) @ whole == pytest.approx(projected, abs=1e-9)
        assert RowBasis(basis.columns, np.zeros(5)).lift(projected) == pytest.approx(inside, abs=1e-3)
        assert basis.lift(centre[None] @ whole) == pytest.approx(centre[None], abs=1e-9)


# ---- the estimators -----------------------------------------------------------------------------------


def model(kind: type[NoisyRows], **changes: object) -> NoisyRows:
    parameters = {"epsilon": 1.0, "bounds": (-1.0, 1.0), "n_components": 2, "categories": CATEGORIES}
    return kind(**parameters | changes)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_the_stated_privacy_adds_up_to_epsilon_and_is_called_what_it_is(kind: type[NoisyRows]) -> None:
    fitted = model(kind, epsilon=0.7).fit(rows(50))
    assert 0.7 * (1 - 1e-9) <= fitted.privacy_["epsilon"] <= 0.7
    assert fitted.privacy_["neighbours"] == "replace-one"
    assert set(fitted.privacy_["measurements"]) == ({"rows"} if kind is BernoulliRows else {"basis", "rows"})
    assert fitted.privacy_["why"][-1] == "GUARANTEE.md, M10"
    assert fitted.released_.seeded is False
    spent = float(NOISY_ROWS.cost(fitted.released_.event).value)
    assert spent == pytest.approx(0.7 if kind is BernoulliRows else 0.35)
    assert "local" in kind.__mro__[1].__doc__
    json.dumps(fitted.privacy_)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_rows_come_out_one_for_one_inside_bounds_and_categories(kind: type[NoisyRows]) -> None:
    X = rows(300)
    published = model(kind).fit(X).rows_
    assert published.shape == X.shape
    assert np.abs(published[:, :3]).max() <= 1
    assert set(np.unique(published[:, 3])) <= {10, 11, 12}


@pytest.mark.parametrize("kind", [JiangPca, LopRows])
def test_with_a_huge_epsilon_the_components_keep_each_row_and_with_an_honest_one_they_do_not(
    kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Local privacy leaves little utility: the error is the price of releasing rows."""
    seed_the_noise(monkeypatch, local_rows)
    X = rows()
    close, honest = model(kind, epsilon=5000.0).fit(X).rows_, model(kind).fit(X).rows_
    assert np.corrcoef(X[:, 0], close[:, 0])[0, 1] > 0.9
    assert np.mean(X[:, 3] == close[:, 3]) > 0.8
    assert abs(np.corrcoef(X[:, 0], honest[:, 0])[0, 1]) < 0.3


def test_random_signs_in_all_coordinates_keep_each_row_when_there_is_no_noise() -> None:
    """Directions are drawn by nobody's seed. 63 % of such squares are singular, so 200 of them once in 1e40 runs; the
    largest of 1200 noisy numbers, of scale 5e-6, is above 1.2e-4 once in 1e7 runs, and lifting makes that 0.006."""
    X = rows(200)
    fits = (model(BernoulliRows, epsilon=1e6, n_components=6).fit(X) for _ in range(200))
    regular = next(fit for fit in fits if np.linalg.cond(fit.basis_.columns) < 20)
    assert regular.rows_[:, :3] == pytest.approx(X[:, :3], abs=0.02)


@pytest.mark.parametrize("kind", [*ESTIMATORS, Modips])
def test_every_check_of_scikit_learn_holds(kind) -> None:
    estimator = kind(epsilon=1.0, bounds=(-1.0, 1.0), **({} if kind is Modips else {"n_components": 1}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_fail=None)
    assert [r["check_name"] for r in results if r["status"] not in ("passed", "skipped")] == []
    assert len(results) > 30


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_hostile_and_single_rows_are_mapped_not_refused(kind: type[NoisyRows]) -> None:
    X = np.array([[np.nan, np.inf, -np.inf, 1e308]])
    assert np.isfinite(model(kind).fit(X).rows_).all()
    assert clone(model(kind)).fit(np.repeat(X, 3, axis=0)).rows_.shape == (3, 4)


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 0}, "epsilon must be positive"),
        ({"epsilon": -1.0}, "epsilon must be positive"),
        ({"epsilon": float("nan")}, "finite"),
        ({"bounds": (1.0, -1.0)}, "increasing"),
        ({"n_components": 0}, "n_components must be between 1 and 6"),
        ({"n_components": 7}, "n_components must be between 1 and 6"),
        ({"categories": {4: [1, 2]}}, "by index, 0 to 3"),
        ({"categories": {3: [1]}}, "two levels"),
        ({"categories": {3: [1, 1, 2]}}, "all be different"),
        ({"bounds": ([0.0, 0.0], [1.0, 1.0])}, "one for each of 4 features"),
    ],
)
def test_a_bad_parameter_is_refused_with_its_rule(kind, changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        model(kind, **changes).fit(rows(10))


def test_no_rows_are_refused_and_the_frame_alone_gives_no_directions() -> None:
    with pytest.raises(ValueError, match="minimum of 1"):
        model(JiangPca).fit(np.empty((0, 4)))
    with pytest.raises(TypeError, match="abstract"):
        model(NoisyRows)


def test_modips_is_laplace_noise_in_all_coordinates() -> None:
    X = rows(2000)[:, :3]
    fitted = Modips(epsilon=1.0, bounds=(-1.0, 1.0)).fit(X)
    event = fitted.moments_.event
    assert (event.mechanism, event.layout.dimension) == ("laplace", 4)
    assert fitted.privacy_["epsilon"] <= 1.0
    assert fitted.sample(20).shape == (20, 3)


def test_what_the_door_gives_is_what_is_lifted() -> None:
    basis = basis_of()
    query = RowsQuery(2, 3)
    event = NOISY_ROWS.calibrate(query, Neighbours.REPLACE_ONE, Epsilon(Fraction(1)))
    points = np.zeros((2, 5))
    by_hand = measure_vector(PrivateVector(query, basis.project(points)), event, SeededNoise(4))
    assert publish_rows(points, basis, Epsilon(Fraction(1)), SeededNoise(4)) == by_hand
