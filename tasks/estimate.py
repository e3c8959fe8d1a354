"""Stage 4: measure the moments. The last stage that sees raw rows."""

from __future__ import annotations

from dataclasses import replace

from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection, no_projection, private_projection
from dpcore.mechanisms.names import MEAN, MOMENTS
from dpcore.synthesis.copula.generator import Copula, grouped_encoding
from tasks.boundary import private_task
from tasks.draw_once import measure_or_load, measure_or_load_marginals
from tasks.release.context import ReleaseRun
from tasks.release.stage_values import Grant, MeasuredMoments
from tasks.workspace.parallel import one_blas_thread


@private_task("estimate moments")
@one_blas_thread
def estimate_moments(run: ReleaseRun, grant: Grant, projection: Projection) -> MeasuredMoments:
    """Return the release's noisy moments, and the projection that they live in.

    Where principal components come out of the measured moments, all coordinates are
    measured and both components and projected moments are post-processing.
    """
    plan, encoding = run.planned.plan, run.planned.encoding
    if plan.marginals_event is not None:
        moments = _grouped_moments(run, grant, projection)
        return MeasuredMoments(moments, Copula(plan.schema, moments).projection)
    if not plan.reuses_gram:
        sums = measure_or_load(run, grant, MEAN, projection) if plan.mean_event else None
        released = measure_or_load(run, grant, MOMENTS, projection)
        return MeasuredMoments(NoisyMoments.from_released(released, sums=sums), projection)
    released = measure_or_load(run, grant, MOMENTS, replace(no_projection(encoding), frame=projection.frame))
    components = replace(private_projection(released, encoding, plan.components), frame=projection.frame)
    return MeasuredMoments(NoisyMoments.from_released(released, components.basis()), components)


def _grouped_moments(run: ReleaseRun, grant: Grant, projection: Projection) -> NoisyMoments:
    """Measure the histograms first, then the moments of their groups."""
    marginals = measure_or_load_marginals(run, grant)
    encoding = grouped_encoding(run.planned.plan.schema, marginals, run.planned.plan.event)
    released = measure_or_load(run, grant, MOMENTS, projection, encoding)
    return replace(NoisyMoments.from_released(released), marginals=marginals)
