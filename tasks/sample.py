"""Stages 5 and 6: sample synthetic points, and decode them to the original columns. No private data here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from dpcore.errors import CheckFailedError
from dpcore.generators import decoder_of, generator_of
from dpcore.moments import NoisyMoments
from dpcore.projection import Projection
from dpcore.utility import TableSummary
from tasks.boundary import private_task, tell
from tasks.stores.run import Grant, ReleaseRun
from tasks.stores.tables import arrow_schema, table_of

MOST_TIMES_EXPECTED = 10
POINTS, CLASSES = "points.npy", "classes.npy"


def rows_wanted(run: ReleaseRun, moments: NoisyMoments) -> int:
    """The rows to sample: as specified, or the noisy count, at most ten times what was expected."""
    if run.spec.rows != "auto":
        return int(run.spec.rows)
    return min(round(moments.count), MOST_TIMES_EXPECTED * run.spec.expected_rows)


@private_task("sample")
def sample_rows(run: ReleaseRun, moments: NoisyMoments, projection: Projection, grant: Grant) -> int:
    """Write synthetic points to the run's scratch folder, chunk by chunk; returns their number.

    Raises: CheckFailedError if the noisy count leaves nothing to sample.
    """
    rows = rows_wanted(run, moments)
    minimum = run.spec.checks.min_rows or 1
    if moments.count < minimum or rows < 1:
        raise CheckFailedError(f"the noisy count is below min_rows ({minimum})")
    generator = generator_of(run.plan.schema, moments, projection)
    points = np.lib.format.open_memmap(
        run.scratch / POINTS, mode="w+", dtype=np.float64, shape=(rows, generator.point_width)
    )
    classes = np.lib.format.open_memmap(run.scratch / CLASSES, mode="w+", dtype=np.int64, shape=(rows,))
    start = 0
    for chunk, labels in generator.sample(rows, grant.seeds["sampling"]):
        points[start : start + len(chunk)], classes[start : start + len(chunk)] = chunk, labels
        start += len(chunk)
    tell(f"sampled {rows} synthetic rows")
    return rows


@private_task("decode")
def decode_rows(
    run: ReleaseRun, moments: NoisyMoments, projection: Projection, grant: Grant, target: Path
) -> TableSummary:
    """Write the synthetic table in its original columns; returns its running summary."""
    generator = generator_of(run.plan.schema, moments, projection)
    decoder = decoder_of(run.encoding, generator, grant.seeds["sampling"])
    points, classes = (np.load(run.scratch / name, mmap_mode="r") for name in (POINTS, CLASSES))
    summary = TableSummary(run.encoding)
    chunk = 65_536
    with pq.ParquetWriter(target, arrow_schema(run.plan.schema), compression="zstd") as writer:
        for start in range(0, len(points), chunk):
            part = slice(start, start + chunk)
            cells = decoder.decode(np.array(points[part]), np.array(classes[part]))
            summary.add(cells)
            writer.write_table(table_of(cells, run.plan.schema))
    tell(f"decoded to {len(run.plan.schema.columns)} original columns")
    return summary
