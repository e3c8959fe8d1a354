"""Membership inference on released rows finds members without privacy and never exceeds the ceiling."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from dpcore.auditing.membership import (
    ATTACKERS,
    MembershipFigure,
    attack_features,
    fit_logistic,
    infer_membership,
    public_population,
)
from dpcore.estimators.moment_mixture import MomentMixture
from dpcore.noise.sources import public_generator

Floats = NDArray[np.float64]
POPULATION = public_population(120, 3, "7")
each_attacker = pytest.mark.parametrize("attacker", ATTACKERS)


def released_at(epsilon: float, rows: Floats) -> Floats:
    """Return a function that releases rows of a Gaussian fitted to noisy moments."""
    return MomentMixture(epsilon=epsilon, bounds=(-1.0, 1.0)).fit(rows).sample(100)


@each_attacker
def test_members_of_a_small_table_are_found_where_the_noise_is_negligible(attacker: str) -> None:
    figure = infer_membership(
        lambda rows: released_at(1e6, rows),
        POPULATION,
        rows=2,
        guesses=60,
        epsilon=1e6,
        seed="1",
        attacker=attacker,
    )
    assert figure.interval[0] > 0.5


@pytest.mark.parametrize(("epsilon", "attacker"), [(1.0, "logistic"), (1.0, "neural"), (3.0, "neural")])
def test_at_no_epsilon_the_accuracy_exceeds_the_ceiling(epsilon: float, attacker: str) -> None:
    figure = infer_membership(
        lambda rows: released_at(epsilon, rows),
        POPULATION,
        rows=60,
        guesses=100,
        epsilon=epsilon,
        seed="2",
        attacker=attacker,
    )
    assert figure.holds
    assert figure.ceiling == pytest.approx(1 / (1 + math.exp(-epsilon)))
    assert figure.interval[0] < 0.6  # near random guessing, as the paper finds below epsilon 1.5


@each_attacker
def test_a_release_of_the_rows_themselves_breaks_any_ceiling(attacker: str) -> None:
    figure = infer_membership(
        lambda rows: rows, POPULATION, rows=20, guesses=60, epsilon=1.0, seed="3", attacker=attacker
    )
    assert figure.accuracy > 0.95
    assert figure.advantage == 2 * figure.accuracy - 1
    assert not figure.holds
    assert figure.as_json()["holds"] is False


@each_attacker
def test_the_attack_repeats_itself_where_the_release_does(attacker: str) -> None:
    figures = [
        infer_membership(lambda r: r, POPULATION, rows=9, guesses=9, epsilon=1, seed="4", attacker=attacker)
        for _ in "12"
    ]
    assert figures[0] == figures[1]


def test_the_neural_attack_bends_where_the_logistic_one_cannot() -> None:
    features = np.linspace(-1, 1, 600)[:, None]
    members = (np.abs(features[:, 0]) < 0.5).astype(float)
    right = {
        name: np.mean((train(features, members, public_generator("1", "test"))(features) > 0) == members)
        for name, train in ATTACKERS.items()
    }
    assert right["neural"] > 0.95
    assert right["logistic"] < 0.8


def test_an_unknown_attacker_is_refused() -> None:
    with pytest.raises(ValueError, match="attacker must be logistic or neural"):
        infer_membership(lambda r: r, POPULATION, rows=9, guesses=2, epsilon=1.0, seed="5", attacker="oracle")


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
