"""The conversion of Arrow columns to cells and back.

A cell of the landing data becomes a number or a code by a function of that cell and
the public schema only: text is parsed value by value, never with a format that is
guessed from other rows. An unreadable value counts as missing.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.abc import MetaPathFinder
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpcore.records.schema import MISSING, UNKNOWN, Cells, Column, IntervalColumn, Kind, NominalColumn, RecordSchema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MICROSECONDS = 86_400_000_000
MICROSECONDS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
"""Microseconds in a timestamp's unit; times beyond 2^53 microseconds are outside every bound."""
PLAIN_NUMBER = r"^[+-]?[0-9]{{1,18}}({}[0-9]{{1,18}})?([eE][+-]?[0-9]{{1,2}})?$"
"""Texts that Arrow and Python parse to the same number; whether a text matches depends on the text only."""
TRUE_WORDS = frozenset({"true", "t", "yes", "y", "1"})
FALSE_WORDS = frozenset({"false", "f", "no", "n", "0"})

Floats = NDArray[np.float64]


def cells_of(
    batch: pa.RecordBatch, schema: RecordSchema, *, names: Sequence[str] | None = None, decimal: str = "."
) -> Cells:
    """The cells of a batch, column by column, of all columns or of the named ones."""
    wanted = schema.by_name if names is None else names
    return {name: _column_cells(batch.column(name), schema.by_name[name], decimal) for name in wanted}


def _column_cells(values: pa.Array, column: Column, decimal: str) -> NDArray[np.generic]:
    if (
        pa.types.is_dictionary(values.type)
        and is_text_type(values.type.value_type)
        and isinstance(column, NominalColumn)
    ):
        return of_dictionary(values, _level_parser(column)).astype(np.int64)
    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    if isinstance(column, NominalColumn):
        return _codes(plain, column)
    if is_text_type(plain.type):
        return _text_cells(plain, column, decimal)
    if column.kind in (Kind.DATE, Kind.TIMESTAMP):
        return _ticks(plain, column)
    return _to_floats(plain)


def is_text_type(kind: pa.DataType) -> bool:
    """Whether an Arrow type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _to_floats(values: pa.Array) -> Floats:
    """Numbers as float64, nulls as NaN."""
    floats = values if values.type == pa.float64() else pc.cast(values, pa.float64(), safe=False)
    numbers: Floats = floats.to_numpy(zero_copy_only=False)
    return numbers


def _ticks(values: pa.Array, column: IntervalColumn) -> Floats:
    """Days or microseconds since 1970 UTC; naive times are in the column's time zone."""
    if pa.types.is_null(values.type):
        return np.full(len(values), np.nan)
    if pa.types.is_date(values.type) and column.kind is Kind.DATE:
        return _to_floats(pc.cast(pc.cast(values, pa.date32(), safe=False), pa.int32()))
    # in a column of times, a date is its midnight
    zoned = pc.cast(values, pa.timestamp("us"), safe=False) if pa.types.is_date(values.type) else values
    if zoned.type.tz is None and column.timezone != "UTC":
        zoned = pc.assume_timezone(zoned, column.timezone, ambiguous="earliest", nonexistent="earliest")
    micros = _to_floats(pc.cast(zoned, pa.int64())) * MICROSECONDS[zoned.type.unit]
    return micros if column.kind is Kind.TIMESTAMP else np.floor(micros / DAY_MICROSECONDS)


def _codes(values: pa.Array, column: NominalColumn) -> NDArray[np.int64]:
    """Indices into the column's levels, `MISSING` for null, `UNKNOWN` for anything else."""
    if is_text_type(values.type):
        return by_distinct(values, _level_parser(column)).astype(np.int64)
    if pa.types.is_null(values.type):
        return np.full(len(values), MISSING, dtype=np.int64)
    is_whole = pa.types.is_boolean(values.type) or pa.types.is_integer(values.type)
    if is_whole or isinstance(column.levels[0], str):  # large integers are not exact as floats
        return by_distinct(pc.cast(values, pa.string()), _level_parser(column)).astype(np.int64)
    numbers = _to_floats(values)
    codes = np.full(len(numbers), UNKNOWN, dtype=np.int64)
    for index, level in enumerate(column.levels):
        codes[numbers == float(level)] = index
    codes[np.isnan(numbers)] = MISSING
    return codes


def _text_cells(values: pa.Array, column: IntervalColumn, decimal: str) -> Floats:
    """Numbers or ticks of a text column; plain numbers are parsed together, all other texts one by one."""
    parse = _text_parser(column, decimal)
    if column.kind in (Kind.DATE, Kind.TIMESTAMP):
        return by_distinct(values, parse)
    texts = as_bytes(values)
    is_plain = pc.fill_null(pc.match_substring_regex(texts, PLAIN_NUMBER.format(re.escape(decimal))), False)
    plain = texts.filter(is_plain)
    pointed = plain if decimal == "." else pc.replace_substring(plain, decimal.encode(), b".")
    cells = np.empty(len(texts))
    where = is_plain.to_numpy(zero_copy_only=False)
    cells[where] = pc.cast(pc.cast(pointed, pa.large_string()), pa.float64())
    if not where.all():
        cells[~where] = by_distinct(texts.filter(pc.invert(is_plain)), parse)
    return cells


def by_distinct(values: pa.Array, parse: Callable[[str | None], float]) -> Floats:
    """Parse each distinct text once; the result for a cell depends on its own text only."""
    return of_dictionary(pc.dictionary_encode(as_bytes(values)), parse)


def of_dictionary(coded: pa.DictionaryArray, parse: Callable[[str | None], float]) -> Floats:
    """The same for dictionary-encoded texts; a code may stand for a missing text."""
    raw = as_bytes(coded.dictionary).to_pylist()
    texts = [None if text is None else text.decode(errors="replace") for text in raw]
    table = np.array([parse(text) for text in texts] + [parse(None)], dtype=np.float64)
    indices = coded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)
    result: Floats = table[indices]
    return result


def as_bytes(texts: pa.Array) -> pa.Array:
    """Text as bytes, so that a cell with invalid text does not prevent reading the others."""
    return texts if texts.type == pa.large_binary() else pc.cast(pc.cast(texts, pa.large_string()), pa.large_binary())


def _text_parser(column: IntervalColumn, decimal: str) -> Callable[[str | None], float]:
    if column.kind is Kind.DATE:
        return _parse_date
    if column.kind is Kind.TIMESTAMP:
        zone = ZoneInfo(column.timezone)
        return lambda text: _parse_moment(text, zone)
    return lambda text: _parse_number(text, decimal)


def _parse_number(text: str | None, decimal: str) -> float:
    try:
        return math.nan if text is None else float(text.strip().replace(decimal, "."))
    except ValueError:
        return math.nan


def _parse_date(text: str | None) -> float:
    try:
        return math.nan if text is None else float((datetime.fromisoformat(text.strip()).date() - EPOCH.date()).days)
    except ValueError:
        return math.nan


def _parse_moment(text: str | None, zone: ZoneInfo) -> float:
    try:
        if text is None:
            return math.nan
        moment = datetime.fromisoformat(text.strip())
        distance = (moment if moment.tzinfo else moment.replace(tzinfo=zone)) - EPOCH
    except (ValueError, OverflowError):
        return math.nan
    return float((distance.days * 86_400 + distance.seconds) * 1_000_000 + distance.microseconds)


def _level_parser(column: NominalColumn) -> Callable[[str | None], float]:
    levels = {_level_text(level): index for index, level in enumerate(column.levels)}

    def parse(text: str | None) -> float:
        if text is None:
            return MISSING
        word = text.strip()
        if word.endswith(".0") and isinstance(column.levels[0], int):
            word = word.removesuffix(".0")
        if column.kind is Kind.BOOLEAN:
            word = "true" if word.lower() in TRUE_WORDS else "false" if word.lower() in FALSE_WORDS else word
        return levels.get(word, UNKNOWN)

    return parse


def _level_text(level: Any) -> str:
    return str(level).lower() if isinstance(level, bool) else str(level)


def table_of(cells: Cells, schema: RecordSchema) -> pa.Table:
    """A table in the original columns; its types follow from the schema, never from the data."""
    arrays = [_arrow_column(cells[column.name], column) for column in schema.columns]
    return pa.table(arrays, schema=arrow_schema(schema))


def forgo_pandas() -> None:
    """Keep Arrow from importing pandas, which it does with its first array to recognise objects not used here.

    Arrow looks for pandas only once. Functions that need pandas, such as `to_pandas`, still find it.
    """
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)


class _NoPandas(MetaPathFinder):
    """A finder that reports pandas as not installed."""

    @classmethod
    def find_spec(cls, name: str, *_: Any) -> None:
        """Raises: ModuleNotFoundError for pandas; the next finder looks for any other module."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def arrow_schema(schema: RecordSchema) -> pa.Schema:
    """The columns of the released table with their types and nullability."""
    return pa.schema([pa.field(c.name, _arrow_type(c), nullable=c.missing_level) for c in schema.columns])


def _arrow_type(column: Column) -> pa.DataType:
    if isinstance(column, NominalColumn):
        return {bool: pa.bool_(), int: pa.int64(), str: pa.string()}[type(column.levels[0])]
    return {
        Kind.NUMERIC: pa.float64(),
        Kind.INTEGER: pa.int64(),
        Kind.DATE: pa.date32(),
        Kind.TIMESTAMP: pa.timestamp("us", tz=column.timezone),
    }[column.kind]


def _arrow_column(cells: NDArray[np.generic], column: Column) -> pa.Array:
    kind = _arrow_type(column)
    if isinstance(column, NominalColumn):
        codes = np.asarray(cells, dtype=np.int64)
        return pa.array(column.levels, type=kind).take(pa.array(codes, mask=_if_any(codes == MISSING)))
    values = np.asarray(cells, dtype=np.float64)
    missing = _if_any(np.isnan(values))
    if column.kind is Kind.NUMERIC:
        return pa.array(values, mask=missing)
    present = values if missing is None else np.where(missing, 0, values)
    whole = pa.array(present.astype(np.int32 if column.kind is Kind.DATE else np.int64), mask=missing)
    return whole.cast(kind)


def _if_any(missing: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    return missing if missing.any() else None
