"""Gaussians, one per class, fitted to moments that are measured once; modips is the variant without projection.

Bounds, classes and the expected number of rows are public parameters and never learned
from the data: values outside the bounds are clamped, and missing ones become the middle.
Noise is never seeded, so every `fit` gives another result; `random_state` seeds
sampling only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.estimators._arrays import (
    LABEL,
    Bounds,
    SamplingEstimator,
    codes_of,
    exact_delta,
    feature_cells,
    feature_columns,
    feature_name,
    finite_fraction,
    label_column,
    numbers_of,
    numeric_rows,
    privacy_statement,
    target_values,
)
from dpcore.measure import Released, exact_gram, measure_gram
from dpcore.measurements.frame_measurements import measure_directions, measure_frame, measurement_inputs
from dpcore.measurements.measurement_frame import Frame
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import (
    Projection,
    measured_coordinates,
    no_projection,
    private_projection,
    ron_projection,
)
from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.names import MEAN, MOMENTS, PROJECTION
from dpcore.noise.sources import SystemNoise, draw_seed
from dpcore.planning.allocation import preset_or_fractions
from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.planning.request import AUTO, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.schema import (
    Cells,
    Floats,
    IntervalColumn,
    Kind,
    Neighbours,
    PrivacyUnit,
    RecordSchema,
    Role,
)
from dpcore.synthesis.generators import ClassGaussians, synthetic_rows

TARGET = "target"


@dataclass(kw_only=True, eq=False, repr=False)
class MomentMixture(SamplingEstimator):
    """Gaussians, one per class, fitted to moments that are measured once with differential privacy.

    Parameters: `epsilon` and `bounds` (lower, upper; numbers or one per feature) are
    required. `classes` lists the public labels if `fit` gets a `y` of labels;
    `target_bounds` bounds a `y` of numbers. `n_components` is a number or "auto", which
    needs `expected_rows`. `allocation` is "auto", the name of a paper's split, or fractions
    of the budget for "projection", "mean" and "moments". `generator` is "mixture" (one covariance
    per class), "lda" (one shared covariance), or "auto", which needs `expected_rows` to choose
    anything but a mixture. `radius` is the radius of the ball to which points are clipped: 1 clips
    nothing, and "auto" measures a centre and a radius with an eighth of the budget. `normalise` scales the
    features to one length around a mean that is measured with a tenth of the budget, as RON-Gauss does.
    Guarantee: (epsilon, delta) for each row, by the mechanism named in `privacy_`.

        >>> model = MomentMixture(epsilon=1.0, bounds=(-1.0, 1.0), classes=["no", "yes"], n_components=3)
        >>> X, y = model.fit([[0.1, 0.2, 0.3]] * 50, ["no", "yes"] * 25).sample(10)
        >>> X.shape, set(y) <= {"no", "yes"}, bool((abs(X) <= 1).all())
        ((10, 3), True, True)
        >>> model.privacy_["epsilon"], model.privacy_["delta"]
        (1.0, 0.0)
    """

    projection_kind: ClassVar[str] = "none"

    delta: float | Fraction = 0
    classes: Sequence[Any] | None = None
    target_bounds: tuple[float, float] | None = None
    n_components: int | float | str = AUTO
    expected_rows: int | None = None
    mechanism: str = AUTO
    allocation: str | Mapping[str, float | Fraction] = AUTO
    generator: str = AUTO
    radius: float | Fraction | str = 1
    normalise: bool = False

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Measure the moments of the rows of X, together with y if its classes or bounds are given."""
        rows = numeric_rows(self, X)
        self.plan_ = self._plan(self._schema(rows.shape[1]))
        self.encoding_ = Encoding(self.plan_.schema)
        self.projection_, self.moments_ = self._measure(*self._parts(self._cells(rows, y)))
        self.privacy_ = self._privacy()
        return self

    def _privacy(self) -> dict[str, Any]:
        return privacy_statement(self.plan_.events, delta=exact_delta(self.delta), neighbours=self.neighbours)

    def sample(self, n: int = 1) -> Floats | tuple[Floats, NDArray[Any]]:
        """Return synthetic rows within the bounds, with labels or targets if `fit` had them.

        The rows of one call are drawn together, so that class sizes and means keep close to the model's.
        """
        seed = self._sampling_seed(n)
        mixture = ClassGaussians(self._noisy_moments(), self.projection_)
        cells = synthetic_rows(self.encoding_, mixture, n, seed).cells()
        rows = np.column_stack([cells[feature_name(i)] for i in range(self.n_features_in_)]).astype(np.float64)
        if self.classes is not None:
            return rows, np.asarray(self.classes)[cells[LABEL].astype(np.int64)]
        return (rows, cells[TARGET]) if self.target_bounds is not None else rows

    def _schema(self, features: int) -> RecordSchema:
        columns = feature_columns(features, self.bounds, {})
        if self.classes is not None:
            columns.append(label_column(self.classes))
        if self.target_bounds is not None:
            low, high = self.target_bounds
            columns.append(
                IntervalColumn(name=TARGET, kind=Kind.NUMERIC, lower=float(low), upper=float(high), role=Role.TARGET)
            )
        return RecordSchema(tuple(columns))

    def _plan(self, schema: RecordSchema) -> Plan:
        return make_plan(self._plan_request(schema))

    def _plan_request(self, schema: RecordSchema) -> PlanRequest:
        if self.n_components == AUTO and self.expected_rows is None and self.projection_kind != "none":
            raise ValueError('n_components="auto" needs expected_rows: it is never taken from the data')
        unknown_size = self.generator == AUTO and self.expected_rows is None and self.classes is not None
        return PlanRequest(
            schema=schema,
            neighbours=Neighbours(self.neighbours),
            unit=PrivacyUnit(),
            epsilon=finite_fraction("epsilon", self.epsilon),
            delta=exact_delta(self.delta),
            expected_rows=1 if self.expected_rows is None else self.expected_rows,
            projection=self.projection_kind,
            dimension=self._dimension(),
            mechanism=self.mechanism,
            generator="mixture" if unknown_size else self.generator,
            allocation=preset_or_fractions(self.allocation),
            radius=self.radius if isinstance(self.radius, str) else finite_fraction("radius", self.radius),
            normalise=bool(self.normalise),
        )

    def _dimension(self) -> int | str | Fraction:
        """Return what the planner is asked for: a number, the name of a rule, or a share of the variance."""
        wanted = self.n_components
        if self.projection_kind == "none":
            return AUTO
        return finite_fraction("n_components", wanted) if isinstance(wanted, float) else wanted

    def _cells(self, rows: Floats, y: ArrayLike | None) -> Cells:
        cells = feature_cells(rows, {})
        if self.classes is not None:
            cells[LABEL] = codes_of(target_values(y, len(rows)), self.classes)
        if self.target_bounds is not None:
            cells[TARGET] = numbers_of(target_values(y, len(rows)))
        return cells

    def _parts(self, cells: Cells) -> tuple[Cells, Cells]:
        """Return the rows on which everything but the components is measured, and those for the components."""
        return cells, cells

    def _measure(self, cells: Cells, aside: Cells | None = None) -> tuple[Projection, Released]:
        """Draw every measurement of the plan, each once; the components on the rows `aside`, if there are any."""
        plan, encoding = self.plan_, self.encoding_
        projection = self._measure_frame(cells, self._public_projection())
        everything = replace(no_projection(encoding), frame=projection.frame)
        if plan.projection_event is not None:
            coordinates = measured_coordinates(plan.projection_event, encoding)
            first = self._draw(
                PROJECTION, cells if aside is None else aside, replace(coordinates, frame=projection.frame)
            )
            projection = replace(private_projection(first, encoding, plan.dimension), frame=projection.frame)
        self.sums_ = self._draw(MEAN, cells, projection) if plan.mean_event else None
        released = self._draw(MOMENTS, cells, everything if plan.reuses_gram else projection)
        if plan.reuses_gram:
            projection = replace(private_projection(released, encoding, plan.components), frame=projection.frame)
        return projection, released

    def _public_projection(self) -> Projection:
        """Return the projection as far as it needs no measurement."""
        if self.plan_.projection == "ron":
            return ron_projection(self.encoding_, self.plan_.dimension, draw_seed())
        return no_projection(self.encoding_)

    def _measure_frame(self, cells: Cells, projection: Projection) -> Projection:
        """Return the projection with the plan's frame: none, a public one, or one that is measured here."""
        plan = self.plan_

        def draw(name: str, seen: Projection) -> Released:
            return self._draw(name, cells, seen)

        if plan.normalise:
            return measure_directions(self.encoding_, projection, draw, radius=plan.given_radius)
        if plan.frame_events:
            return measure_frame(projection, draw, whole_mean=plan.frame_knows_mean)
        if self.plan_.radius == 1:
            return projection
        return projection.with_frame(Frame.around_middle(projection.width, float(self.plan_.radius)))

    def _draw(self, name: str, cells: Cells, projection: Projection) -> Released:
        event = self.plan_.events[name]
        assert isinstance(event, GramEvent)  # noqa: S101  marginals are measured by another estimator
        encoding, projection = measurement_inputs(name, self.encoding_, projection)
        return measure_gram(exact_gram([(cells, None)], encoding, event.layout, projection), event, SystemNoise())

    def _noisy_moments(self) -> NoisyMoments:
        basis = self.projection_.basis() if self.plan_.reuses_gram else None
        return NoisyMoments.from_released(self.moments_, basis, self.sums_)


class Modips(MomentMixture):
    """Liu's modips with one Gaussian, corrected: Laplace noise on mean and second moments in all coordinates.

    The baseline of RON-Gauss and PCA-Gauss: it does not project, so the noise grows with the
    number of all coordinates.

        >>> model = Modips(epsilon=1.0, bounds=(-1.0, 1.0)).fit([[0.1, 0.2, 0.3]] * 50)
        >>> model.sample(10).shape, round(model.privacy_["epsilon"], 9)
        ((10, 3), 1.0)
    """

    def __init__(
        self,
        *,
        epsilon: float | Fraction,
        bounds: Bounds,
        neighbours: str = "replace-one",
        classes: Sequence[Any] | None = None,
        target_bounds: tuple[float, float] | None = None,
        random_state: str | int | None = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            bounds=bounds,
            neighbours=neighbours,
            classes=classes,
            target_bounds=target_bounds,
            mechanism="laplace",
            random_state=random_state,
        )
