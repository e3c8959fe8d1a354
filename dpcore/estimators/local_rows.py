"""Noisy rows, one per row of the data: local differential privacy, for comparison with the papers.

Every row is a point of the unit ball. It is projected on a few directions, gets Laplace noise
scaled to the diameter of the ball, and is lifted back. The noise does not shrink with the
number of rows, so each released row is of little use on its own (GUARANTEE.md, M10).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from dpcore.accounting import Epsilon
from dpcore.estimators._arrays import (
    Categories,
    PrivateEstimator,
    feature_cells,
    feature_columns,
    feature_rows,
    finite_fraction,
    numeric_rows,
    privacy_statement,
)
from dpcore.measure import ReleasedVector, exact_gram, measure_gram, measure_vector
from dpcore.measurements.noisy_moments import pooled_moments
from dpcore.measurements.projection import no_projection
from dpcore.mechanisms.queries import RowsQuery
from dpcore.mechanisms.registry import Event, gram_mechanism
from dpcore.mechanisms.vectors import (
    JIANG_LAPLACE,
    NOISY_ROWS,
    PrivateVector,
    UnitCoordinates,
    exact_moments,
)
from dpcore.noise.sources import Noise, SystemNoise, draw_seed, public_generator
from dpcore.planning.layouts import count_weight
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import PROJECTION_BITS, GramLayout, integer_records, quantised_projection
from dpcore.records.schema import Cells, Floats, Neighbours, RecordSchema
from dpcore.synthesis.jiang_greedy import PooledMoments

RELATION = Neighbours.REPLACE_ONE
"""The release shows the number of rows, so add-remove privacy is impossible."""

FOR_BASIS = Fraction(1, 2)
"""The share of epsilon for directions that are measured, as in Jiang et al."""


@dataclass(frozen=True, slots=True)
class RowBasis:
    """Public or released directions of operator norm at most 1, and the centre around which rows are lifted back."""

    columns: Floats
    centre: Floats

    @staticmethod
    def of(directions: Floats, centre: Floats) -> RowBasis:
        """Return the directions on the grid 2^-20, scaled to an operator norm of at most 1, which is checked exactly.

        The norm of VᵀV is at most the largest absolute row sum.
        Raises: ValueError if the norm exceeds 1.
        """
        longest = float(np.abs(directions.T @ directions).sum(axis=1).max())
        columns = np.trunc(quantised_projection(directions / np.sqrt(longest)) * (1 - 2.0**-14))
        whole = columns.astype(np.int64)
        if int(np.abs(whole.T @ whole).sum(axis=1).max()) > 1 << 2 * PROJECTION_BITS:
            raise ValueError("the directions could not be brought to length 1")
        return RowBasis(columns, centre)

    @property
    def dimension(self) -> int:
        """Number of directions."""
        return int(self.columns.shape[1])

    def project(self, points: Floats) -> list[int]:
        """Return the projected points as integers of the grid, row by row; squared norms are at most 4^16 (N1)."""
        layout = GramLayout(self.dimension + 1, 1, Fraction(1))
        return integer_records(points, self.columns, layout)[:, 1:].astype(np.int64).ravel().tolist()

    def lift(self, projected: Floats) -> Floats:
        """Return the points nearest to the centre that have these projections."""
        basis = self.columns / (1 << PROJECTION_BITS)
        return self.centre + (projected - self.centre @ basis) @ np.linalg.pinv(basis)


def publish_rows(points: Floats, basis: RowBasis, budget: Epsilon, noise: Noise) -> ReleasedVector:
    """Release noisy projections of all points, one per row.

    Neighbours: replace-one; the number of rows is disclosed. Guarantee: pure epsilon, also
    locally for each row (GUARANTEE.md, M10).
    """
    query = RowsQuery(len(points), basis.dimension)
    event = NOISY_ROWS.calibrate(query, RELATION, budget)
    return measure_vector(PrivateVector(query, basis.project(points)), event, noise)


@dataclass(kw_only=True, eq=False, repr=False)
class NoisyRows(PrivateEstimator, ABC):
    """A release of every row with noise along a few directions, which subclasses choose.

    Parameters: `epsilon`, `bounds` (lower, upper; numbers or one per feature) and
    `n_components`, the number of directions, are required. `categories` lists the public
    values of categorical features by index; the largest noisy indicator is decoded.
    `fit` stores the noisy rows in `rows_`, in the order of the data.
    Guarantee: pure local epsilon for each row's values under replace-one; the number of
    rows is disclosed. The order of the rows must not follow from their values (GUARANTEE.md, M10).
    """

    n_components: int
    categories: Categories | None = None

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Measure or draw the directions, then release the rows of X along them; `y` is ignored."""
        rows = numeric_rows(self, X)
        known = self.categories or {}
        encoding = Encoding(RecordSchema(tuple(feature_columns(rows.shape[1], self.bounds, known))))
        if not 1 <= self.n_components <= encoding.width:
            raise ValueError(f"n_components must be between 1 and {encoding.width}, got {self.n_components}")
        epsilon = Epsilon(finite_fraction("epsilon", self.epsilon))
        cells = feature_cells(rows, known)
        self.basis_, events, left = self._choose_directions(cells, encoding, epsilon)
        self.released_ = publish_rows(encoding.encode(cells), self.basis_, left, SystemNoise())
        projected = self.released_.numbers().reshape(len(rows), self.n_components)
        self.rows_ = feature_rows(self.basis_.lift(projected), encoding, known)
        everything = {**events, "rows": self.released_.event}
        self.privacy_ = privacy_statement(everything, delta=Fraction(0), neighbours=RELATION.value)
        return self

    @abstractmethod
    def _choose_directions(
        self, cells: Cells, encoding: Encoding, epsilon: Epsilon
    ) -> tuple[RowBasis, dict[str, Event], Epsilon]:
        """Return the directions, the events that measured them, and the epsilon that is left for the rows."""


class BernoulliRows(NoisyRows):
    """Li et al.: public directions of random signs (Rademacher); the rows get the whole epsilon.

    >>> model = BernoulliRows(epsilon=1.0, bounds=(-1.0, 1.0), n_components=2).fit([[0.1, 0.2, 0.3]] * 50)
    >>> model.rows_.shape, round(model.privacy_["epsilon"], 9)
    ((50, 3), 1.0)
    """

    def _choose_directions(
        self, cells: Cells, encoding: Encoding, epsilon: Epsilon
    ) -> tuple[RowBasis, dict[str, Event], Epsilon]:
        coins = public_generator(draw_seed(), "bernoulli").integers(0, 2, (encoding.width, self.n_components))
        signs: Floats = np.where(coins == 1, 1.0, -1.0)
        return RowBasis.of(signs, np.zeros(encoding.width)), {}, epsilon


class JiangPca(NoisyRows):
    """Jiang et al., section 3.1, corrected: half of epsilon for mean and components, half for the rows along them.

    >>> model = JiangPca(epsilon=1.0, bounds=(-1.0, 1.0), n_components=2).fit([[0.1, 0.2, 0.3]] * 50)
    >>> model.rows_.shape, round(model.privacy_["epsilon"], 9)
    ((50, 3), 1.0)
    """

    def _choose_directions(
        self, cells: Cells, encoding: Encoding, epsilon: Epsilon
    ) -> tuple[RowBasis, dict[str, Event], Epsilon]:
        first, left = _split_epsilon(epsilon)
        coordinates = UnitCoordinates(encoding)
        event = JIANG_LAPLACE.calibrate(coordinates.query(1), RELATION, first)
        moments = PooledMoments.of_vector(measure_vector(exact_moments([cells], coordinates, 1), event, SystemNoise()))
        covariance = moments.within * np.outer(coordinates.scale, coordinates.scale)
        centre = coordinates.encoded(moments.means[0])
        return RowBasis.of(_leading(covariance, self.n_components), centre), {"basis": event}, left


class LopRows(NoisyRows):
    """LOP of Xu et al., corrected: half of epsilon measures second moments for the basis, which the paper has exact.

    >>> model = LopRows(epsilon=1.0, bounds=(-1.0, 1.0), n_components=2).fit([[0.1, 0.2, 0.3]] * 50)
    >>> model.rows_.shape, round(model.privacy_["epsilon"], 9)
    ((50, 3), 1.0)
    """

    def _choose_directions(
        self, cells: Cells, encoding: Encoding, epsilon: Epsilon
    ) -> tuple[RowBasis, dict[str, Event], Epsilon]:
        first, left = _split_epsilon(epsilon)
        layout = GramLayout(encoding.width + 1, 1, count_weight(encoding.width))
        event = gram_mechanism("wishart-difference-trace").calibrate(layout, RELATION, first)
        gram = exact_gram([(cells, None)], encoding, layout, no_projection(encoding))
        moments = pooled_moments(measure_gram(gram, event, SystemNoise()))
        return RowBasis.of(_leading(moments.covariance, self.n_components), moments.mean), {"basis": event}, left


def _split_epsilon(epsilon: Epsilon) -> tuple[Epsilon, Epsilon]:
    return Epsilon(epsilon.value * FOR_BASIS), Epsilon(epsilon.value * (1 - FOR_BASIS))


def _leading(covariance: Floats, count: int) -> Floats:
    """Return the eigenvectors of the largest eigenvalues."""
    return np.linalg.eigh(covariance)[1][:, ::-1][:, :count]
