"""What may be said of an error where others read: in the orchestrator's database, in exported lineage.

Of an unexpected one its type and its place in our code, never its text. Of refused landing
data only that they were refused: the verdict, which names column and rule, is a fact about
raw data that nobody paid for, and the operator's alone. The error keeps it in its
attributes, where the command line and the operator's files find it.
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
"""Our own; where the program is installed from a wheel, other libraries are beside them."""


def own_error(error: Exception, stage: str) -> PrivacyError:
    """An error of our own, free of data by rule, without traceback, cause or context that could hold a value."""
    own = error if isinstance(error, PrivacyError) else _no_room(error)
    own = own or StageFailedError(stage, type(error).__name__, _innermost_place(error))
    own.__context__ = own.__cause__ = None
    if isinstance(own, LandingError):
        own.args = (LANDING_REFUSED,)  # what logs and states show; `message` keeps the verdict
    return own.with_traceback(None)


class ErrorBoundary:
    """Replace foreign errors in a `with` block by one of ours, which has neither a cause nor a context.

    Whatever hangs on an error may hold data: so our error is free of the foreign one, and of frames that know it.
    """

    def __init__(self, *foreign: type[Exception], refusal: Callable[[Any], Exception]) -> None:
        self._foreign, self._refusal = foreign, refusal

    def __enter__(self) -> None:
        """Nothing is needed to begin."""

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
    """The operating system's words for a fault, without the name of the file."""
    return error.strerror or "unknown fault"


def _no_room(error: Exception) -> PrivacyError | None:
    """The refusal of what a full disk stopped, wherever it was being written; None for any other error."""
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
