"""The released table: how many rows it has, and how they are written; the release and its audit share this.

Whatever here decides a row or a byte of the file belongs to the sampler's number (`dpcore.synthesis.generators`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from io import RawIOBase
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.evaluation.table_summary import TableSummary
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.records.schema import NominalColumn, RecordSchema
from dpcore.synthesis.generators import SyntheticRows
from tasks.bundle.released_tables import ReleasedTable
from tasks.landing.cells import arrow_schema, table_of
from tasks.spec import ReleaseSpec
from tasks.workspace.parallel import in_order

MOST_TIMES_EXPECTED = 10
GROUP_BYTES = 1 << 25
"""Size of a row group before compression: large enough to be read fast, small enough to be held."""


def rows_wanted(spec: ReleaseSpec, moments: NoisyMoments) -> int:
    """The rows to sample: as specified, or the noisy count, at most ten times what was expected."""
    if spec.rows != "auto":
        return int(spec.rows)
    return min(round(moments.count), MOST_TIMES_EXPECTED * spec.expected_rows)


def chunks_of_a_group(rows: SyntheticRows, schema: RecordSchema) -> int:
    """How many chunks of rows make a row group."""
    return max(1, GROUP_BYTES // (8 * len(schema.columns) * rows.chunk_rows))


def write_rows(
    rows: SyntheticRows,
    summary: TableSummary,
    table: ReleasedTable,
    target: Path,
    *,
    threads: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Write all rows to a Parquet file and count them; the bytes do not depend on the number of threads."""
    schema = table.schema

    def draw(index: int) -> tuple[pa.Table, TableSummary]:
        drawn, counted = rows.draw_chunk(index), summary.empty()
        counted.add(drawn.cells)
        return table_of(table.cells(drawn), schema), counted

    def drawn() -> Iterator[pa.Table]:
        for table, counted in in_order(draw, range(rows.chunks), threads=threads):
            summary.merge(counted)
            progress(len(table))
            yield table

    write_chunks(drawn(), schema, target, group=chunks_of_a_group(rows, schema))


def write_chunks(chunks: Iterable[pa.Table], schema: RecordSchema, target: Path | RawIOBase, *, group: int) -> None:
    """Write the chunks of a table, so many of them in a row group; the same chunks always give the same bytes."""
    waiting: list[pa.Table] = []
    with parquet_writer(schema, target) as writer:
        for table in chunks:
            waiting.append(table)
            if len(waiting) == group:
                _write_group(writer, waiting)
        if waiting:
            _write_group(writer, waiting)


def parquet_writer(schema: RecordSchema, target: Path | RawIOBase) -> pq.ParquetWriter:
    """Only levels come again and again: a dictionary of numbers would grow until it is given up."""
    nominal = [column.name for column in schema.columns if isinstance(column, NominalColumn)]
    return pq.ParquetWriter(target, arrow_schema(schema), compression="zstd", use_dictionary=nominal)


def _write_group(writer: pq.ParquetWriter, tables: list[pa.Table]) -> None:
    whole = pa.concat_tables(tables)
    tables.clear()
    writer.write_table(whole, row_group_size=len(whole))
