"""Rows of an analyst's own in the coordinates of a published release: its record and its model are enough."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from dpcore.records.encoding import Encoding
from dpcore.records.projected_columns import columns_beside, coordinate_name
from tasks.answers.intervals import projection_of_bundle, require_in_use, schema_as_measured
from tasks.landing.cells import cells_of
from tasks.workspace.reading import parse_json, read_text


def project_rows(bundle: Path | str, rows: pa.Table, *, accept_retracted: bool = False) -> pa.Table:
    """Project rows with the columns of a bundle's specification as its synthetic rows were, beside label and target.

    Cells are clamped and mapped as the codebook says; label and target need not be there. Nothing is cut off: in
    `projected.parquet` a coordinate beyond 1 was moved to 1. The projection is public or released, and no noise is
    added: **rows that were private stay private when they are projected.**

    Raises: ValueError for a bundle without a projection, or rows that lack a column; RefusedError for a bundle beside
    which there is the mark of a retraction, unless that is accepted.
    """
    require_in_use(bundle, accept_retracted=accept_retracted)
    record, model = (parse_json(read_text(Path(bundle) / name)) for name in ("record.json", "model.json"))
    encoding = Encoding(schema_as_measured(record))
    projection = projection_of_bundle(record, model, encoding)
    if projection.columns is None:
        raise ValueError("this release has no projection: its rows are in the original columns only")
    beside = [column.name for column in columns_beside(encoding.schema)]
    needed = [code.column.name for code in encoding.codes]
    missing = [name for name in needed if name not in rows.column_names]
    if set(missing) - set(beside):
        raise ValueError(f"these columns are missing: {', '.join(name for name in missing if name not in beside)}")
    for name in missing:  # a target has coordinates of its own, which do not move the others
        rows = rows.append_column(name, pa.nulls(len(rows)))
    whole = rows.select(needed).combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], rows.select(needed).schema)
    ]
    points = projection.project(encoding.encode(cells_of(whole[0], encoding.schema, names=needed)))
    kept = {coordinate_name(i): points[:, i] for i in range(projection.dimension - encoding.target_width)}
    present = [name for name in beside if name in rows.column_names and name not in missing]
    return pa.table(kept | {name: rows.column(name) for name in present})
