"""What an audit says of one thing that it verified."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from dpcore.errors import PrivacyError

Outcome = Literal["holds", "broken", "not-shown"]


class NotShownError(Exception):
    """What was to be verified can neither be shown to hold nor to be broken, for the reason given."""


class BrokenError(Exception):
    """A fault that leaves nothing more to verify."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was verified: it holds, it is broken, or neither could be shown."""

    name: str
    ok: bool
    detail: str
    shown: bool = True

    @property
    def outcome(self) -> Outcome:
        """How it ended; only what holds is ok."""
        if self.ok:
            return "holds"
        return "broken" if self.shown else "not-shown"

    def as_json(self) -> dict[str, str | bool]:
        """The check as commands and pages write it."""
        return {"name": self.name, "ok": self.ok, "outcome": self.outcome, "detail": self.detail}


def broken(checks: Iterable[Check]) -> list[Check]:
    """The checks that found something broken."""
    return [check for check in checks if check.outcome == "broken"]


def not_shown(checks: Iterable[Check]) -> list[Check]:
    """The checks that could show neither."""
    return [check for check in checks if check.outcome == "not-shown"]


def check(name: str, find: Callable[[], list[str]], holds: str | Callable[[], str]) -> Check:
    """Run one verification; whatever cannot even be read counts as broken."""
    try:
        found = find()
        words = "; ".join(found) if found else (holds if isinstance(holds, str) else holds())
        return Check(name, not found, words)
    except NotShownError as reason:
        return Check(name, False, f"not shown: {reason}", shown=False)
    except (BrokenError, PrivacyError) as error:
        return Check(name, False, str(error))
    except (LookupError, TypeError, ValueError, AttributeError, OSError, ArithmeticError, RuntimeError) as error:
        return Check(name, False, f"cannot be read ({type(error).__name__})")


def require(holds: bool, fault: str) -> list[str]:
    """A list with the fault, or none."""
    return [] if holds else [fault]
