"""What an audit says of one thing that it verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpcore.errors import PrivacyError


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was verified."""

    name: str
    ok: bool
    detail: str


def check(name: str, find: Callable[[], list[str]], holds: str | Callable[[], str]) -> Check:
    """Run one verification; whatever cannot even be read counts as broken."""
    try:
        found = find()
        words = "; ".join(found) if found else (holds if isinstance(holds, str) else holds())
        return Check(name, not found, words)
    except PrivacyError as error:
        return Check(name, False, str(error))
    except (LookupError, TypeError, ValueError, AttributeError, OSError, ArithmeticError, RuntimeError) as error:
        return Check(name, False, f"cannot be read ({type(error).__name__})")


def require(holds: bool, fault: str) -> list[str]:
    """A list with the fault, or none."""
    return [] if holds else [fault]
