"""Stage 6: the synthetic rows, drawn chunk by chunk and written in the original columns. No private data here."""

from __future__ import annotations

from dpcore.evaluation.table_summary import TableSummary
from dpcore.synthesis.generators import SyntheticRows
from tasks.boundary import log_public, private_task
from tasks.bundle.staging import DATA, Staging
from tasks.bundle.synthetic_table import write_rows
from tasks.progress import RowsDone
from tasks.release.stage_values import SyntheticTable
from tasks.spec.plan import PlannedRelease
from tasks.workspace.parallel import one_blas_thread


@private_task("decode")
@one_blas_thread
def decode_rows(planned: PlannedRelease, rows: SyntheticRows, staging: Staging) -> SyntheticTable:
    """Draw the synthetic rows on all cores and write them into a new bundle."""
    staging.start()
    target = staging.folder / DATA
    summary, schema = TableSummary(planned.encoding), planned.plan.schema
    write_rows(rows, summary, schema, target, progress=RowsDone("sampled", rows.rows).add)
    log_public(f"sampled {rows.rows} synthetic rows")
    log_public(f"decoded the rows into {len(schema.columns)} original columns")
    return SyntheticTable(target, summary)
