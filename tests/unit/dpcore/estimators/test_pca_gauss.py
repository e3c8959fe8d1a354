"""PCA-Gauss with components that the moments' rows do not pay for: those of public rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from support.dpcore.samplers import generator, seed_the_noise

from dpcore import PcaGauss, RonGauss
from dpcore.estimators import moment_mixture
from dpcore.planning.request import PlanError

DIRECTION = np.array([0.6, 0.0, -0.8, 0.0])
PUBLIC = {"epsilon": 1.0, "bounds": (-1.0, 1.0), "n_components": 1}


def rows_along(direction: np.ndarray, rows: int = 400, seed: int = 1) -> np.ndarray:
    """Return rows that vary along one direction, and a little around it."""
    rng = generator(seed)
    return np.clip(0.4 * rng.normal(size=(rows, 1)) * direction + rng.normal(0, 0.01, (rows, len(direction))), -1, 1)


# ---- public rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_components_of_public_rows_leave_the_whole_budget_to_the_moments(neighbours: str, delta: float) -> None:
    free = PUBLIC | {"neighbours": neighbours, "delta": delta}
    model = PcaGauss(**free, public_rows=rows_along(DIRECTION)).fit(rows_along(DIRECTION, seed=2))
    assert model.plan_.event == RonGauss(**free).fit(rows_along(DIRECTION)).plan_.event
    assert list(model.privacy_["measurements"]) == ["moments"]
    assert model.privacy_["components"] == "of public rows, at no cost: GUARANTEE.md, P1"
    assert model.privacy_["epsilon"] == pytest.approx(1.0, rel=1e-6)


def test_the_components_are_those_of_the_public_rows_whatever_the_private_ones_are() -> None:
    fits = [
        PcaGauss(**PUBLIC, public_rows=rows_along(DIRECTION)).fit(private)
        for private in (rows_along(DIRECTION[::-1]), np.full((3, 4), np.nan))
    ]
    bases = [model.projection_.basis() for model in fits]
    assert np.array_equal(*bases)
    assert abs(DIRECTION @ bases[0][:, 0]) > 0.999


def test_private_rows_are_modelled_along_public_components_around_the_public_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seed_the_noise(monkeypatch, moment_mixture)
    public, private = rows_along(DIRECTION) + np.array([0, 0.5, 0, 0]), rows_along(DIRECTION, 6000, seed=2)
    for radius in (1, 0.9):
        model = PcaGauss(**PUBLIC | {"epsilon": 5.0}, public_rows=public, radius=radius, random_state="5eed")
        sampled = model.fit(private).sample(4000)
        assert (sampled @ DIRECTION).std() == pytest.approx((private @ DIRECTION).std(), abs=0.05)
        assert sampled[:, 1].mean() == pytest.approx(public[:, 1].mean(), abs=0.02)
        assert sampled[:, 1].std() < 0.02


def test_a_target_needs_no_public_values(monkeypatch: pytest.MonkeyPatch) -> None:
    seed_the_noise(monkeypatch, moment_mixture)
    X = rows_along(DIRECTION, 6000)
    options = PUBLIC | {"epsilon": 5.0, "target_bounds": (-1.0, 1.0), "random_state": "5eed"}
    S, t = PcaGauss(**options, public_rows=rows_along(DIRECTION, seed=2)).fit(X, X[:, 2]).sample(4000)
    assert np.corrcoef(S[:, 2], t)[0, 1] > 0.8


def test_cells_of_public_rows_are_mapped_like_private_ones() -> None:
    plain = [[1.0, -1.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.0]]
    odd = [[9.0, -1e308, np.nan, "x"], [-7.0, 1.0, None, 0.0], ["?", 0.0, 0.5, 0.0]]
    bases = [PcaGauss(**PUBLIC, public_rows=public).fit(np.zeros((9, 4))).projection_ for public in (plain, odd)]
    assert np.array_equal(bases[0].columns, bases[1].columns)
    assert np.array_equal(bases[0].centre, bases[1].centre)


def test_an_estimator_with_public_rows_can_be_cloned_and_shown() -> None:
    model = PcaGauss(**PUBLIC, public_rows=rows_along(DIRECTION))
    assert np.array_equal(clone(model).public_rows, model.public_rows)
    assert "public_rows" in repr(model)


@pytest.mark.parametrize("public", [[], [[]], [0.0] * 4, np.zeros((0, 4)), np.zeros((2, 3)), [[0.0] * 4, [0.0] * 3]])
def test_public_rows_of_another_shape_are_refused(public: object) -> None:
    with pytest.raises(ValueError, match="public_rows must hold at least one row of 4 features"):
        PcaGauss(**PUBLIC, public_rows=public).fit(np.zeros((9, 4)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"projection_mechanism": "gaussian"}, "measures nothing, so it has no mechanism"),
        ({"allocation": "pca-gauss-0.3"}, "gives budget to projection"),
        ({"n_components": 5}, "between 1 and 4"),
    ],
)
def test_public_components_take_no_budget_and_no_mechanism(changes: dict[str, object], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        PcaGauss(**PUBLIC | changes, public_rows=rows_along(DIRECTION)).fit(np.zeros((9, 4)))
