"""The estimators follow scikit-learn's conventions, and their privacy figures are those of the plan."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator
from support.dpcore.samplers import seed_the_noise

from dpcore import MomentMixture, PcaGauss, RonGauss
from dpcore.estimators import moment_mixture
from dpcore.estimators._arrays import numeric_rows
from dpcore.planning.request import PlanError
from dpcore.records.schema import UNKNOWN

ESTIMATORS = [RonGauss, PcaGauss, MomentMixture]


def rows(n: int = 6000) -> tuple[np.ndarray, np.ndarray]:
    """Return two classes whose first two features are correlated."""
    rng = np.random.Generator(np.random.PCG64(11))
    y = np.where(rng.random(n) < 0.4, "yes", "no")
    common = rng.normal(0, 0.3, n) + np.where(y == "yes", 0.4, -0.2)
    noise = rng.normal(0, 0.05, (n, 4))
    return np.clip(np.column_stack([common, common, np.zeros(n), np.zeros(n)]) + noise, -1, 1), y


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_check_of_scikit_learn_holds(estimator: type[MomentMixture]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator(epsilon=1.0, bounds=(-1.0, 1.0), n_components=1), on_fail=None)
    failed = [r["check_name"] for r in results if r["status"] not in ("passed", "skipped")]
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    repeated = {"check_pipeline_consistency", "check_transformer_data_not_an_array", "check_transformer_general"}
    assert set(failed) <= {"check_fit_idempotent"}  # noise is never seeded, so `transform` differs between fits
    assert estimator is not MomentMixture or not failed
    assert skipped <= {"check_array_api_input", *repeated}  # the latter repeat a fit
    assert len(results) > 30


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_samples_look_like_the_data(estimator: type[MomentMixture], monkeypatch: pytest.MonkeyPatch) -> None:
    seed_the_noise(monkeypatch, moment_mixture)
    X, y = rows()
    public = {"bounds": (-1.0, 1.0), "n_components": 4, "classes": ["no", "yes"], "random_state": "5eed"}
    S, t = estimator(epsilon=5.0, **public).fit(X, y).sample(40_000)
    assert S.shape == (40_000, 4)
    assert set(t) == {"no", "yes"}
    assert np.mean(t == "yes") == pytest.approx(np.mean(y == "yes"), abs=0.03)
    assert np.corrcoef(S[:, 0], S[:, 1])[0, 1] == pytest.approx(np.corrcoef(X[:, 0], X[:, 1])[0, 1], abs=0.08)
    for label in ("no", "yes"):
        assert S[t == label, 0].mean() == pytest.approx(X[y == label, 0].mean(), abs=0.06)
    assert np.abs(S).max() <= 1


def test_a_target_is_kept_out_of_the_projection_and_follows_its_features(monkeypatch: pytest.MonkeyPatch) -> None:
    seed_the_noise(monkeypatch, moment_mixture)
    X, _ = rows()
    y = 10 * X[:, 0]
    public = {"bounds": (-1.0, 1.0), "n_components": 2, "target_bounds": (-10.0, 10.0), "random_state": "5eed"}
    S, t = PcaGauss(epsilon=5.0, **public).fit(X, y).sample(4000)
    assert np.corrcoef(S[:, 0], t)[0, 1] > 0.8


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_the_stated_privacy_is_what_was_asked_for_and_never_more(
    estimator: type[MomentMixture], delta: float, neighbours: str
) -> None:
    model = estimator(epsilon=0.7, delta=delta, bounds=(-1.0, 1.0), n_components=2, neighbours=neighbours)
    privacy = model.fit(rows(50)[0]).privacy_
    assert privacy["epsilon"] <= 0.7
    assert privacy["epsilon"] == pytest.approx(0.7, rel=1e-6)
    assert privacy["delta"] in (0, delta)
    assert privacy["neighbours"] == neighbours
    assert all(reason.startswith("GUARANTEE.md") for reason in privacy["why"])
    assert model.moments_.seeded is False


def test_two_fits_of_the_same_rows_differ_and_two_samples_of_one_seed_do_not() -> None:
    X, _ = rows(200)
    model = RonGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=2, random_state="ab")
    first = model.fit(X).moments_
    assert np.array_equal(model.sample(20), model.sample(20))
    assert clone(model).fit(X).moments_ != first


def test_hostile_values_are_mapped_not_refused() -> None:
    X = np.array([[np.nan, np.inf, -np.inf, 1e308], [0.0, 0.0, 0.0, 0.0]] * 50)
    S = RonGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=2).fit(X).sample(10)
    assert np.isfinite(S).all()


def test_unknown_labels_fall_into_the_first_class(monkeypatch: pytest.MonkeyPatch) -> None:
    seed_the_noise(monkeypatch, moment_mixture)
    X, _ = rows(100)
    model = MomentMixture(epsilon=50.0, bounds=(-1.0, 1.0), classes=["a", "b"], random_state="5eed").fit(X, ["?"] * 100)
    assert model.sample(100)[1].tolist().count("a") > 80


STRANGE = ["x", None, float("nan"), 10**400, 1j, [1, 2], {}, b"1", np.array([0.0, 1.0])]
"""Values that a caller's list may hold instead of a number or a label."""


@pytest.mark.parametrize("strange", STRANGE, ids=lambda value: type(value).__name__)
def test_a_label_of_another_kind_changes_no_other_rows_class(strange: object) -> None:
    model = MomentMixture(epsilon=1.0, bounds=(-1.0, 1.0), classes=[0, 1])
    cells = model._cells(rows(4)[0], [strange, 0, 1, 1])
    assert cells["label"].tolist() == [UNKNOWN, 0, 1, 1]


@pytest.mark.parametrize("strange", STRANGE, ids=lambda value: type(value).__name__)
def test_a_target_that_is_no_number_is_missing_and_changes_no_other_row(strange: object) -> None:
    model = MomentMixture(epsilon=1.0, bounds=(-1.0, 1.0), target_bounds=(0.0, 1.0))
    cells = model._cells(rows(4)[0], [strange, True, 0.25, 1])
    assert np.array_equal(cells["target"][1:], [1.0, 0.25, 1.0])


@pytest.mark.parametrize("strange", STRANGE, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("as_objects", [False, True])
def test_a_cell_that_is_no_number_is_missing_and_changes_no_other_cell(strange: object, as_objects: bool) -> None:
    X: object = [[0.25, True], [strange, 0.5], [1, 2]]
    if as_objects:
        table = np.empty((3, 2), dtype=object)
        for i, row in enumerate(X):
            table[i, 0], table[i, 1] = row
        X = table
    cells = numeric_rows(MomentMixture(epsilon=1.0, bounds=(-1.0, 1.0)), X)
    assert np.array_equal(cells[[0, 0, 1, 2, 2], [0, 1, 1, 0, 1]], [0.25, 1.0, 0.5, 1.0, 2.0])


def test_labels_are_found_in_arrays_of_every_type() -> None:
    for labels, values in (
        ([0, 1], np.array([0.0, 1.0, 2.0])),
        (["a", "b"], np.array(["a", "b", "c"])),
        (["a", "b"], np.array(["a", "b", None], dtype=object)),
        ([False, True], [False, True, "maybe"]),
    ):
        model = MomentMixture(epsilon=1.0, bounds=(-1.0, 1.0), classes=labels)
        assert model._cells(rows(3)[0], values)["label"].tolist() == [0, 1, UNKNOWN]


def test_an_array_that_can_hold_no_numbers_is_refused() -> None:
    dates = np.array([["2020-01-01", "2020-01-02"]], dtype="datetime64[D]")
    with pytest.raises(ValueError, match="holds no numbers"):
        MomentMixture(epsilon=1.0, bounds=(-1.0, 1.0)).fit(dates)


def test_an_approximate_mechanism_is_named_in_what_was_spent() -> None:
    model = PcaGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=2, projection_mechanism="exponential-pca")
    assert model.fit(rows(50)[0]).privacy_["approximate"] == ["exponential-pca"]
    assert RonGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=2).fit(rows(50)[0]).privacy_["approximate"] == []


def test_a_seed_of_sampling_is_hexadecimal_text_or_a_number() -> None:
    model = RonGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=2, random_state=171).fit(rows(50)[0])
    by_number = model.sample(5)
    assert np.array_equal(by_number, model.set_params(random_state="ab").sample(5))
    for wrong in ("zz", "", -1, 1.5):
        with pytest.raises(ValueError, match="random_state must be"):
            model.set_params(random_state=wrong).sample(5)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"epsilon": 0}, ValueError, "epsilon must be positive"),
        ({"epsilon": -1.0}, ValueError, "epsilon must be positive"),
        ({"epsilon": float("nan")}, ValueError, "finite"),
        ({"epsilon": float("inf")}, ValueError, "finite"),
        ({"delta": 1.0}, ValueError, "delta"),
        ({"delta": -0.1}, ValueError, "delta"),
        ({"bounds": (1.0, -1.0)}, ValueError, "increasing"),
        ({"bounds": (0.0, float("inf"))}, ValueError, "finite"),
        ({"bounds": ([0.0] * 3, [1.0] * 3)}, ValueError, "one for each of 4 features"),
        ({"bounds": 1.0}, ValueError, "lower, upper"),
        ({"epsilon": "1"}, ValueError, "epsilon must be a finite number"),
        ({"epsilon": None}, ValueError, "epsilon must be a finite number"),
        ({"neighbours": "none"}, ValueError, "replace-one or add-remove, got 'none'"),
        ({"n_components": 9}, ValueError, "dimension"),
        ({"n_components": 0}, ValueError, "dimension"),
        ({"n_components": 1.5}, ValueError, "a share of the variance must lie between 0 and 1, got 1.5"),
        ({"n_components": 0.5}, ValueError, "'ron' releases no spectrum"),
        ({"n_components": float("nan")}, ValueError, "n_components must be a finite number"),
        ({"n_components": "few"}, ValueError, "whole number between 1 and 4"),
        ({"n_components": "auto"}, ValueError, "expected_rows"),
        ({"expected_rows": 0}, ValueError, "expected_rows must be at least 1, got 0"),
        ({"allocation": {"moments": float("nan")}}, ValueError, "sum to 1"),
        ({"allocation": "generous"}, ValueError, "allocation must be auto, fractions, or one of"),
        ({"mechanism": "published-sn"}, PlanError, "refuted"),
        ({"classes": ["a", "b"]}, ValueError, "y must have"),
        ({"classes": ["a"]}, ValueError, "two levels"),
        ({"classes": ["a", "b", "a"]}, ValueError, "classes must all be different"),
    ],
)
def test_a_bad_parameter_is_refused_with_its_rule(
    changes: dict[str, object], error: type[Exception], words: str
) -> None:
    parameters = {"epsilon": 1.0, "bounds": (-1.0, 1.0), "n_components": 2} | changes
    with pytest.raises(error, match=words):
        RonGauss(**parameters).fit(rows(10)[0])


def test_sampling_needs_a_fit_and_a_positive_number() -> None:
    model = RonGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=2)
    with pytest.raises(NotFittedError):
        model.sample(3)
    with pytest.raises(ValueError, match="at least 1"):
        model.fit(rows(10)[0]).sample(0)


def test_fractions_and_decimals_are_exact() -> None:
    for epsilon in (0.1, Fraction(1, 10)):
        model = RonGauss(epsilon=epsilon, bounds=(-1.0, 1.0), n_components=2).fit(rows(10)[0])
        assert model.plan_.cost.epsilon == Fraction(1, 10)


# ---- the projected coordinates ---------------------------------------------------------------------------------

PROJECTED = [RonGauss, PcaGauss]


@pytest.mark.parametrize("estimator", PROJECTED)
@pytest.mark.parametrize("radius", [1, 0.5, "auto"])
def test_transform_is_the_projection_that_was_measured_in(estimator: type[RonGauss], radius: float | str) -> None:
    X, _ = rows(400)
    model = estimator(epsilon=5.0, bounds=(-1.0, 1.0), n_components=2, radius=radius).fit(X)
    frame, basis = model.projection_.frame, model.projection_.basis()
    centre, size = (np.zeros(4), 1.0) if frame is None else (frame.centre, frame.radius)
    assert model.transform(X) == pytest.approx((X / 2 - centre) / size @ basis)  # the root of 4 features scales them
    assert model.transform(3 * X) == pytest.approx(model.transform(np.clip(3 * X, -1, 1)))


@pytest.mark.parametrize("estimator", PROJECTED)
@pytest.mark.parametrize("radius", [1, 0.5, "auto"])
def test_a_point_is_lifted_to_a_row_that_projects_to_it(estimator: type[RonGauss], radius: float | str) -> None:
    model = estimator(epsilon=5.0, bounds=(-2.0, 1.0), n_components=2, radius=radius).fit(rows(400)[0])
    points = model.transform(np.full((1, 4), -0.5)) + np.array([[0.0, 0.0], [0.01, -0.02], [0.03, 0.01]])
    lifted = model.inverse_transform(points)
    assert lifted.shape == (3, 4)
    assert model.transform(lifted) == pytest.approx(points, abs=1e-5)  # the projection is rounded to 2^-20
    assert np.all((model.inverse_transform(points * 1e6) >= -2) & (model.inverse_transform(points * 1e6) <= 1))


@pytest.mark.parametrize("estimator", PROJECTED)
@pytest.mark.parametrize("beside", [{"classes": ["no", "yes"]}, {"target_bounds": (-1.0, 1.0)}])
def test_the_label_or_target_is_no_coordinate_of_transform(estimator: type[RonGauss], beside: dict) -> None:
    X, y = rows(400)
    model = estimator(epsilon=5.0, bounds=(-1.0, 1.0), n_components=2, **beside).fit(
        X, y if "classes" in beside else X[:, 0]
    )
    points = model.transform(X)
    assert points.shape == (400, 2)
    assert model.inverse_transform(points).shape == (400, 4)
    assert model.get_feature_names_out().tolist() == [f"{estimator.__name__.lower()}{i}" for i in range(2)]


def test_a_label_that_is_a_feature_stands_at_the_middle_in_transform() -> None:
    X, y = rows(400)
    model = RonGauss(epsilon=5.0, bounds=(-1.0, 1.0), n_components=3, classes=["no", "yes"], generator="gaussian").fit(
        X, y
    )
    points = model.transform(X[:5])
    cells = {f"x{i}": X[:5, i] for i in range(4)} | {"label": np.full(5, UNKNOWN)}
    assert points == pytest.approx(model.encoding_.encode(cells) @ model.projection_.basis())
    assert model.inverse_transform(points).shape == (5, 4)


@pytest.mark.parametrize("estimator", PROJECTED)
def test_transform_needs_a_fit_and_the_right_number_of_columns(estimator: type[RonGauss]) -> None:
    model = estimator(epsilon=1.0, bounds=(-1.0, 1.0), n_components=2)
    for method in (model.transform, model.inverse_transform):
        with pytest.raises(NotFittedError):
            method([[0.0] * 4])
    model.fit(rows(50)[0])
    with pytest.raises(ValueError, match="2 columns"):
        model.inverse_transform([[0.0] * 4])


def test_points_of_one_length_have_no_linear_map() -> None:
    some = rows(200)[0]
    model = RonGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=2, normalise=True).fit(some)
    for method, columns in ((model.transform, 4), (model.inverse_transform, 2)):
        with pytest.raises(ValueError, match="no linear map"):
            method(some[:, :columns])
