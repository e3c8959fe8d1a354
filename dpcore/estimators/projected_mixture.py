"""Moment mixtures in projected coordinates, with the projection and the way back as scikit-learn has them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from dpcore.estimators._arrays import LABEL, feature_cells, feature_name, numeric_rows
from dpcore.estimators.moment_mixture import TARGET, MomentMixture
from dpcore.records.decoding import ClassRules, LevelRule
from dpcore.records.schema import UNKNOWN, Floats


@dataclass(kw_only=True, eq=False, repr=False)
class ProjectedMixture(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MomentMixture):  # type: ignore[misc]
    """Base of the mixtures that project: `transform` leads to their coordinates, `inverse_transform` back."""

    def transform(self, X: ArrayLike) -> Floats:
        """Return the rows of X in the released coordinates, one column per dimension.

        The map is public or released, and it is linear: cells are clamped to the bounds, moved to the frame's centre,
        divided by its radius and projected; points beyond the radius are not shortened, as they are when measured.
        It adds no noise. **Projected private rows are private rows**: what `transform` and `fit_transform` return for
        rows that `fit` saw is not a released value and has no guarantee. Use it on synthetic or public rows, or keep
        what it returns as you keep the rows.

            >>> from dpcore import RonGauss
            >>> model = RonGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=2).fit([[0.1, 0.2, 0.3]] * 50)
            >>> points = model.transform(model.sample(10))
            >>> points.shape, model.inverse_transform(points).shape
            ((10, 2), (10, 3))
        """
        self._require_linear_map()
        rows = numeric_rows(self, X, reset=False)
        cells = feature_cells(rows, {})  # classes and targets are not part of X, so they stand at the middle
        cells |= {} if self.classes is None else {LABEL: np.full(len(rows), UNKNOWN, dtype=np.int64)}
        cells |= {} if self.target_bounds is None else {TARGET: np.full(len(rows), np.nan)}
        return self.projection_.project(self.encoding_.encode(cells))[:, : self.dimension_]

    def inverse_transform(self, X: ArrayLike) -> Floats:
        """Return points of the released coordinates as rows in the original units, within the bounds.

        A point is lifted to the record that projects to it and is nearest to the known centre, or to the middle of the
        bounds; features beyond a bound are moved to it.
        """
        self._require_linear_map()
        points: Floats = check_array(X, dtype=np.float64)
        if points.shape[1] != self.dimension_:
            raise ValueError(f"X must have {self.dimension_} columns, one per dimension, got {points.shape[1]}")
        beside = np.zeros((len(points), self.projection_.dimension - self.dimension_))  # the target's own coordinates
        lifted = self.projection_.lift(np.hstack([points, beside]))
        levels = {LABEL: LevelRule((0.0,) * len(self.classes))} if self.classes is not None else {}
        cells = self.encoding_.decode(lifted, ClassRules(0, levels, {}))
        return np.column_stack([cells[feature_name(i)] for i in range(self.n_features_in_)]).astype(np.float64)

    def _require_linear_map(self) -> None:
        """Refuse points of one length: they are decoded at a typical length, and no linear map leads there and back."""
        check_is_fitted(self, "privacy_")
        if self.normalise:
            raise ValueError("with normalise=True there is no linear map to the released coordinates and back")

    @property
    def dimension_(self) -> int:
        """The number of released coordinates of a row's features."""
        return self.projection_.dimension - self.encoding_.target_width

    @property
    def _n_features_out(self) -> int:
        """What scikit-learn names columns by."""
        return self.dimension_
