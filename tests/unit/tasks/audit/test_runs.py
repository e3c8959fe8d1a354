"""The audit holds the orchestrator's history against the ledger: releases, approvals, refusals, entries."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.tasks.audit.flow_runs import run_of
from support.tasks.builders import Chain, unreserved

from tasks.audit.evidence import Evidence, Shelf
from tasks.audit.runs import runs_check
from tasks.ledger.balances import replay

REFUSAL = {"rule": "budget-exceeded", "reason": "no room", "who": None, "flow_run_id": "run"}


def evidence(chain: Chain) -> Evidence:
    state, history = replay(chain.entries)
    shelf, now = Shelf(Path(), ()), datetime(2026, 2, 1, tzinfo=UTC)
    return Evidence(entries=chain.entries, state=state, history=history, shelf=shelf, now=now)


def published() -> Chain:
    return Chain().cap().reserve("a", flow_run_id="run").spend("a").publish("a")


def waiting() -> Chain:
    return Chain().cap().reserve("a", approve="required", flow_run_id="run").spend("a").wait("a")


def restored() -> Chain:
    return published().add(
        "restore", body={"who": "steward", "backup_made_at": "2026"}, at="2026-02-01T00:00:00.000000Z"
    )


def refused() -> Chain:
    return Chain().cap().add("refuse", "a", REFUSAL | unreserved("visits", "2026-01"))


CASES: dict[str, tuple[Chain, dict[str, dict[str, Any]], str]] = {
    "published, with its entries": (published(), {"run": run_of("a", 2, 3, 4)}, ""),
    "waiting, though its run is complete": (waiting(), {"run": run_of("a", 2, 3, 4)}, ""),
    "approved afterwards": (waiting().approve("a").publish("a"), {"run": run_of("a", 2, 3, 4)}, ""),
    "refused by a person": (waiting().refuse("a"), {"run": run_of("a", 2, 3, 4)}, ""),
    "refused by the budget": (refused(), {"run": run_of("a (refused)", 2, state="FAILED")}, ""),
    "run again": (published(), {"run": run_of("a", 2, 3, 4), "x": run_of("a (again)")}, ""),
    "refused before any entry": (published(), {"run": run_of("a", 2), "x": run_of("z (refused)", state="FAILED")}, ""),
    "a run of another workspace": (published(), {"run": run_of("a", 2), "x": run_of("z", 99, own=False)}, ""),
    "an entry that the ledger lost": (
        published(),
        {"run": run_of("a", 2, 3, 4), "x": run_of("a", 5, state="CRASHED")},
        "a run wrote entry 5 of a, which is not there",
    ),
    "an entry of another release": (
        published(),
        {"run": run_of("a", 2), "x": run_of("b", 3, state="FAILED")},
        "a run wrote entry 3 of b, which is not there",
    ),
    "entries that a backup did not have": (
        restored(),
        {"run": run_of("a", 2, 3, 4), "x": run_of("b", 7, state="FAILED")},
        "",
    ),
    "entries lost after the backup came": (
        restored(),
        {"run": run_of("a", 2), "x": run_of("b", 7, state="FAILED", start="2026-02-02T00:00:00")},
        "a run wrote entry 7 of b, which is not there",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_history_and_the_ledger_tell_the_same(case: str) -> None:
    chain, runs, fault = CASES[case]
    check = runs_check(evidence(chain), runs)
    assert (check.ok, check.detail if fault else "") == (not fault, fault)


def test_one_run_is_one_run() -> None:
    words = runs_check(evidence(published()), {"run": run_of("a")}).detail
    assert words == "1 run of the ledger is in the history"
    later = {"x": run_of("a", start="2999-01-01T00:00:00")}
    assert (
        runs_check(evidence(published()), later).detail == "0 runs of the ledger are in the history; 1 is older than it"
    )
