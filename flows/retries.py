"""Which refusals end by themselves, so that another run may succeed, and which need a person."""

from __future__ import annotations

from dpcore.errors import BudgetExceededError, CheckFailedError, LandingError, LedgerError, PrivacyError, SpecError

PASSING = ("landing-unsettled", "landing-changed")
"""Refusals of landing data that end by themselves."""
DECISIONS = (
    "release-refused",
    "release-retracted",
    "spec-changed",
    "cap-differs",
    "budget-basis-differs",
    "supersedes-wrong",
)
"""Refusals by the ledger that need a person's decision; others, such as an unreachable database, are temporary."""


def needs_a_person(error: PrivacyError) -> bool:
    """Whether another run would end in the same way until somebody decides something."""
    if isinstance(error, LandingError):
        return error.rule not in PASSING
    if isinstance(error, LedgerError):
        return error.rule in DECISIONS
    return isinstance(error, BudgetExceededError | CheckFailedError | SpecError)
