"""One pass over a released table: every row is counted and written again, and all or some rows are redrawn."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.evaluation.table_summary import TableSummary
from dpcore.measure import ReleasedVector
from dpcore.measurements.scores import train_scorer
from dpcore.mechanisms.queries import ScoreQuery
from dpcore.noise.sources import draw_seed, public_generator
from dpcore.records.rules.rule import broken_rows
from dpcore.records.schema import RecordSchema
from dpcore.synthesis.generators import SyntheticRows
from tasks.audit.agreement import odd_cells
from tasks.audit.checks import BrokenError
from tasks.bundle.figures import (
    metric_checks,
    rules_effect_of,
    score_check,
    score_of,
    table_check,
    training_rows,
    utility_of,
)
from tasks.bundle.rebuild import Rebuilt
from tasks.bundle.released_tables import ReleasedTable
from tasks.bundle.synthetic_table import chunks_of_a_group, write_chunks
from tasks.landing.cells import arrow_schema, cells_of, table_of
from tasks.workspace.parallel import in_order, one_blas_thread

READ_BYTES = 1 << 20

TABLE_RULES = ("columns", "row-count", "column-type", "in-bounds", "known-category", "not-null", "rules")
"""Rules of the suite for released tables; a table that breaks one is not published."""


_Compared = tuple[dict[str, int], bool]
"""How many cells of a chunk differ from the redrawn ones, by column, and whether none does to the last bit."""


@dataclass(slots=True)
class TablePass:
    """The results of one pass over a released table."""

    table: ReleasedTable
    summary: TableSummary
    """Of the rows in the original columns; a projected table's are decoded again."""
    rows: int = 0
    compared: int = 0
    """The number of redrawn rows."""
    odd: Counter[str] = field(default_factory=Counter)
    """The number of cells, by column, that differ from the redrawn ones."""
    identical: bool = True
    """Whether the redrawn rows are identical to the last bit."""
    broken: int = 0
    """The number of rows that break a rule of the specification."""
    rules: dict[str, Any] | None = None
    """What enforcing the rules moved, computed again."""
    digest: str = ""
    """SHA-256 of the file that results when the same rows are written again."""


def read_table(
    path: Path,
    rebuilt: Rebuilt,
    form: ReleasedTable,
    *,
    exact: bool,
    sample: int | None,
    progress: Callable[[int, int], None],
) -> TablePass:
    """Read a released table chunk by chunk; with `sample`, redraw random chunks of at least that many rows.

    All rows of a projected table that stands alone are redrawn, because its figures can only be counted in this way.

    Raises: BrokenError for a table whose layout is not that of these rows.
    """
    rows, schema, found = rebuilt.rows(), form.schema, TablePass(form, TableSummary(rebuilt.encoding))
    rules = rebuilt.schema.rules
    found.rules = rules_effect_of(rows, rebuilt.sampler, rebuilt.encoding, rebuilt.moments, rebuilt.projection)
    chosen = _chunks_to_redraw(rows, sample if rebuilt.spec.model.publishes_original else None)

    def examine(piece: tuple[int, pa.RecordBatch]) -> tuple[pa.Table, TableSummary, int, _Compared | None]:
        index, batch = piece
        counted, table, broken = found.summary.empty(), pa.Table.from_batches([batch]), 0
        if form.projection is None:
            cells = cells_of(batch, schema)
            counted.add(cells)
            broken = int(broken_rows(rules, cells).sum())
        if index not in chosen:
            return table, counted, broken, None
        again = rows.draw_chunk(index)
        if form.projection is not None:
            counted.add(again.cells)
            broken = int(broken_rows(rules, again.cells).sum())
        drawn = table_of(form.cells(again), schema)
        changed = odd_cells(drawn, table, schema, exact=True)
        odd = changed if exact else odd_cells(drawn, table, schema, exact=False)
        return table, counted, broken, (odd, not any(changed.values()))

    def examined(file: pq.ParquetFile) -> Iterator[pa.Table]:
        for table, counted, broken, compared in in_order(examine, _chunks(file, rows)):
            found.summary.merge(counted)
            found.rows += len(table)
            found.broken += broken
            if compared is not None:
                odd, identical = compared
                found.odd.update(odd)
                found.identical &= identical
                found.compared += len(table)
            progress(found.rows, rows.rows)
            yield table

    with pq.ParquetFile(path, buffer_size=READ_BYTES, pre_buffer=False) as file:  # buffered ahead, all of it is held
        _require_layout(file, rows, schema)
        sink = _Digest()
        write_chunks(examined(file), schema, sink, group=chunks_of_a_group(rows, schema))
        found.digest = sink.sha256.hexdigest()
    return found


def _chunks_to_redraw(rows: SyntheticRows, sample: int | None) -> set[int]:
    """The chunks to redraw: all, or random ones with at least `sample` rows."""
    wanted = rows.chunks if sample is None else min(rows.chunks, -(-sample // rows.chunk_rows))
    return set(public_generator(draw_seed(), "audit").choice(rows.chunks, wanted, replace=False).tolist())


def _require_layout(file: pq.ParquetFile, rows: SyntheticRows, schema: RecordSchema) -> None:
    """Refuse a file whose row groups, columns or metadata are not those of the table."""
    metadata, whole = file.metadata, chunks_of_a_group(rows, schema) * rows.chunk_rows
    sizes = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    columns = file.schema_arrow.equals(arrow_schema(schema), check_metadata=True)
    if metadata.num_rows != rows.rows:
        raise BrokenError("its number of rows is not what its model gives")
    if sizes != [min(whole, rows.rows - start) for start in range(0, rows.rows, whole)]:
        raise BrokenError("its row groups are not those of its rows")
    if not columns or set(metadata.metadata or {}) != {b"ARROW:schema"}:
        raise BrokenError("its columns or notes are not those of its specification")


def _chunks(file: pq.ParquetFile, rows: SyntheticRows) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The chunks of a file whose row groups are whole chunks."""
    for index, batch in enumerate(file.iter_batches(batch_size=rows.chunk_rows)):
        if len(batch) != min(rows.chunk_rows, rows.rows - index * rows.chunk_rows):
            raise BrokenError("its row groups do not hold the rows that they say")
        yield index, batch


class _Digest(io.RawIOBase):
    """A file object that keeps only the SHA-256 of the bytes written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.sha256, self._size = hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        view = memoryview(content)
        self.sha256.update(view)
        self._size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._size


@one_blas_thread
def due_figures(rebuilt: Rebuilt, found: TablePass, path: Path, stated: list[dict[str, Any]]) -> dict[str, Any]:
    """The parts of a record that follow from its rows and measurements; `stated` are the checks that it names."""
    utility = utility_of(rebuilt.encoding, rebuilt.moments, rebuilt.projection, found.summary)
    if found.rules is not None:
        utility["rules"] = found.rules
    rules = [str(check["name"]).removeprefix("table: ") for check in stated]
    checks = metric_checks(utility["metrics"], rebuilt.spec.checks)
    checks += [table_check(rule, ok=True) for rule in dict.fromkeys(rules) if rule in TABLE_RULES]
    scores = _scores(rebuilt, path)
    if scores:
        utility |= {"scores": scores}
        checks += [score_check(score, rebuilt.spec.checks) for score in scores]
    return {"rows": found.rows, "noisy_count": rebuilt.moments.count, "utility": utility, "checks": checks}


def _scores(rebuilt: Rebuilt, path: Path) -> list[dict[str, Any]]:
    """Every score of a check with a budget, from its measurement and from a model that is trained again."""
    vectors = {name: v for name, v in rebuilt.measurements.items() if isinstance(v, ReleasedVector)}
    queries = {name: v.event.query for name, v in vectors.items()}
    bought = {name: query for name, query in queries.items() if isinstance(query, ScoreQuery)}
    if not bought:
        return []
    schema, synthetic = rebuilt.schema, training_rows(path, rebuilt.schema)
    scorers = {
        name: train_scorer(query, schema, synthetic, rebuilt.seeds["sampling"]) for name, query in bought.items()
    }
    return [
        score_of(name, vectors[name], scorer, rebuilt.moments, synthetic, schema) for name, scorer in scorers.items()
    ]
