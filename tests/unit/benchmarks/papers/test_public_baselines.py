"""Pub-PCA and Pub-LDA publish noisy rows along directions of public rows, with the whole epsilon."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers.public_baselines import (
    PublicDiscriminant,
    PublicRows,
    public_lda_rows,
    public_pca_rows,
    public_pca_targets,
)
from dpcore import JiangPca

ALONG = np.array([0.6, 0.0, 0.8, 0.0])


def labelled(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two classes that differ along one direction and vary more along another."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=rows)
    points = np.outer(np.where(labels == 1, 0.3, -0.3), ALONG) + rng.normal(0, [0.05, 0.4, 0.05, 0.05], (rows, 4))
    return np.clip(points, -1, 1), labels


PRIVATE, PUBLIC = labelled(400, 1), labelled(300, 2)
OPTIONS = {"epsilon": 1.0, "bounds": (-1.0, 1.0), "n_components": 2, "categories": {4: range(2)}}
TABLES = {"public": np.column_stack(PUBLIC)}


@pytest.mark.parametrize("kind", [PublicRows, PublicDiscriminant])
def test_rows_along_public_directions_get_the_whole_epsilon_and_half_the_noise(kind: type[PublicRows]) -> None:
    rows = np.column_stack(PRIVATE)
    free, bought = kind(**OPTIONS, **TABLES).fit(rows), JiangPca(**OPTIONS).fit(rows)
    assert list(free.privacy_["measurements"]) == ["rows"]
    assert free.privacy_["epsilon"] == pytest.approx(1.0, rel=1e-9)
    assert free.privacy_["epsilon"] <= 1
    assert float(free.released_.event.noise) == pytest.approx(float(bought.released_.event.noise) / 2, rel=1e-9)


@pytest.mark.parametrize("kind", [PublicRows, PublicDiscriminant])
def test_the_directions_depend_on_the_public_rows_alone(kind: type[PublicRows]) -> None:
    fits = [kind(**OPTIONS, **TABLES).fit(rows) for rows in (np.column_stack(PRIVATE), np.zeros((7, 5)))]
    assert np.array_equal(fits[0].basis_.columns, fits[1].basis_.columns)
    assert np.array_equal(fits[0].basis_.centre, fits[1].basis_.centre)


def test_components_follow_the_variance_and_the_discriminant_follows_the_classes() -> None:
    rows = np.column_stack(PRIVATE)
    pca = np.linalg.norm(PublicRows(**OPTIONS, **TABLES).fit(rows).basis_.columns, axis=1)
    lda = PublicDiscriminant(**OPTIONS, **TABLES).fit(rows).basis_.columns[:, 0]
    assert pca[1] == max(pca[:4]) > 0.9 * 2**20
    assert abs(ALONG @ lda[:4]) > 0.95 * np.linalg.norm(lda)
    assert np.all(lda[4:] == 0)


def test_with_little_noise_the_rows_come_back_along_their_directions() -> None:
    rows, labels = public_lda_rows(PRIVATE, PUBLIC, 1e6)
    assert np.mean(labels == PRIVATE[1]) > 0.99
    assert np.corrcoef(rows @ ALONG, PRIVATE[0] @ ALONG)[0, 1] > 0.9
    rows, _ = public_pca_rows(PRIVATE, PUBLIC, 2, 1e6)
    assert np.corrcoef(rows[:, 1], PRIVATE[0][:, 1])[0, 1] > 0.95
    rows, targets = public_pca_targets((PRIVATE[0], PRIVATE[0][:, 1]), (PUBLIC[0], PUBLIC[0][:, 1]), 1e6)
    assert np.corrcoef(targets, PRIVATE[0][:, 1])[0, 1] > 0.95
    assert rows.shape == PRIVATE[0].shape


def test_at_epsilon_one_a_single_row_says_little() -> None:
    rows, _ = public_lda_rows(PRIVATE, PUBLIC, 1.0)
    assert abs(np.corrcoef(rows @ ALONG, PRIVATE[0] @ ALONG)[0, 1]) < 0.5


@pytest.mark.parametrize("labels", [np.zeros(300, dtype=int), np.arange(300) % 3])
def test_a_discriminant_of_other_than_two_classes_is_refused(labels: np.ndarray) -> None:
    with pytest.raises(ValueError, match="classes 0 and 1"):
        public_lda_rows(PRIVATE, (PUBLIC[0], labels), 1.0)
