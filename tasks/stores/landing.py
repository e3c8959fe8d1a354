"""Landing data: which files, of which period, readable or not, batch by batch.

Names, sizes and numbers of files and rows are private: no error or representation
here carries them. Faults of the readers are told in our own words, raised outside
the handler, so that no raw text hangs on to them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from dpcore.errors import LandingError
from dpcore.schema import Column, RecordSchema
from expectations.landing import landing_dtypes
from tasks.stores.matching import PERIOD, data_files, matching_files, period_of, require_known_format
from tasks.stores.spec import ReleaseSpec
from tasks.stores.tables import is_text

BATCH_ROWS = 65_536
LONGEST_LINE = 1 << 24
"""Bytes of a CSV file that are read at once; a longer line makes the file unreadable."""


@dataclass(frozen=True, slots=True)
class Landing:
    """The files of one release, as one dataset."""

    files: tuple[Path, ...]
    spec: ReleaseSpec
    where: str

    def __repr__(self) -> str:
        return "Landing(<private>)"

    @property
    def is_text(self) -> bool:
        """Whether the files are CSV, in which every cell is text."""
        return self.files[0].suffix.lower() == ".csv"

    @property
    def decimal(self) -> str:
        """The decimal mark of numbers in text."""
        return self.spec.source.csv.decimal if self.is_text else "."

    def schemas(self) -> list[pa.Schema]:
        """The columns of each file.

        Raises: LandingError if a file cannot be read or the files disagree.
        """
        schemas = [self._file_schema(path) for path in self.files]
        if any(len(set(s.names)) != len(s.names) for s in schemas):
            raise self._refusal("two columns have the same name", "column-repeated", "rename one of them")
        if any(set(s.names) != set(schemas[0].names) for s in schemas[1:]):
            raise self._refusal(
                "the files of one dataset have different columns", "files-disagree", "give every file the same columns"
            )
        return schemas

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows in the files' order, a bounded number at a time, only the columns asked for.

        Raises: LandingError if the data cannot be read to their end.
        """
        for path in self.files:
            rows = self._csv_batches(path, columns) if self.is_text else self._parquet_batches(path, columns)
            while True:
                batch, fault = _next_batch(rows)
                if fault:
                    raise self.unreadable()
                if batch is None:
                    break
                if batch.num_rows:
                    yield batch

    def _parquet_batches(self, path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield from file.iter_batches(batch_size=BATCH_ROWS, columns=list(columns))

    def _csv_batches(self, path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self._open_csv(path) as reader:
            alone = len(reader.schema) == 1
        with self._open_csv(path, columns, empty_lines_are_cells=alone) as reader:
            yield from reader

    def _open_csv(
        self, path: Path, columns: Sequence[str] | None = None, *, empty_lines_are_cells: bool = False
    ) -> pa_csv.CSVStreamingReader:
        dialect = self.spec.source.csv
        convert: dict[str, Any] = {"strings_can_be_null": True, "null_values": [""], "check_utf8": False}
        if columns is not None:
            convert |= {"include_columns": list(columns), "column_types": {name: pa.string() for name in columns}}
        return pa_csv.open_csv(
            path,
            read_options=pa_csv.ReadOptions(encoding=dialect.encoding, block_size=LONGEST_LINE),
            parse_options=pa_csv.ParseOptions(
                delimiter=dialect.delimiter,
                quote_char=dialect.quote,
                ignore_empty_lines=not empty_lines_are_cells,
            ),
            convert_options=pa_csv.ConvertOptions(**convert),
        )

    def _file_schema(self, path: Path) -> pa.Schema:
        if path.stat().st_size == 0:
            raise self._refusal("a landing file is empty", "file-empty", "land the file again, complete")
        schema: pa.Schema | None = None
        try:
            if self.is_text:
                if self._has_whole_lines(path):
                    with self._open_csv(path) as reader:
                        schema = reader.schema
            else:
                schema = pq.read_schema(path)
        except (pa.ArrowException, OSError, ValueError, LookupError):
            schema = None
        if schema is None:
            raise self.unreadable()
        return schema

    def _has_whole_lines(self, path: Path) -> bool:
        """Whether every line is well-formed by itself: no quote that opens on one line and closes on another.

        Such a quote would make one record swallow others, and its influence unbounded.
        """
        dialect = self.spec.source.csv
        quote, mark = re.escape(dialect.quote), re.escape(dialect.delimiter)
        field = f"(?:{quote}(?:[^{quote}]|{quote}{quote})*{quote}|[^{quote}{mark}]*)"
        line_shape = re.compile(f"{field}(?:{mark}{field})*")
        with path.open(encoding=dialect.encoding, errors="replace") as lines:
            return all(dialect.quote not in line or line_shape.fullmatch(line.rstrip("\n")) for line in lines)

    def unreadable(self) -> LandingError:
        """The refusal of a file that is not what its ending says, or not all of it."""
        kind = "CSV" if self.is_text else "Parquet"
        return self._refusal(
            f"a landing file cannot be read to its end as {kind}",
            "file-unreadable",
            "the file may be truncated or of another format; check source.csv for CSV, and land it again",
        )

    def _refusal(self, message: str, rule: str, hint: str) -> LandingError:
        return LandingError(message, rule=rule, where=self.where, hint=hint)

    def fingerprint(self, key: bytes) -> str:
        """A keyed fingerprint of the files' bytes, for the operator alone."""
        digest = hmac.new(key, digestmod=hashlib.sha256)
        for path in self.files:
            with path.open("rb") as file:
                while chunk := file.read(1 << 20):
                    digest.update(chunk)
            digest.update(b"\0")
        return digest.hexdigest()


def _next_batch(rows: Iterator[pa.RecordBatch]) -> tuple[pa.RecordBatch | None, bool]:
    """The next batch, or the news that there is none, or that reading failed."""
    try:
        return next(rows, None), False
    except (pa.ArrowException, OSError, ValueError, LookupError):
        return None, True


def canonical_dtypes(landed: pa.Schema, schema: RecordSchema) -> dict[str, str]:
    """Each landed column's family of types, by the name that the structure suite knows."""
    return {field.name: _family(field.type, schema.by_name.get(field.name)) for field in landed}


def _family(kind: pa.DataType, column: Column | None) -> str:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    families = (
        (pa.types.is_floating, "float64"),
        (pa.types.is_decimal, "float64"),
        (pa.types.is_integer, "int64"),
        (pa.types.is_boolean, "bool"),
        (pa.types.is_temporal, "datetime64[us]"),
        (is_text, "str"),
    )
    if pa.types.is_null(kind) and column is not None:  # all missing: whatever was declared
        return landing_dtypes(column)[0]
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return "object"
    return next((name for matches, name in families if matches(kind)), "object")


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a run is about: the landing data and their period."""

    landing: Landing
    period: str
    is_given: bool = False
    """Whether somebody named the files, instead of taking those that have landed."""


def find_landing(spec: ReleaseSpec, root: Path, *, given: Path | None, period: str | None, now: datetime) -> Arrival:
    """The landing data of a run, and the month they are of.

    The period is the one given, else the one in the file names (the latest, where
    there are several), else the last complete month. Where file names carry periods
    only the files of the chosen one belong to the dataset.
    Raises: LandingError if there is nothing to release.
    """
    if period is not None and not PERIOD.fullmatch(period):
        raise LandingError(
            f"the period {period!r} is not a month", rule="period-malformed", where="--period", hint="write 2026-11"
        )
    where = "--input" if given else "source.path"
    files = _given_files(given, where) if given else matching_files(root, spec.source.path)
    dated = {path: period_of(path, spec.source.period) for path in files}
    chosen = period or max((p for p in dated.values() if p), default=None) or last_complete_month(spec, now)
    if any(dated.values()) and not given:
        files = [path for path, own in dated.items() if own == chosen]
    if not files:
        raise LandingError(
            f"there are no landing data for {chosen}" if dated else "no landing file was found",
            rule="landing-missing",
            where=where,
            hint="land a Parquet or CSV file, or check source.path and the period",
        )
    if len({path.suffix.lower() for path in files}) > 1:
        raise LandingError(
            "the dataset mixes CSV and Parquet", rule="formats-mixed", where=where, hint="use one format a dataset"
        )
    return Arrival(Landing(tuple(files), spec, where), chosen, given is not None)


def open_public(spec: ReleaseSpec, root: Path, path: Path) -> Landing:
    """The table that a specification declares public, to be read like landing data.

    Raises: LandingError if it is not there or lacks a column.
    """
    where = "model.projection.public"
    files = _given_files(root / path, where)
    if not files:
        raise LandingError("the public table was not found", rule="public-missing", where=where, hint="check the path")
    landing = Landing(tuple(files), spec, where)
    needed = {column.name for column in spec.schema.encoded_columns}
    missing = sorted(needed - set(landing.schemas()[0].names))
    if missing:
        raise LandingError(
            f"the public table lacks the column {missing[0]!r}",
            rule="public-column-missing",
            where=where,
            hint="it needs every declared column but the label",
        )
    return landing


def _given_files(path: Path, where: str) -> list[Path]:
    """The file itself, or the data files of a folder."""
    if not path.is_file():
        return data_files(path)
    require_known_format(path, where)
    return [path]


def last_complete_month(spec: ReleaseSpec, now: datetime) -> str:
    """The last month that is over, in the schedule's time zone."""
    first = now.astimezone(ZoneInfo(spec.schedule.timezone)).replace(day=1)
    return (first - timedelta(days=1)).strftime("%Y-%m")
