"""Stage 3: choose the projection: random, of public data, bought from the budget, or none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from dpcore.measure import Released
from dpcore.measurements.frame_measurements import measure_directions, measure_frame
from dpcore.measurements.measurement_frame import Frame
from dpcore.measurements.projection import (
    Projection,
    measured_coordinates,
    no_projection,
    principal_projection,
    private_projection,
    ron_projection,
)
from dpcore.mechanisms.names import PROJECTION
from tasks.boundary import log_public, private_task
from tasks.draw_once import measure_or_load
from tasks.landing.cells import cells_of
from tasks.landing.datasets import open_public
from tasks.release.context import ReleaseRun
from tasks.release.stage_values import Grant
from tasks.workspace.parallel import one_blas_thread


@private_task("project")
@one_blas_thread
def choose_projection(run: ReleaseRun, grant: Grant) -> Projection:
    """The projection that the plan asks for; measured and charged if it is private and bought apart."""
    projection, plan = _projection(run, grant), run.planned.plan
    few = plan.dimension if plan.variance_share is None else "as many as the released spectrum asks for"
    measured = f"{projection.width} encoded coordinates to {few}"
    if plan.marginals_event is not None:
        measured = f"the columns' groups have {few} coordinates"
    log_public(f"chose the projection {plan.projection}: {measured}")
    return projection


def _projection(run: ReleaseRun, grant: Grant) -> Projection:
    plan, encoding = run.planned.plan, run.planned.encoding
    projection = _framed(run, grant, _public_projection(run, grant))
    if plan.projection_event is None:
        return projection
    coordinates = replace(measured_coordinates(plan.projection_event, encoding), frame=projection.frame)
    released = measure_or_load(run, grant, PROJECTION, coordinates)
    return replace(private_projection(released, encoding, plan.dimension), frame=projection.frame)


def _public_projection(run: ReleaseRun, grant: Grant) -> Projection:
    """What needs no measurement; every coordinate where components are still to be measured."""
    plan, encoding = run.planned.plan, run.planned.encoding
    if plan.projection == "ron":
        return ron_projection(encoding, plan.dimension, grant.seeds["projection"])
    if plan.projection == "public-pca":
        mean, covariance = public_moments(run)
        return principal_projection("public-pca", encoding, mean=mean, covariance=covariance, dimension=plan.dimension)
    return no_projection(encoding)


def _framed(run: ReleaseRun, grant: Grant, projection: Projection) -> Projection:
    """The projection in the frame that the plan asks for: none, a public one, or one that is measured and charged."""
    plan = run.planned.plan

    def draw(name: str, seen: Projection) -> Released:
        return measure_or_load(run, grant, name, seen)

    if plan.normalise:
        return measure_directions(run.planned.encoding, projection, draw, radius=plan.given_radius)
    if plan.frame_events:
        return measure_frame(projection, draw, whole_mean=plan.frame_knows_mean)
    if plan.radius == 1:
        return projection
    return projection.with_frame(Frame.around_middle(projection.width, float(plan.radius)))


def public_moments(run: ReleaseRun) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the encoded rows of the table that the specification declares public."""
    landing = open_public(run.planned.spec, run.workspace.root, Path(str(run.planned.spec.model.projection.public)))
    names = [code.column.name for code in run.planned.encoding.codes]
    schema = run.planned.encoding.schema
    count, total = 0, np.zeros(run.planned.encoding.width)
    second = np.zeros((run.planned.encoding.width, run.planned.encoding.width))
    for batch in landing.batches(names):
        points = run.planned.encoding.encode(cells_of(batch, schema, names=names, decimal=landing.decimal))
        count, total, second = count + len(points), total + points.sum(axis=0), second + points.T @ points
    mean = total / max(count, 1)
    return mean, second / max(count, 1) - np.outer(mean, mean)
