"""Moving a file into the landing folder: first under a hidden name, then by a rename; the source is removed last.

A crash leaves the source, or the complete file in its place, or both, and at most a hidden draft, which
the next move removes.
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
    """The source under a hidden name beside its target, to be placed or quarantined; then the source is removed.

    If anything fails, the source and nothing else remains. Only one process at a time may use it.
    Raises: LandingError if the target exists and may not be replaced; WorkspaceError if there is no space.
    """
    if target.exists() and source.samefile(target):  # the file is already in its place
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
        with suppress(OSError):  # the source stays if it cannot be removed; the file has landed in any case
            source.unlink()
    finally:
        draft.unlink(missing_ok=True)


def place(draft: Path, target: Path) -> None:
    """Rename a draft to its final name, durably."""
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
    """Try to hard-link the file, which needs the same file system and no symbolic link; return whether it succeeded."""
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
