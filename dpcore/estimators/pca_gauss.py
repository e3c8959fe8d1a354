"""PCA-Gauss: projection to principal components that are private, of rows set aside, or of public rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpcore.accounting import release_statement, total
from dpcore.estimators._arrays import exact_delta, feature_cells, finite_fraction, plain_rows
from dpcore.estimators.moment_mixture import TARGET
from dpcore.estimators.projected_mixture import ProjectedMixture
from dpcore.measurements.projection import Projection, principal_projection
from dpcore.mechanisms.names import PROJECTION
from dpcore.mechanisms.registry import cost_of
from dpcore.noise.sources import SystemNoise
from dpcore.planning.plan import Plan
from dpcore.planning.planner import plan_set_aside
from dpcore.planning.request import AUTO, PlanRequest
from dpcore.records.schema import Cells, RecordSchema

PUBLIC = "public-pca"

COIN_BITS = 64
"""Bits of a coin; the guarantee holds whatever the coin's exact probability is."""


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

    With `public_rows`, rows of the same features that nobody protects, the components are theirs: Pub-PCA of the
    paper. They cost nothing, and the whole budget measures the moments. Cells of public rows are mapped as those of
    private ones: clamped to the bounds, and to the middle where they are no numbers.

        >>> public = [[0.1, 0.2, 0.3], [-0.1, -0.2, 0.3]]
        >>> model = PcaGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=1, public_rows=public)
        >>> model.fit([[0.1, 0.2, 0.3]] * 50).privacy_["components"]
        'of public rows, at no cost: GUARANTEE.md, P1'
        >>> list(model.privacy_["measurements"]), model.privacy_["epsilon"]
        (['moments'], 1.0)

    With `set_aside`, a number between 0 and 1, every row is set aside with that probability, by a coin that no value
    decides and nobody learns. The components are measured on the rows set aside, the moments on the others, both with
    the whole budget: the larger cost counts and not the sum (GUARANTEE.md, P2). `privacy_` says so; the cost of
    `plan_` adds both up.

        >>> model = PcaGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=1, set_aside=0.2)
        >>> model = model.fit([[0.1, 0.2, 0.3]] * 50)
        >>> list(model.privacy_["measurements"]), model.privacy_["epsilon"]
        (['projection', 'moments'], 1.0)
    """

    projection_kind: ClassVar[str] = "private-pca"

    projection_mechanism: str = AUTO
    public_rows: ArrayLike | None = None
    set_aside: float | Fraction | None = None

    def _plan(self, schema: RecordSchema) -> Plan:
        return super()._plan(schema) if self.set_aside is None else plan_set_aside(self._plan_request(schema))

    def _plan_request(self, schema: RecordSchema) -> PlanRequest:
        request = replace(super()._plan_request(schema), projection_mechanism=self.projection_mechanism)
        if self.set_aside is not None:
            left = int(request.expected_rows * (1 - self._share_aside()))
            return replace(request, expected_rows=max(1, left))
        return request if self.public_rows is None else replace(request, projection=PUBLIC)

    def _share_aside(self) -> Fraction:
        """Return the probability with which a row is set aside.

        Raises: ValueError for a number that is no such probability, and beside public rows or a frame that is measured.
        """
        share = finite_fraction("set_aside", self.set_aside or 0)
        if not 0 < share < 1:
            raise ValueError(f"set_aside must lie between 0 and 1, got {self.set_aside}")
        if self.public_rows is not None or self.radius == AUTO:
            raise ValueError("set_aside goes neither with public_rows nor with radius='auto'")
        if isinstance(self.n_components, float):
            raise ValueError("set_aside needs a number of components: the rows set aside buy no share of all variance")
        return share

    def _parts(self, cells: Cells) -> tuple[Cells, Cells]:
        if self.set_aside is None:
            return super()._parts(cells)
        noise, edge = SystemNoise(), int(self._share_aside() * (1 << COIN_BITS))
        coins = np.array([noise.bits(COIN_BITS) < edge for _ in next(iter(cells.values()))], dtype=bool)
        rest, aside = ({name: column[part] for name, column in cells.items()} for part in (~coins, coins))
        return rest, aside

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
        stated = super()._privacy()
        if self.public_rows is not None:
            return stated | {"components": "of public rows, at no cost: GUARANTEE.md, P1"}
        return stated if self.set_aside is None else stated | self._larger_cost()

    def _larger_cost(self) -> dict[str, Any]:
        """Return the larger of the figures of the two parts, to one of which a row belongs."""
        events = self.plan_.events
        costs = [cost_of(events[PROJECTION]), total(cost_of(events[name]) for name in events if name != PROJECTION)]
        parts = [release_statement(cost, delta=exact_delta(self.delta)).as_json() for cost in costs]
        larger: dict[str, Any] = {figure: max(part[figure] for part in parts) for figure in parts[0]}
        return larger | {"components": "of rows set aside, so that the larger cost counts: GUARANTEE.md, P2"}
