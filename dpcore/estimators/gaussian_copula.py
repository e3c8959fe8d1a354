"""A scikit-learn estimator for mixed tables: numbers and categories, with or without classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.estimators._arrays import (
    LABEL,
    Categories,
    SamplingEstimator,
    codes_of,
    exact_delta,
    feature_cells,
    feature_columns,
    feature_name,
    finite_fraction,
    label_column,
    numeric_rows,
    privacy_statement,
    target_values,
)
from dpcore.measure import exact_gram, measure_gram, measure_vector
from dpcore.measurements.groups import cells_of_columns
from dpcore.measurements.histograms import exact_histograms
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection
from dpcore.mechanisms.queries import HistogramsQuery
from dpcore.noise.sources import SystemNoise
from dpcore.planning.allocation import preset_or_fractions
from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.planning.request import AUTO, COPULA, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Cells, Floats, Neighbours, PrivacyUnit, RecordSchema
from dpcore.synthesis.copula.generator import Copula, grouped_encoding
from dpcore.synthesis.generators import synthetic_rows


def measure_copula(cells: Cells, plan: Plan) -> Copula:
    """Measure a table by a copula's plan: its histograms, then the Gram matrix of their groups. Draws noise."""
    assert plan.marginals_event is not None  # noqa: S101  as every copula's plan has
    query, noise, layout = plan.marginals_event.query, SystemNoise(), plan.event.layout
    assert isinstance(query, HistogramsQuery)  # noqa: S101  as it was planned
    histograms = exact_histograms([(cells, None)], cells_of_columns(plan.schema.encoded_columns, query.grouping), query)
    marginals = measure_vector(histograms, plan.marginals_event, noise)
    encoding = grouped_encoding(plan.schema, marginals, plan.event)
    everything = Projection("none", encoding.width, encoding.width, None)
    released = measure_gram(exact_gram([(cells, None)], encoding, layout, everything), plan.event, noise)
    return Copula(plan.schema, replace(NoisyMoments.from_released(released), marginals=marginals))


@dataclass(kw_only=True, eq=False, repr=False)
class GaussianCopula(SamplingEstimator):
    """A model of numbers and categories: noisy histograms of the columns, and noisy tables of their pairs.

    It is a copula because marginals and dependence are measured separately; the dependence of a pair
    is a table of groups instead of one correlation.
    Parameters: `epsilon` and `bounds` (lower, upper; numbers or one per feature) are required.
    `categories` lists the public values of categorical features by index, `classes` the public labels if
    `fit` gets a `y`. `allocation` is "auto" or fractions of the budget for "marginals" and "moments".
    Guarantee: (epsilon, delta) for each row, by the mechanisms named in `privacy_`.

        >>> model = GaussianCopula(epsilon=1.0, bounds=([0.0, 0.0], [9.0, 2.0]), categories={1: [0, 1, 2]})
        >>> X = model.fit([[1.0, 0], [8.5, 2]] * 25).sample(10)
        >>> X.shape, set(X[:, 1]) <= {0, 1, 2}, round(model.privacy_["epsilon"], 9)
        ((10, 2), True, 1.0)
    """

    delta: float | Fraction = 0
    classes: Sequence[Any] | None = None
    categories: Categories | None = None
    mechanism: str = AUTO
    allocation: str | Mapping[str, float | Fraction] = AUTO

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Measure the rows of X, with the labels y if `classes` are given."""
        rows, delta = numeric_rows(self, X), exact_delta(self.delta)
        self.plan_ = make_plan(self._plan_request(self._schema(rows.shape[1])))
        cells = feature_cells(rows, self.categories or {})
        if self.classes is not None:
            cells[LABEL] = codes_of(target_values(y, len(rows)), self.classes)
        self.copula_ = measure_copula(cells, self.plan_)
        self.moments_, self.marginals_ = self.copula_.moments.released, self.copula_.marginals
        self.privacy_ = privacy_statement(self.plan_.events, delta=delta, neighbours=self.neighbours)
        return self

    def sample(self, n: int = 1) -> Floats | tuple[Floats, NDArray[Any]]:
        """Return synthetic rows within the bounds, with labels if `fit` had them.

        The rows of one call are drawn together, so that their tables keep close to the model's.
        """
        seed = self._sampling_seed(n)
        cells = synthetic_rows(Encoding(self.plan_.schema), self.copula_, n, seed).cells()
        rows = np.column_stack([self._values(i, cells[feature_name(i)]) for i in range(self.n_features_in_)])
        return rows if self.classes is None else (rows, np.asarray(self.classes)[cells[LABEL].astype(np.int64)])

    def _values(self, index: int, cells: NDArray[np.generic]) -> Floats:
        known = (self.categories or {}).get(index)
        return (
            cells.astype(np.float64) if known is None else np.asarray(known, dtype=np.float64)[cells.astype(np.int64)]
        )

    def _schema(self, features: int) -> RecordSchema:
        columns = feature_columns(features, self.bounds, self.categories or {})
        if self.classes is not None:
            columns.append(label_column(self.classes))
        return RecordSchema(tuple(columns))

    def _plan_request(self, schema: RecordSchema) -> PlanRequest:
        return PlanRequest(
            schema=schema,
            neighbours=Neighbours(self.neighbours),
            unit=PrivacyUnit(),
            epsilon=finite_fraction("epsilon", self.epsilon),
            delta=exact_delta(self.delta),
            expected_rows=1,  # nothing depends on it
            projection="none",
            mechanism=self.mechanism,
            generator=COPULA,
            allocation=preset_or_fractions(self.allocation),
        )
