"""The estimator of mixed tables."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator
from support.dpcore.samplers import seed_the_noise

from dpcore import GaussianCopula
from dpcore.estimators import gaussian_copula

BOUNDS = ([0.0, 0.0, 0.0], [100_000.0, 3.0, 80.0])


def rows(n: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Return an amount that is mostly 0 with a long tail, a category that depends on the class, and an age."""
    rng = np.random.Generator(np.random.PCG64(3))
    y = np.where(rng.random(n) < 0.3, "yes", "no")
    amount = np.where(rng.random(n) < np.where(y == "yes", 0.5, 0.9), 0.0, rng.lognormal(7, 1, n))
    kind = np.where(y == "yes", rng.choice(3, n, p=[0.7, 0.2, 0.1]), rng.choice(3, n, p=[0.1, 0.3, 0.6]))
    return np.column_stack([np.minimum(amount, 100_000), kind, rng.normal(40, 10, n)]), y


def model(**changes: object) -> GaussianCopula:
    parameters = {"epsilon": 4.0, "bounds": BOUNDS, "categories": {1: [0, 1, 2]}, "classes": ["no", "yes"]}
    return GaussianCopula(**parameters | changes)


def test_every_check_of_scikit_learn_holds() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(GaussianCopula(epsilon=1.0, bounds=(-1.0, 1.0)), on_fail=None)
    assert [r["check_name"] for r in results if r["status"] not in ("passed", "skipped")] == []
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert skipped <= {"check_array_api_input", "check_pipeline_consistency"}  # the latter repeats a fit
    assert len(results) > 30


@pytest.mark.parametrize("delta", [0, 1e-6])
def test_samples_keep_piles_tails_categories_and_what_hangs_together(
    delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed_the_noise(monkeypatch, gaussian_copula)
    X, y = rows()
    S, t = model(delta=delta, epsilon=16.0, random_state="5eed").fit(X, y).sample(20_000)
    assert np.mean(t == "yes") == pytest.approx(0.3, abs=0.02)
    for label in ("no", "yes"):
        mine, true = S[t == label], X[y == label]
        assert np.mean(mine[:, 0] == 0) == pytest.approx(np.mean(true[:, 0] == 0), abs=0.05)
        shares = [np.mean(mine[:, 1] == level) for level in range(3)]
        assert shares == pytest.approx([np.mean(true[:, 1] == level) for level in range(3)], abs=0.04)
    tail, true_tail = S[S[:, 0] > 0, 0], X[X[:, 0] > 0, 0]
    for quantile in (0.25, 0.5, 0.75):
        assert np.quantile(tail, quantile) == pytest.approx(np.quantile(true_tail, quantile), rel=0.25)
    assert S.min() >= 0
    assert set(np.unique(S[:, 1])) == {0.0, 1.0, 2.0}


def test_what_was_spent_is_said_and_is_what_was_asked_for() -> None:
    X, y = rows(100)
    fitted = model(epsilon=Fraction(1, 2), allocation={"marginals": 0.25, "moments": 0.75}).fit(X, y)
    assert fitted.privacy_["epsilon"] == pytest.approx(0.5)
    assert fitted.privacy_["delta"] == 0
    assert set(fitted.privacy_["measurements"]) == {"marginals", "moments"}
    assert len(fitted.privacy_["why"]) == 2


def test_hostile_and_few_rows_are_mapped_not_refused() -> None:
    X = np.array([[np.nan, np.inf, -np.inf], [-1e308, 7.0, 1e308]] * 20)
    for given, labels in ((X, ["no", "?"] * 20), (X[:1], ["yes"])):
        S, t = model().fit(given, labels).sample(50)
        assert np.isfinite(S).all()
        assert set(t) <= {"no", "yes"}


def test_two_fits_differ_and_two_samples_of_one_seed_do_not() -> None:
    X, y = rows(500)
    seeded = model(random_state="ab").fit(X, y)
    for first, second in zip(seeded.sample(10), seeded.sample(10), strict=True):
        assert np.array_equal(first, second)
    assert clone(seeded).fit(X, y).moments_ != seeded.moments_


def test_nothing_is_sampled_before_a_fit_or_in_no_rows() -> None:
    with pytest.raises(NotFittedError):
        model().sample(3)
    with pytest.raises(ValueError, match="at least 1"):
        model().fit(*rows(50)).sample(0)
