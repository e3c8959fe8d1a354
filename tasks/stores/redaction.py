"""What may be said of an unexpected error: its type and its place in our code, never its text."""

from __future__ import annotations

import traceback
from pathlib import Path

from dpcore.errors import PrivacyError, StageFailedError

ROOMS = Path(__file__).resolve().parents[2]


def own_error(error: Exception, stage: str) -> PrivacyError:
    """An error of our own, free of data by rule, without traceback, cause or context that could hold a value."""
    own = error if isinstance(error, PrivacyError) else StageFailedError(stage, type(error).__name__, _place(error))
    own.__context__ = own.__cause__ = None
    return own.with_traceback(None)


def _place(error: BaseException) -> str:
    """File and line of the innermost frame of our own code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename).is_relative_to(ROOMS) and ".venv" not in f.filename]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "an unknown place"
