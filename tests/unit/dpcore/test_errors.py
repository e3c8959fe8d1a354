"""Refusals carry a rule, a place and a hint; a redacted fault survives pickling between processes."""

from __future__ import annotations

import pickle

import pytest

from dpcore.errors import (
    RELAX_CHECKS,
    BudgetExceededError,
    CheckFailedError,
    LandingError,
    LedgerError,
    PrivacyError,
    RefusedError,
    SpecError,
    StageFailedError,
    WorkspaceError,
)


@pytest.mark.parametrize("refusal", [SpecError, LandingError, WorkspaceError, LedgerError, BudgetExceededError])
def test_a_refusal_is_shown_with_its_rule_its_place_and_a_hint(refusal: type[RefusedError]) -> None:
    error = refusal("too small", rule="a-rule", where="privacy.epsilon", hint="raise it")
    assert error.as_json() == {"error": "too small", "rule": "a-rule", "where": "privacy.epsilon", "hint": "raise it"}
    assert isinstance(error, RefusedError)
    assert str(error) == "too small"


def test_checks_and_faults_are_no_refusals() -> None:
    for error in (CheckFailedError, StageFailedError):
        assert issubclass(error, PrivacyError)
        assert not issubclass(error, RefusedError)


def test_a_failed_check_survives_pickling_with_what_may_help() -> None:
    failed = pickle.loads(pickle.dumps(CheckFailedError("checks failed: mean_gap", hint=RELAX_CHECKS)))  # noqa: S301
    assert (str(failed), failed.hint) == ("checks failed: mean_gap", RELAX_CHECKS)
    assert "checks" not in CheckFailedError("the audit failed").hint


def test_a_redacted_fault_survives_pickling_with_its_stage() -> None:
    fault = pickle.loads(pickle.dumps(StageFailedError("sample", "ValueError", "module:12")))  # noqa: S301
    assert (fault.stage, fault.fault, fault.place) == ("sample", "ValueError", "module:12")
    assert "sample" in str(fault)
