"""Jiang et al. with directions of public rows, the baselines Pub-PCA and Pub-LDA of PCA-Gauss's tables III and IV.

Directions of public rows cost nothing, so the noisy rows along them get the whole epsilon, where those of
`JiangPca` get half. The paper leaves open how labels are published; here the label is a part of the record and has
noise like the rest. Under replace-one, the number of rows is shown; the privacy is local (GUARANTEE.md, M10).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting import Epsilon
from dpcore.estimators._arrays import feature_cells
from dpcore.estimators.local_rows import NoisyRows, RowBasis
from dpcore.mechanisms.registry import Event
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Cells, Floats

Codes = NDArray[np.int64]
Labelled = tuple[Floats, Codes]
"""Rows in [-1, 1], and the class of each."""

COMPONENTS = 2
"""Number of directions of Pub-PCA; the noise on each grows with it."""

LEAST_EIGENVALUE = 1e-6
"""Smaller eigenvalues of the covariance within classes, as a share of the largest, are ignored by Pub-LDA."""


@dataclass(kw_only=True, eq=False, repr=False)
class PublicRows(NoisyRows):
    """Noisy rows along principal components of public rows with the same columns: Pub-PCA."""

    public: Floats

    def _choose_directions(
        self, cells: Cells, encoding: Encoding, epsilon: Epsilon
    ) -> tuple[RowBasis, dict[str, Event], Epsilon]:
        points = encoding.encode(feature_cells(self.public, self.categories or {}))
        return RowBasis.of(self._directions(points), points.mean(axis=0)), {}, epsilon

    def _directions(self, points: Floats) -> Floats:
        """Return the directions, from encoded public points."""
        return np.linalg.eigh(np.cov(points, rowvar=False))[1][:, ::-1][:, : self.n_components]


class PublicDiscriminant(PublicRows):
    """Noisy rows along the linear discriminant of public rows and along the label: Pub-LDA, for two classes.

    The last column is the label; its indicators are the last two coordinates of a point.
    """

    def _directions(self, points: Floats) -> Floats:
        features, second = points[:, :-2], self.public[:, -1] == 1
        means = [features[second].mean(axis=0), features[~second].mean(axis=0)]
        centred = features - np.where(second[:, None], means[0], means[1])
        within = centred.T @ centred / len(features)
        discriminant = np.linalg.pinv(within, rcond=LEAST_EIGENVALUE, hermitian=True) @ (means[0] - means[1])
        directions = np.zeros((points.shape[1], 2))
        directions[:-2, 0] = discriminant / np.linalg.norm(discriminant)
        directions[-2:, 1] = np.array([-1, 1]) / np.sqrt(2)
        return directions


def public_pca_rows(private: Labelled, public: Labelled, classes: int, epsilon: float) -> Labelled:
    """Release rows and labels with noise along the principal components of public ones."""
    model = PublicRows(
        epsilon=epsilon,
        bounds=(-1.0, 1.0),
        n_components=COMPONENTS,
        categories={private[0].shape[1]: range(classes)},
        public=np.column_stack(public),
    )
    return _apart(model.fit(np.column_stack(private)).rows_)


def public_lda_rows(private: Labelled, public: Labelled, epsilon: float) -> Labelled:
    """Release rows and labels of two classes with noise along the discriminant of public rows and along the label.

    Raises: ValueError unless the public rows have both classes, 0 and 1, and no other.
    """
    if set(np.unique(public[1])) != {0, 1}:
        raise ValueError("a discriminant needs public rows of the classes 0 and 1")
    model = PublicDiscriminant(
        epsilon=epsilon,
        bounds=(-1.0, 1.0),
        n_components=2,
        categories={private[0].shape[1]: range(2)},
        public=np.column_stack(public),
    )
    return _apart(model.fit(np.column_stack(private)).rows_)


def public_pca_targets(
    private: tuple[Floats, Floats], public: tuple[Floats, Floats], epsilon: float
) -> tuple[Floats, Floats]:
    """Release rows and targets in [-1, 1] with noise along the principal components of public ones."""
    model = PublicRows(epsilon=epsilon, bounds=(-1.0, 1.0), n_components=COMPONENTS, public=np.column_stack(public))
    found = model.fit(np.column_stack(private)).rows_
    return found[:, :-1], found[:, -1]


def _apart(rows: Floats) -> Labelled:
    return rows[:, :-1], rows[:, -1].astype(np.int64)
