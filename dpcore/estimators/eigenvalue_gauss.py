"""PCA-Gauss, Algorithm 1, corrected: a Gaussian with noisy eigenvalues, in an undisclosed basis."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from dpcore.accounting import Epsilon
from dpcore.estimators._arrays import (
    SamplingEstimator,
    feature_cells,
    feature_columns,
    finite_fraction,
    numeric_rows,
    privacy_statement,
)
from dpcore.measure import Released, exact_gram, measure_gram
from dpcore.measurements.projection import no_projection
from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.eigenvalues import EIGENVALUES
from dpcore.noise.sources import SystemNoise, public_generator
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Floats, Neighbours, RecordSchema


@dataclass(kw_only=True, eq=False, repr=False)
class EigenvalueGauss(SamplingEstimator):
    """Rows with the spectrum of the data only: PCA-Gauss, Algorithm 1, with a fixed public centre.

    The largest eigenvalues of the second moments are measured once; their eigenvectors are not
    released. As in the other estimators, the middle of the bounds is the centre and a row at the
    bounds has length 1. Centring by the exact mean, as in the paper, would make every row
    depend on all others.

        >>> model = EigenvalueGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=2, expected_rows=50)
        >>> model.fit([[0.1, 0.2, 0.3]] * 50).sample(10).shape
        (10, 2)

    Parameters: `epsilon`, `bounds` (lower, upper; numbers or one per feature), `n_components` and
    `expected_rows` are required. `expected_rows` is public and divides the noisy eigenvalues,
    because the number of rows is private under add-remove.
    Guarantee: pure epsilon for each row (GUARANTEE.md, M6).
    """

    n_components: int
    expected_rows: int

    def fit(self, X: ArrayLike, y: None = None) -> Self:
        """Measure the largest eigenvalues of the rows of X."""
        rows = numeric_rows(self, X)
        if finite_fraction("expected_rows", self.expected_rows) < 1:
            raise ValueError(f"expected_rows must be at least 1, got {self.expected_rows}")
        encoding = Encoding(RecordSchema(tuple(feature_columns(rows.shape[1], self.bounds, {}))))
        event = self._event(encoding)
        gram = exact_gram([(feature_cells(rows, {}), None)], encoding, event.layout, no_projection(encoding))
        self.spectrum_: Released = measure_gram(gram, event, SystemNoise())
        self.privacy_ = privacy_statement({"eigenvalues": event}, delta=Fraction(0), neighbours=self.neighbours)
        return self

    def sample(self, n: int = 1) -> Floats:
        """Return independent N(0, eigenvalue / expected rows) values in each of the undisclosed coordinates."""
        seed = self._sampling_seed(n)
        variances = np.maximum(self.spectrum_.spectrum(), 0.0) / self.expected_rows
        normals: Floats = public_generator(seed, "eigenvalues").standard_normal((n, len(variances)))
        return normals * np.sqrt(variances)

    def _event(self, encoding: Encoding) -> GramEvent:
        layout = GramLayout(encoding.width + 1, 1, Fraction(1))  # the head is not measured
        budget = Epsilon(finite_fraction("epsilon", self.epsilon))
        return EIGENVALUES.calibrate(layout, Neighbours(self.neighbours), budget, components=self.n_components)
