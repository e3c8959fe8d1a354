"""The inspection of one landing file: its signature and its content, by which the intake decides."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dpcore.errors import LandingError
from tasks.landing.datasets import Landing
from tasks.landing.file_names import period_of, require_landable, require_period
from tasks.landing.fragments import file_version
from tasks.landing.structure import require_sound
from tasks.spec import ReleaseSpec
from tasks.workspace.reading import open_regular

MAYBE_UNFINISHED = frozenset({"file-empty", "file-unreadable", "format-unknown"})
"""Rules that a valid file may break while it is being written."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The month of a file, the rule that it breaks, and whether it has any row."""

    period: str | None
    refusal: LandingError | None
    has_rows: bool = True

    @property
    def maybe_unfinished(self) -> bool:
        """Whether the file may lack rows or break its rule only because it is not yet complete."""
        return not self.has_rows if self.refusal is None else self.refusal.rule in MAYBE_UNFINISHED


def judge(path: Path, spec: ReleaseSpec, name: str | None = None) -> Judgement:
    """Read a file to its end and compare it, under its name or another, with the specification, except its cells."""
    landing, period, has_rows = Landing((path,), spec, "source.path"), None, True
    try:
        period = period_of(Path(name or path), spec.source.period)
        require_landable(path, landing.where)
        has_rows = require_sound(landing)
        require_period(spec.source.period, period)
    except LandingError as error:
        return Judgement(period, error.with_traceback(None), has_rows)
    except OSError:
        return Judgement(period, landing.unreadable(), has_rows)
    return Judgement(period, None, has_rows)


def fingerprint(path: Path, spec: ReleaseSpec, key: bytes) -> str:
    """A keyed fingerprint of a file's bytes, or of its signature if it cannot be read."""
    try:
        return Landing((path,), spec, "source.path").fingerprint(key)
    except OSError:
        return f"unread {signature(path)}"


def signature(path: Path) -> str | None:
    """Size, times and inode of a file, which change with its content; None if it does not exist."""
    return file_version(path)


def is_moved(path: Path, before: str) -> bool:
    """Whether a file is the one with that signature after a move: only its change time may differ."""
    now = signature(path)
    return now is not None and now.rpartition(" ")[0] == before.rpartition(" ")[0]


def ends_within_a_line(path: Path) -> bool:
    """Whether a text file's last line has no line end, so that the file is probably incomplete."""
    if path.suffix.lower() != ".csv":
        return False
    try:
        with open_regular(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4))
            return not file.read().rstrip(b"\0").endswith((b"\n", b"\r"))  # NUL: the other half of a UTF-16 line end
    except OSError:
        return False
