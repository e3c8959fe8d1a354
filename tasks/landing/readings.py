"""All readings of a run's landing data: the purpose of each, and the check that all were of the same data."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from dpcore.records.schema import PrivacyUnit, RecordSchema
from tasks.landing.datasets import Landing
from tasks.landing.fragments import changed
from tasks.landing.months import NOWHERE, OUTSIDE, WITHIN, count_places, month_of
from tasks.landing.passes import Chunk, MonthPass, Pass, Piece, Runner, Threads

S = TypeVar("S")


class Readings:
    """Reads the landing data of one run, in one pass for each purpose, and counts the passes.

    Files are identified by their versions (size, times, inode; the tag of a store). If one changes
    between two readings or during one, the run is refused before anything of that reading is measured.

    If the specification names a period column, every pass sees the rows of the given month only, and a person's rows
    are counted and chosen among these: rows of other months change no sum.
    """

    def __init__(
        self,
        landing: Landing,
        unit: PrivacyUnit,
        *,
        key: Callable[[], bytes],
        scratch: Path,
        period: str | None = None,
    ) -> None:
        self._month = month_of(landing.spec.month_rule, period)
        self._landing, self._unit, self._key, self._scratch = landing, unit, key, scratch
        self._version: tuple[str, ...] | None = None
        self._fingerprint: str | None = None
        self._pieces: list[Piece] | None = None
        self._runner: Runner = Threads()
        self._on_progress: Callable[[str, float], None] = lambda _purpose, _share: None
        self.purposes: list[str] = []

    def __repr__(self) -> str:
        return "Readings(<private>)"

    def read_with(self, runner: Runner, on_progress: Callable[[str, float], None]) -> None:
        """Use this runner for all further passes, and report the purpose and progress of each to `on_progress`."""
        self._runner, self._on_progress = runner, on_progress

    def fingerprint(self) -> str:
        """A keyed fingerprint of the data, for the operator only; it is computed once.

        Raises: LandingError if the data changed.
        """
        if self._fingerprint is None:
            self.require_same()
            self.purposes.append("fingerprint")
            self._fingerprint = self._landing.fingerprint(self._key())
            self.require_same()
        return self._fingerprint

    def total(
        self,
        purpose: str,
        schema: RecordSchema,
        summed: Callable[..., S],
        merge: Callable[[S, S], S],
        *,
        by_unit: bool = True,
    ) -> S:
        """The sum of all rows, each with its share of its person if persons are the unit; zero if there are no rows.

        Raises: LandingError if the data cannot be read or changed.
        """
        self.require_same()
        work = Pass(schema, self._landing.decimal, summed)
        return self._sum(purpose, work, self._all_pieces() if by_unit else self._rows_alone(), merge)

    def month_counts(self) -> dict[str, int] | None:
        """How many rows belong to the month, to other months and to none, for the vault only; None without a rule.

        Raises: LandingError if the data cannot be read or changed.
        """
        if self._month is None:
            return None
        self.require_same()
        work = MonthPass(self._landing.spec.schema, self._landing.decimal, count_places, self._month)
        pieces = [replace(piece, month=None) for piece in self._rows_alone()]
        counts = self._sum("months", work, pieces, operator.add)
        return {"month": int(counts[WITHIN]), "other_months": int(counts[OUTSIDE]), "no_month": int(counts[NOWHERE])}

    def _sum(self, purpose: str, work: Pass[S], pieces: Sequence[Piece], merge: Callable[[S, S], S]) -> S:
        """The sum of all pieces; zero if there are none."""
        self.purposes.append(purpose)
        self._on_progress(purpose, 0.0)
        total: S | None = None
        for done, one in enumerate(self._runner.sums(work, pieces), start=1):
            self._on_progress(purpose, done / len(pieces))
            total = one if total is None else merge(total, one)
        self.require_same()
        return work.summed(()) if total is None else total

    def chunks(self, schema: RecordSchema) -> Iterator[Chunk]:
        """All rows that count, in their order, with their shares."""
        work = Pass(schema, self._landing.decimal, lambda _: None)
        for piece in self._all_pieces():
            yield from (work.chunk(rows) for rows in piece.rows(work.columns, threads=True))

    def summary(self) -> str:
        """Return how often the data were read and for which purposes, which is public: plan and ledger determine it.

        The purposes are sorted, because which of two concurrent readings began first depends on the data.
        """
        times = {1: "once", 2: "twice"}.get(len(self.purposes), f"{len(self.purposes)} times")
        return f"the landing data were read {times}: for {', '.join(sorted(self.purposes))}"

    def _rows_alone(self) -> list[Piece]:
        return [Piece(one, month=self._month) for one in self._landing.fragments(self._runner.size)]

    def _all_pieces(self) -> Sequence[Piece]:
        """The fragments with the counts of their rows; persons are counted once per run."""
        if self._pieces is None:
            self._pieces = self._rows_alone() if self._unit.person is None else self._count_persons(self._unit.person)
        return self._pieces

    def _count_persons(self, person: str) -> list[Piece]:
        from tasks.landing.person_rows import (
            FragmentCounts,
            person_rows,
        )  # imports an engine that most releases do not need

        self.purposes.append("persons")
        pieces = self._rows_alone()
        keys = ((batch.column(person) for batch in piece.batches([person])) for piece in pieces)
        persons = person_rows(keys, self._unit, self._scratch, where=self._landing.where)
        return [
            replace(piece, person=person, counts=FragmentCounts(persons, index)) for index, piece in enumerate(pieces)
        ]

    def require_same(self) -> None:
        """Record the version of the data at the first call, and check at later calls that it has not changed.

        Raises: LandingError.
        """
        now = self._landing.version()
        if self._version is None:
            self._version = now
        elif now != self._version:
            raise changed(self._landing.where)
