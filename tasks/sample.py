"""Stages 5 and 6: a law of synthetic points, and rows drawn from it in the original columns. No private data here.

Points are drawn where they are decoded, chunk by chunk and on all cores, and never stored: a chunk
follows from the law, the public seed and its own number, so a table of any length needs the memory
of a few chunks.
"""

from __future__ import annotations

import pickle
from pathlib import Path

from dpcore.errors import CheckFailedError
from dpcore.evaluation.table_summary import TableSummary
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection
from dpcore.synthesis.generators import PointLaw, SyntheticRows, decoder_of, generator_of
from tasks.boundary import private_task, tell
from tasks.bundle.synthetic_table import rows_wanted, write_rows
from tasks.progress import RowsDone
from tasks.release.context import Grant, ReleaseRun
from tasks.workspace.parallel import one_blas_thread

LAW = "law.pickle"


@private_task("sample")
@one_blas_thread
def sample_rows(run: ReleaseRun, moments: NoisyMoments, projection: Projection, grant: Grant) -> None:
    """Fit the law that synthetic points follow, and keep it in the run's scratch folder until rows are drawn.

    Raises: CheckFailedError if the noisy count leaves nothing to sample.
    """
    minimum = run.spec.checks.min_rows or 1
    if moments.count < minimum or rows_wanted(run.spec, moments) < 1:
        raise CheckFailedError(f"the noisy count is below min_rows ({minimum})")
    law = generator_of(run.plan.schema, moments, projection).law(grant.seeds["sampling"])
    (run.scratch / LAW).write_bytes(pickle.dumps(law))


@private_task("decode")
@one_blas_thread
def decode_rows(
    run: ReleaseRun, moments: NoisyMoments, projection: Projection, grant: Grant, target: Path
) -> TableSummary:
    """Draw the synthetic rows and write them in their original columns; returns the table's summary."""
    seed, generator = grant.seeds["sampling"], generator_of(run.plan.schema, moments, projection)
    law: PointLaw = pickle.loads((run.scratch / LAW).read_bytes())  # noqa: S301  what the stage before wrote
    rows = SyntheticRows(
        rows_wanted(run.spec, moments), seed, law, decoder_of(run.encoding, generator, seed), run.encoding.width
    )
    summary = TableSummary(run.encoding)
    write_rows(rows, summary, run.plan.schema, target, progress=RowsDone("sampled", rows.rows).add)
    tell(f"sampled {rows.rows} synthetic rows")
    tell(f"decoded to {len(run.plan.schema.columns)} original columns")
    return summary
