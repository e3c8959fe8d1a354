"""Landing data: which files, of which period, readable or not, batch by batch.

Names, sizes and numbers of files and rows are private: no error or representation
here carries them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TextIO
from zoneinfo import ZoneInfo

import pyarrow as pa

from dpcore.errors import LandingError
from dpcore.records.schema import Column, RecordSchema
from expectations.landing import landing_dtypes
from tasks.landing.cells import is_text_type
from tasks.landing.file_names import (
    PERIOD,
    data_files,
    elsewhere,
    matching_files,
    partition_of,
    period_of,
    require_landable,
    require_period,
)
from tasks.landing.fragments import (
    LONGEST_LINE,
    Fragment,
    Part,
    file_version,
    grouped,
    is_elsewhere,
    portable_version,
    unreadable,
)
from tasks.spec import ReleaseSpec
from tasks.workspace.reading import open_regular
from tasks.workspace.redaction import ErrorBoundary

HASHED_AT_ONCE = 1 << 22
TEXT_AT_ONCE = 1 << 20


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
        return self.parts()[0].is_text

    @property
    def decimal(self) -> str:
        """The decimal mark of numbers in text."""
        return self.spec.source.csv.decimal if self.is_text else "."

    def parts(self) -> list[Part]:
        """Each file as a whole, with the columns that its folders' names give."""
        return [Part(file, self.spec.source.csv, constants=partition_of(file)) for file in self.files]

    def fragments(self, size: int) -> list[Fragment]:
        """All rows in the files' order, in parts of about that many bytes.

        Raises: LandingError if a file cannot be read.
        """
        parts = [replace(part, version=portable_version(part.file)) for part in self.parts()]
        return grouped([piece for part in parts for piece in self._pieces(part)], size, self.where)

    def _pieces(self, part: Part) -> list[tuple[Part, int]]:
        with ErrorBoundary(*part.faults, refusal=lambda _: self.unreadable()):
            return part.pieces()

    def version(self) -> tuple[str, ...]:
        """What changes when a file does, without reading any.

        Raises: LandingError if a file is gone, or its store does not tell one version from another.
        """
        versions = tuple(version for version in map(file_version, self.files) if version is not None)
        if len(versions) < len(self.files):
            raise self._refusal(
                "a landing file is missing, or its store does not identify its versions",
                "landing-unversioned",
                "land it again; a store must give each object a tag, a digest or a time, or several readings of it "
                "could be of different data",
            )
        return versions

    def schemas(self) -> list[pa.Schema]:
        """The columns of each file.

        Raises: LandingError if a file cannot be read or the files disagree.
        """
        schemas = [self._file_schema(part) for part in self.parts()]
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
        yield from Fragment(tuple(self.parts()), self.where).batches(columns, threads=True)

    def _file_schema(self, part: Part) -> pa.Schema:
        schema: pa.Schema | None = None
        with ErrorBoundary(*part.faults, refusal=lambda _: self.unreadable()):
            is_empty = part.file.stat().st_size == 0
            if not is_empty and (not part.is_text or self._has_whole_lines(part.file)):
                schema = part.schema()
        if is_empty:
            raise self._refusal("a landing file is empty", "file-empty", "land the file again, complete")
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
        with path.open(encoding=dialect.encoding, errors="replace") as text:
            quoted = (block for block in _whole_lines(text) if dialect.quote in block)
            return all(line_shape.fullmatch(line) for block in quoted for line in block.split("\n"))

    def unreadable(self) -> LandingError:
        """The refusal of a file that is not what its ending says, or not all of it."""
        return unreadable(self.is_text, self.where)

    def _refusal(self, message: str, rule: str, hint: str) -> LandingError:
        return LandingError(message, rule=rule, where=self.where, hint=hint)

    def fingerprint(self, key: bytes) -> str:
        """A keyed fingerprint of the files' bytes, for the operator alone."""
        digest = hmac.new(key, digestmod=hashlib.sha256)
        for path in self.files:
            with path.open("rb") if is_elsewhere(path) else open_regular(path) as file:
                while chunk := file.read(HASHED_AT_ONCE):
                    digest.update(chunk)
            digest.update(b"\0")
        return digest.hexdigest()


def _whole_lines(text: TextIO) -> Iterator[str]:
    """A text in blocks that end where lines do.

    Raises: ValueError for a line that is too long, wherever it lies among others.
    """
    rest = ""
    while block := text.read(TEXT_AT_ONCE):
        whole, mark, after = block.rpartition("\n")
        first = rest + block.partition("\n")[0]
        if 4 * len(first) > LONGEST_LINE and len(first.encode(errors="replace")) > LONGEST_LINE:
            raise ValueError("a line is too long")
        if mark:
            yield rest + whole
        rest = after if mark else rest + after
    yield rest


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
        (is_text_type, "str"),
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

    @property
    def is_queried(self) -> bool:
        """Whether a query has yet to write the one file."""
        return self.landing.spec.source.query is not None and not self.is_given


def find_landing(
    spec: ReleaseSpec, root: Path, *, given: str | Path | None, period: str | None, now: datetime
) -> Arrival:
    """The landing data of a run, and the month they are of.

    The period is the one given, else the one in the file names (the latest, where
    there are several), else the last complete month. Where the specification says that
    names carry the period, only files of the chosen one belong to the dataset; files that
    somebody gives by name must not carry another, and those that carry none need a given one.
    Raises: LandingError if there is nothing to release.
    """
    _require_month(period)
    where = "--input" if given else "source.path"
    files = _given_files(given, where) if given else matching_files(root, spec.source.path)
    dated = {path: period_of(path, spec.source.period) for path in files}
    chosen = period or max((p for p in dated.values() if p), default=None) or last_complete_month(spec, now)
    if given and any(own not in (None, chosen) for own in dated.values()):
        raise LandingError(
            f"the name of a given file contains another month than {chosen}",
            rule="period-differs",
            where="--input",
            hint="give the files of one month, and their month as --period",
        )
    if not given and spec.source.period:
        files = [path for path, own in dated.items() if own == chosen]
    if None in dated.values() and not (period if given else files):  # the month would be guessed
        require_period(spec.source.period, None)
    if not files:
        raise LandingError(
            f"there are no landing data for {chosen}" if dated else "no landing file was found",
            rule="landing-missing",
            where=where,
            hint="land a Parquet or CSV file, or check source.path and the period",
        )
    if len({path.suffix.lower() for path in files}) > 1:
        raise LandingError(
            "the dataset mixes CSV and Parquet", rule="formats-mixed", where=where, hint="use one format per dataset"
        )
    return Arrival(Landing(tuple(files), spec, where), chosen, given is not None)


def find_query(spec: ReleaseSpec, scratch: Path, *, period: str | None, now: datetime) -> Arrival:
    """The data that a query will give to a run, and the month they are of: the one given, or the last complete one.

    Raises: LandingError if what is given is no month.
    """
    _require_month(period)
    landing = Landing((scratch / "query.parquet",), spec, "source.query")
    return Arrival(landing, period or last_complete_month(spec, now))


def _require_month(period: str | None) -> None:
    if period is not None and not PERIOD.fullmatch(period):
        raise LandingError(
            f"the period {period!r} is not a month", rule="period-malformed", where="--period", hint="write 2026-11"
        )


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


def _given_files(given: str | Path, where: str) -> list[Path]:
    """The file itself, or the data files of a folder; of this machine, or of a store where it is a URL."""
    if "://" in str(given):
        return elsewhere(str(given), where)
    path = Path(given)
    files = data_files(path) if path.is_dir() or not path.exists() else [path]
    for file in files:
        require_landable(file, where)
    return files


def last_complete_month(spec: ReleaseSpec, now: datetime) -> str:
    """The last month that is over, in the schedule's time zone."""
    first = now.astimezone(ZoneInfo(spec.schedule.timezone)).replace(day=1)
    return (first - timedelta(days=1)).strftime("%Y-%m")
