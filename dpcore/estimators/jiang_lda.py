"""Differential LDA of Jiang et al., corrected: class means, one shared covariance, and rows that match them.

>>> model = DifferentialLda(epsilon=5.0, bounds=(0.0, 1.0), classes=["no", "yes"])
>>> X, y = model.fit([[0.1, 0.2], [0.8, 0.9]] * 100, ["no", "yes"] * 100).sample(10)
>>> X.shape, y.shape, model.privacy_["epsilon"]
((10, 2), (10,), 5.0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dpcore.accounting import Epsilon
from dpcore.estimators._arrays import (
    LABEL,
    Categories,
    SamplingEstimator,
    codes_of,
    exact_delta,
    feature_cells,
    feature_columns,
    feature_rows,
    finite_fraction,
    label_column,
    numeric_rows,
    privacy_statement,
    target_values,
)
from dpcore.measure import Released, ReleasedVector, exact_gram, measure_gram, measure_vector
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import no_projection
from dpcore.mechanisms.names import MOMENTS
from dpcore.mechanisms.queries import GRID
from dpcore.mechanisms.vectors import JIANG_LAPLACE, UnitCoordinates, exact_moments
from dpcore.noise.sources import SystemNoise
from dpcore.planning.planner import make_plan
from dpcore.planning.request import AUTO, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Cells, Floats, Neighbours, PrivacyUnit, RecordSchema
from dpcore.synthesis.jiang_greedy import SAMPLERS, PooledMoments

EIGENVALUE_CUTOFF = 1e-3
"""Directions with a smaller eigenvalue than this share of the largest are ignored in predictions."""


@dataclass(kw_only=True, eq=False, repr=False)
class DifferentialLda(SamplingEstimator):
    """Linear discriminant analysis from one private measurement, and synthetic rows that match it.

    Class counts, class sums and the pooled second moment are measured together. `mechanism`
    "jiang-laplace" is the paper's mechanism, calibrated to the true sensitivity; the default is
    the best mechanism on the Gram matrix of (class, point).
    Parameters: `epsilon`, `bounds` (lower, upper; numbers or one per feature) and
    `classes`, the public labels, two or more, are required. `categories` lists the public values of
    categorical features by index. `sampler` is "squares", which keeps to the measured moments closely, or "absolute",
    the sampler as published, for comparison; both are post-processing.
    Guarantee: (epsilon, delta) for each row, by the mechanism named in `privacy_`.

        >>> model = DifferentialLda(epsilon=1.0, bounds=(-1.0, 1.0), classes=["no", "yes"])
        >>> model.fit([[-0.5, 0.1], [0.5, 0.1]] * 25, ["no", "yes"] * 25).predict([[0.5, 0.0]]).shape
        (1,)
        >>> X, y = model.sample(10)
        >>> X.shape, len(y), model.privacy_["epsilon"]
        ((10, 2), 10, 1.0)
    """

    classes: Sequence[Any]
    delta: float | Fraction = 0
    mechanism: str = AUTO
    categories: Categories | None = None
    sampler: str = "squares"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Measure the moments of the rows of X with the labels y, once."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        self._require_sampler()
        rows, delta = numeric_rows(self, X), exact_delta(self.delta)
        self.encoding_ = Encoding(self._schema(rows.shape[1]))
        cells = self._cells(rows, y)
        self.moments_ = (
            self._measure_by_vector(cells) if self.mechanism == JIANG_LAPLACE.name else self._measure_by_gram(cells)
        )
        self.privacy_ = privacy_statement({MOMENTS: self.moments_.event}, delta=delta, neighbours=self.neighbours)
        return self

    def _measure_by_gram(self, cells: Cells) -> Released:
        request = PlanRequest(
            schema=self.encoding_.schema,
            neighbours=Neighbours(self.neighbours),
            unit=PrivacyUnit(),
            epsilon=finite_fraction("epsilon", self.epsilon),
            delta=exact_delta(self.delta),
            expected_rows=1,  # nothing depends on it without a projection
            projection="none",
            mechanism=self.mechanism,
            generator="lda",
        )
        event = make_plan(request).event
        gram = exact_gram([(cells, None)], self.encoding_, event.layout, no_projection(self.encoding_))
        return measure_gram(gram, event, SystemNoise())

    def _measure_by_vector(self, cells: Cells) -> ReleasedVector:
        coordinates, count = UnitCoordinates(self.encoding_), len(self.classes)
        budget, neighbours = Epsilon(finite_fraction("epsilon", self.epsilon)), Neighbours(self.neighbours)
        event = JIANG_LAPLACE.calibrate(coordinates.query(count), neighbours, budget)
        return measure_vector(exact_moments([cells], coordinates, count), event, SystemNoise())

    def sample(self, n: int = 1) -> tuple[Floats, NDArray[Any]]:
        """Return synthetic rows within the bounds, whose moments are close to the measured ones, and their classes."""
        seed = self._sampling_seed(n)
        self._require_sampler()
        coordinates = UnitCoordinates(self.encoding_)
        points, classes = SAMPLERS[self.sampler](self._pooled(), tuple(coordinates.blocks)).sample(n, seed)
        rows = feature_rows(coordinates.encoded(points), self.encoding_, self.categories or {})
        return rows, np.asarray(self.classes)[classes]

    def _require_sampler(self) -> None:
        if self.sampler not in SAMPLERS:
            raise ValueError(f"sampler must be {' or '.join(SAMPLERS)}, got {self.sampler!r}")

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most likely class of each row, for Gaussian classes with a shared covariance."""
        check_is_fitted(self, "moments_")
        rows = numeric_rows(self, X, reset=False)
        points = UnitCoordinates(self.encoding_).records(feature_cells(rows, self.categories or {})) / GRID
        pooled = self._pooled()
        slopes = pooled.means @ np.linalg.pinv(pooled.within, rcond=EIGENVALUE_CUTOFF, hermitian=True)
        levels = np.log(np.maximum(pooled.weights, 1e-300)) - np.einsum("ki,ki->k", slopes, pooled.means) / 2
        likeliest: NDArray[Any] = np.asarray(self.classes)[np.argmax(points @ slopes.T + levels, axis=1)]
        return likeliest

    def _pooled(self) -> PooledMoments:
        if isinstance(self.moments_, ReleasedVector):
            return PooledMoments.of_vector(self.moments_)
        return PooledMoments.of_gram(NoisyMoments.from_released(self.moments_), UnitCoordinates(self.encoding_))

    def _schema(self, features: int) -> RecordSchema:
        columns = feature_columns(features, self.bounds, self.categories or {})
        return RecordSchema((*columns, label_column(self.classes)))

    def _cells(self, rows: Floats, y: ArrayLike) -> Cells:
        labels = codes_of(target_values(y, len(rows)), self.classes)
        return {**feature_cells(rows, self.categories or {}), LABEL: labels}
