"""Arriving files: complete or still being written, valid or refused; each version is processed once.

A file whose size, times and inode have not changed for `settle` seconds, by a monotonic clock, is read to
its end and judged. A file that may be unfinished (unreadable, without rows, or without an end of its last
line) is judged only after `patience`; if it then still has no rows, it is valid. Valid files are recorded,
and others are put into quarantine; neither delays the next file. No result contains a file's name, its size
or a number of files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import cast

from dpcore.errors import LandingError, PrivacyError
from tasks.intake.file_registry import Announcement, FileVersion, Look, Registry
from tasks.intake.inspection import Judgement, ends_within_a_line, fingerprint, judge, signature
from tasks.intake.moving import open_draft, place
from tasks.intake.quarantine import put_apart
from tasks.landing.file_names import matching_names, period_of
from tasks.spec import ReleaseSpec
from tasks.workspace.clock import Clock, steady_clock
from tasks.workspace.folders import Workspace
from tasks.workspace.locks import hold_lock
from tasks.workspace.redaction import own_error

PATIENCE = 6
"""The default factor by which the settling time of a file that looks unfinished is longer."""


@dataclass(frozen=True, slots=True)
class Scan:
    """The new findings of one scan of the landing data."""

    landed: tuple[FileVersion, ...] = ()
    refused: tuple[LandingError, ...] = ()
    writing: frozenset[str | None] = frozenset()
    """The months of files that may still be incomplete; None for a name without a month."""

    @property
    def unsettled(self) -> bool:
        """Whether any file may still be incomplete."""
        return bool(self.writing)


@dataclass(frozen=True, slots=True)
class Admission:
    """The result for a complete file: its version, whether the version was known, or the reason for quarantine."""

    version: FileVersion
    known: bool = False
    refusal: LandingError | None = None


class Pause(Enum):
    """Why a scan did not process a file."""

    WRITING = "it may still be being written"
    NOTHING_NEW = "it is known, or gone"


@dataclass(frozen=True, slots=True)
class _Reading:
    """The result of reading a file: signature, keyed fingerprint, judgement, and the version if it landed before."""

    seen: str
    mark: str
    judgement: Judgement
    known: FileVersion | None


Outcome = FileVersion | LandingError | Pause


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The versions of a workspace's landing files; safe for several processes."""

    workspace: Workspace
    clock: Clock = field(default_factory=steady_clock)

    @property
    def registry(self) -> Registry:
        """The registry of file versions."""
        return Registry(self.workspace.landing / ".arrivals.db")

    def pending(self) -> list[Announcement]:
        """The announcements of landed data that no run has handled, oldest first."""
        return self.registry.pending()

    def find(self, token: str) -> Announcement | None:
        """An announcement by its token."""
        return self.registry.find(token)

    def latest(self, period: str | None) -> int:
        """The last version that landed for a month, which a run that starts now will find."""
        return self.registry.latest(period)

    def mark_announced(self, sent: Announcement, at: datetime) -> None:
        """Record that the server accepted an event."""
        self.registry.mark_announced(sent, at)

    def mark_handled(self, period: str | None, seen: int) -> None:
        """Record that the landed data of a month need no further run; `seen` is the result of `latest` at that time."""
        self.registry.mark_handled(period, seen)

    def reopen(self, token: str) -> None:
        """Mark a handled version as not handled, so that it is announced again."""
        self.registry.reopen(token)

    def announcing(self) -> AbstractContextManager[object]:
        """Wait until no other process announces, so that one process announces each month."""
        return hold_lock(self.workspace.landing / ".announcing.lock")

    def scan(self, spec: ReleaseSpec, *, settle: float, patience: float | None = None) -> Scan:
        """Inspect every file that source.path matches; record complete valid files and quarantine invalid ones.

        Raises: PrivacyError if a file could not be judged; all other files were processed.
        """
        if spec.source.is_elsewhere:
            return Scan()
        limits = settle, PATIENCE * settle if patience is None else patience
        with self._looking():
            files = {self._key(path): path for path in matching_names(self.workspace.root, spec.source.path)}
            looks = self.registry.looks(self.clock.name)
            self.registry.forget_looks(looks.keys() - files.keys())
            outcomes = {path: self._try(path, spec, looks.get(key), limits) for key, path in files.items()}
            return _summary(outcomes, spec)

    def admit(self, path: Path, spec: ReleaseSpec, *, source: Path | None = None, replace: bool = False) -> Admission:
        """Process a complete file while no other process scans.

        The file is already in its place, or is moved there from `source`, which an invalid file never reaches.
        Raises: LandingError if the name is taken, or if the file changes during the reading; WorkspaceError.
        """
        draft = open_draft(source, path, replace=replace) if source else nullcontext(path)
        with self._looking():
            with draft as file:
                reading = self._read(file, spec, path)
                if reading is None:
                    raise _changed()
                if reading.judgement.refusal:
                    return Admission(self._refuse(file, path, reading), refusal=reading.judgement.refusal)
                place(file, path)
            return Admission(self._land(path, reading, signature(path)), known=reading.known is not None)

    def _looking(self) -> AbstractContextManager[object]:
        """The lock under which one process at a time scans the files or moves one in."""
        if not (self.workspace.landing.is_dir() and self.workspace.has_keys()):
            self.workspace.create()
        return hold_lock(self.workspace.landing / ".arrivals.lock")

    def _key(self, path: Path) -> str:
        """A file's name in the registry; invalid bytes are escaped."""
        root = self.workspace.root
        known = path.relative_to(root) if path.is_relative_to(root) else path
        return os.fsencode(known).decode(errors="backslashreplace")

    def _try(
        self, path: Path, spec: ReleaseSpec, look: Look | None, limits: tuple[float, float]
    ) -> Outcome | PrivacyError:
        """As `_consider`, but a fault of one file does not stop the scan of the others."""
        try:
            return self._consider(path, spec, look, limits)
        except Exception as error:  # noqa: BLE001  its text may contain a file name
            return own_error(error, "landing")

    def _consider(self, path: Path, spec: ReleaseSpec, look: Look | None, limits: tuple[float, float]) -> Outcome:
        """Decide about one file."""
        seen, now = signature(path), self.clock.seconds()
        if seen is None:
            return Pause.NOTHING_NEW
        if look is None or look.signature != seen or now < look.since:  # start again after the clock stepped back
            look = Look(seen, since=now)
            self.registry.keep_look(self._key(path), self.clock.name, look)
        if look.done:
            return Pause.NOTHING_NEW
        (settle, patience), age = limits, now - look.since
        return Pause.WRITING if age < settle else self._take_up(path, spec, seen, patient=age >= patience)

    def _take_up(self, path: Path, spec: ReleaseSpec, seen: str, *, patient: bool) -> Outcome:
        """Read and judge a file that has settled."""
        if not patient and ends_within_a_line(path):
            return Pause.WRITING
        reading = self._read(path, spec, path)
        if reading is None or reading.seen != seen:
            return Pause.WRITING if path.exists() else Pause.NOTHING_NEW
        if reading.judgement.maybe_unfinished and not patient:
            return Pause.WRITING
        if reading.judgement.refusal:
            self._refuse(path, path, reading)
            return reading.judgement.refusal
        version = self._land(path, reading, seen)
        return Pause.NOTHING_NEW if reading.known else version

    def _read(self, file: Path, spec: ReleaseSpec, path: Path) -> _Reading | None:
        """Read and judge a file that is, or will be, at a path; None if it changes or disappears during the reading."""
        seen = signature(file)
        mark = fingerprint(file, spec, self.workspace.fingerprint_key())
        version = self.registry.version(self._key(path), mark)
        known = version if version and not version.refused else None
        judgement = Judgement(known.period, None) if known else judge(file, spec, path.name)
        return None if seen is None or signature(file) != seen else _Reading(seen, mark, judgement, known)

    def _land(self, path: Path, reading: _Reading, seen: str | None) -> FileVersion:
        """Record a version once; it is not read again while its signature stays the same."""
        version = reading.known or self.registry.record(
            self._key(path), reading.mark, period=reading.judgement.period, refused=None
        )
        self._finish(path, seen)
        return version

    def _refuse(self, file: Path, path: Path, reading: _Reading) -> FileVersion:
        """Put a bad file into quarantine; it is recorded first, so that a scan after a crash uses the same token."""
        refusal = cast(LandingError, reading.judgement.refusal)
        version = self.registry.record(
            self._key(path), reading.mark, period=reading.judgement.period, refused=refusal.rule
        )
        if not put_apart(self.workspace, file, version.token, refusal, reading.seen, path.name):
            if file != path:
                raise _changed()
            self._finish(path, reading.seen)
        return version

    def _finish(self, path: Path, seen: str | None) -> None:
        """Record that the file is not to be read again while its signature stays the same."""
        if seen is not None:
            self.registry.keep_look(self._key(path), self.clock.name, Look(seen, self.clock.seconds(), done=True))


def _summary(outcomes: Mapping[Path, Outcome | PrivacyError], spec: ReleaseSpec) -> Scan:
    for outcome in outcomes.values():
        if isinstance(outcome, PrivacyError) and not isinstance(outcome, LandingError):
            raise outcome
    return Scan(
        landed=tuple(o for o in outcomes.values() if isinstance(o, FileVersion)),
        refused=tuple(o for o in outcomes.values() if isinstance(o, LandingError)),
        writing=frozenset(_month_of_name(path, spec) for path, o in outcomes.items() if o is Pause.WRITING),
    )


def _month_of_name(path: Path, spec: ReleaseSpec) -> str | None:
    try:
        return period_of(path, spec.source.period)
    except LandingError:
        return None


def _changed() -> LandingError:
    return LandingError(
        "the landing file was changed or removed while it was read",
        rule="landing-changed",
        where="source.path",
        hint="make sure that no other process writes the file, and land it again",
    )


def wait_until_settled(
    workspace: Workspace,
    spec: ReleaseSpec,
    *,
    period: str | None = None,
    seconds: float,
    settle: float,
    patience: float | None = None,
) -> tuple[LandingError, ...]:
    """Wait until no landing file is being written; return the refusals of files that were put into quarantine.

    With a period, only its own files, and those whose name contains no period, are waited for.
    Raises: LandingError if the wait takes too long.
    """
    arrivals, end, refused = Arrivals(workspace), time.monotonic() + seconds, list[LandingError]()
    while True:
        scan = arrivals.scan(spec, settle=settle, patience=patience)
        refused += scan.refused
        if not (scan.writing if period is None else scan.writing & {period, None}):
            return tuple(refused)
        if time.monotonic() >= end:
            raise LandingError(
                "the landing data are still being written",
                rule="landing-unsettled",
                where="source.path",
                hint="wait until all files are complete, then run again; nothing was read or spent",
            )
        time.sleep(min(1.0, settle / 4))
