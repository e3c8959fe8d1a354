"""Refuted calibrations: published samplers whose privacy claim is false, for audits and comparisons only.

Each sampler takes rows, the claimed epsilon and a public generator, and returns `draws`
releases of its paper's noisy statistics, as sums if the paper has averages. None of them
is a mechanism of the registry, so nothing can be released with them. `COUNTEREXAMPLES`
holds, for each refuted name, a pair of neighbours and an event that refute the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpcore.auditing.lower_bounds import entrywise_lower_bound, sample_lower_bound
from dpcore.auditing.worst_pairs import steep_pair
from dpcore.records.schema import Codes, Floats, Neighbours

Rng = np.random.Generator


def lap_pca(rows: Floats, *, epsilon: float, draws: int, rng: Rng) -> Floats:
    """PCA-Gauss, Lap-PCA: Lap(M / eps) on each of the M² sums of products; rows in [-1, 1]."""
    return _noisy(rows.T @ rows, rows.shape[1] / epsilon, draws, rng)


def pca_gauss_gmm(rows: Floats, classes: Codes, *, epsilon: float, draws: int, rng: Rng) -> Floats:
    """PCA-Gauss, Algorithm 3: the covariance of each class around its own mean, with Lap(P² / (n_c eps)).

    The result has shape (draws, classes, P, P). It uses half of epsilon; the mean has the other half.
    """
    return np.stack([_class_covariance(rows[classes == c], epsilon / 2, draws, rng) for c in np.unique(classes)], 1)


def _class_covariance(rows: Floats, epsilon: float, draws: int, rng: Rng) -> Floats:
    centred, (n, p) = rows - rows.mean(axis=0), rows.shape
    return _noisy(centred.T @ centred / n, p**2 / (n * epsilon), draws, rng)


def ron_gauss(rows: Floats, *, epsilon: float, draws: int, rng: Rng) -> Floats:
    """RON-Gauss, Lemma 4: Lap(2 sqrt(p) / eps) on each of p² sums of products; rows in the unit ball."""
    return _noisy(rows.T @ rows, 2 * math.sqrt(rows.shape[1]) / epsilon, draws, rng)


def ron_gauss_supervised(
    rows: Floats, targets: Floats, *, bound: float, epsilon: float, draws: int, rng: Rng
) -> Floats:
    """RON-Gauss, Lemma 5: Lap((2 sqrt(p) + 4 a sqrt(p) + a²) / eps) on the products of (x, y), |y| at most a."""
    root, joint = math.sqrt(rows.shape[1]), np.column_stack([rows, targets])
    return _noisy(joint.T @ joint, (2 * root + 4 * bound * root + bound**2) / epsilon, draws, rng)


def jiang_categorical(
    numeric: Floats, indicators: Floats, *, categorical: int, epsilon: float, draws: int, rng: Rng
) -> Floats:
    """Jiang et al., PCA with dummy columns: Laplace noise on sums and upper triangle, flattened; numeric in [0, 1]."""
    p1, p2 = numeric.shape[1], categorical
    sensitivity = p1 + 2 * p2 + ((p1 + p2) * (p1 + p2 + 1) + p2 * (p2 + 1)) / 2
    return _noisy(_sums_and_products(np.hstack([numeric, indicators])), sensitivity / epsilon, draws, rng)


def jiang_lda(rows: Floats, classes: Codes, *, epsilon: float, draws: int, rng: Rng) -> Floats:
    """Jiang et al., LDA: noisy sums of each class over its exact size, shape (draws, classes, p)."""
    p = rows.shape[1]
    scale = (2 * p + p * (p + 1) / 2) / epsilon
    groups = [rows[classes == c] for c in np.unique(classes)]
    return np.stack([_noisy(group.sum(axis=0), scale, draws, rng) / len(group) for group in groups], 1)


def sn(rows: Floats, *, epsilon: float, draws: int, rng: Rng) -> Floats:
    """Imtiaz and Sarwate, SN: one-sided Wishart noise of p + 1 degrees of freedom and scale 1 / (2 eps)."""
    p = rows.shape[1]
    factors = rng.standard_normal((draws, p, p + 1))
    return rows.T @ rows + factors @ factors.transpose(0, 2, 1) / (2 * epsilon)


def lip_rows(rows: Floats, *, components: int, epsilon: float, draws: int, rng: Rng) -> Floats:
    """Xu et al., LIP: every row, without noise, projected on the leading directions of a noisy Gram matrix."""
    noisy = _noisy(rows.T @ rows, 2 * rows.shape[1] / epsilon, draws, rng)
    symmetric = np.triu(noisy) + np.triu(noisy, 1).transpose(0, 2, 1)
    basis = np.linalg.eigh(symmetric)[1][:, :, -components:]
    projected: Floats = rows @ basis @ basis.transpose(0, 2, 1)
    return projected


def lop(rows: Floats, *, components: int, epsilon: float, draws: int, rng: Rng) -> Floats:
    """Xu et al., LOP: scores on the exact leading directions of the rows, with Lap(2 d / eps) on each."""
    basis = np.linalg.eigh(rows.T @ rows)[1][:, -components:]
    released: Floats = _noisy(rows @ basis, 2 * rows.shape[1] / epsilon, draws, rng) @ basis.T
    return released


def _noisy(values: Floats, scale: float, draws: int, rng: Rng) -> Floats:
    return values + rng.laplace(scale=scale, size=(draws, *values.shape))


def _sums_and_products(rows: Floats) -> Floats:
    return np.concatenate([rows.sum(axis=0), (rows.T @ rows)[np.triu_indices(rows.shape[1])]])


# ---- counterexamples ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Two neighbouring tables on which a published calibration loses more than it claims."""

    claimed: float
    neighbours: Neighbours
    draws: int
    run: Callable[[float, int, Rng], float]

    def measure(self, rng: Rng) -> float:
        """Draw from the calibration on both tables and return a lower bound on its true epsilon."""
        return self.run(self.claimed, self.draws, rng)


def _show_lap_pca(epsilon: float, draws: int, rng: Rng) -> float:
    """Every entry, for (1, ..., 1) against 0 with M = 4."""
    tables = np.ones((1, 4)), np.zeros((1, 4))
    released = (lap_pca(rows, epsilon=epsilon, draws=draws, rng=rng) for rows in tables)
    return entrywise_lower_bound(np.ones((4, 4)), np.zeros((4, 4)), *released)


def _show_ron_gauss(epsilon: float, draws: int, rng: Rng) -> float:
    """Every entry, for flat halves, turned, with p = 8."""
    x, y = steep_pair(8, 2.0)
    released = (ron_gauss(row[None, :], epsilon=epsilon, draws=draws, rng=rng) for row in (x, y))
    return entrywise_lower_bound(np.outer(x, x), np.outer(y, y), *released)


def _show_ron_gauss_supervised(epsilon: float, draws: int, rng: Rng) -> float:
    """Every entry, for flat halves, turned, with p = 8 and a = 1/10."""
    x, y, bound = *steep_pair(8, 2.0), 0.1
    tables = [(x, np.array([bound])), (y, np.array([-bound]))]
    released = (
        ron_gauss_supervised(row[None, :], target, bound=bound, epsilon=epsilon, draws=draws, rng=rng)
        for row, target in tables
    )
    whole = [np.append(row, target) for row, target in tables]
    return entrywise_lower_bound(*(np.outer(record, record) for record in whole), *released)


def _show_jiang_categorical(epsilon: float, draws: int, rng: Rng) -> float:
    """Every sum and product, for 3 numbers that stay 1 and 5 categories that change."""
    numbers, tables = np.ones((1, 3)), [np.tile(indicators, (1, 5)) for indicators in ([1.0, 0.0], [0.0, 1.0])]
    released = (
        jiang_categorical(numbers, dummies, categorical=5, epsilon=epsilon, draws=draws, rng=rng) for dummies in tables
    )
    values = (_sums_and_products(np.hstack([numbers, dummies])) for dummies in tables)
    return entrywise_lower_bound(*values, *released)


SIZES = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 1])
"""Labels of classes of 2 and 3 rows, and of 1 and 4 rows: one row has changed its label."""


def _show_jiang_lda(epsilon: float, draws: int, rng: Rng) -> float:
    """The size of the mean of a class of 2 rows against one of 1."""
    means = [jiang_lda(np.zeros((5, 1)), classes, epsilon=epsilon, draws=draws, rng=rng) for classes in SIZES]
    return sample_lower_bound(np.abs(means[1][:, 0, 0]), np.abs(means[0][:, 0, 0]))


def _show_pca_gauss_gmm(epsilon: float, draws: int, rng: Rng) -> float:
    """The size of the noise on a class of 2 rows against one of 1."""
    found = [pca_gauss_gmm(np.zeros((5, 1)), classes, epsilon=epsilon, draws=draws, rng=rng) for classes in SIZES]
    return sample_lower_bound(np.abs(found[1][:, 0, 0, 0]), np.abs(found[0][:, 0, 0, 0]))


def _show_sn(epsilon: float, draws: int, rng: Rng) -> float:
    """The first diagonal entry, for e1 or nothing with p = 2."""
    tables = np.array([[1.0, 0.0]]), np.zeros((1, 2))
    return sample_lower_bound(*(sn(rows, epsilon=epsilon, draws=draws, rng=rng)[:, 0, 0] for rows in tables))


def _show_lip_rows(epsilon: float, draws: int, rng: Rng) -> float:
    """The row x v vᵀ of x = e1 has squared length v1², which is also its first entry; for x = e2 the two differ."""
    released = [lip_rows(row, components=1, epsilon=epsilon, draws=draws, rng=rng)[:, 0] for row in AXES]
    return sample_lower_bound(*(np.abs(row[:, 0] - (row**2).sum(axis=1)) for row in released))


def _show_lop(epsilon: float, draws: int, rng: Rng) -> float:
    """The first coordinate, for e1 or e2."""
    released = [lop(row, components=1, epsilon=epsilon, draws=draws, rng=rng)[:, 0, 0] for row in AXES]
    return sample_lower_bound(np.abs(released[0]), np.abs(released[1]))


AXES = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE

COUNTEREXAMPLES: dict[str, Counterexample] = {
    "published-lap-pca": Counterexample(1.0, REPLACE, 50_000, _show_lap_pca),
    "published-pca-gauss-gmm": Counterexample(2.0, REPLACE, 100_000, _show_pca_gauss_gmm),
    "published-ron-gauss": Counterexample(8.0, REPLACE, 50_000, _show_ron_gauss),
    "published-ron-gauss-supervised": Counterexample(8.0, REPLACE, 50_000, _show_ron_gauss_supervised),
    "published-jiang-categorical": Counterexample(64.0, REPLACE, 100_000, _show_jiang_categorical),
    "published-jiang-lda": Counterexample(1.0, REPLACE, 100_000, _show_jiang_lda),
    "published-sn": Counterexample(1.0, ADD, 100_000, _show_sn),
    "published-lip-rows": Counterexample(1.0, REPLACE, 50_000, _show_lip_rows),
    "published-lop": Counterexample(1.0, REPLACE, 50_000, _show_lop),
}
