"""Differential LDA: one measurement gives counts, means and a shared covariance; greedy rows match them."""

from __future__ import annotations

import itertools
import json
import time
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator
from support.dpcore.samplers import generator, seed_the_noise
from support.dpcore.strategies import schema_with

from dpcore import DifferentialLda
from dpcore.accounting import Epsilon
from dpcore.estimators import jiang_lda
from dpcore.measure import PrivateGram, Released, measure_gram
from dpcore.measurements.noisy_moments import NoisyMoments, pooled_moments
from dpcore.measurements.projection import haar_basis
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SeededNoise
from dpcore.planning.layouts import count_weight
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PlanError, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout, GramSum, integer_records
from dpcore.records.schema import UNKNOWN, Neighbours, PrivacyUnit, RowRule
from dpcore.synthesis.jiang_greedy import (
    AbsoluteSampler,
    GreedySampler,
    PooledMoments,
    _AbsoluteTable,
    _cubic_roots,
    _lowest,
)

MECHANISMS = ["auto", "jiang-laplace", "laplace"]
SEED = "5eed" * 8

# ---- one block with labels ------------------------------------------------------------------------


def points_in_classes(rows: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Return points of the unit ball in four dimensions, in three classes with one covariance."""
    rng = generator(1)
    classes = rng.choice(3, rows, p=[0.5, 0.3, 0.2])
    centres = np.array([[0.3, 0.0, -0.2, 0.0], [-0.4, 0.2, 0.1, 0.1], [0.0, -0.3, 0.0, 0.2]])
    points = centres[classes] + np.clip(rng.standard_normal((rows, 4)), -2, 2) * [0.1, 0.15, 0.05, 0.2]
    return points / np.maximum(1, np.linalg.norm(points, axis=1))[:, None], classes


def released(
    points: np.ndarray, classes: np.ndarray, *, epsilon: Fraction, seed: int = 1, name: str = "laplace"
) -> Released:
    layout = GramLayout(points.shape[1] + 3, 1, Fraction(1, 2), labels=3)
    total = GramSum(layout)
    total.add(integer_records(points, None, layout, classes=classes), classes)
    event = gram_mechanism(name).calibrate(layout, Neighbours.REPLACE_ONE, Epsilon(epsilon))
    return measure_gram(PrivateGram(total), event, SeededNoise(seed))


def true_moments(points: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    counts = np.bincount(classes, minlength=3)
    means = np.array([points[classes == k].mean(axis=0) for k in range(3)])
    centred = points - means[classes]
    return counts, means, centred.T @ centred / len(points)


@pytest.mark.parametrize("name", ["laplace", "wishart-difference-trace", "wishart-difference"])
@pytest.mark.parametrize("projected", [False, True])
def test_without_noise_a_block_with_labels_gives_counts_means_and_the_shared_covariance(
    name: str, projected: bool
) -> None:
    points, classes = points_in_classes()
    basis = haar_basis(4, 2, generator(2)) if projected else None
    measured = released(points, classes, epsilon=Fraction(10**9), name=name)
    found = NoisyMoments.from_released(measured, basis)
    counts, means, within = true_moments(points if basis is None else points @ basis, classes)
    for k, moments in enumerate(found.classes):
        assert moments.count == pytest.approx(counts[k], rel=1e-4)
        assert moments.mean == pytest.approx(means[k], abs=1e-4)
        assert moments.covariance == pytest.approx(within, abs=1e-4)
    assert pooled_moments(measured).mean == pytest.approx(points.mean(axis=0), abs=1e-4)
    assert pooled_moments(measured).covariance == pytest.approx(np.cov(points.T, bias=True), abs=1e-4)


@given(seed=st.integers(0, 10**6), epsilon=st.sampled_from([Fraction(1, 100), Fraction(1, 5), Fraction(2)]))
def test_whatever_the_noise_the_labelled_moments_are_usable(seed: int, epsilon: Fraction) -> None:
    points, classes = points_in_classes(60)
    found = NoisyMoments.from_released(released(points, classes, epsilon=epsilon, seed=seed))
    for moments in found.classes:
        assert moments.count == 0 or moments.count >= 1
        assert np.linalg.norm(moments.mean) <= 1 + 1e-9
        assert np.linalg.eigvalsh(moments.covariance)[0] >= -1e-9
        assert moments.covariance is found.classes[0].covariance
    assert found.weights.sum() == pytest.approx(1)


def test_noise_is_not_taken_for_differences_between_classes() -> None:
    """Shrunk class means are closer to the truth than plain ratios, and the shared covariance keeps its variance."""
    points, classes = points_in_classes(400)
    _, means, within = true_moments(points, classes)
    plain, shortened, traces = [], [], []
    for seed in range(40):
        measured = released(points, classes, epsilon=Fraction(1), seed=seed)
        block, found = measured.matrices()[0], NoisyMoments.from_released(measured)
        quotients = block[:3, 3:] * 2 / np.maximum(1.0, 4 * np.diag(block)[:3])[:, None]
        inside = quotients / np.maximum(1.0, np.linalg.norm(quotients, axis=1))[:, None]
        plain.append(np.linalg.norm(inside - means))
        shortened.append(np.linalg.norm(np.array([c.mean for c in found.classes]) - means))
        traces.append(np.trace(found.classes[0].covariance))
    assert np.mean(shortened) < 0.9 * np.mean(plain)
    assert np.mean(traces) > 0.7 * np.trace(within)


def test_with_more_noise_than_classes_differ_their_means_come_together() -> None:
    points, classes = points_in_classes(400)
    near, far = (
        np.linalg.norm([a.mean - b.mean for a in found.classes for b in found.classes])
        for found in (
            NoisyMoments.from_released(released(points, classes, epsilon=epsilon, seed=3))
            for epsilon in (Fraction(1, 5), Fraction(1000))
        )
    )
    assert near < far


@pytest.mark.parametrize(("size", "labels"), [(1, 1), (8, 1), (8, 3), (64, 10), (300, 2)])
def test_the_weight_of_the_labels_balances_the_errors_of_class_means_and_second_moment(size: int, labels: int) -> None:
    """The noise grows as 1 + s²; on a class's sum it is divided by s, and the class has 1/labels of the rows."""

    def error(s: Fraction) -> float:
        return float((1 + s**2) ** 2 * (size + 1 + labels**2 / s**2))

    best = count_weight(size, labels)
    step = Fraction(1, 64)
    assert error(best) <= min(error(best + 2 * step), error(max(step, best - 2 * step)))
    assert count_weight(size, labels + 5) >= best


def test_labels_need_the_noise_of_a_plain_block_of_that_size_and_no_more() -> None:
    name, budget = "wishart-difference-trace", Epsilon(Fraction(1))
    events = [
        gram_mechanism(name).calibrate(layout, Neighbours.REPLACE_ONE, budget)
        for layout in (GramLayout(7, 1, Fraction(1, 2), labels=3), GramLayout(7, 1, Fraction(1, 2)))
    ]
    assert events[0].noise == events[1].noise


# ---- the greedy sampler ---------------------------------------------------------------------------


def wanted(levels: tuple[int, ...] = (), features: int = 10, rows: int = 20_000) -> PooledMoments:
    """Return moments of a table in [0, 1]: correlated numbers, one nearly constant, and dependent levels."""
    rng = generator(9)
    classes = (rng.random(rows) < 0.3).astype(int)
    mixing = rng.normal(0, 0.06, (features, features))
    mixing[features // 2] *= 0.05
    shift = np.where(classes[:, None] == 1, 0.15, -0.1) * np.linspace(-1, 1, features)
    x = np.clip(0.5 + shift + rng.standard_normal((rows, features)) @ mixing.T, 0, 1)
    codes = [np.minimum((x[:, i] * count).astype(int), count - 1) for i, count in enumerate(levels)]
    x = np.hstack([x, *(np.eye(count)[code] for code, count in zip(codes, levels, strict=True))])
    means = np.array([x[classes == k].mean(axis=0) for k in (0, 1)])
    return PooledMoments(np.bincount(classes).astype(float), means, x.T @ x / rows)


def blocks_after(features: int, levels: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    ends = features + np.cumsum((0, *levels))
    return tuple((int(a), int(b)) for a, b in itertools.pairwise(ends))


def distance(points: np.ndarray, classes: np.ndarray, moments: PooledMoments) -> float:
    """Return the L1 distance of class shares, class sums per row, and the upper triangle of the second moment."""
    triangle = np.triu_indices(points.shape[1])
    gap = np.abs((points.T @ points / len(points) - moments.second)[triangle]).sum()
    for k, weight in enumerate(moments.weights):
        mine = points[classes == k]
        gap += abs(len(mine) / len(points) - weight)
        gap += np.abs(mine.sum(axis=0) / len(points) - weight * moments.means[k]).sum()
    return float(gap)


def gaussian_rows(moments: PooledMoments, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = generator(seed)
    classes = rng.choice(len(moments.weights), rows, p=moments.weights)
    values, vectors = np.linalg.eigh(moments.within)
    root = vectors * np.sqrt(np.maximum(values, 0))
    return moments.means[classes] + rng.standard_normal((rows, len(values))) @ root.T, classes


@pytest.mark.parametrize("levels", [(), (3, 4)])
def test_the_moments_of_greedy_rows_approach_the_wanted_ones_far_faster_than_those_of_independent_rows(levels) -> None:
    moments = wanted(levels)
    sampler = GreedySampler(moments, blocks_after(10, levels))
    gaps = {rows: distance(*sampler.sample(rows, SEED), moments) for rows in (50, 200, 800)}
    assert gaps[200] < 0.5 * gaps[50]
    assert gaps[800] < 0.5 * gaps[200]
    independent = np.median([distance(*gaussian_rows(moments, 800, seed), moments) for seed in range(20)])
    assert gaps[800] < independent / 4


def test_absolute_differences_stop_getting_closer_and_leave_too_small_spreads() -> None:
    """At four times the rows the published sampler is hardly closer, and squares are five times as close before."""
    moments = wanted()
    rows = {count: AbsoluteSampler(moments, ()).sample(count, SEED) for count in (800, 3200)}
    gaps = {count: distance(*drawn, moments) for count, drawn in rows.items()}
    squares = GreedySampler(moments, ()).sample(800, SEED)
    assert gaps[3200] > 0.9 * gaps[800]
    assert 5 * distance(*squares, moments) < gaps[3200]
    spreads = np.sqrt(np.diag(moments.second) - (moments.weights @ moments.means) ** 2)
    assert rows[3200][0].std(axis=0).mean() < 0.75 * spreads.mean()
    assert squares[0].std(axis=0).mean() == pytest.approx(spreads.mean(), rel=0.01)


@given(seed=st.integers(0, 10**6))
def test_the_published_sampler_chooses_a_number_where_its_absolute_differences_are_least(seed: int) -> None:
    rng = generator(seed)
    table = _AbsoluteTable(wanted(features=4, rows=50), ())
    table._lack[1], table._lack_second[2], point = rng.normal(0, 1, 4), rng.normal(0, 1, 4), rng.random(4)
    chosen = table._best_number(1, 2, point)

    def height(z: float) -> float:
        return float(np.abs(point * z - table._lack_second[2]).sum() + abs(z - table._lack[1, 2]))

    assert 0 <= chosen <= 1
    assert height(chosen) <= min(height(z) for z in np.linspace(0, 1, 501)) + 1e-12


@pytest.mark.parametrize("levels", [(), (2, 5)])
def test_rows_of_absolute_differences_keep_to_bounds_levels_and_shares(levels: tuple[int, ...]) -> None:
    moments = wanted(levels, features=4)
    points, classes = AbsoluteSampler(moments, blocks_after(4, levels)).sample(300, SEED)
    assert points.min() >= 0
    assert points.max() <= 1
    for start, stop in blocks_after(4, levels):
        assert set(np.unique(points[:, start:stop])) == {0.0, 1.0}
        assert np.all(points[:, start:stop].sum(axis=1) == 1)
        shares = moments.weights @ moments.means[:, start:stop]
        assert points[:, start:stop].mean(axis=0) == pytest.approx(shares, abs=0.05)
    assert np.abs(np.bincount(classes) - 300 * moments.weights).max() <= 1


@pytest.mark.parametrize("levels", [(), (2, 5)])
def test_greedy_rows_keep_to_bounds_levels_and_shares(levels: tuple[int, ...]) -> None:
    moments = wanted(levels, features=4)
    points, classes = GreedySampler(moments, blocks_after(4, levels)).sample(300, SEED)
    assert points.min() >= 0
    assert points.max() <= 1
    for start, stop in blocks_after(4, levels):
        assert set(np.unique(points[:, start:stop])) == {0.0, 1.0}
        assert np.all(points[:, start:stop].sum(axis=1) == 1)
    assert np.abs(np.bincount(classes) - 300 * moments.weights).max() <= 1
    assert len(np.unique(points[:, :4], axis=0)) > 290


def test_one_seed_gives_the_same_rows_and_another_gives_others() -> None:
    sampler = GreedySampler(wanted(features=3), ())
    first, again, other = (sampler.sample(30, seed)[0] for seed in ("ab", "ab", "cd"))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_moments_that_no_table_has_still_give_rows_inside_the_bounds() -> None:
    rng = generator(3)
    noisy = rng.normal(0, 2, (4, 4))
    for counts in (np.zeros(2), np.array([5.0, 0.0])):
        moments = PooledMoments(counts, rng.normal(0.5, 2, (2, 4)), noisy + noisy.T)
        points, classes = GreedySampler(moments, ((2, 4),)).sample(50, SEED)
        assert np.isfinite(points).all()
        assert points.min() >= 0
        assert points.max() <= 1
        assert set(classes) <= {0, 1}


@given(bend=st.floats(-50, 50), pull=st.floats(-50, 50), low=st.floats(-3, 0), width=st.floats(0.1, 6))
def test_a_number_is_chosen_where_its_quartic_is_least(bend: float, pull: float, low: float, width: float) -> None:
    grid = np.linspace(low, low + width, 4001)
    chosen = _lowest(bend, pull, low, low + width)
    assert low <= chosen <= low + width

    def height(z: float) -> float:
        return z**4 + bend * z * z - 2 * pull * z

    assert height(chosen) <= height(grid).min() + 1e-6


@given(p=st.floats(-50, 50), q=st.floats(-50, 50))
def test_cubic_roots_are_those_of_numpy(p: float, q: float) -> None:
    for root in _cubic_roots(p, q):
        slope = abs(3 * root**2 + p) + 1e-3
        assert abs(root**3 + p * root + q) <= 1e-6 * max(1.0, slope, abs(q))
    real = [r.real for r in np.roots([1, 0, p, q]) if abs(r.imag) < 1e-12]
    assert len(_cubic_roots(p, q)) in (1, 3)
    assert max(_cubic_roots(p, q)) == pytest.approx(max(real), abs=1e-3) or not real


def test_a_thousand_rows_of_ten_features_take_no_more_than_seconds() -> None:
    start = time.process_time()
    GreedySampler(wanted(), ()).sample(1000, SEED)
    assert time.process_time() - start < 4


# ---- the estimator --------------------------------------------------------------------------------


def rows(n: int = 6000) -> tuple[np.ndarray, np.ndarray]:
    """Return two classes with two correlated features, a constant one, and a dependent one of four categories."""
    rng = generator(11)
    y = np.where(rng.random(n) < 0.4, "yes", "no")
    common = rng.normal(0, 0.3, n) + np.where(y == "yes", 0.4, -0.2)
    numbers = np.column_stack([common, common, np.zeros(n)]) + rng.normal(0, 0.05, (n, 3))
    category = 10 + (common > 0) + 2 * (rng.random(n) < 0.2)
    return np.column_stack([np.clip(numbers, -1, 1), category]), y


CATEGORIES = {3: [10, 11, 12, 13]}


def model(**changes: object) -> DifferentialLda:
    parameters = {"epsilon": 1.0, "bounds": (-1.0, 1.0), "classes": ["no", "yes"], "categories": CATEGORIES}
    return DifferentialLda(**parameters | changes)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_samples_look_like_the_data(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed_the_noise(monkeypatch, jiang_lda)
    X, y = rows()
    fitted = model(epsilon=20.0, mechanism=mechanism, random_state="5eed").fit(X, y)
    S, t = fitted.sample(1500)
    assert np.mean(t == "yes") == pytest.approx(np.mean(y == "yes"), abs=0.03)
    assert np.corrcoef(S[:, 0], S[:, 1])[0, 1] == pytest.approx(np.corrcoef(X[:, 0], X[:, 1])[0, 1], abs=0.05)
    for label in ("no", "yes"):
        assert S[t == label, 0].mean() == pytest.approx(X[y == label, 0].mean(), abs=0.06)
    assert set(np.unique(S[:, 3])) <= {10, 11, 12, 13}
    for level in CATEGORIES[3]:
        assert np.mean(S[:, 3] == level) == pytest.approx(np.mean(X[:, 3] == level), abs=0.03)
    assert np.abs(S[:, :3]).max() <= 1
    assert np.mean(fitted.predict(X) == y) > 0.8
    assert np.mean(fitted.predict(S) == t) > 0.75


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_the_stated_privacy_is_what_was_asked_for_and_never_more(mechanism: str, neighbours: str) -> None:
    fitted = model(epsilon=0.7, mechanism=mechanism, neighbours=neighbours).fit(*rows(50))
    assert 0.7 * (1 - 1e-9) <= fitted.privacy_["epsilon"] <= 0.7
    assert fitted.privacy_["delta"] == 0
    assert fitted.privacy_["neighbours"] == neighbours
    assert fitted.privacy_["why"][0].startswith("GUARANTEE.md")
    assert fitted.moments_.seeded is False
    json.dumps(fitted.privacy_)


CENTRES = {"a": (-0.6, -0.6), "b": (0.6, -0.6), "c": (-0.6, 0.6), "d": (0.6, 0.6)}


@pytest.mark.parametrize(("sampler", "near"), [("squares", 0.05), ("absolute", 0.5)])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_four_classes_are_told_apart_and_keep_their_shares_and_means(
    mechanism: str, sampler: str, near: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed_the_noise(monkeypatch, jiang_lda)
    rng = generator(12)
    y = rng.choice(list(CENTRES), 4000, p=[0.4, 0.3, 0.2, 0.1])
    X = np.clip(np.array([CENTRES[label] for label in y]) + rng.normal(0, 0.15, (4000, 2)), -1, 1)
    public = {"epsilon": 20.0, "bounds": (-1.0, 1.0), "classes": list(CENTRES), "random_state": "5eed"}
    fitted = DifferentialLda(**public, mechanism=mechanism, sampler=sampler).fit(X, y)
    S, t = fitted.sample(800)
    assert np.mean(fitted.predict(X) == y) > 0.98
    for label in CENTRES:
        assert np.mean(t == label) == pytest.approx(np.mean(y == label), abs=0.02)
        assert S[t == label].mean(axis=0) == pytest.approx(X[y == label].mean(axis=0), abs=near)
    assert fitted.privacy_["epsilon"] == pytest.approx(20.0, rel=1e-9)


def test_more_classes_than_two_need_no_more_noise_on_the_papers_statistics() -> None:
    """A record leaves one class for one other, however many there are."""
    scales = {
        count: DifferentialLda(
            epsilon=1.0, bounds=(0.0, 1.0), classes=list(range(count)), mechanism="jiang-laplace"
        ).fit(np.zeros((9, 3)), [0] * 9)
        for count in (2, 5)
    }
    assert scales[2].moments_.event.noise == scales[5].moments_.event.noise


def test_the_published_sampler_is_an_option_and_costs_nothing() -> None:
    X, y = rows(300)
    fitted = model(epsilon=20.0, sampler="absolute", random_state="5eed").fit(X, y)
    S, t = fitted.sample(100)
    assert S.shape == (100, 4)
    assert np.abs(S[:, :3]).max() <= 1
    assert set(np.unique(S[:, 3])) <= {10, 11, 12, 13}
    assert set(t) == {"no", "yes"}
    assert not np.array_equal(S, fitted.set_params(sampler="squares").sample(100)[0])
    assert fitted.privacy_["epsilon"] == 20.0


def test_delta_may_buy_a_smaller_noise() -> None:
    fitted = model(epsilon=1.0, delta=1e-6, mechanism="gaussian").fit(*rows(50))
    assert fitted.privacy_["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert fitted.privacy_["delta"] == 1e-6


@pytest.mark.parametrize("mechanism", ["auto", "jiang-laplace"])
def test_the_checks_of_scikit_learn_hold_but_for_equal_predictions_of_two_noisy_fits(mechanism: str) -> None:
    estimator = DifferentialLda(epsilon=1.0, bounds=(-1.0, 1.0), classes=[0, 1], mechanism=mechanism)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_fail=None)
    failed = {r["check_name"] for r in results if r["status"] not in ("passed", "skipped")}
    assert failed <= {"check_fit_idempotent"}  # noise is never seeded
    assert len(results) > 30


@pytest.mark.parametrize("mechanism", ["auto", "jiang-laplace"])
def test_hostile_and_few_rows_are_mapped_not_refused(mechanism: str) -> None:
    X = np.array([[np.nan, np.inf, -np.inf, 1e308], [0.0, 0.0, 0.0, 11.0]] * 20)
    S, t = model(mechanism=mechanism).fit(X, ["no", "?"] * 20).sample(5)
    assert np.isfinite(S).all()
    S, t = model(mechanism=mechanism).fit(X[:1], ["yes"]).sample(5)
    assert S.shape == (5, 4)
    assert set(t) <= {"no", "yes"}


def test_unknown_labels_fall_into_the_first_class(monkeypatch: pytest.MonkeyPatch) -> None:
    seed_the_noise(monkeypatch, jiang_lda)
    X, _ = rows(200)
    for mechanism in ("auto", "jiang-laplace"):
        _, t = model(epsilon=100.0, mechanism=mechanism, random_state="5eed").fit(X, ["?"] * 200).sample(100)
        assert np.mean(t == "no") > 0.8


def test_a_label_of_another_kind_changes_no_other_rows_class() -> None:
    lda = DifferentialLda(epsilon=1.0, bounds=(0.0, 1.0), classes=[0, 1])
    assert lda._cells(rows(3)[0], ["?", 0, 1])["label"].tolist() == [UNKNOWN, 0, 1]


def test_two_fits_differ_and_two_samples_of_one_seed_do_not() -> None:
    X, y = rows(200)
    seeded = model(random_state="ab").fit(X, y)
    for first, second in zip(seeded.sample(10), seeded.sample(10), strict=True):
        assert np.array_equal(first, second)
    assert clone(seeded).fit(X, y).moments_ != seeded.moments_


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"epsilon": 0}, ValueError, "epsilon must be positive"),
        ({"epsilon": -1.0}, ValueError, "epsilon must be positive"),
        ({"epsilon": float("nan")}, ValueError, "finite"),
        ({"epsilon": float("inf")}, ValueError, "finite"),
        ({"bounds": (1.0, -1.0)}, ValueError, "increasing"),
        ({"bounds": (0.0, float("inf"))}, ValueError, "finite"),
        ({"neighbours": "none"}, ValueError, "none"),
        ({"classes": ["a"]}, ValueError, "two levels"),
        ({"classes": ["a", "a"]}, ValueError, "classes must all be different"),
        ({"delta": 1}, ValueError, "delta must lie in"),
        ({"delta": -0.5}, ValueError, "delta must lie in"),
        ({"categories": {9: [0, 1]}}, ValueError, "by index, 0 to 3"),
        ({"categories": {3: [1]}}, ValueError, "two levels"),
        ({"sampler": "median"}, ValueError, "sampler must be squares or absolute"),
    ],
)
@pytest.mark.parametrize("mechanism", ["auto", "jiang-laplace"])
def test_a_bad_parameter_is_refused_with_its_rule(
    changes: dict[str, object], error: type[Exception], words: str, mechanism: str
) -> None:
    with pytest.raises(error, match=words):
        model(mechanism=mechanism, **changes).fit(*rows(10))


@pytest.mark.parametrize("mechanism", ["no-such", "published-jiang-lda", "noisy-rows", "ron"])
def test_what_is_no_mechanism_for_moments_is_refused(mechanism: str) -> None:
    with pytest.raises(PlanError):
        model(mechanism=mechanism).fit(*rows(10))


def test_a_fit_needs_rows_and_their_classes_and_sampling_needs_a_fit() -> None:
    X, y = rows(10)
    with pytest.raises(ValueError, match="y must have"):
        model().fit(X, y[:5])
    with pytest.raises(ValueError, match="requires y"):
        model().fit(X, None)
    with pytest.raises(ValueError, match="minimum of 1"):
        model().fit(np.empty((0, 4)), [])
    with pytest.raises(NotFittedError):
        model().sample(3)
    with pytest.raises(NotFittedError):
        model().predict(X)
    with pytest.raises(ValueError, match="at least 1"):
        model().fit(X, y).sample(0)


# ---- the plan ---------------------------------------------------------------------------------------


def plan_of(**changes: object):
    facts = {
        "schema": schema_with(label=True),
        "neighbours": Neighbours.REPLACE_ONE,
        "unit": PrivacyUnit(),
        "epsilon": Fraction(1),
        "delta": Fraction(0),
        "expected_rows": 50_000,
        "generator": "lda",
    }
    return make_plan(PlanRequest(**facts | changes))


def test_the_plan_measures_one_block_with_a_label_for_each_class() -> None:
    width = Encoding(schema_with(label=True)).width
    plain = plan_of(projection="none")
    assert plain.event.layout == GramLayout(width + 4, 1, plain.event.layout.count_weight, 1, 4)
    assert plain.generator == "lda"
    assert any("one block" in reason for reason in plain.reasons)
    assert plan_of(dimension=3).event.layout.dimension == 3 + 4
    assert plan_of(dimension=3).event.layout.labels == 4
    several = plan_of(unit=PrivacyUnit(person="id", row_rule=RowRule.AT_MOST, most_rows=3), dimension=3)
    assert several.event.layout.rows_per_unit == 3


def test_more_dimensions_are_quiet_enough_than_with_class_blocks() -> None:
    assert plan_of(expected_rows=4000).dimension > plan_of(expected_rows=4000, generator="mixture").dimension


def test_private_components_measured_apart_need_no_labels() -> None:
    apart = {"projection": Fraction(1, 2), "moments": Fraction(1, 2)}
    plan = plan_of(projection="private-pca", dimension=2, allocation=apart)
    assert plan.projection_event is not None
    assert plan.projection_event.layout.labels == 0
    assert plan.event.layout.labels == 4


def test_without_a_label_lda_is_refused() -> None:
    with pytest.raises(PlanError) as caught:
        plan_of(schema=schema_with())
    assert caught.value.rule == "generator-needs-label"


@pytest.mark.parametrize("mechanism", ["noisy-rows", "jiang-laplace"])
def test_rows_and_plain_statistics_are_not_for_the_flow(mechanism: str) -> None:
    with pytest.raises(PlanError, match=mechanism) as caught:
        plan_of(mechanism=mechanism)
    assert caught.value.where == "model.mechanism"
    assert "moments" in str(caught.value)
