"""Stage 7: compare the synthetic table with the noisy measurements; free, and it decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dpcore.errors import RELAX_CHECKS, CheckFailedError
from dpcore.records.schema import RecordSchema
from expectations.extremes import Extremes
from expectations.released import DecidingCells, released_verdicts
from expectations.rules import rule_truths, rule_verdicts
from expectations.verdicts import Verdict
from tasks.boundary import log_public, private_task
from tasks.bundle.figures import metric_checks, table_check, utility_of
from tasks.bundle.record import Outcome
from tasks.landing.cells import cells_of
from tasks.progress import RowsDone
from tasks.release.stage_values import MeasuredMoments, SyntheticTable
from tasks.spec.plan import PlannedRelease
from tasks.workspace.helper_process import in_helper
from tasks.workspace.parallel import one_blas_thread

BATCH_ROWS, READ_BYTES = 1 << 17, 1 << 20

RULES = "rules"
"""The name of the check that no row breaks a rule of the specification."""


@private_task("check")
@one_blas_thread
def check_release(planned: PlannedRelease, measured: MeasuredMoments, table: SyntheticTable) -> Outcome:
    """Return the release's utility and checks; all post-processing of released values.

    Raises: CheckFailedError naming what did not hold.
    """
    moments, projection, rows = measured.moments, measured.projection, table.summary.rows
    utility = utility_of(planned.encoding, moments, projection, table.summary)
    if table.rules is not None:
        utility["rules"] = table.rules
    checks = [*metric_checks(utility["metrics"], planned.spec.checks), *_table_checks(table, rows)]
    failed = [check["name"] for check in checks if not check["ok"]]
    if failed:
        raise CheckFailedError(f"checks failed: {', '.join(failed)}", hint=RELAX_CHECKS)
    judged = [check for check in checks if check["threshold"] is not None or check["direction"] == "holds"]
    log_public(f"all {len(judged)} checks passed")
    return Outcome(rows, moments, projection, utility, checks)


def _table_checks(table: SyntheticTable, rows: int) -> list[dict[str, Any]]:
    """The released-data suite over all tables: columns, types, bounds, categories, nulls, number of rows."""
    by_rule: dict[str, bool] = {}
    verdicts = (v for one in table.tables for v in table_verdicts(table.folder / one.file, one.schema, rows))
    for verdict in verdicts:
        by_rule[verdict.rule] = by_rule.get(verdict.rule, True) and verdict.ok
    return [table_check(rule, ok=ok) for rule, ok in by_rule.items()]


def table_verdicts(table: Path, schema: RecordSchema, rows: int) -> tuple[Verdict, ...]:
    """The verdicts on the file as it was written, read back batch by batch."""
    with pq.ParquetFile(table, buffer_size=READ_BYTES, pre_buffer=False) as file:  # buffered ahead, all of it is held
        cells, progress = DecidingCells(schema, file.schema_arrow), RowsDone("checked", rows)
        truths = Extremes()
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            cells.add(batch)
            if schema.rules:
                truths.add(rule_truths(cells_of(batch, schema), schema.rules))
            progress.add(len(batch))
    return in_helper(_verdicts, cells, truths, schema, rows)


def _verdicts(cells: DecidingCells, truths: Extremes, schema: RecordSchema, rows: int) -> tuple[Verdict, ...]:
    """The verdicts on columns and cells, and on the rules together."""
    found = released_verdicts(cells, schema, rows=rows)
    if not schema.rules:
        return found
    return (*found, Verdict(None, RULES, all(verdict.ok for verdict in rule_verdicts(truths, schema.rules))))
