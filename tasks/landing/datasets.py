"""Landing data: their files, their period, and their rows in batches.

Names, sizes and numbers of files and rows are private: no error or representation
in this module contains them.
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
        """Each whole file, with the columns that the names of its folders define."""
        return [Part(file, self.spec.source.csv, constants=partition_of(file)) for file in self.files]

    def fragments(self, size: int) -> list[Fragment]:
        """All rows in the order of the files, in parts of about `size` bytes.

        Raises: LandingError if a file cannot be read.
        """
        parts = [replace(part, version=portable_version(part.file)) for part in self.parts()]
        return grouped([piece for part in parts for piece in self._pieces(part)], size, self.where)

    def _pieces(self, part: Part) -> list[tuple[Part, int]]:
        with ErrorBoundary(*part.faults, refusal=lambda _: self.unreadable()):
            return part.pieces()

    def version(self) -> tuple[str, ...]:
        """The versions of the files, which are found without reading them.

        Raises: LandingError if a file is missing, or its store does not identify versions.
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
        """All rows in the order of the files, with the given columns, in batches of bounded size.

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
        """Whether every line is well-formed: no quote opens on one line and closes on another.

        With such a quote, one record could contain others, and its influence would be unbounded.
        """
        dialect = self.spec.source.csv
        quote, mark = re.escape(dialect.quote), re.escape(dialect.delimiter)
        field = f"(?:{quote}(?:[^{quote}]|{quote}{quote})*{quote}|[^{quote}{mark}]*)"
        line_shape = re.compile(f"{field}(?:{mark}{field})*")
        with path.open(encoding=dialect.encoding, errors="replace") as text:
            quoted = (block for block in _whole_lines(text) if dialect.quote in block)
            return all(line_shape.fullmatch(line) for block in quoted for line in block.split("\n"))

    def unreadable(self) -> LandingError:
        """The refusal of a file that is truncated or not of the format that its extension states."""
        return unreadable(self.is_text, self.where)

    def _refusal(self, message: str, rule: str, hint: str) -> LandingError:
        return LandingError(message, rule=rule, where=self.where, hint=hint)

    def fingerprint(self, key: bytes) -> str:
        """A keyed fingerprint of the files' bytes, for the operator only."""
        digest = hmac.new(key, digestmod=hashlib.sha256)
        for path in self.files:
            with path.open("rb") if is_elsewhere(path) else open_regular(path) as file:
                while chunk := file.read(HASHED_AT_ONCE):
                    digest.update(chunk)
            digest.update(b"\0")
        return digest.hexdigest()


def _whole_lines(text: TextIO) -> Iterator[str]:
    """A text in blocks that end at line ends.

    Raises: ValueError if any line is too long.
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
    """The type family of each landed column, by the name that the structure suite uses."""
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
    if pa.types.is_null(kind) and column is not None:  # all cells are missing, so any declared type fits
        return landing_dtypes(column)[0]
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return "object"
    return next((name for matches, name in families if matches(kind)), "object")


@dataclass(frozen=True, slots=True)
class Arrival:
    """The input of a run: the landing data and their period."""

    landing: Landing
    period: str
    is_given: bool = False
    """Whether the command names the files, instead of using those that have landed."""

    @property
    def is_queried(self) -> bool:
        """Whether the only file is still to be written by a query."""
        return self.landing.spec.source.query is not None and not self.is_given


def find_landing(
    spec: ReleaseSpec, root: Path, *, given: str | Path | None, period: str | None, now: datetime
) -> Arrival:
    """The landing data of a run and their month.

    The period is the given one, else the one in the file names (the latest of several), else
    the last complete month. If the specification declares that file names contain the period,
    only files of the chosen period belong to the dataset. Files that the command names must not
    contain another period, and if they contain none, the period must be given.
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
    if None in dated.values() and not (period if given else files):  # otherwise the month would be a guess
        require_period(spec.source.period, None)
    if not files:
        raise LandingError(
            f"there are no landing data for {chosen}" if dated else "no landing file was found",
            rule="landing-missing",
            where=where,
            hint="check the path, which must lead to Parquet or CSV files"
            if given
            else "land a Parquet or CSV file, or check source.path and the period",
        )
    if len({path.suffix.lower() for path in files}) > 1:
        raise LandingError(
            "the dataset mixes CSV and Parquet", rule="formats-mixed", where=where, hint="use one format per dataset"
        )
    return Arrival(Landing(tuple(files), spec, where), chosen, given is not None)


def find_query(spec: ReleaseSpec, scratch: Path, *, period: str | None, now: datetime) -> Arrival:
    """The data that a query will return to a run, and their month: the given one, or the last complete one.

    Raises: LandingError if the given period is not a month.
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
    """The table that a specification declares public; it is read like landing data.

    Raises: LandingError if it does not exist or lacks a column.
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
    """The file itself, or the data files of a folder, on this machine or, for a URL, in a store."""
    if "://" in str(given):
        return elsewhere(str(given), where)
    path = Path(given)
    files = data_files(path) if path.is_dir() or not path.exists() else [path]
    for file in files:
        require_landable(file, where)
    return files


def last_complete_month(spec: ReleaseSpec, now: datetime) -> str:
    """The last complete month in the schedule's time zone."""
    first = now.astimezone(ZoneInfo(spec.schedule.timezone)).replace(day=1)
    return (first - timedelta(days=1)).strftime("%Y-%m")
