"""Membership inference on released rows finds members without privacy and never exceeds the ceiling."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from dpcore.auditing.membership import (
    MembershipFigure,
    attack_features,
    fit_logistic,
    infer_membership,
    public_population,
)
from dpcore.estimators.moment_mixture import MomentMixture

Floats = NDArray[np.float64]
POPULATION = public_population(120, 3, "7")


def released_at(epsilon: float, rows: Floats) -> Floats:
    """Return a function that releases rows of a Gaussian fitted to noisy moments."""
    return MomentMixture(epsilon=epsilon, bounds=(-1.0, 1.0)).fit(rows).sample(100)


def test_members_of_a_small_table_are_found_where_the_noise_is_negligible() -> None:
    figure = infer_membership(
        lambda rows: released_at(1e6, rows), POPULATION, rows=2, guesses=60, epsilon=1e6, seed="1"
    )
    assert figure.interval[0] > 0.5


def test_at_epsilon_one_the_accuracy_stays_under_the_ceiling() -> None:
    figure = infer_membership(
        lambda rows: released_at(1.0, rows), POPULATION, rows=60, guesses=100, epsilon=1.0, seed="2"
    )
    assert figure.holds
    assert figure.ceiling == pytest.approx(math.e / (1 + math.e))
    assert figure.interval[0] < 0.6  # near random guessing, as the paper finds below epsilon 1.5


def test_a_release_of_the_rows_themselves_breaks_any_ceiling() -> None:
    figure = infer_membership(lambda rows: rows, POPULATION, rows=20, guesses=60, epsilon=1.0, seed="3")
    assert figure.accuracy > 0.95
    assert not figure.holds
    assert figure.as_json()["holds"] is False


def test_the_attack_repeats_itself_where_the_release_does() -> None:
    figures = [infer_membership(lambda r: r, POPULATION, rows=9, guesses=9, epsilon=1, seed="4") for _ in "12"]
    assert figures[0] == figures[1]


@pytest.mark.parametrize("rows", [1, 120, 500])
def test_a_table_that_leaves_nobody_out_is_refused(rows: int) -> None:
    with pytest.raises(ValueError, match="rows must lie"):
        infer_membership(lambda r: r, POPULATION, rows=rows, guesses=2, epsilon=1.0, seed="5")


def test_the_ceiling_grows_with_epsilon_and_delta() -> None:
    assert MembershipFigure(1, 2, 0.0, 0.0).ceiling == 0.5
    assert MembershipFigure(1, 2, 1.0, 0.1).ceiling == pytest.approx((math.e + 0.1) / (1 + math.e))
    assert MembershipFigure(1, 2, 1e6, 0.0).ceiling == 1.0


def test_the_attack_model_separates_what_can_be_separated() -> None:
    line = np.linspace(-1, 1, 200)[:, None]
    weights = fit_logistic(line, (line[:, 0] > 0.2).astype(float))
    guessed = weights[0] + weights[1] * line[:, 0] > 0
    assert np.mean(guessed == (line[:, 0] > 0.2)) > 0.95


def test_traces_are_finite_also_for_rows_that_are_all_equal() -> None:
    assert np.isfinite(attack_features(POPULATION[:5], np.zeros((3, 3)))).all()
