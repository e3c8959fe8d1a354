"""Bringing a file in whole: under a hidden name first, then by a rename; the source goes last.

A crash leaves the source, or the whole file at its place, or both; and at most a hidden draft, which
the next file that is brought in sweeps away.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpcore.errors import LandingError, PrivacyError, WorkspaceError
from tasks.intake.inspection import signature
from tasks.workspace.files import create_private, flush_to_disk, flush_written
from tasks.workspace.reading import open_regular
from tasks.workspace.redaction import ErrorBoundary, reason_of

DRAFT = ".landing-"


@contextmanager
def open_draft(source: Path, target: Path, *, replace: bool) -> Iterator[Path]:
    """The source under a hidden name beside its target, to be placed or put apart; then the source is removed.

    If anything goes wrong the source stays, and nothing else. To be used by one process at a time.
    Raises: LandingError if the target exists and may not be replaced; WorkspaceError if there is no room.
    """
    if target.exists() and source.samefile(target):  # it is there already: it needs no other name
        yield target
        return
    if target.exists() and not replace:
        raise LandingError(
            "a file of that name has already landed",
            rule="landing-exists",
            where="FILE",
            hint="give it another name with --as, or replace the one that is there with --replace",
        )
    draft = _make_draft(source, target)
    try:
        yield draft
        with suppress(OSError):  # what may not be removed stays; it has landed nevertheless
            source.unlink()
    finally:
        draft.unlink(missing_ok=True)


def place(draft: Path, target: Path) -> None:
    """Give a draft its name, for good."""
    if draft != target:
        draft.replace(target)
    flush_to_disk(target.parent, best_effort=True)


def _make_draft(source: Path, target: Path) -> Path:
    draft = target.with_name(f"{DRAFT}{secrets.token_hex(8)}{target.suffix}")
    try:
        with ErrorBoundary(OSError, refusal=_unwritable_landing):
            _link_or_copy(source, draft)
    except PrivacyError:
        draft.unlink(missing_ok=True)
        raise
    return draft


def _link_or_copy(source: Path, draft: Path) -> None:
    draft.parent.mkdir(parents=True, exist_ok=True)
    for left in draft.parent.glob(f"{DRAFT}*"):
        left.unlink(missing_ok=True)
    if not _try_link(source, draft):
        _copy_unchanged(source, draft)


def _unwritable_landing(error: OSError) -> WorkspaceError:
    return WorkspaceError(
        f"the file cannot be brought in: {reason_of(error)}",
        rule="landing-unwritable",
        where="landing",
        hint="check the permissions and the space on the disk; the file was not moved",
    )


def _try_link(source: Path, draft: Path) -> bool:
    """Whether the file could get a second name: on the same file system, and if it is no link itself."""
    try:
        if source.is_symlink():
            return False
        flush_to_disk(source, best_effort=True)
        os.link(source, draft)
    except OSError:
        return False
    return True


def _copy_unchanged(source: Path, draft: Path) -> None:
    before = signature(source)
    with open_regular(source) as read, create_private(draft) as written:
        shutil.copyfileobj(read, written, 1 << 20)
        flush_written(written)
    if signature(source) != before:
        draft.unlink()
        raise LandingError(
            "the file changed while it was copied",
            rule="landing-changed",
            where="FILE",
            hint="land it when it is complete; it was not moved",
        )
