"""Redaction of errors that others can read, in the orchestrator's database and in exported lineage.

For an unexpected error, only its type and its place in our code are stated, never its text. For refused
landing data, only the refusal is stated: the verdict, which names column and rule, is a fact about raw
data that no budget covers, and is for the operator only. The error keeps the verdict in its attributes,
which the command line and the operator's files use.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpcore.errors import LandingError, PrivacyError, StageFailedError, WorkspaceError

LANDING_REFUSED = "the landing data were refused; the operator was told why"

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("dpcore", "expectations", "tasks", "flows", "deployments")
"""Our own packages; in an installation from a wheel, other libraries are in the same folder."""


def own_error(error: Exception, stage: str) -> PrivacyError:
    """An error of our own, which contains no data, without a traceback, cause or context that could hold a value."""
    own = error if isinstance(error, PrivacyError) else _no_room(error)
    own = own or StageFailedError(stage, type(error).__name__, _innermost_place(error))
    own.__context__ = own.__cause__ = None
    if isinstance(own, LandingError):
        own.args = (LANDING_REFUSED,)  # what logs and states show; `message` keeps the verdict
    return own.with_traceback(None)


class ErrorBoundary:
    """Replace foreign errors in a `with` block by one of ours, which has neither a cause nor a context.

    Everything attached to an error may contain data, so our error refers to neither the foreign error nor its frames.
    """

    def __init__(self, *foreign: type[Exception], refusal: Callable[[Any], Exception]) -> None:
        self._foreign, self._refusal = foreign, refusal

    def __enter__(self) -> None:
        """Enter the block."""

    def __exit__(self, _kind: object, error: object, trace: object) -> None:
        """Raise our error in place of one that is listed.

        Raises: what `refusal` makes of the foreign error.
        """
        if isinstance(error, self._foreign):
            own = self._refusal(error)
            del error, trace  # the traceback of our error leads to this frame
            try:
                raise own
            finally:
                own.__context__ = None  # Python sets it to the error that ended the block


def reason_of(error: OSError) -> str:
    """The operating system's description of a fault, without the name of the file."""
    return error.strerror or "unknown fault"


def _no_room(error: Exception) -> PrivacyError | None:
    """The refusal if a full disk caused the error; None for any other error."""
    if not isinstance(error, OSError) or error.errno not in NO_ROOM:
        return None
    return WorkspaceError(
        "the disk is full, or a limit on space or on the size of files is reached",
        rule="disk-full",
        where="disk",
        hint="free some space and run the same command again: finished work is kept, and an interrupted run resumes",
    )


def _innermost_place(error: BaseException) -> str:
    """File and line of the innermost frame of our own code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if any(Path(frame.filename).is_relative_to(ROOT / name) for name in PACKAGES)]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "an unknown place"
