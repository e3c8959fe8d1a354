"""Stages 5 and 6: a law of synthetic points, and rows drawn from it in the original columns. No private data here.

Points are drawn where they are decoded, chunk by chunk and on all cores, and never stored: a chunk
follows from the law, the public seed and its own number, so a table of any length needs the memory
of a few chunks.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import CheckFailedError
from dpcore.generators import PointLaw, SyntheticRows, decoder_of, generator_of
from dpcore.moments import NoisyMoments
from dpcore.projection import Projection
from dpcore.schema import NominalColumn, RecordSchema
from dpcore.utility import TableSummary
from tasks.boundary import private_task, tell
from tasks.progress import RowsDone
from tasks.stores.ordered import in_order
from tasks.stores.run import Grant, ReleaseRun
from tasks.stores.tables import arrow_schema, table_of

MOST_TIMES_EXPECTED = 10
LAW = "law.pickle"
GROUP_BYTES = 1 << 25
"""Size of a row group before compression: large enough to be read fast, small enough to be held."""


def rows_wanted(run: ReleaseRun, moments: NoisyMoments) -> int:
    """The rows to sample: as specified, or the noisy count, at most ten times what was expected."""
    if run.spec.rows != "auto":
        return int(run.spec.rows)
    return min(round(moments.count), MOST_TIMES_EXPECTED * run.spec.expected_rows)


@private_task("sample")
def sample_rows(run: ReleaseRun, moments: NoisyMoments, projection: Projection, grant: Grant) -> int:
    """Fit the law that synthetic points follow, and keep it in the run's scratch folder; returns how many to draw.

    Raises: CheckFailedError if the noisy count leaves nothing to sample.
    """
    rows = rows_wanted(run, moments)
    minimum = run.spec.checks.min_rows or 1
    if moments.count < minimum or rows < 1:
        raise CheckFailedError(f"the noisy count is below min_rows ({minimum})")
    law = generator_of(run.plan.schema, moments, projection).law(grant.seeds["sampling"])
    (run.scratch / LAW).write_bytes(pickle.dumps(law))
    return rows


@private_task("decode")
def decode_rows(
    run: ReleaseRun, moments: NoisyMoments, projection: Projection, grant: Grant, target: Path
) -> TableSummary:
    """Draw the synthetic rows and write them in their original columns; returns the table's summary."""
    seed, generator = grant.seeds["sampling"], generator_of(run.plan.schema, moments, projection)
    law: PointLaw = pickle.loads((run.scratch / LAW).read_bytes())  # noqa: S301  what the stage before wrote
    rows = SyntheticRows(
        rows_wanted(run, moments), seed, law, decoder_of(run.encoding, generator, seed), run.encoding.width
    )
    summary = TableSummary(run.encoding)
    write_rows(rows, summary, run.plan.schema, target)
    tell(f"sampled {rows.rows} synthetic rows")
    tell(f"decoded to {len(run.plan.schema.columns)} original columns")
    return summary


def write_rows(
    rows: SyntheticRows, summary: TableSummary, schema: RecordSchema, target: Path, *, threads: int | None = None
) -> None:
    """Write all rows to a Parquet file and count them; the bytes do not depend on the number of threads."""

    def made(index: int) -> tuple[pa.Table, TableSummary]:
        cells, counted = rows.chunk(index), summary.empty()
        counted.add(cells)
        return table_of(cells, schema), counted

    progress, group = RowsDone("sampled", rows.rows), max(1, GROUP_BYTES // (8 * len(schema.columns) * rows.chunk_rows))
    waiting: list[pa.Table] = []
    with parquet_writer(schema, target) as writer:
        for table, counted in in_order(made, rows.chunks, threads=threads):
            summary.merge(counted)
            waiting.append(table)
            if len(waiting) == group:
                _write_group(writer, waiting)
            progress.add(len(table))
        if waiting:
            _write_group(writer, waiting)


def parquet_writer(schema: RecordSchema, target: Path) -> pq.ParquetWriter:
    """Only levels come again and again: a dictionary of numbers would grow until it is given up."""
    nominal = [column.name for column in schema.columns if isinstance(column, NominalColumn)]
    return pq.ParquetWriter(target, arrow_schema(schema), compression="zstd", use_dictionary=nominal)


def _write_group(writer: pq.ParquetWriter, tables: list[pa.Table]) -> None:
    whole = pa.concat_tables(tables)
    tables.clear()
    writer.write_table(whole, row_group_size=len(whole))
