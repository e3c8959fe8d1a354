"""One pass over landing data: every fragment is summed separately, and the sums are added.

The sums are exact whole numbers, or extremes of cells, so the total has the same bits for any division
into fragments, any order, and any threads or machines. No noise is drawn here; reading a fragment again
costs only time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dpcore.records.schema import Cells, RecordSchema
from tasks.landing.cells import cells_of
from tasks.landing.fragments import SHARED, Fragment
from tasks.landing.months import PLACE, Month

if TYPE_CHECKING:  # most releases count no persons and do not need the engine for it
    from tasks.landing.person_rows import FragmentCounts

S = TypeVar("S")

Chunk = tuple[Cells, NDArray[np.float64] | None]
"""Rows, each with its share of its person; None if every row counts fully."""


LEAST_CUT = 1_024
"""The number of rows up to which a batch is not divided."""

Rows = tuple[pa.RecordBatch, NDArray[np.float64] | None]
"""The same before the conversion to cells."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A fragment with the month whose rows count, and the counts of these rows for the persons of a column.

    Without a month all rows count; without a person every row is a unit.
    """

    fragment: Fragment
    person: str | None = None
    counts: FragmentCounts | None = None
    month: Month | None = None

    def __repr__(self) -> str:
        return "Piece(<private>)"

    def batches(self, columns: Sequence[str], *, threads: bool = False) -> Iterator[pa.RecordBatch]:
        """The rows of the month with the given columns, before persons are considered.

        Raises: LandingError if the data cannot be read to their end.
        """
        if self.month is None:
            yield from self.fragment.batches(columns, threads=threads)
            return
        read = list(dict.fromkeys([*columns, self.month.rule.column]))
        own = (self.month.rows(batch) for batch in self.fragment.batches(read, threads=threads))
        yield from (batch.select(list(columns)) for batch in own if batch.num_rows)

    def rows(self, columns: Sequence[str], *, threads: bool) -> Iterator[Rows]:
        """The rows that count, batch by batch, with their shares.

        Raises: LandingError if they cannot be read, or are not those whose persons were counted.
        """
        if self.person is None or self.counts is None:
            yield from ((batch, None) for batch in self.batches(columns, threads=threads))
            return
        again = self.counts.reading()
        for batch in self.batches([*columns, self.person], threads=threads):
            counted = again.next(batch.column(self.person))
            if counted.dtype == np.bool_:
                yield batch.filter(pa.array(counted)), None
            else:
                yield batch, 1 / counted
        again.finish()


@dataclass(frozen=True, slots=True)
class Pass(Generic[S]):
    """One pass over all rows: which columns are read, as which cells, and how a fragment is summed."""

    schema: RecordSchema
    decimal: str
    summed: Callable[[Iterable[Chunk]], S]

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return [column.name for column in self.schema.columns]

    def of(self, piece: Piece) -> S:
        """The sum of one piece."""
        return self.summed(self.chunk(rows) for rows in piece.rows(self.columns, threads=False))

    def of_rows(self, rows: Rows) -> S:
        """The sum of one batch, which may be larger than a processor's cache."""
        batch, shares = rows
        step = max(LEAST_CUT, -(-batch.num_rows // SHARED))
        return self.summed(
            self.chunk((batch.slice(at, step), None if shares is None else shares[at : at + step]))
            for at in range(0, batch.num_rows, step)
        )

    def chunk(self, rows: Rows) -> Chunk:
        """The cells of a batch."""
        batch, shares = rows
        return cells_of(batch, self.schema, decimal=self.decimal), shares


@dataclass(frozen=True, slots=True)
class MonthPass(Pass[S]):
    """One pass over the period column alone, as where each row belongs."""

    month: Month

    @property
    def columns(self) -> list[str]:
        """The column that is read."""
        return [self.month.rule.column]

    def chunk(self, rows: Rows) -> Chunk:
        """Where the rows of a batch belong."""
        batch, shares = rows
        return {PLACE: self.month.places(batch.column(0))}, shares


class Runner(Protocol):
    """Sums the pieces of a pass."""

    size: int
    """The approximate number of bytes of a fragment."""

    def sums(self, work: Pass[S], pieces: Sequence[Piece]) -> Iterator[S]:
        """The sums of all pieces, in any order, and possibly in smaller parts."""


class Threads:
    """All cores of this machine; each processes a piece, or a batch if there are fewer pieces than cores."""

    size = 1 << 26

    def __init__(self, count: int | None = None) -> None:
        self.count = count or pa.cpu_count()

    def sums(self, work: Pass[S], pieces: Sequence[Piece]) -> Iterator[S]:
        """The sums of all pieces, or of all batches."""
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(self.count) as pool:
            if len(pieces) >= self.count:
                yield from self._bounded(pool.submit(work.of, piece) for piece in pieces)
            else:
                batches = (rows for piece in pieces for rows in piece.rows(work.columns, threads=True))
                yield from self._bounded(pool.submit(work.of_rows, rows) for rows in batches)

    def _bounded(self, submitted: Iterator[Future[S]]) -> Iterator[S]:
        """Results in order of completion, with only as much submitted work as the threads need."""
        pending: set[Future[S]] = set()
        try:
            for future in submitted:
                pending.add(future)
                if len(pending) > 2 * self.count:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    yield from (one.result() for one in done)
            yield from (one.result() for one in wait(pending).done)
        finally:
            for future in pending:
                future.cancel()
