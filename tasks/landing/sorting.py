"""Sorting of more rows than fit into memory, by DuckDB, which spills to a private folder.

Sorting is the only operator of the engine whose memory stays within its limit for all data; window functions
and joins fail on many distinct values. The engine has no access to the network or the home folder. Its errors
may quote values and paths, so they are replaced by our own, raised outside the handler.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from dpcore.errors import RefusedError, WorkspaceError

BATCH_ROWS = 65_536
SORT_BYTES = 512 << 20
"""The memory of one sort; the process needs about 250 MB more."""

_SETTINGS: dict[str, Any] = {
    "preserve_insertion_order": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
}
_LOCKS = ("SET enable_progress_bar = false", "SET enable_external_access = false", "SET lock_configuration = true")


def sort_rows(
    rows: Iterable[pa.RecordBatch], schema: pa.Schema, by: str, *, scratch: Path, memory: int = SORT_BYTES
) -> Iterator[pa.RecordBatch]:
    """The rows ordered by SQL expressions over their columns, in batches of bounded size.

    Errors of `rows` are raised unchanged. Text must be valid UTF-8.
    Raises: WorkspaceError if the scratch folder's disk is full, or the sort fails otherwise.
    """
    feed = _Feed(rows)
    with closing(_sorted(feed, schema, by, scratch, memory)) as batches:
        while True:
            batch, refusal = _next(batches)
            if feed.fault is not None:
                raise feed.fault
            if refusal is not None:
                raise refusal
            if batch is None:
                return
            yield batch


class _Feed:
    """The rows for the engine; an error of their reader is kept, because the engine would wrap it in its own."""

    def __init__(self, rows: Iterable[pa.RecordBatch]) -> None:
        self._rows = iter(rows)
        self.fault: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self.fault is None:
            try:
                return next(self._rows)
            except StopIteration:
                pass
            except Exception as error:  # noqa: BLE001  raised again, unchanged, by the calling thread
                self.fault = error
        raise StopIteration


def _sorted(
    feed: _Feed, schema: pa.Schema, by: str, scratch: Path, memory: int
) -> Generator[pa.RecordBatch, None, None]:
    import duckdb

    reader = pa.RecordBatchReader.from_batches(schema, feed)
    with TemporaryDirectory(prefix="sort-", dir=scratch) as folder:
        config = _SETTINGS | {"memory_limit": f"{memory}B", "temp_directory": folder, "threads": _cores()}
        with closing(duckdb.connect(":memory:", config=config)) as connection:
            for lock in _LOCKS:
                connection.execute(lock)
            connection.register("rows", reader)
            query = f"SELECT * FROM rows ORDER BY {by}"  # noqa: S608  our own words
            yield from connection.sql(query).to_arrow_reader(BATCH_ROWS)


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _next(batches: Iterator[pa.RecordBatch]) -> tuple[pa.RecordBatch | None, RefusedError | None]:
    """The next batch, or None at the end, and the refusal if sorting failed."""
    import duckdb

    try:
        return next(batches, None), None
    except (duckdb.Error, pa.ArrowException, OSError, MemoryError) as error:
        return None, _sort_refusal(error)


def _sort_refusal(error: Exception) -> RefusedError:
    import duckdb

    if isinstance(error, duckdb.IOException | OSError) or "max_temp_directory_size" in str(error):
        return vault_full()
    return WorkspaceError(
        f"the data could not be sorted ({type(error).__name__})",
        rule="sort-failed",
        where="vault",
        hint="make sure that enough memory is free, and run again; nothing was measured",
    )


def vault_full() -> WorkspaceError:
    """The refusal of a run whose private scratch space has no room."""
    return WorkspaceError(
        "the vault cannot be written: its disk is full or not writable",
        rule="vault-full",
        where="vault",
        hint="free space on the workspace's disk and run again; nothing was measured",
    )
