"""Stage 3: choose the projection; public, from the seed drawn at reservation."""

from __future__ import annotations

from dpcore.projection import Projection, no_projection, ron_projection
from tasks.boundary import private_task, tell
from tasks.stores.run import Grant, ReleaseRun


@private_task("project")
def choose_projection(run: ReleaseRun, grant: Grant) -> Projection:
    """The random orthonormal projection of the grant's seed, or none."""
    if run.plan.projection == "none":
        projection = no_projection(run.encoding)
    else:
        projection = ron_projection(run.encoding, run.plan.dimension, grant.seeds["projection"])
    tell(f"projection {projection.kind}: {projection.width} encoded coordinates to {projection.dimension}")
    return projection
