"""Whether a month's landing data are whole: no part of them is in quarantine.

A record can make its file unreadable. A release of what is left would then change by all of that
file's records for the sake of one, which no noise covers: the month is refused instead, as one whose
only file is bad would be (GUARANTEE.md, limits).
"""

from __future__ import annotations

from pathlib import Path

from dpcore.errors import LandingError
from tasks.intake.file_registry import Registry
from tasks.spec import ReleaseSpec
from tasks.workspace.folders import Workspace

NAMELESS = ("period-missing", "period-malformed")
"""What only a file's name decides, no record in it."""


def require_whole(workspace: Workspace, spec: ReleaseSpec, period: str) -> None:
    """Refuse a month of which a file is in quarantine, until a better one takes its place or somebody removes it.

    Raises: LandingError.
    """
    if spec.source.is_elsewhere:
        return
    registry = Registry(workspace.landing / ".arrivals.db")
    month = period if spec.source.period else None
    parts = registry.refused(month, besides=NAMELESS) if registry.exists() else []
    if any(_is_missing(workspace, token, path) for token, path in parts):
        raise LandingError(
            f"a file of {period} is in quarantine" if month else "a file of the dataset is in quarantine",
            rule="file-quarantined",
            where="landing/quarantine",
            hint="land the corrected file under the same name; or remove it from quarantine to release without it, "
            "which is a decision on raw data",
        )


def _is_missing(workspace: Workspace, token: str, path: str) -> bool:
    """Whether a file is still apart, and nothing newer is in its place."""
    apart = [
        p for p in (workspace.landing / "quarantine").glob(f"{token[:16]}-*") if not p.name.endswith(".verdict.json")
    ]
    if not apart:
        return False
    place = Path(workspace.root / path)
    return not place.exists() or place.stat().st_ctime_ns <= max(p.lstat().st_ctime_ns for p in apart)
