"""Refused files, which are moved to quarantine with their verdict, for the operator only."""

from __future__ import annotations

import json
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

from dpcore.errors import LandingError
from tasks.intake.inspection import is_moved
from tasks.workspace.files import PRIVATE_FOLDER, write_atomically
from tasks.workspace.folders import Workspace

LONGEST_NAME = 200
"""The bytes of a file's own name that are kept; file systems allow 255, including prefix and extension."""


def put_apart(
    workspace: Workspace, path: Path, token: str, refusal: LandingError, seen: str, name: str | None = None
) -> bool:
    """Write the verdict, then move the refused file into quarantine; return whether the file is there.

    The token makes names unique. A file that was replaced since the inspection is put back; a file that
    cannot be moved (another file system, no permission) stays where it is.
    """
    folder = workspace.landing / "quarantine"
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    place = folder / f"{token[:16]}-{_shortened(name or path.name)}"
    verdict = place.with_name(f"{place.name}.verdict.json")
    content = json.dumps(verdict_on(refusal), indent=2).encode()
    write_atomically(verdict, content, draft=folder / f".{secrets.token_hex(8)}")
    try:
        path.rename(place)
    except OSError:
        verdict.unlink(missing_ok=True)
        return False
    if not (place.is_symlink() or is_moved(place, seen)):
        _put_back(place, path)
        verdict.unlink(missing_ok=True)
        return False
    return True


def verdict_on(refusal: LandingError) -> dict[str, str | None]:
    """The parts of a refusal that may be stored: rule, column and hint, never a value or a count."""
    place, _, column = refusal.where.partition(".")
    return {
        "rule": refusal.rule,
        "column": column if place == "columns" and column else None,
        "verdict": refusal.message,
        "hint": refusal.hint,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _shortened(name: str) -> str:
    """The end of a long name, which contains the extension."""
    return os.fsencode(name)[-LONGEST_NAME:].decode(errors="ignore")


def _put_back(place: Path, path: Path) -> None:
    """Restore a file's name, unless a newer file has it."""
    try:
        os.link(place, path)
    except FileExistsError:
        place.unlink()
    except OSError:  # a file system without links
        place.rename(path)
    else:
        place.unlink()
