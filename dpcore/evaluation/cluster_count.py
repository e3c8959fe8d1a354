"""The number of clusters of synthetic rows by silhouettes, as RON-Gauss chooses it (section 5.2). Post-processing."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpcore.noise.sources import public_generator
from dpcore.records.schema import Floats

CANDIDATES = (2, 3, 4, 5, 6, 7, 8)
"""The numbers of clusters that are compared by default."""

MOST_ROWS, STARTS = 2_000, 4
"""The most rows that are looked at, the first ones, since silhouettes need all distances; starts of K-means."""


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """The number of clusters with the largest silhouette, and the silhouette of every candidate."""

    clusters: int
    silhouettes: dict[int, float]


def choose_clusters(rows: Floats, candidates: Sequence[int] = CANDIDATES, *, seed: str = "0") -> ClusterChoice:
    """Return the candidate at which K-means on released rows has the largest silhouette coefficient.

    Of candidates with the same silhouette the first is taken. K-means starts from the public seed.
    Guarantee: post-processing, if the rows are synthetic or public; on raw rows the choice would cost
    (GUARANTEE.md, E, Experiments).
    Raises: ValueError for rows that are not finite, and for candidates that are none, below 2, or not
    fewer than the different rows.

        >>> rows = np.repeat([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]], 10, axis=0) + np.linspace(0, 0.1, 30)[:, None]
        >>> choose_clusters(rows, range(2, 6)).clusters
        3
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    points = np.asarray(rows, dtype=np.float64)[:MOST_ROWS]
    if points.ndim != 2 or not np.isfinite(points).all():
        raise ValueError("rows must be finite numbers in two dimensions")
    different = len(np.unique(points, axis=0))
    if not candidates or not all(2 <= count < different for count in candidates):
        raise ValueError(f"candidates must lie between 2 and the {different} different rows less one")
    start = int(public_generator(seed, "cluster-count").integers(1 << 31))
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for count in candidates:
            labels = KMeans(count, n_init=STARTS, random_state=start).fit_predict(points)
            found[int(count)] = float(silhouette_score(points, labels))
    return ClusterChoice(max(found, key=lambda count: found[count]), found)
