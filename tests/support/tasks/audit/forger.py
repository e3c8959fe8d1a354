"""Somebody who holds the signing key and publishes other rows than were drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from support.tasks.staged import SPEC, invented_rows

from dpcore.records.schema import RecordSchema
from dpcore.synthesis.generators import ROWS_AT_ONCE
from tasks.bundle.synthetic_table import write_chunks
from tasks.spec import parse_spec

ROWS = 40_000
"""More than one chunk of rows, so that a part of the table can be redrawn."""
SCHEMA: RecordSchema = parse_spec(SPEC).schema


@dataclass(frozen=True)
class Forger:
    """Writes a table over a bundle's as the flow would have written it."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "data.parquet"

    def table(self) -> pa.Table:
        return pq.read_table(self.path)

    def raw(self, rows: int = ROWS) -> pa.Table:
        """Rows of the landing data, in the released columns."""
        text = pa.csv.read_csv(pa.BufferReader(invented_rows(count=rows).encode()))
        return text.cast(self.table().schema)

    def write(self, table: pa.Table) -> None:
        self.path.chmod(0o644)
        write_chunks(
            [table.slice(start, ROWS_AT_ONCE) for start in range(0, len(table), ROWS_AT_ONCE)],
            SCHEMA,
            self.path,
            group=64,
        )
