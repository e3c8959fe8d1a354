"""Releases as a specification without a model section makes them: the planner decides everything.

The planner's constants are stated, with the data that fixed them, in dpcore.planning.defaults and
dpcore.planning.forecast.
"""

from __future__ import annotations

from fractions import Fraction

import pandas as pd

from benchmarks.datasets import Dataset
from dpcore.estimators.gaussian_copula import measure_copula
from dpcore.estimators.moment_mixture import MomentMixture
from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.planning.request import COPULA, PLANNED, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Cells, Neighbours, PrivacyUnit
from dpcore.synthesis.generators import ClassGaussians, synthetic_rows


class _PlannedMoments(MomentMixture):
    """Moments of any table, measured by a plan that is given."""

    def law(self, cells: Cells, plan: Plan) -> ClassGaussians:
        """Measure once and return the law of the rows."""
        self.plan_, self.encoding_ = plan, Encoding(plan.schema)
        self.projection_, self.moments_ = self._measure(cells)
        return ClassGaussians(self._noisy_moments(), self.projection_)


def default_request(data: Dataset, *, epsilon: Fraction, delta: Fraction, neighbours: Neighbours) -> PlanRequest:
    """Return what a specification without a model section asks of the planner."""
    return PlanRequest(
        schema=data.schema,
        neighbours=neighbours,
        unit=PrivacyUnit(),
        epsilon=epsilon,
        delta=delta,
        expected_rows=len(data.train),
        projection=PLANNED,
        radius=PLANNED,
    )


def default_rows(data: Dataset, request: PlanRequest, seed: str) -> pd.DataFrame:
    """Make one release and return its rows, as many as there are training rows."""
    plan, cells = make_plan(request), data.cells(data.train)
    if plan.generator == COPULA:
        copula = measure_copula(cells, plan)
        return data.frame(synthetic_rows(Encoding(copula.schema), copula, len(data.train), seed).cells())
    law = _PlannedMoments(epsilon=request.epsilon, bounds=(-1.0, 1.0)).law(cells, plan)
    return data.frame(synthetic_rows(Encoding(plan.schema), law, len(data.train), seed).cells())
