"""A published bundle, and the content of its files computed again for comparison."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dpcore.errors import PrivacyError
from dpcore.synthesis.generators import SAMPLERS
from tasks.audit.agreement import other_versions, same_figures
from tasks.audit.checks import BrokenError, NotShownError
from tasks.audit.evidence import Redraw
from tasks.audit.tables import TablePass, read_table
from tasks.bundle.rebuild import Rebuilt, rebuild
from tasks.bundle.released_tables import ReleasedTable
from tasks.ledger.releases import ReleaseState
from tasks.workspace.build_identity import code_facts
from tasks.workspace.long_work import long_work
from tasks.workspace.reading import parse_json, read_text

UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, PrivacyError)


@dataclass(frozen=True)  # no slots: cached properties need an instance dictionary
class RecomputedBundle:
    """A bundle with everything that determines its files: specification, measurements and seeds."""

    folder: Path
    record: dict[str, Any]
    release: ReleaseState
    redraw: Redraw

    def text(self, name: str) -> str:
        """The text of a file of the bundle."""
        return read_text(self.folder / name)

    @cached_property
    def model(self) -> dict[str, Any]:
        """The bundle's model."""
        model: dict[str, Any] = parse_json(self.text("model.json"))
        return model

    @property
    def numbered(self) -> bool:
        """Whether the model names its sampler; models of older versions do not."""
        return "sampler" in self.model

    @cached_property
    def others(self) -> list[str]:
        """The libraries whose versions differ from the record's, and `platform` if it differs."""
        return other_versions(self.record)

    @property
    def exact(self) -> bool:
        """Whether recomputed values must be identical to the published ones."""
        return not self.others

    @property
    def same_program(self) -> bool:
        """Whether this program, with all installed distributions, is the one that made the bundle."""
        made, here = self.record.get("code", {}), code_facts()
        return all(made.get(name) == here[name] for name in ("digest", "dependencies_digest"))

    @cached_property
    def rebuilt(self) -> Rebuilt:
        """Everything that determines rows and figures.

        Raises: NotShownError for a sampler that this program does not have.
        """
        if self.numbered and self.model["sampler"] not in SAMPLERS:
            raise NotShownError("it was drawn by a sampler that this program does not have; audit it with a newer one")
        return rebuild(self.record, self.model, self.release.reservation.seeds)

    @cached_property
    def tables(self) -> tuple[TablePass, ...]:
        """The released tables, each read once in bounded memory; their rows are counted, redrawn and written again.

        Raises: BrokenError for a table whose layout is not that of these rows; NotShownError.
        """
        if not self.rebuilt.schema.rules:
            return tuple(self._read(table) for table in self.rebuilt.tables)
        words = f"drawing rows of {self.release.release_id} that obey the rules again"
        with long_work(words, report=self.redraw.on_progress):
            return tuple(self._read(table) for table in self.rebuilt.tables)

    def _read(self, table: ReleasedTable) -> TablePass:
        words = f"drawing {self.release.release_id} again"
        return read_table(
            self.folder / table.file,
            self.rebuilt,
            table,
            exact=self.exact,
            sample=self.redraw.rows,
            progress=lambda done, rows: self.redraw.on_progress(f"{words}: {done:,} of {rows:,} rows"),
        )

    def agrees(self, stated: Any, due: Any) -> bool:
        """Whether a part of a document equals the recomputed one."""
        return same_figures(stated, json.loads(json.dumps(due)), exact=self.exact)

    def other_parts(self, due: dict[str, Any]) -> Iterator[str]:
        """The names of the record's parts that differ from the recomputed ones."""
        return (name.replace("_", " ") for name, value in due.items() if not self.agrees(self.record[name], value))

    def by_its_sampler(self, find: Callable[[], list[str]]) -> list[str]:
        """The faults of content that the sampler determines; a model without a number may have another sampler.

        Raises: NotShownError.
        """
        excuse = (
            "its model names no sampler, and the last program that named none did not draw it; "
            "older samplers are not kept"
        )
        return _faults_unless_excused(find, (BrokenError, *UNREADABLE), lambda: self.numbered, excuse)

    def by_this_program(self, find: Callable[[], list[str]]) -> list[str]:
        """The faults of content whose form depends on the program; differences of another version show nothing.

        Raises: NotShownError.
        """
        excuse = "another version of this program made it"
        return _faults_unless_excused(find, UNREADABLE, lambda: self.same_program, excuse)


def _faults_unless_excused(
    find: Callable[[], list[str]], unreadable: tuple[type[Exception], ...], is_sure: Callable[[], bool], excuse: str
) -> list[str]:
    """The faults that `find` returns; if another version may explain them, they show nothing.

    Raises: NotShownError with the excuse.
    """
    try:
        found = find()
    except unreadable:
        if is_sure():
            raise
        found = ["it cannot be computed again"]
    if found and not is_sure():
        raise NotShownError(f"{excuse}; {'; '.join(found)}")
    return found
