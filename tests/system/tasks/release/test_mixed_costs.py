"""Pure costs and Gaussian noise over one population: what the ledger admits, and what it admitted once."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tasks.staged import UNMODELLED, land_rows, plain_model, release

from dpcore.accounting import Cap, Cost, release_statement
from dpcore.errors import LedgerError, RefusedError
from tasks.audit import audit_workspace, broken, not_shown, recomputed
from tasks.ledger import refusals
from tasks.ledger.store import Ledger
from tasks.workspace.folders import Workspace

PURE, GAUSSIAN = "wishart-difference-trace", "gaussian"
MIXED = UNMODELLED.replace(
    "epsilon: 0.1, lifetime: {epsilon: 1.2}", "epsilon: 0.5, delta: 1.0e-6, lifetime: {epsilon: 1.2, delta: 1.0e-6}"
)


def release_by(workspace: Workspace, mechanism: str, period: str) -> Path:
    workspace.spec_path.write_text(MIXED + plain_model(f", mechanism: {mechanism}"))
    land_rows(workspace.root, period)
    return release(workspace, period)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """One release of Gaussian noise, of epsilon 0.5 out of 1.2."""
    made = Workspace(tmp_path)
    made.create()
    made.spec_path.write_text(MIXED)
    release_by(made, GAUSSIAN, "2026-01")
    return made


@pytest.fixture
def former(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A Gaussian and a pure release that the rule of earlier versions admitted, with what these stated of balances."""
    made = Workspace(tmp_path)
    made.create()
    with monkeypatch.context() as earlier:
        ensure_cap = Ledger.ensure_cap
        earlier.setattr(Ledger, "ensure_cap", lambda *given, cost, **named: ensure_cap(*given, **named))
        earlier.setattr(Cap, "admits", _admitted_once)
        earlier.setattr(Cap, "balance", lambda cap, cost, **_: release_statement(cost, delta=cap.delta))
        earlier.setattr(refusals, "kind_difference", lambda *_: None)
        release_by(made, GAUSSIAN, "2026-01")
        release_by(made, PURE, "2026-02")
    monkeypatch.setattr(recomputed, "code_facts", lambda: {"digest": "0" * 64, "dependencies_digest": "0" * 64})
    return made


def _admitted_once(cap: Cap, cost: Cost, **_: int) -> bool:
    return release_statement(cost, delta=cap.delta).epsilon <= cap.epsilon


def test_a_pure_release_beside_gaussian_ones_is_refused_until_the_cap_counts_both(workspace: Workspace) -> None:
    with pytest.raises(LedgerError) as refused:
        release_by(workspace, PURE, "2026-02")
    assert (refused.value.rule, "kind: zcdp" in str(refused.value.hint)) == ("cap-kind", True)
    release_by(workspace, GAUSSIAN, "2026-02")
    assert broken(audit_workspace(workspace)) == []


def test_what_an_earlier_rule_admitted_is_not_broken_and_not_shown_to_hold(former: Workspace) -> None:
    checks = audit_workspace(former)
    assert broken(checks) == []
    open_ones = {check.name: check.detail for check in not_shown(checks)}
    assert {"caps", "small-2026-02-1: balance"} <= open_ones.keys()
    assert "people: entry" in open_ones["caps"]
    assert "of 1.2" in open_ones["caps"]
    assert "small-2026-01-1: balance" not in open_ones, "Gaussian noise alone is counted as ever"
    for mechanism in (PURE, GAUSSIAN):
        with pytest.raises(RefusedError):
            release_by(former, mechanism, "2026-03")
