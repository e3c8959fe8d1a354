"""The check that a month's landing data are complete: none of its files is in quarantine.

One record can make its file unreadable. A release of the remaining files would then change by all records
of that file because of one record, which no noise covers. Therefore the month is refused, like a month
whose only file is bad (GUARANTEE.md, limits).
"""

from __future__ import annotations

from pathlib import Path

from dpcore.errors import LandingError
from tasks.intake.file_registry import Registry
from tasks.spec import ReleaseSpec
from tasks.workspace.folders import Workspace

NAMELESS = ("period-missing", "period-malformed")
"""Rules that depend on a file's name only, and on no record in it."""


def require_whole(workspace: Workspace, spec: ReleaseSpec, period: str) -> None:
    """Refuse a month with a file in quarantine, until a better file replaces it or somebody removes it.

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
    """Whether a file is still in quarantine, and no newer file is in its place."""
    apart = [
        p for p in (workspace.landing / "quarantine").glob(f"{token[:16]}-*") if not p.name.endswith(".verdict.json")
    ]
    if not apart:
        return False
    place = Path(workspace.root / path)
    return not place.exists() or place.stat().st_ctime_ns <= max(p.lstat().st_ctime_ns for p in apart)
