"""PCA-Gauss: projection to private principal components, or to those of public rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpcore.estimators._arrays import feature_cells, plain_rows
from dpcore.estimators.moment_mixture import TARGET, MomentMixture
from dpcore.measurements.projection import Projection, principal_projection
from dpcore.planning.request import AUTO, PlanRequest
from dpcore.records.schema import RecordSchema

PUBLIC = "public-pca"


@dataclass(kw_only=True, eq=False, repr=False)
class PcaGauss(MomentMixture):
    """PCA-Gauss, corrected: private principal components, then noisy moments in their coordinates.

    `projection_mechanism` measures the components: "auto", a Gram mechanism,
    "noisy-power-method", or "exponential-pca", which is approximate.

        >>> model = PcaGauss(epsilon=1.0, delta=1e-6, bounds=(-1.0, 1.0), n_components=2, mechanism="gaussian")
        >>> model = model.fit([[0.1, 0.2, 0.3]] * 50)
        >>> model.sample(10).shape, model.privacy_["delta"]
        ((10, 3), 1e-06)

    With `public_rows`, rows of the same features that nobody protects, the components are theirs: Pub-PCA of the
    paper. They cost nothing, and the whole budget measures the moments. Cells of public rows are mapped as those of
    private ones: clamped to the bounds, and to the middle where they are no numbers.

        >>> public = [[0.1, 0.2, 0.3], [-0.1, -0.2, 0.3]]
        >>> model = PcaGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=1, public_rows=public)
        >>> model.fit([[0.1, 0.2, 0.3]] * 50).privacy_["components"]
        'of public rows, at no cost: GUARANTEE.md, P1'
        >>> list(model.privacy_["measurements"]), model.privacy_["epsilon"]
        (['moments'], 1.0)
    """

    projection_kind: ClassVar[str] = "private-pca"

    projection_mechanism: str = AUTO
    public_rows: ArrayLike | None = None

    def _plan_request(self, schema: RecordSchema) -> PlanRequest:
        request = replace(super()._plan_request(schema), projection_mechanism=self.projection_mechanism)
        return request if self.public_rows is None else replace(request, projection=PUBLIC)

    def _public_projection(self) -> Projection:
        if self.public_rows is None:
            return super()._public_projection()
        rows = plain_rows("public_rows", self.public_rows, self.n_features_in_)
        cells = feature_cells(rows, {})
        if self.target_bounds is not None:
            cells[TARGET] = np.full(len(rows), np.nan)  # only features are projected
        points = self.encoding_.encode(cells)
        mean, covariance = points.mean(axis=0), np.atleast_2d(np.cov(points, rowvar=False, bias=True))
        return principal_projection(
            PUBLIC, self.encoding_, mean=mean, covariance=covariance, dimension=self.plan_.dimension
        )

    def _privacy(self) -> dict[str, Any]:
        if self.public_rows is None:
            return super()._privacy()
        return super()._privacy() | {"components": "of public rows, at no cost: GUARANTEE.md, P1"}
