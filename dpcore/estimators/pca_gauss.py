"""PCA-Gauss: projection to private principal components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

from dpcore.estimators._arrays import Bounds
from dpcore.estimators.moment_mixture import MomentMixture
from dpcore.planning.request import AUTO, PlanRequest
from dpcore.records.schema import RecordSchema


class PcaGauss(MomentMixture):
    """PCA-Gauss, corrected: private principal components, then noisy moments in their coordinates.

    `projection_mechanism` measures the components: "auto", a Gram mechanism,
    "noisy-power-method", or "exponential-pca", which is approximate.

        >>> model = PcaGauss(epsilon=1.0, delta=1e-6, bounds=(-1.0, 1.0), n_components=2, mechanism="gaussian")
        >>> model = model.fit([[0.1, 0.2, 0.3]] * 50)
        >>> model.sample(10).shape, model.privacy_["delta"]
        ((10, 3), 1e-06)
    """

    projection_kind: ClassVar[str] = "private-pca"

    def __init__(
        self,
        *,
        epsilon: float | Fraction,
        bounds: Bounds,
        delta: float | Fraction = 0,
        neighbours: str = "replace-one",
        classes: Sequence[Any] | None = None,
        target_bounds: tuple[float, float] | None = None,
        n_components: int | str = AUTO,
        expected_rows: int | None = None,
        mechanism: str = AUTO,
        allocation: str | Mapping[str, float | Fraction] = AUTO,
        projection_mechanism: str = AUTO,
        generator: str = AUTO,
        radius: float | Fraction | str = 1,
        random_state: str | int | None = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            bounds=bounds,
            delta=delta,
            neighbours=neighbours,
            classes=classes,
            target_bounds=target_bounds,
            n_components=n_components,
            expected_rows=expected_rows,
            mechanism=mechanism,
            allocation=allocation,
            generator=generator,
            radius=radius,
            random_state=random_state,
        )
        self.projection_mechanism = projection_mechanism

    def _plan_request(self, schema: RecordSchema) -> PlanRequest:
        return replace(super()._plan_request(schema), projection_mechanism=self.projection_mechanism)
