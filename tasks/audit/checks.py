"""The result of one check of an audit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from dpcore.errors import PrivacyError

Outcome = Literal["holds", "broken", "not-shown"]


class NotShownError(Exception):
    """A check can be shown neither to hold nor to be broken, for the reason given."""


class BrokenError(Exception):
    """A fault after which nothing more can be verified."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check: it holds, it is broken, or neither could be shown."""

    name: str
    ok: bool
    detail: str
    shown: bool = True

    @property
    def outcome(self) -> Outcome:
        """The outcome; `ok` is true only if the check holds."""
        if self.ok:
            return "holds"
        return "broken" if self.shown else "not-shown"

    def as_json(self) -> dict[str, str | bool]:
        """The check as JSON for commands and pages."""
        return {"name": self.name, "ok": self.ok, "outcome": self.outcome, "detail": self.detail}


def broken(checks: Iterable[Check]) -> list[Check]:
    """The checks that found something broken."""
    return [check for check in checks if check.outcome == "broken"]


def not_shown(checks: Iterable[Check]) -> list[Check]:
    """The checks that could be shown neither to hold nor to be broken."""
    return [check for check in checks if check.outcome == "not-shown"]


def check(name: str, find: Callable[[], list[str]], holds: str | Callable[[], str]) -> Check:
    """Run one check; unreadable content counts as broken."""
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
    """An empty list if the condition holds, otherwise a list with the fault."""
    return [] if holds else [fault]
