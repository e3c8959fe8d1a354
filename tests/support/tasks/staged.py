"""Releases made by the real stages without the orchestrator."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from tasks.keys.signing import signing_key
from tasks.ledger.key_changes import enrol_key, trust_owner
from tasks.release.context import ReleaseRun, RunRequest, prepare_release
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace

UNMODELLED = """
name: small
source: {path: landing/*.csv, period: 'small-(?P<period>[0-9]{4}-[0-9]{2})'}
privacy: {population: people, epsilon: 0.1, lifetime: {epsilon: 1.2}}
expected_rows: 5000
columns:
  - {name: age, kind: numeric, bounds: [0, 100]}
  - {name: ill, kind: boolean}
rows: 50
"""


def plain_model(more: str = "") -> str:
    """A model section with one measurement in the whole ball, whatever the planner would take."""
    return f"model: {{projection: {{kind: ron}}, radius: 1{more}}}\n"


PLAIN = plain_model()
SPEC = UNMODELLED + PLAIN
NOW = datetime(2026, 3, 15, 12, 0, 41, tzinfo=UTC)
PERIODS = ("2026-01", "2026-02")


def invented_rows(seed: int = 7, count: int = 5000) -> str:
    """Invented people as CSV, so many that the noise never hides all of them."""
    dice = np.random.Generator(np.random.PCG64(seed))
    rows = zip(dice.uniform(0, 100, count), dice.random(count) < 0.3, strict=True)
    return "age,ill\n" + "".join(f"{age:.2f},{str(ill).lower()}\n" for age, ill in rows)


def land_rows(root: Path, period: str) -> None:
    """A month's file."""
    (root / "landing" / f"small-{period}.csv").write_text(invented_rows())


def publish_months(root: Path) -> None:
    """A workspace with a release of each period."""
    Workspace(root).create()
    (root / "release.yaml").write_text(SPEC)
    for period in PERIODS:
        land_rows(root, period)
        release(Workspace(root), period)


def share(owner: Workspace, newcomer: Workspace, *roles: str) -> None:
    """The owner of a ledger enrols another workspace, which trusts them."""
    enrol_key(owner, load_spec(owner.spec_path), signing_key(newcomer.keys).public, roles=roles, name="newcomer")
    trust_owner(newcomer, signing_key(owner.keys).public)


def release(workspace: Workspace, period: str, *, supersedes: str | None = None, reason: str | None = None) -> Path:
    """Release a period as the flow does, without a server; returns the bundle."""
    from flows.recipe import release_directly

    request = RunRequest(period=period, supersedes=supersedes, reason=reason)
    return release_directly(workspace, request, clock=lambda: NOW).bundle


def run_of(workspace: Workspace, scratch: Path, **asked: str | None) -> ReleaseRun:
    """A run that has done nothing yet; its ledger is opened on first use."""
    planned = prepare_release(workspace, RunRequest(**asked), scratch=scratch, now=NOW)
    return ReleaseRun(planned=planned, workspace=workspace, scratch=scratch, flow_run_id="run")
