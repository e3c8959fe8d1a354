"""Stage 6: the synthetic rows, drawn chunk by chunk and written as the release's tables. No private data here."""

from __future__ import annotations

from dpcore.evaluation.table_summary import TableSummary
from dpcore.synthesis.generators import SyntheticRows
from tasks.boundary import log_public, private_task
from tasks.bundle.released_tables import ReleasedTable, released_tables
from tasks.bundle.staging import Staging
from tasks.bundle.synthetic_table import write_rows
from tasks.progress import RowsDone
from tasks.release.stage_values import MeasuredMoments, SyntheticTable
from tasks.spec.plan import PlannedRelease
from tasks.workspace.parallel import one_blas_thread


@private_task("decode")
@one_blas_thread
def decode_rows(
    planned: PlannedRelease, rows: SyntheticRows, measured: MeasuredMoments, staging: Staging
) -> SyntheticTable:
    """Draw the synthetic rows on all cores and write them into a new bundle, once for each of its tables."""
    staging.start()
    summary = TableSummary(planned.encoding)
    tables = released_tables(planned.spec, planned.encoding, measured.projection)
    for index, table in enumerate(tables):
        counted = summary.empty() if index else summary  # rows are counted once
        write_rows(rows, counted, table, staging.folder / table.file, progress=RowsDone("sampled", rows.rows).add)
    log_public(f"sampled {rows.rows} synthetic rows")
    for table in tables:
        log_public(_words(table))
    return SyntheticTable(staging.folder, tables, summary)


def _words(table: ReleasedTable) -> str:
    if table.projection is None:
        return f"decoded the rows into {len(table.schema.columns)} original columns"
    return f"wrote the rows as projected points in {len(table.schema.columns)} columns"
