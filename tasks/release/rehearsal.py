"""Before anything is reserved: write invented rows, and all that a bundle copies from the specification.

Budget that was spent is not given back, so whatever would keep a bundle from being written
has to be found before. The specification refuses what is known not to work; this finds the rest.
"""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray

from dpcore.errors import SpecError
from dpcore.evaluation.table_summary import TableSummary
from dpcore.records.encoding import Encoding
from dpcore.records.schema import MISSING, Cells, Column, NominalColumn, RecordSchema
from tasks.bundle.codebook import column_entry
from tasks.landing.cells import cells_of, table_of
from tasks.spec import ReleaseSpec
from tasks.workspace.redaction import ErrorBoundary

FAULTS = (ValueError, TypeError, ArithmeticError, LookupError, RecursionError, pa.ArrowException, yaml.YAMLError)
"""What Arrow, NumPy, JSON and YAML raise for values that they cannot hold."""


def rehearse(spec: ReleaseSpec) -> None:
    """Write every level and bound of the columns to Parquet, and the specification to JSON and YAML, in memory.

    Raises: SpecError if a bundle could not hold them.
    """
    unwritable = SpecError(
        "a bundle could not hold the columns as they are specified",
        rule="specification-unwritable",
        where="columns",
        hint="use plain names and categories, and bounds of ordinary size; nothing was reserved or spent",
    )
    with ErrorBoundary(*FAULTS, refusal=lambda _: unwritable), np.errstate(over="raise", invalid="raise"):
        holds = _table_returns(spec.schema) and _documents_return(spec)
    if not holds:
        raise unwritable


def _table_returns(schema: RecordSchema) -> bool:
    """Whether a table of all extremes can be summed up, written to Parquet and read again."""
    cells = _extreme_cells(schema)
    summary = TableSummary(Encoding(schema))
    summary.add(cells)
    json.dumps([summary.column(name) for name in cells], allow_nan=False)
    file = io.BytesIO()
    pq.write_table(table_of(cells, schema), file)
    back = cells_of(pq.read_table(file).combine_chunks().to_batches()[0], schema)
    return all(np.array_equal(back[name], cells[name], equal_nan=True) for name in cells)


def _extreme_cells(schema: RecordSchema) -> Cells:
    """As many rows as the longest column has levels or bounds; shorter ones begin again."""
    extremes = {column.name: _extremes(column) for column in schema.columns}
    rows = max(len(values) for values in extremes.values())
    return {name: np.resize(values, rows) for name, values in extremes.items()}


def _extremes(column: Column) -> NDArray[np.generic]:
    if isinstance(column, NominalColumn):
        return np.array([*range(len(column.levels)), *[MISSING] * column.missing_level], dtype=np.int64)
    middle = np.floor(column.middle) if column.is_whole else column.middle
    return np.array([column.lower, middle, column.upper, *[np.nan] * column.missing_level], dtype=np.float64)


def _documents_return(spec: ReleaseSpec) -> bool:
    """Whether record and codebook are the same after JSON, and what the registry's entry quotes after YAML."""
    public, columns = spec.as_public_json(), spec.schema.columns
    stated = [public, [column_entry(column) for column in columns]]
    text = json.dumps(stated, ensure_ascii=False, allow_nan=False).encode()
    quoted = [public.get("about"), [column.name for column in columns]]
    entry = yaml.safe_dump(quoted, allow_unicode=True).encode()
    return bool(json.loads(text) == stated and yaml.safe_load(entry) == quoted)
