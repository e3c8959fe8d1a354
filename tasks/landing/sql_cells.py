"""A database's values as Arrow columns whose types follow from the specification only.

Each value is converted separately, by its own type, as `cells` reads a landed cell of that type. An unreadable
value counts as missing; the text of an undeclared category is kept, and `cells` decides about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpcore.records.schema import Column, IntervalColumn, Kind, NominalColumn, RecordSchema
from tasks.landing.cells import cells_of
from tasks.spec import ReleaseSpec

_TYPES = {
    Kind.NUMERIC: pa.float64(),
    Kind.INTEGER: pa.float64(),  # as `cells` reads whole numbers; a float can also hold other values
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.BOOLEAN: pa.bool_(),
    Kind.CATEGORICAL: pa.string(),
}


def column_types(spec: ReleaseSpec) -> pa.Schema:
    """The columns of the data: those declared, and as text the person's identifier and an undeclared period column."""
    fields = [pa.field(column.name, _TYPES[column.kind]) for column in spec.schema.columns]
    return pa.schema([*fields, *(pa.field(name, pa.string()) for name in spec.undeclared)])


def spooled_column(values: Sequence[Any], name: str, spec: ReleaseSpec) -> pa.Array:
    """Values of one column in the type that `column_types` gives it."""
    if name in spec.undeclared and name == spec.source.period_column:
        return _texts([_moment_text(value) for value in values], str)
    return column_of(values, name, spec.schema)


def column_of(values: Sequence[Any], name: str, schema: RecordSchema) -> pa.Array:
    """Values of a declared column, or of the person's identifier."""
    column = schema.by_name.get(name)
    if column is None:
        return _texts(values, _identifier)
    if isinstance(column, NominalColumn):
        texts = _texts(values, _whole_text if isinstance(column.levels[0], int) else _cell_text)
        return _truths(texts, column, schema) if column.kind is Kind.BOOLEAN else texts
    if column.kind in (Kind.NUMERIC, Kind.INTEGER):
        return _number_cells(values, column, schema)
    return _times(values, column, schema)


def _cells(values: pa.Array, column: Column, schema: RecordSchema) -> NDArray[Any]:
    """The values that `cells` reads from landed cells."""
    batch = pa.record_batch([values], names=[column.name])
    return cells_of(batch, schema, names=[column.name])[column.name]


def _texts(values: Sequence[Any], as_text: Callable[[Any], str]) -> pa.Array:
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {int}:
        texts: Sequence[Any] = [None if value is None else str(value) for value in values]
    else:
        texts = values if kinds <= {str} else [None if value is None else as_text(value) for value in values]
    try:
        return pa.array(texts, type=pa.string())
    except UnicodeEncodeError:  # half of a surrogate pair is not valid text
        return pa.array([t and t.encode(errors="replace").decode() for t in texts], type=pa.string())


def _cell_text(value: Any) -> str:
    """A value as the text into which Arrow would convert it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode(errors="replace")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _whole_text(value: Any) -> str:
    """The same, of a value that may stand for a whole number."""
    return str(int(value)) if _is_whole_decimal(value) else _cell_text(value)


def _identifier(value: Any) -> str:
    """A person's identifier: equal values must not become two persons, and different values not the same person.

    NaN is not an identifier, like a null.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return bytes(value).hex()
    if _is_nan(value):
        return ""
    if isinstance(value, Decimal) and value.is_finite() and not _is_whole_decimal(value):
        return format(value.normalize(), "f")
    return _whole_text(value)


def _is_nan(value: Any) -> bool:
    return value.is_nan() if isinstance(value, Decimal) else isinstance(value, float) and math.isnan(value)


def _is_whole_decimal(value: Any) -> bool:
    return isinstance(value, Decimal) and value.is_finite() and value.adjusted() < 64 and value == value.to_integral()


def _truths(texts: pa.Array, column: NominalColumn, schema: RecordSchema) -> pa.Array:
    codes = _cells(texts, column, schema)
    return pa.array(codes == 1, mask=codes < 0)


def _number_cells(values: Sequence[Any], column: IntervalColumn, schema: RecordSchema) -> pa.Array:
    kinds = set(map(type, values))
    if kinds <= {float, type(None)}:
        return pa.array(values, type=pa.float64(), from_pandas=True)
    numbers = np.fromiter(map(_float_or_nan, values), float, len(values))
    if kinds & {str, bytes}:
        is_text = np.fromiter((isinstance(value, str | bytes) for value in values), bool, len(values))
        words = _texts([value for value in values if isinstance(value, str | bytes)], _cell_text)
        numbers[is_text] = _cells(words, column, schema)
    return pa.array(numbers, from_pandas=True)


def _float_or_nan(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float | Decimal) else np.nan
    except (OverflowError, ValueError):
        return np.nan


def _moment_text(value: Any) -> str | None:
    """A date or a time as text, exactly; nothing else has a month, also no number."""
    if isinstance(value, date):  # or a datetime
        return value.isoformat()
    return _cell_text(value) if isinstance(value, str | bytes | bytearray | memoryview) else None


def _times(values: Sequence[Any], column: IntervalColumn, schema: RecordSchema) -> pa.Array:
    """Days, or times in UTC; a time without a zone is in the column's time zone."""
    if column.kind is Kind.TIMESTAMP:
        zone = ZoneInfo(column.timezone)
        values = [_in_zone(value, zone) for value in values]
    ticks = np.full(len(values), np.nan)
    families = np.fromiter((_kind_of_time(value) for value in values), np.int8, len(values))
    for family, as_arrow in _AS_ARROW.items():
        mine = families == family
        if mine.any():
            chosen = [value for value, is_mine in zip(values, mine, strict=True) if is_mine]
            ticks[mine] = _cells(as_arrow(chosen), column, schema)
    missing = np.isnan(ticks)
    whole = np.where(missing, 0, ticks)
    width = np.int32 if column.kind is Kind.DATE else np.int64
    return pa.array(whole.astype(width), mask=missing).cast(_TYPES[column.kind])


_OTHER, _DAY, _CLOCK, _MOMENT, _WORDS = range(5)


def _kind_of_time(value: Any) -> int:
    if isinstance(value, datetime):
        return _CLOCK if value.tzinfo is None else _MOMENT
    if isinstance(value, date):
        return _DAY
    return _WORDS if isinstance(value, str | bytes) else _OTHER


def _in_zone(value: Any, zone: ZoneInfo) -> Any:
    """A date or a time without a zone in a time zone, as text of it is read; any other value as it is."""
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=zone)
    return datetime.combine(value, time(), zone) if isinstance(value, date) else value


def _moment_cells(values: list[datetime]) -> pa.Array:
    return pc.cast(pa.array([_in_utc(value) for value in values], type=pa.timestamp("us")), pa.timestamp("us", "UTC"))


def _in_utc(moment: datetime) -> datetime | None:
    try:
        return moment.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:  # the first or last day of the calendar, in another zone
        return None


_AS_ARROW: dict[int, Callable[[list[Any]], pa.Array]] = {
    _DAY: lambda values: pa.array(values, type=pa.date32()),
    _CLOCK: lambda values: pa.array(values, type=pa.timestamp("us")),
    _MOMENT: _moment_cells,
    _WORDS: lambda values: _texts(values, _cell_text),
}
