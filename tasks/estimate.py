"""Stage 4: measure the moments. The last stage that sees raw rows."""

from __future__ import annotations

from dataclasses import replace

from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection, no_projection, private_projection
from dpcore.mechanisms.names import MEAN, MOMENTS
from dpcore.synthesis.copula.generator import Copula, grouped_encoding
from tasks.boundary import private_task
from tasks.draw_once import measured, measured_marginals
from tasks.release.context import Grant, ReleaseRun
from tasks.workspace.parallel import one_blas_thread


@private_task("estimate moments")
@one_blas_thread
def estimate_moments(run: ReleaseRun, projection: Projection, grant: Grant) -> tuple[NoisyMoments, Projection]:
    """The release's noisy moments, and the projection they live in.

    Where principal components come out of the measured moments, all coordinates are
    measured and both components and projected moments are post-processing.
    """
    if run.plan.marginals_event is not None:
        moments = _grouped_moments(run, projection, grant)
        return moments, Copula(run.plan.schema, moments).projection
    if not run.plan.reuses_gram:
        sums = measured(run, grant, MEAN, projection) if run.plan.mean_event else None
        return NoisyMoments.from_released(measured(run, grant, MOMENTS, projection), sums=sums), projection
    released = measured(run, grant, MOMENTS, replace(no_projection(run.encoding), frame=projection.frame))
    components = replace(private_projection(released, run.encoding, run.plan.dimension), frame=projection.frame)
    return NoisyMoments.from_released(released, components.basis()), components


def _grouped_moments(run: ReleaseRun, projection: Projection, grant: Grant) -> NoisyMoments:
    """Histograms first, then the moments of their groups."""
    marginals = measured_marginals(run, grant)
    encoding = grouped_encoding(run.plan.schema, marginals, run.plan.event)
    released = measured(run, grant, MOMENTS, projection, encoding)
    return replace(NoisyMoments.from_released(released), marginals=marginals)
