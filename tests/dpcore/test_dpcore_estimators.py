"""The estimators keep scikit-learn's habits, and their privacy figures are those of the plan."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

import dpcore
from dpcore import MomentMixture, PcaGauss, RonGauss
from dpcore.wishes import PlanError

ESTIMATORS = [RonGauss, PcaGauss, MomentMixture]


def rows(n: int = 6000) -> tuple[np.ndarray, np.ndarray]:
    """Two classes whose first two features move together."""
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
    assert failed == []
    assert skipped <= {"check_array_api_input", "check_pipeline_consistency"}  # the latter repeats a fit
    assert len(results) > 30


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_samples_look_like_the_data(estimator: type[MomentMixture]) -> None:
    X, y = rows()
    model = estimator(epsilon=5.0, bounds=(-1.0, 1.0), n_components=4, classes=["no", "yes"]).fit(X, y)
    S, t = model.sample(4000)
    assert S.shape == (4000, 4)
    assert set(t) == {"no", "yes"}
    assert np.mean(t == "yes") == pytest.approx(np.mean(y == "yes"), abs=0.03)
    assert np.corrcoef(S[:, 0], S[:, 1])[0, 1] == pytest.approx(np.corrcoef(X[:, 0], X[:, 1])[0, 1], abs=0.08)
    for label in ("no", "yes"):
        assert S[t == label, 0].mean() == pytest.approx(X[y == label, 0].mean(), abs=0.06)
    assert np.abs(S).max() <= 1


def test_a_target_is_kept_out_of_the_projection_and_follows_its_features() -> None:
    X, _ = rows()
    y = 10 * X[:, 0]
    model = PcaGauss(epsilon=5.0, bounds=(-1.0, 1.0), n_components=2, target_bounds=(-10.0, 10.0)).fit(X, y)
    S, t = model.sample(4000)
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


def test_unknown_labels_fall_into_the_first_class() -> None:
    X, _ = rows(100)
    model = MomentMixture(epsilon=50.0, bounds=(-1.0, 1.0), classes=["a", "b"]).fit(X, ["?"] * 100)
    assert model.sample(100)[1].tolist().count("a") > 80


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
        ({"neighbours": "none"}, ValueError, "none"),
        ({"n_components": 9}, ValueError, "dimension"),
        ({"n_components": 0}, ValueError, "dimension"),
        ({"n_components": "auto"}, ValueError, "expected_rows"),
        ({"mechanism": "published-sn"}, PlanError, "refuted"),
        ({"classes": ["a", "b"]}, ValueError, "y must have"),
        ({"classes": ["a"]}, ValueError, "two levels"),
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


def test_the_package_offers_the_estimators_and_nothing_else() -> None:
    gaussians = ["EigenvalueGauss", "Modips", "MomentMixture", "PcaGauss", "RonGauss"]
    assert sorted(dpcore.__all__) == sorted([*gaussians, "DifferentialLda", "BernoulliRows", "JiangPca", "LopRows"])
    assert all(getattr(dpcore, name).__name__ == name for name in dpcore.__all__)
    with pytest.raises(AttributeError):
        dpcore.nothing  # noqa: B018
