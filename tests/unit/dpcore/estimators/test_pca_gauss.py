"""PCA-Gauss with components that the moments' rows do not pay for: those of public rows, or of rows set aside."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from sklearn.base import clone
from support.dpcore.samplers import generator, seed_the_noise

from dpcore import PcaGauss, RonGauss
from dpcore.estimators import moment_mixture, pca_gauss
from dpcore.measure import PrivateGram, Released, measure_gram
from dpcore.measurements.projection import Projection, private_projection
from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.registry import cost_of
from dpcore.noise.sources import Noise, SeededNoise
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
        ({"projection_mechanism": "gaussian"}, "is not measured, so it has no mechanism"),
        ({"allocation": "pca-gauss-0.3"}, "gives budget to projection"),
        ({"n_components": 5}, "between 1 and 4"),
    ],
)
def test_public_components_take_no_budget_and_no_mechanism(changes: dict[str, object], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        PcaGauss(**PUBLIC | changes, public_rows=rows_along(DIRECTION)).fit(np.zeros((9, 4)))


# ---- rows set aside ----------------------------------------------------------------------------------

ASIDE = PUBLIC | {"set_aside": 0.3}
COINS = 5
"""The seed of the coins."""


def is_aside(row: int) -> bool:
    """Say whether the coin of that row, by the seed, sets it aside."""
    noise = SeededNoise(COINS)
    return [noise.bits(64) for _ in range(row + 1)][row] < 0.3 * 2**64


def sums_and_releases(
    X: np.ndarray, monkeypatch: pytest.MonkeyPatch, fixed: Projection | None = None
) -> tuple[list[list[list[int]]], list[Released]]:
    """Fit with frozen coins and noise; return the exact sums of components and moments, and what was released."""
    seed_the_noise(monkeypatch, moment_mixture)
    monkeypatch.setattr(pca_gauss, "SystemNoise", lambda: SeededNoise(COINS))
    monkeypatch.setattr(moment_mixture, "private_projection", private_projection if fixed is None else lambda *_: fixed)
    seen, released = [], []

    def watch(gram: PrivateGram, event: GramEvent, noise: Noise) -> Released:
        seen.append(gram._triangles())
        released.append(measure_gram(gram, event, noise))
        return released[-1]

    monkeypatch.setattr(moment_mixture, "measure_gram", watch)
    PcaGauss(**ASIDE).fit(X)
    return seen, released


@pytest.mark.parametrize("row", range(8))
def test_a_replaced_row_moves_the_sums_of_its_own_part_only(row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X = rows_along(DIRECTION, 12)
    neighbour = X.copy()
    neighbour[row] = [0.9, -0.9, 0.9, 0.9]
    fixed = PcaGauss(**PUBLIC, public_rows=X).fit(X).projection_
    sums, released = sums_and_releases(X, monkeypatch, fixed)
    others, released_others = sums_and_releases(neighbour, monkeypatch, fixed)
    moved = [one != other for one, other in zip(sums, others, strict=True)]
    assert moved == [is_aside(row), not is_aside(row)]
    assert moved == [one != other for one, other in zip(released, released_others, strict=True)]


def test_some_of_these_rows_are_set_aside_and_some_are_not() -> None:
    assert {is_aside(row) for row in range(8)} == {True, False}


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"delta": 1e-6, "mechanism": "gaussian"}, {"delta": 1e-6, "projection_mechanism": "noisy-power-method"}],
)
def test_each_part_spends_the_whole_budget_and_the_larger_cost_is_stated(
    neighbours: str, changes: dict[str, object]
) -> None:
    model = PcaGauss(**ASIDE | changes, neighbours=neighbours).fit(rows_along(DIRECTION))
    whole = RonGauss(
        **PUBLIC | {name: changes[name] for name in changes if name != "projection_mechanism"}, neighbours=neighbours
    ).fit(rows_along(DIRECTION))
    assert model.plan_.events["moments"] == whole.plan_.events["moments"]
    assert model.privacy_["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert model.privacy_["epsilon"] <= 1.0
    assert model.privacy_["neighbours"] == neighbours
    assert model.privacy_["components"].endswith("GUARANTEE.md, P2")
    assert model.privacy_["delta"] == changes.get("delta", 0)
    first = cost_of(model.plan_.events["projection"])
    assert first.epsilon == 1 or first.rho > 0
    assert model.plan_.cost.epsilon + model.plan_.cost.rho > first.epsilon + first.rho


def test_the_coins_follow_the_share_and_no_value() -> None:
    model = PcaGauss(**ASIDE)
    parts = [model._parts({"x0": np.full(20_000, value)}) for value in (0.0, np.nan)]
    for rest, aside in parts:
        assert len(rest["x0"]) + len(aside["x0"]) == 20_000
        assert len(aside["x0"]) == pytest.approx(6000, abs=6.1 * math.sqrt(20_000 * 0.21))


def test_nothing_of_a_fitted_model_tells_who_was_set_aside() -> None:
    kept = vars(PcaGauss(**ASIDE).fit(rows_along(DIRECTION, 50)))
    assert set(kept) - set(ASIDE) == set(vars(PcaGauss(**PUBLIC).fit(rows_along(DIRECTION, 50)))) - set(ASIDE)


def test_components_of_rows_set_aside_are_good_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    seed_the_noise(monkeypatch, moment_mixture)
    model = PcaGauss(**ASIDE | {"epsilon": 5.0}, random_state="5eed").fit(rows_along(DIRECTION, 6000))
    assert abs(DIRECTION @ model.projection_.basis()[:, 0]) > 0.95


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"set_aside": 0}, "between 0 and 1"),
        ({"set_aside": 1}, "between 0 and 1"),
        ({"set_aside": float("nan")}, "finite"),
        ({"radius": "auto"}, "neither with public_rows nor with radius"),
        ({"public_rows": [[0.0] * 4]}, "neither with public_rows nor with radius"),
        ({"allocation": "pca-gauss-0.3"}, "gives budget to projection"),
        ({"projection_mechanism": "noisy-power-method"}, "needs delta > 0"),
        ({"projection_mechanism": "published-sn"}, "refuted"),
    ],
)
def test_what_does_not_go_with_rows_set_aside_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PcaGauss(**ASIDE | changes).fit(np.zeros((9, 4)))


# The law of two noisy counts, one a part, in exact arithmetic: who may decide which part a record belongs to?

FIRST, SECOND = 0.7, 1.1
"""The epsilons of the two parts."""

OUTCOMES = np.arange(-6, 10)
Table = tuple[int, ...]
Assignment = Callable[[Table], list[tuple[float, tuple[bool, ...]]]]
"""The possible parts of a table's records, each with its probability."""


def law(table: Table, assign: Assignment) -> np.ndarray:
    """Return the probabilities of both noisy counts of odd values, one for each part, up to a constant."""
    chances = np.zeros((len(OUTCOMES), len(OUTCOMES)))
    for chance, aside in assign(table):
        counts = [sum(x % 2 for x, a in zip(table, aside, strict=True) if a is part) for part in (True, False)]
        one, two = (np.exp(-e * np.abs(OUTCOMES - c)) for e, c in zip((FIRST, SECOND), counts, strict=True))
        chances += chance * np.outer(one, two)
    return chances


def loss(pairs: list[tuple[Table, Table]], assign: Assignment) -> float:
    return max(float(np.abs(np.log(law(one, assign) / law(two, assign))).max()) for one, two in pairs)


VALUES = range(4)
TABLES = [table for size in (1, 2, 3) for table in itertools.product(VALUES, repeat=size)]
REPLACED = [
    (table, (*table[:i], value, *table[i + 1 :])) for table in TABLES for i in range(len(table)) for value in VALUES
]
REMOVED = [(table, (*table[:i], *table[i + 1 :])) for table in TABLES if len(table) > 1 for i in range(len(table))]


def by_position(table: Table) -> list[tuple[float, tuple[bool, ...]]]:
    return [(1.0, tuple(i == 0 for i in range(len(table))))]


def by_own_value(table: Table) -> list[tuple[float, tuple[bool, ...]]]:
    return [(1.0, tuple(value >= 2 for value in table))]


def by_rank(table: Table) -> list[tuple[float, tuple[bool, ...]]]:
    """Return the first position of a table that is kept in the order of its values."""
    first = table.index(max(table))
    return [(1.0, tuple(i == first for i in range(len(table))))]


def by_secret_coins(table: Table) -> list[tuple[float, tuple[bool, ...]]]:
    return [
        (math.prod(0.3 if coin else 0.7 for coin in coins), coins)
        for coins in itertools.product((True, False), repeat=len(table))
    ]


def test_secret_coins_cost_the_larger_epsilon_under_both_relations() -> None:
    assert loss(REPLACED, by_secret_coins) <= max(FIRST, SECOND) + 1e-12
    assert loss(REMOVED, by_secret_coins) <= max(FIRST, SECOND) + 1e-12


def test_known_positions_cost_the_larger_epsilon_for_values_and_the_sum_for_participation() -> None:
    assert loss(REPLACED, by_position) == pytest.approx(max(FIRST, SECOND))
    assert loss(REMOVED, by_position) == pytest.approx(FIRST + SECOND)


@pytest.mark.parametrize("assign", [by_own_value, by_rank])
def test_parts_that_values_decide_cost_the_sum(assign: Assignment) -> None:
    assert loss(REPLACED, assign) == pytest.approx(FIRST + SECOND)


def test_each_part_of_the_rows_has_the_whole_budget_in_the_plan() -> None:
    model = PcaGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=1, set_aside=0.2).fit(np.full((20, 3), 0.1))
    assert model.plan_.allocation == {"projection": 1.0, "moments": 1.0}


def test_rows_set_aside_buy_no_share_of_all_variance() -> None:
    model = PcaGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=0.9, set_aside=0.2)
    with pytest.raises(ValueError, match="needs a number of components"):
        model.fit(np.full((20, 3), 0.1))
