"""Invented tables of any size, with float64 columns, one of them nullable, and a binary label; and their release."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

GROUP = 1 << 20


@dataclass(frozen=True)
class Size:
    """A table's rows and columns, and the dimension of its projection."""

    rows: int
    columns: int = 50
    dimension: int = 16

    @property
    def name(self) -> str:
        """The name of the table's file."""
        return f"{self.rows}x{self.columns}.parquet"


def make_table(path: Path, size: Size) -> None:
    """Write the table, one row group at a time."""
    if path.exists():
        return
    rng = np.random.default_rng(size.columns)
    words = pa.array(["no", "yes"])
    unfinished = path.with_suffix(".part")
    with pq.ParquetWriter(unfinished, table_schema(size)) as writer:
        for start in range(0, size.rows, GROUP):
            rows = min(GROUP, size.rows - start)
            columns = [pa.array(rng.standard_normal(rows)) for _ in range(size.columns - 1)]
            columns.insert(0, pa.array(rng.standard_normal(rows), mask=rng.random(rows) < 0.05))
            labels = words.take(pa.array(rng.integers(0, 2, rows)))
            writer.write_table(pa.table([*columns, labels], schema=table_schema(size)))
    unfinished.rename(path)


def table_schema(size: Size) -> pa.Schema:
    """Return the schema: float columns and a label."""
    floats = [pa.field(f"x{index}", pa.float64()) for index in range(size.columns)]
    return pa.schema([*floats, pa.field("label", pa.string())])


def specification(size: Size, runner: str | None) -> dict[str, Any]:
    """Return the specification of a release of such a table."""
    columns: list[dict[str, Any]] = [
        {"name": f"x{index}", "kind": "numeric", "bounds": [-4, 4]} for index in range(size.columns)
    ]
    columns.append({"name": "label", "kind": "categorical", "categories": ["no", "yes"], "role": "label"})
    said: dict[str, Any] = {
        "name": "throughput",
        "source": {"path": "landing/*.parquet"},
        "privacy": {
            "population": "invented",
            "unit": "row",
            "neighbours": "replace-one",
            "epsilon": 1,
            "delta": 0,
            "lifetime": {"epsilon": 12, "delta": 0, "delta_num": 1e-9},
        },
        "expected_rows": size.rows,
        "columns": columns,
        "model": {"projection": {"kind": "ron", "dimension": size.dimension}},
        "rows": 10_000,
    }
    return said | ({"runner": {"dask": runner}} if runner else {})
