"""The tree of errors that dprelease raises on purpose.

    PrivacyError
    ├── RefusedError               the request cannot be honoured: exit code 2
    │   ├── SpecError              release.yaml breaks a rule
    │   ├── LandingError           the landing data's structure breaks a rule
    │   ├── WorkspaceError         the folder cannot be used
    │   ├── LedgerError            the ledger is not in a state to release on
    │   └── BudgetExceededError    the population's cap would be exceeded
    ├── CheckFailedError           a check or an audit did not hold: exit code 1
    ├── InterruptedReleaseError    somebody pressed Ctrl-C: exit code 130
    └── StageFailedError           an unexpected fault, redacted: exit code 3

Messages name parameters, columns, rules and limits, never a data value, a count
of rows or a file name: they may end in logs and in the orchestrator's database.
"""

from __future__ import annotations


class PrivacyError(Exception):
    """Base of the refusals and failures that commands and flows report."""


class RefusedError(PrivacyError):
    """A request that cannot be honoured, with the rule, the place and a hint."""

    def __init__(self, message: str, *, rule: str, where: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.rule, self.where, self.hint = message, rule, where, hint

    def as_json(self) -> dict[str, str]:
        """The refusal as the command line's `--json` shows it."""
        return {"error": self.message, "rule": self.rule, "where": self.where, "hint": self.hint}


class SpecError(RefusedError):
    """release.yaml breaks a rule."""


class LandingError(RefusedError):
    """The landing data's structure breaks a rule."""


class WorkspaceError(RefusedError):
    """The workspace folder cannot be used."""


class LedgerError(RefusedError):
    """The ledger is not in a state on which a release may be made."""


class BudgetExceededError(RefusedError):
    """The population's lifetime cap would be exceeded."""


RELAX_CHECKS = "the budget stays spent; relax `checks` and run the same period again at no further cost"
CORRECT_RULES = "the budget stays spent; correct `rules` and run the same period again at no further cost"
"""Hints for a release of which a check, or drawing rows that obey its rules, failed."""


class CheckFailedError(PrivacyError):
    """A release's checks did not hold; its spend stands and nothing is published. `hint` says what may help."""

    def __init__(self, message: str, *, hint: str = "`dprelease history` shows what was spent") -> None:
        super().__init__(message)
        self.hint = hint


class InterruptedReleaseError(PrivacyError):
    """A release that was interrupted from outside; its spend stands."""

    def __init__(self) -> None:
        super().__init__("interrupted; `dprelease history` shows how far the release got")


class StageFailedError(PrivacyError):
    """An unexpected fault in a stage; only the stage, the fault's type and its place in the code are kept."""

    def __init__(self, stage: str, fault: str, place: str) -> None:
        super().__init__(f"stage {stage!r} failed with {fault} at {place}")
        self.stage, self.fault, self.place = stage, fault, place

    def __reduce__(self) -> tuple[type[StageFailedError], tuple[str, str, str]]:
        return type(self), (self.stage, self.fault, self.place)
