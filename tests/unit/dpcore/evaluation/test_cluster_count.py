"""The number of clusters is read off synthetic rows by silhouettes, with a public seed and at no cost."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from support.dpcore.samplers import generator, seed_the_noise

from dpcore import MomentMixture
from dpcore.estimators import moment_mixture
from dpcore.evaluation.cluster_count import MOST_ROWS, choose_clusters


def groups(count: int, rows: int = 300, features: int = 3) -> np.ndarray:
    """Return rows around centres that are far apart."""
    rng = generator(count)
    centres = 3 * np.eye(max(count, features))[:count, :]
    return centres[rng.integers(count, size=rows)] + rng.normal(0, 0.2, (rows, centres.shape[1]))


@pytest.mark.parametrize("count", [2, 3, 4, 6])
def test_as_many_clusters_are_found_as_there_are(count: int) -> None:
    choice = choose_clusters(groups(count))
    assert choice.clusters == count
    assert max(choice.silhouettes.values()) == choice.silhouettes[count] > 0.6


def test_a_silhouette_is_that_of_its_definition() -> None:
    rows = groups(3, 60) + generator(1).normal(0, 1, (60, 3))
    found = choose_clusters(rows, [3], seed="5eed").silhouettes[3]
    labels = KMeans(3, n_init=50, random_state=0).fit_predict(rows)
    apart = np.linalg.norm(rows[:, None] - rows, axis=2)
    each = []
    for i, label in enumerate(labels):
        own = (labels == label) & (np.arange(60) != i)
        inside = apart[i, own].mean()
        nearest = min(apart[i, labels == other].mean() for other in set(labels) - {label})
        each.append((nearest - inside) / max(nearest, inside))
    assert found == pytest.approx(np.mean(each), abs=0.02)


def test_the_same_rows_and_seed_give_the_same_choice_and_later_rows_are_not_looked_at() -> None:
    rows = generator(3).normal(0, 1, (MOST_ROWS + 50, 2))
    assert choose_clusters(rows, [2, 3], seed="ab") == choose_clusters(rows[:MOST_ROWS], [2, 3], seed="ab")


def test_clusters_of_a_release_are_those_of_its_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the paper's clustering, the analyst sees synthetic rows only."""
    seed_the_noise(monkeypatch, moment_mixture)
    rng = generator(5)
    y = rng.integers(3, size=6000)
    X = np.clip(np.array([[0.6, 0], [-0.6, 0.6], [-0.6, -0.6]])[y] + rng.normal(0, 0.05, (6000, 2)), -1, 1)
    model = MomentMixture(epsilon=5.0, bounds=(-1.0, 1.0), classes=[0, 1, 2], random_state="5eed").fit(X, y)
    assert choose_clusters(model.sample(1000)[0]).clusters == 3


@pytest.mark.parametrize("candidates", [[], [1], [2, 1], [2, 4], [0]])
def test_candidates_that_are_no_numbers_of_clusters_are_refused(candidates: list[int]) -> None:
    with pytest.raises(ValueError, match="candidates must lie between 2 and the 4 different rows less one"):
        choose_clusters(np.array([[0.0], [1.0], [2.0], [3.0], [3.0]]), candidates)


@pytest.mark.parametrize("rows", [np.array([1.0, 2.0]), np.array([[np.nan], [1.0], [2.0]])])
def test_what_are_no_rows_is_refused(rows: np.ndarray) -> None:
    with pytest.raises(ValueError, match="finite numbers in two dimensions"):
        choose_clusters(rows, [2])
