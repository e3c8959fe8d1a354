"""How much each row of a person counts, for data of any order and size (GUARANTEE.md, S4).

The unit is the value of the identifying column, compared as stripped text; rows whose cell is
null, blank or NaN have no identifier and count together as a single person. Two sorts that spill to disk
do the work: one by person, which groups each person's rows in the data's order, and one back by position.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpcore.records.schema import PrivacyUnit, RowRule
from tasks.landing.fragments import changed
from tasks.landing.sorting import BATCH_ROWS, SORT_BYTES, sort_rows, vault_full
from tasks.workspace.files import create_private
from tasks.workspace.redaction import ErrorBoundary

KEYED = pa.schema([("position", pa.int64()), ("key", pa.large_string())])
"""The rows that are sorted by person."""

COUNTS = {RowRule.WEIGHT: pa.int64(), RowRule.AT_MOST: pa.uint8()}
"""The Arrow type of the counts in the file; booleans are stored as bytes."""

Wholes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, repr=False)
class PersonRows:
    """The counts of the rows of each fragment, in a file of the vault that is read slice by slice.

    Under `WEIGHT`, the count of a row is the number of its person's rows in all data (int64); under
    `AT_MOST`, it is whether the row is among the person's first `most_rows` (bool).
    """

    stored: Path | NDArray[Any]
    """The file, or the counts themselves if another process sent them."""
    rule: RowRule
    starts: tuple[int, ...]
    """The position of each fragment's first row, and the number of all rows."""
    digests: tuple[bytes, ...]
    where: str

    def __repr__(self) -> str:
        return "PersonRows(<private>)"

    def rows_in(self, fragment: int) -> int:
        """How many rows a fragment had when persons were counted; private."""
        return self.starts[fragment + 1] - self.starts[fragment]

    def of(self, fragment: int, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """The counts of a fragment's rows [start, stop), of all of them by default.

        Raises: LandingError if the fragment had fewer rows.
        """
        stop = self.rows_in(fragment) if stop is None else stop
        if not 0 <= start <= stop <= self.rows_in(fragment):
            raise changed(self.where)
        if not isinstance(self.stored, Path):
            return self.stored[self.starts[fragment] + start : self.starts[fragment] + stop]
        dtype = np.dtype(np.int64 if self.rule is RowRule.WEIGHT else np.bool_)
        offset = (self.starts[fragment] + start) * dtype.itemsize
        return np.fromfile(self.stored, dtype, count=stop - start, offset=offset)

    def require_rows(self, fragment: int, rows: int) -> None:
        """Check the number of rows that a later reading of a fragment found.

        Raises: LandingError.
        """
        if rows != self.rows_in(fragment):
            raise changed(self.where)

    def reading(self, fragment: int) -> Reading:
        """A later reading of a fragment that must find the same persons in the same rows."""
        return Reading(self, fragment)


@dataclass(frozen=True, slots=True, repr=False)
class FragmentCounts:
    """The counts of one fragment's rows; when it is sent to another process, it contains the part of the file."""

    persons: PersonRows
    fragment: int

    def __repr__(self) -> str:
        return "FragmentCounts(<private>)"

    def reading(self) -> Reading:
        """A later reading of the fragment."""
        return self.persons.reading(self.fragment)

    def __reduce__(self) -> tuple[Any, ...]:
        persons, fragment = self.persons, self.fragment
        return _carried, (persons.of(fragment), persons.rule, persons.digests[fragment], persons.where)


def _carried(rows: NDArray[Any], rule: RowRule, digest: bytes, where: str) -> FragmentCounts:
    """The counts of a single fragment that another process sent."""
    return FragmentCounts(PersonRows(rows, rule, (0, len(rows)), (digest,), where), 0)


class Reading:
    """A fragment as it is read again, batch by batch."""

    def __init__(self, persons: PersonRows, fragment: int) -> None:
        self._persons, self._fragment, self._trace = persons, fragment, _Trace()

    def __repr__(self) -> str:
        return "Reading(<private>)"

    def next(self, cells: pa.Array) -> NDArray[Any]:
        """The counts of the next rows; `cells` are their cells of the identifying column.

        Raises: LandingError if the fragment has more rows than before.
        """
        start = self._trace.rows
        self._trace.add(identifiers(cells))
        return self._persons.of(self._fragment, start, self._trace.rows)

    def finish(self) -> None:
        """Check that all rows were read and are those that were counted.

        Raises: LandingError.
        """
        self._persons.require_rows(self._fragment, self._trace.rows)
        if self._trace.digest() != self._persons.digests[self._fragment]:
            raise changed(self._persons.where)


def person_rows(
    keys: Iterable[Iterable[pa.Array]],
    unit: PrivacyUnit,
    scratch: Path,
    *,
    memory: int = SORT_BYTES,
    where: str = "source.path",
) -> PersonRows:
    """Count the rows of each person over all fragments.

    `keys` yields, for each fragment in order, the cells of the identifying column in the order of the rows; its
    errors are raised unchanged. `scratch` is a private folder; `memory` is the memory of the sorts in bytes.
    Raises: WorkspaceError if the scratch folder's disk is full, or sorting fails otherwise.
    """
    if unit.person is None:
        raise ValueError("the unit has no person column")
    traces: list[_Trace] = []
    by_person = sort_rows(_key_rows(keys, traces), KEYED, "hash(key), key, position", scratch=scratch, memory=memory)
    runs, file = _private_file(scratch), _private_file(scratch)
    try:
        with runs.open("wb") as spool:
            for positions, firsts in _person_runs(by_person):
                _write_values(spool, np.column_stack([positions, firsts]))
        counted = pa.schema([("position", pa.int64()), ("counts", COUNTS[unit.row_rule])])
        with file.open("wb") as result:
            for batch in sort_rows(_counted(runs, unit, counted), counted, "position", scratch=scratch, memory=memory):
                _write_values(result, batch.column("counts").to_numpy())
    except BaseException:
        file.unlink()
        raise
    finally:
        runs.unlink()
    starts = tuple(accumulate((trace.rows for trace in traces), initial=0))
    return PersonRows(file, unit.row_rule, starts, tuple(trace.digest() for trace in traces), where)


def identifiers(cells: pa.Array) -> pa.Array:
    """Cells of the identifying column as stripped text, also invalid bytes, so that a person has one spelling.

    A row without an identifier has the empty text, whether its cell is null, NaN or blank.
    """
    plain = cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
    if pa.types.is_floating(plain.type):
        plain = pc.if_else(pc.is_nan(plain), None, plain)
    is_binary = any(
        matches(plain.type)
        for matches in (
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_fixed_size_binary,
            pa.types.is_binary_view,
        )
    )
    raw = plain if is_binary else pc.cast(plain, pa.large_string())
    raw = pc.fill_null(pc.cast(raw, pa.large_binary()), b"")
    try:
        return pc.utf8_trim_whitespace(pc.cast(raw, pa.large_string()))  # the cast checks every byte
    except pa.ArrowInvalid:
        coded = pc.dictionary_encode(raw)
    texts = [word.decode(errors="replace").strip() for word in coded.dictionary.to_pylist()]
    return pa.array(texts, type=pa.large_string()).take(coded.indices)


class _Trace:
    """The number of rows and the identifiers that a reading of a fragment found, independent of batches."""

    def __init__(self) -> None:
        self.rows = 0
        self._lengths, self._letters = hashlib.blake2b(), hashlib.blake2b()

    def add(self, names: pa.Array) -> None:
        """Add the identifiers of the next rows."""
        self.rows += len(names)
        lengths = pc.binary_length(names).to_numpy(zero_copy_only=False)
        self._lengths.update(np.ascontiguousarray(lengths, dtype=np.int64).data)
        listed = pa.ListArray.from_arrays(pa.array([0, len(names)], pa.int32()), names)
        self._letters.update(pc.binary_join(listed, pa.scalar("", pa.large_string()))[0].as_buffer())

    def digest(self) -> bytes:
        """A digest that is equal for the same identifiers in the same order."""
        return self._lengths.digest() + self._letters.digest()


def _key_rows(keys: Iterable[Iterable[pa.Array]], traces: list[_Trace]) -> Iterator[pa.RecordBatch]:
    """All rows with their position in the data; appends a trace of each fragment to `traces`."""
    position = 0
    for fragment in keys:
        traces.append(_Trace())
        for cells in fragment:
            names = identifiers(cells)
            traces[-1].add(names)
            positions = pa.array(np.arange(position, position + len(names), dtype=np.int64))
            position += len(names)
            yield pa.record_batch([positions, names], schema=KEYED)


def _person_runs(by_person: Iterator[pa.RecordBatch]) -> Iterator[tuple[Wholes, Wholes]]:
    """The positions of rows ordered by person, and for each row the place in that order where its person begins."""
    place, begun, last = 0, 0, None
    for batch in by_person:
        names = pa.concat_arrays([last, batch.column("key")]) if last is not None else batch.column("key")
        differs = pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False)
        is_first = np.concatenate([[True], differs])[
            -len(batch) :
        ]  # whether an identifier differs from the previous one
        places = np.arange(place, place + len(batch), dtype=np.int64)
        firsts = np.maximum.accumulate(np.where(is_first, places, begun))
        yield batch.column("position").to_numpy(), firsts
        place, begun, last = place + len(batch), int(firsts[-1]), names[-1:]


def _counted(runs: Path, unit: PrivacyUnit, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Each row's position and count, from the last row to the first, so that the end of a run is known before it."""
    rows = runs.stat().st_size // 16
    first_after, end_after = rows, rows  # of the person after those in the batch
    for place in reversed(range(0, rows, BATCH_ROWS)):
        pairs = np.fromfile(runs, np.int64, count=2 * min(BATCH_ROWS, rows - place), offset=16 * place).reshape(-1, 2)
        positions, firsts = np.ascontiguousarray(pairs[:, 0]), pairs[:, 1]
        heads = np.flatnonzero(np.diff(firsts, prepend=-1))
        ends = np.append(firsts[heads[1:]], end_after if firsts[-1] == first_after else first_after)
        if unit.row_rule is RowRule.WEIGHT:
            counts = np.repeat(ends - firsts[heads], np.diff(heads, append=len(firsts)))
        else:
            counts = (np.arange(place, place + len(firsts)) - firsts < unit.most_rows).astype(np.uint8)
        first_after, end_after = int(firsts[0]), int(ends[0])
        yield pa.record_batch([pa.array(positions), pa.array(counts)], schema=schema)


def _private_file(scratch: Path) -> Path:
    path = scratch / f"persons-{secrets.token_hex(8)}"
    with ErrorBoundary(OSError, refusal=lambda _: vault_full()), create_private(path):
        return path


def _write_values(file: IO[bytes], values: NDArray[Any]) -> None:
    with ErrorBoundary(OSError, refusal=lambda _: vault_full()):
        file.write(np.ascontiguousarray(values).data)
        file.flush()
