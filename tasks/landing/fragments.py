"""Parts of landing data that any thread or machine can read independently, in any order and in bounded memory.

Their number, their files and their numbers of rows are private: nothing in this module prints them. Errors of
the readers are replaced by our own, raised outside the handler, so that no raw text is attached to them.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from dpcore.errors import LandingError
from tasks.spec import CsvSpec
from tasks.workspace.redaction import ErrorBoundary

ROWS_AT_ONCE, CELLS_AT_ONCE, LEAST_ROWS = 16_384, 1 << 20, 64
"""Rows and cells of a batch: with about fifty columns it fits a processor's cache; more columns mean fewer rows."""
SHARED = 4
"""The number of such batches that are decoded together if several threads decode."""
BYTES_AT_ONCE = 1 << 25
"""The most bytes of one batch, if the file states the size of its rows."""
BUFFER = 1 << 18
"""Bytes of a column that are read at once; a row group is never in memory as a whole."""
LONGEST_LINE = 1 << 24
"""Bytes of a CSV file that are read at once; a longer line makes the file unreadable."""

STORE_MARKS = (
    "etag", "versionid", "version_id", "generation", "content-md5", "content_md5", "md5hash", "md5", "digest",
    "checksum", "lastmodified", "last_modified", "last-modified", "mtime", "modified", "updated", "created",
)  # fmt: skip
"""The names of version attributes in the various storage backends."""

FAULTS = (pa.ArrowException, OSError, ValueError, LookupError)
"""The errors of reading a local file; the client of a store may raise any error."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file, or some row groups of a Parquet file; `constants` are columns that the folder names define."""

    file: Path
    csv: CsvSpec
    row_groups: tuple[int, ...] | None = None
    constants: tuple[tuple[str, str | None], ...] = ()
    version: str | None = None
    """The version of the file when it was divided into parts, in a form that other machines can compare."""

    def __repr__(self) -> str:
        return "Part(<private>)"

    @property
    def is_text(self) -> bool:
        """Whether the file is CSV, in which every cell is text."""
        return self.file.suffix.lower() == ".csv"

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """The errors that reading it may raise."""
        return (Exception,) if is_elsewhere(self.file) else FAULTS

    def schema(self) -> pa.Schema:
        """The columns; those that the folder names define come last and fit every kind.

        Raises: one of its faults.
        """
        if self.is_text:
            with open_csv(self.file, self.csv) as reader:
                own = reader.schema
        else:
            with open_parquet(self.file) as file:
                own = file.schema_arrow
        return pa.schema([*own, *(pa.field(name, pa.null()) for name, _ in self.constants)])

    def pieces(self) -> list[tuple[Part, int]]:
        """The smallest parts that can be read independently, each with its approximate number of bytes."""
        if self.is_text:
            return [(self, self.file.stat().st_size)]
        with open_parquet(self.file) as file:
            sizes = [file.metadata.row_group(index).total_byte_size for index in range(file.num_row_groups)]
        return [(replace(self, row_groups=(index,)), size) for index, size in enumerate(sizes)]

    def batches(self, columns: Sequence[str], *, threads: bool) -> Iterator[pa.RecordBatch]:
        """The rows in their order, with the given columns.

        Raises: one of its faults.
        """
        given = dict(self.constants)
        read = [name for name in columns if name not in given] or self.schema().names[
            :1
        ]  # one column is needed to count rows
        for batch in self._csv_batches(read) if self.is_text else self._parquet_batches(read, threads):
            whole = with_constants(batch, [(name, given[name]) for name in columns if name in given])
            yield whole.select(list(columns))

    def _parquet_batches(self, columns: Sequence[str], threads: bool) -> Iterator[pa.RecordBatch]:
        with open_parquet(self.file, text_as_codes=columns) as file:
            groups = list(range(file.num_row_groups) if self.row_groups is None else self.row_groups)
            rows = _rows_at_once(file.metadata, groups, columns) * (SHARED if threads else 1)
            yield from file.iter_batches(rows, row_groups=groups, columns=columns, use_threads=threads)

    def _csv_batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with open_csv(self.file, self.csv) as reader:
            alone = len(reader.schema) == 1
        with open_csv(self.file, self.csv, columns, empty_lines_are_cells=alone) as reader:
            yield from reader


@dataclass(frozen=True, slots=True)
class Fragment:
    """Parts that are read one after another, as one piece of work."""

    parts: tuple[Part, ...]
    where: str

    def __repr__(self) -> str:
        return "Fragment(<private>)"

    def batches(self, columns: Sequence[str], *, threads: bool = False) -> Iterator[pa.RecordBatch]:
        """The rows in their order, in batches of bounded size.

        Raises: LandingError if the data cannot be read to their end.
        """
        for part in self.parts:
            with ErrorBoundary(*part.faults, refusal=partial(self._refusal, part)):
                yield from (batch for batch in part.batches(columns, threads=threads) if batch.num_rows)

    def _refusal(self, part: Part, error: Exception) -> Exception:
        """The refusal for an error; an error of memory states nothing about the file."""
        return error if isinstance(error, MemoryError) else unreadable(part.is_text, self.where)


def unreadable(is_text: bool, where: str) -> LandingError:
    """The refusal of a file that is truncated or not of the format that its extension states."""
    return LandingError(
        f"a landing file cannot be read to its end as {'CSV' if is_text else 'Parquet'}",
        rule="file-unreadable",
        where=where,
        hint="the file may be truncated or of another format; check source.csv for CSV, and land it again",
    )


def changed(where: str) -> LandingError:
    """The refusal of data that changed between two readings."""
    return LandingError(
        "the landing data changed while they were read",
        rule="landing-changed",
        where=where,
        hint="land files by moving them in whole, then run again: what was measured before that is not measured twice",
    )


def with_constants(batch: pa.RecordBatch, constants: Sequence[tuple[str, str | None]]) -> pa.RecordBatch:
    """A batch with columns that hold the same text in every row."""
    for name, text in constants:
        batch = batch.append_column(name, pa.repeat(pa.scalar(text, pa.string()), batch.num_rows))
    return batch


def is_elsewhere(path: Path) -> bool:
    """Whether a path is an object in a store and not a file of this machine."""
    return not isinstance(path, Path)


def file_version(path: Path) -> str | None:
    """The version of a file, found without reading it; None if it is missing or its store states none."""
    try:
        if is_elsewhere(path):
            return _version_in_store(path)
        seen = path.stat()
    except Exception:  # noqa: BLE001  a store's client may raise anything
        return None
    return f"{seen.st_size} {seen.st_mtime_ns} {seen.st_ino} {seen.st_ctime_ns}"


def portable_version(path: Path) -> str | None:
    """The same, without attributes that differ between machines."""
    version = file_version(path)
    return version if version is None or is_elsewhere(path) else " ".join(version.split()[:2])


def _version_in_store(path: Any) -> str | None:
    """The tag, digest or time of an object in its store; the size alone does not identify a version."""
    path.fs.invalidate_cache()
    known = {key.lower(): value for key, value in path.fs.info(path.path).items()}
    marks = {key: str(known[key]) for key in STORE_MARKS if known.get(key) is not None}
    return f"{known.get('size')} {sorted(marks.items())}" if marks else None


def grouped(pieces: Sequence[tuple[Part, int]], size: int, where: str) -> list[Fragment]:
    """The pieces, in their order, combined into fragments of about `size` bytes."""
    fragments, parts, held = list[Fragment](), list[Part](), 0
    for part, own in pieces:
        if parts and held + own > size:
            fragments.append(Fragment(tuple(parts), where))
            parts, held = [], 0
        parts.append(part)
        held += own
    return [*fragments, Fragment(tuple(parts), where)] if parts else fragments


def _opened(path: Path) -> AbstractContextManager[str | BinaryIO]:
    """The input of pyarrow: the path of a local file, or else a stream."""
    return path.open("rb") if is_elsewhere(path) else nullcontext(str(path))


class _AsUtf8(io.RawIOBase):
    """A text of any encoding as UTF-8; Arrow's own reader would refuse a file with one invalid byte."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text, self._rest = text, b""

    def readable(self) -> bool:
        """Whether the stream can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into the buffer."""
        self._rest = self._rest or self._text.read(BUFFER).encode(errors="replace")
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


@contextmanager
def _opened_as_utf8(path: Path, encoding: str) -> Iterator[str | BinaryIO]:
    """The input of pyarrow as UTF-8."""
    if codecs.lookup(encoding).name == "utf-8":
        with _opened(path) as source:
            yield source
    else:
        with path.open("rb") as raw, io.TextIOWrapper(raw, encoding, errors="replace", newline="") as text:
            yield io.BufferedReader(_AsUtf8(text), BUFFER)


def _rows_at_once(metadata: pq.FileMetaData, groups: Sequence[int], columns: Sequence[str]) -> int:
    """The number of rows of a batch of bounded size: fewer if there are many columns or long cells."""
    rows = min(ROWS_AT_ONCE, CELLS_AT_ONCE // max(len(columns), 1))
    for index in groups:
        group = metadata.row_group(index)
        chunks = (group.column(place) for place in range(group.num_columns))
        taken = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in columns)
        rows = min(rows, BYTES_AT_ONCE * group.num_rows // max(taken, 1))
    return max(rows, LEAST_ROWS)


@contextmanager
def open_parquet(path: Path, text_as_codes: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """A Parquet file whose pages are verified as they are read, in memory that does not grow with its row groups.

    Dictionary-encoded text of the named columns stays encoded, so that a long text of many rows is held once.
    """
    with (
        _opened(path) as source,
        pq.ParquetFile(
            source,
            page_checksum_verification=True,
            pre_buffer=False,
            buffer_size=BUFFER,
            read_dictionary=list(text_as_codes),
        ) as file,
    ):
        yield file


@contextmanager
def open_csv(
    path: Path, dialect: CsvSpec, columns: Sequence[str] | None = None, *, empty_lines_are_cells: bool = False
) -> Iterator[pa_csv.CSVStreamingReader]:
    """A CSV file with every cell as text, with all columns or the named ones.

    Bytes that are invalid in the file's encoding stay in their cell, which then counts as missing or unknown.
    """
    convert: dict[str, Any] = {"strings_can_be_null": True, "null_values": [""], "check_utf8": False}
    if columns is not None:
        convert |= {"include_columns": list(columns), "column_types": {name: pa.string() for name in columns}}
    with (
        _opened_as_utf8(path, dialect.encoding) as source,
        pa_csv.open_csv(
            source,
            read_options=pa_csv.ReadOptions(block_size=LONGEST_LINE),
            parse_options=pa_csv.ParseOptions(
                delimiter=dialect.delimiter,
                quote_char=dialect.quote,
                ignore_empty_lines=not empty_lines_are_cells,
            ),
            convert_options=pa_csv.ConvertOptions(**convert),
        ) as reader,
    ):
        yield reader
