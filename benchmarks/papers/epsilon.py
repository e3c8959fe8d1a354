"""The true epsilon of the papers' calibrations, bounded from below by explicit pairs of neighbours.

Each figure is the privacy loss of two records, so it does not exceed the true epsilon, and a corrected
mechanism that runs at it has no advantage over the published one. Replace-one, for the noisy statistics
themselves, around a public centre, for two or more dimensions.
"""

from __future__ import annotations

import math

import numpy as np

from dpcore.accounting import gaussian_epsilon
from dpcore.auditing.worst_pairs import steep_pair
from dpcore.mechanisms.sensitivity import jiang_moments_l1
from dpcore.records.schema import Neighbours

RON_MEAN, RON_MOMENTS = 0.3, 0.7
"""RON-Gauss's split of epsilon."""

ANGLES = 180


def ron_gauss(dimension: int, epsilon: float) -> float:
    """RON-Gauss, Algorithm 3: the mean costs what it claims, the covariance (Lemma 4) eps sqrt(p / 2)."""
    loss = _full_l1(dimension) / (2 * math.sqrt(dimension))
    return epsilon * (RON_MEAN + RON_MOMENTS * loss)


def ron_gauss_supervised(dimension: int, bound: float, epsilon: float) -> float:
    """RON-Gauss, Algorithm 4, with targets up to `bound` (Lemma 5)."""
    root = math.sqrt(dimension)
    claimed = 2 * root + 4 * bound * root + bound**2
    return epsilon * (RON_MEAN + RON_MOMENTS * _with_target_l1(dimension, bound) / claimed)


def lap_pca(features: int, epsilon: float) -> float:
    """PCA-Gauss, Lap-PCA: (1, ..., 1) against 0 moves all M² cells by one, and the scale is M / eps."""
    return features * epsilon


def pca_gauss(components: int, epsilon: float) -> float:
    """PCA-Gauss, Algorithm 1, without its components: eigenvalues move by min(P, 2), the scale is P / eps."""
    return epsilon * min(components, 2) / components


def pca_gauss_along(components: int, epsilon: float) -> float:
    """PCA-Gauss, Algorithm 1's noise along components given beforehand: all P² products, and the scale is P / eps."""
    return epsilon * _full_l1(components) / components


def pca_gauss_supervised(components: int, epsilon: float) -> float:
    """PCA-Gauss, Algorithm 2 alone, components given: the scale is (P² + 4 P + 1) / eps."""
    return epsilon * _with_target_l1(components, 1.0) / (components**2 + 4 * components + 1)


def lip(features: int, epsilon: float) -> float:
    """Xu et al., LIP without its rows: an upper triangle with the scale 2 d / eps, which is more than it needs."""
    x, y = steep_pair(features, 1.0)
    moved = np.abs(np.triu(np.outer(x, x) - np.outer(y, y))).sum()
    return float(epsilon * moved / (2 * features))


def analyze_gauss(epsilon: float, delta: float) -> float:
    """Analyze Gauss as Imtiaz and Sarwate run it: Gaussian noise of sd sqrt(2 log(1.25/delta)) / eps per cell.

    Two records along different axes move the upper triangle by sqrt 2; the exact privacy curve gives the
    epsilon at the same delta.
    """
    deviation = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    return gaussian_epsilon(2 / (2 * deviation**2), delta=delta)


def jiang_categorical(numeric: int, categorical: int, epsilon: float) -> float:
    """Jiang et al., PCA with dummy columns, numbers in [0, 1]."""
    p1, p2 = numeric, categorical
    claimed = p1 + 2 * p2 + ((p1 + p2) * (p1 + p2 + 1) + p2 * (p2 + 1)) / 2
    moved = jiang_moments_l1(Neighbours.REPLACE_ONE, numeric=p1, categorical=p2, classes=1)
    return epsilon * float(moved) / claimed


def _full_l1(dimension: int) -> float:
    """Return the L1 distance of all p² products of two records of the unit ball."""
    x, y = steep_pair(dimension, 2.0)
    return float(np.abs(np.outer(x, x) - np.outer(y, y)).sum())


def _with_target_l1(dimension: int, bound: float) -> float:
    """Return the L1 distance of all products of two records (x, y) with extreme targets and x as in `steep_pair`."""
    half = (dimension + 1) // 2
    sizes = np.array([half, dimension - half])
    angles = np.linspace(0, np.pi, ANGLES, endpoint=False)
    first, second = (grid.ravel() for grid in np.meshgrid(2 * angles, 2 * angles))
    x, y = (np.array([np.cos(a), np.sin(a)]) / np.sqrt(sizes)[:, None] for a in (first, second))
    products = sum(sizes[i] * sizes[j] * np.abs(x[i] * x[j] - y[i] * y[j]) for i in range(2) for j in range(2))
    best = 0.0
    for target in (bound, -bound, 0.0):
        across = 2 * bound * np.abs(x - y * (target / bound)) * sizes[:, None]
        best = max(best, float((products + across.sum(axis=0) + bound**2 - target**2).max()))
    return best
