"""PCA-Gauss: projection to private principal components."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from dpcore.estimators.projected_mixture import ProjectedMixture
from dpcore.planning.request import AUTO, PlanRequest
from dpcore.records.schema import RecordSchema


@dataclass(kw_only=True, eq=False, repr=False)
class PcaGauss(ProjectedMixture):
    """PCA-Gauss, corrected: private principal components, then noisy moments in their coordinates.

    `n_components` may also be a share between 0 and 1: all coordinates are measured once, and as many leading
    components are kept as hold that share of the noisy variance. `projection_mechanism` measures the components:
    "auto", a Gram mechanism, "noisy-power-method", or "exponential-pca", which is approximate.

        >>> model = PcaGauss(epsilon=1.0, delta=1e-6, bounds=(-1.0, 1.0), n_components=2, mechanism="gaussian")
        >>> model = model.fit([[0.1, 0.2, 0.3]] * 50)
        >>> model.sample(10).shape, model.privacy_["delta"]
        ((10, 3), 1e-06)
    """

    projection_kind: ClassVar[str] = "private-pca"

    projection_mechanism: str = AUTO

    def _plan_request(self, schema: RecordSchema) -> PlanRequest:
        return replace(super()._plan_request(schema), projection_mechanism=self.projection_mechanism)
