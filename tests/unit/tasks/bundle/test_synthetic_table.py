"""Synthetic tables of any length in bounded memory, the same bytes on any number of threads."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tasks.bundle.drawn_rows import SCHEMA, invented_rows, written

from dpcore.synthesis.generators import ROWS_AT_ONCE
from tasks.bundle import synthetic_table
from tasks.check import table_verdicts
from tasks.landing.cells import arrow_schema
from tasks.progress import FIRST_AFTER, THEN_EVERY, RowsDone
from tasks.workspace.parallel import AHEAD, in_order


def test_the_table_and_its_summary_do_not_depend_on_the_number_of_threads(tmp_path):
    rows = invented_rows(5 * ROWS_AT_ONCE + 7)
    one, several = tmp_path / "one", tmp_path / "several"
    alone, together = written(rows, one, threads=1), written(rows, several, threads=5)
    assert one.read_bytes() == several.read_bytes()
    assert alone.rows == together.rows == rows.rows == pq.read_metadata(one).num_rows
    assert np.array_equal(alone.sums.seconds, together.sums.seconds)
    assert [alone.column(c) for c in SCHEMA.by_name] == [together.column(c) for c in SCHEMA.by_name]


def test_the_written_table_is_that_of_the_estimators(tmp_path):
    """One law, one seed, one table: whether it is written in chunks or held as a whole."""
    rows = invented_rows(ROWS_AT_ONCE + 100)
    summary = written(rows, tmp_path / "table")
    cells, table = rows.cells(), pq.read_table(tmp_path / "table")
    assert np.array_equal(table["age"].to_numpy(), cells["age"])
    whole = summary.empty()
    whole.add(cells)
    assert whole.sums.seconds == pytest.approx(summary.sums.seconds)
    assert whole.column("visits")["shares"] == summary.column("visits")["shares"]
    assert 0.1 < whole.column("visits")["missing_share"] < 0.3


def test_any_chunk_can_be_drawn_by_itself_and_no_two_are_alike():
    rows = invented_rows(3 * ROWS_AT_ONCE)
    last, first, again = rows.chunk(2)["age"], rows.chunk(0)["age"], rows.chunk(2)["age"]
    assert np.array_equal(last, again)
    assert len(np.intersect1d(first, last)) < ROWS_AT_ONCE / 100


def test_classes_come_in_random_order():
    """Whoever reads the first rows alone gets all classes."""
    ill = invented_rows(ROWS_AT_ONCE).chunk(0)["ill"]
    halves = ill[: ROWS_AT_ONCE // 2].mean(), ill[ROWS_AT_ONCE // 2 :].mean()
    assert 0 < ill.mean() < 1
    assert abs(halves[0] - halves[1]) < 6.1 * np.sqrt(2 * 0.25 / (ROWS_AT_ONCE / 2))


def test_row_groups_are_whole_chunks_of_about_the_same_size(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic_table, "GROUP_BYTES", 2 * ROWS_AT_ONCE * 8 * len(SCHEMA.columns))
    written(invented_rows(5 * ROWS_AT_ONCE + 1), tmp_path / "table")
    found = pq.read_metadata(tmp_path / "table")
    sizes = [found.row_group(index).num_rows for index in range(found.num_row_groups)]
    assert sizes == [2 * ROWS_AT_ONCE, 2 * ROWS_AT_ONCE, ROWS_AT_ONCE + 1]


# ---- the file is read back ---------------------------------------------------------------------------------


def test_a_good_file_passes_every_rule(tmp_path):
    written(invented_rows(ROWS_AT_ONCE + 1), tmp_path / "table")
    assert all(verdict.ok for verdict in table_verdicts(tmp_path / "table", SCHEMA, ROWS_AT_ONCE + 1))


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (lambda cells: cells | {"age": [*cells["age"][:-1], 121.0]}, ("age", "in-bounds")),
        (lambda cells: cells | {"sex": ["y", *cells["sex"][1:]]}, ("sex", "known-category")),
        (lambda cells: {name: values[1:] for name, values in cells.items()}, (None, "row-count")),
    ],
)
def test_one_bad_cell_or_a_lost_row_in_a_long_file_is_found(tmp_path, monkeypatch, change, broken):
    monkeypatch.setattr("tasks.check.BATCH_ROWS", 64)
    rows = 1000
    written(invented_rows(rows), tmp_path / "table")
    cells = change(pq.read_table(tmp_path / "table").to_pydict())
    pq.write_table(pa.table(cells, schema=arrow_schema(SCHEMA)), tmp_path / "changed")
    verdicts = table_verdicts(tmp_path / "changed", SCHEMA, rows)
    assert {(v.column, v.rule) for v in verdicts if not v.ok} == {broken}


def test_results_come_in_order_and_never_many_wait():
    begun, taken, most, lock = 0, 0, 0, threading.Lock()

    def work(piece: int) -> int:
        nonlocal begun, most
        with lock:
            begun += 1
            most = max(most, begun - taken)
        return piece

    for piece in in_order(work, range(200), threads=3):
        assert piece == taken
        taken += 1
    assert taken == 200
    assert most <= 3 + AHEAD


def test_a_piece_that_fails_ends_the_rest():
    begun = []

    def work(piece: int) -> int:
        begun.append(piece)
        if piece == 3:
            raise ArithmeticError
        return piece

    with pytest.raises(ArithmeticError):
        list(in_order(work, range(1000), threads=2))
    assert len(begun) < 20


def test_progress_is_told_after_two_seconds_and_then_now_and_then(caplog):
    times = iter([0.0, 1.0, FIRST_AFTER, FIRST_AFTER, FIRST_AFTER + 1.0, FIRST_AFTER + THEN_EVERY, 99.0])
    logger = logging.getLogger("dprelease.progress")
    logger.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.INFO, logger="dprelease.progress"):
            progress = RowsDone("sampled", 5_000_000, clock=lambda: next(times))
            for _ in range(5):
                progress.add(1_000_000)
    finally:
        logger.removeHandler(caplog.handler)
    assert caplog.messages == ["sampled 2,000,000 of 5,000,000 rows", "sampled 4,000,000 of 5,000,000 rows"]
