"""Stage 5: the synthetic rows, as a law of points that is fitted to the noisy moments. No private data here."""

from __future__ import annotations

from dpcore.errors import RELAX_CHECKS, CheckFailedError
from dpcore.synthesis.generators import SyntheticRows, generator_of, synthetic_rows
from tasks.boundary import private_task
from tasks.bundle.synthetic_table import rows_wanted
from tasks.release.stage_values import Grant, MeasuredMoments
from tasks.spec.plan import PlannedRelease
from tasks.workspace.parallel import one_blas_thread


@private_task("sample")
@one_blas_thread
def sample_rows(planned: PlannedRelease, grant: Grant, measured: MeasuredMoments) -> SyntheticRows:
    """Fit the law of synthetic points and return the rows that follow it.

    A chunk of rows follows from the law, the public seed and its own number. Chunks are drawn when they are
    read, so a table of any length needs the memory of a few chunks.

    Raises: CheckFailedError if the noisy count leaves nothing to sample.
    """
    count, minimum = rows_wanted(planned.spec, measured.moments), planned.spec.checks.min_rows
    if measured.moments.count < (minimum or 1) or count < 1:
        if minimum is not None and measured.moments.count >= 1:
            raise CheckFailedError(f"the noisy count is below min_rows ({minimum})", hint=RELAX_CHECKS)
        raise CheckFailedError(
            "the noisy count is below 1, so there is nothing to draw rows from",
            hint="the budget stays spent, and a further run of the period uses the same count; with more rows, or a "
            "larger epsilon, this is rare",
        )
    seed, generator = grant.seeds["sampling"], generator_of(planned.plan.schema, measured.moments, measured.projection)
    return synthetic_rows(planned.encoding, generator, count, seed, planned.spec.model.row_sampling)
