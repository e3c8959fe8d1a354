"""Stage 6: the synthetic rows, drawn chunk by chunk and written as the release's tables. No private data here."""

from __future__ import annotations

from dpcore.evaluation.table_summary import TableSummary
from dpcore.synthesis.generators import SAMPLINGS, SyntheticRows
from tasks.boundary import PROGRESS, log_public, private_task
from tasks.bundle.figures import rules_effect_of
from tasks.bundle.released_tables import ReleasedTable, released_tables
from tasks.bundle.staging import Staging
from tasks.bundle.synthetic_table import write_rows
from tasks.progress import RowsDone
from tasks.release.stage_values import MeasuredMoments, SyntheticTable
from tasks.report.wording import share_of_rows
from tasks.spec.plan import PlannedRelease
from tasks.workspace.long_work import long_work
from tasks.workspace.parallel import one_blas_thread


@private_task("decode")
@one_blas_thread
def decode_rows(
    planned: PlannedRelease, rows: SyntheticRows, measured: MeasuredMoments, staging: Staging
) -> SyntheticTable:
    """Draw the synthetic rows on all cores and write them into a new bundle, once for each of its tables.

    Raises: CheckFailedError if the specification's rules hold for too little of the model.
    """
    staging.start()
    if not planned.encoding.schema.rules:
        return _decoded(planned, rows, measured, staging)
    with long_work("drawing rows that obey the rules", report=PROGRESS.info):
        return _decoded(planned, rows, measured, staging)


def _decoded(
    planned: PlannedRelease, rows: SyntheticRows, measured: MeasuredMoments, staging: Staging
) -> SyntheticTable:
    sampler = SAMPLINGS[planned.spec.model.row_sampling]
    effect = rules_effect_of(rows, sampler, planned.encoding, measured.moments, measured.projection)
    if effect is not None:
        broken = share_of_rows(effect["broken"])
        log_public(f"rules: {broken} of the rows that the model would draw without them break one")
    summary = TableSummary(planned.encoding)
    tables = released_tables(planned.spec, planned.encoding, measured.projection)
    for index, table in enumerate(tables):
        counted = summary.empty() if index else summary  # rows are counted once
        write_rows(rows, counted, table, staging.folder / table.file, progress=RowsDone("sampled", rows.rows).add)
    log_public(f"sampled {rows.rows} synthetic rows")
    for table in tables:
        log_public(_words(table))
    return SyntheticTable(staging.folder, tables, summary, effect)


def _words(table: ReleasedTable) -> str:
    if table.projection is None:
        return f"decoded the rows into {len(table.schema.columns)} original columns"
    return f"wrote the rows as projected points in {len(table.schema.columns)} columns"
