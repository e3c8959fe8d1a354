"""Releases made by the real stages without the orchestrator."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from tasks.bundle.figures import metric_checks, utility_of
from tasks.bundle.record import Outcome
from tasks.bundle.staging import Staging
from tasks.keys.signing import signing_key
from tasks.ledger.key_changes import enrol_key, trust_owner
from tasks.lineage.datasets import ReleaseDatasets
from tasks.lineage.events import LineageRun
from tasks.release.context import prepare_run
from tasks.release.spend_facets import Told
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace

SPEC = """
name: small
source: {path: landing/*.csv, period: 'small-(?P<period>[0-9]{4}-[0-9]{2})'}
privacy: {population: people, epsilon: 0.1, lifetime: {epsilon: 1.2}}
expected_rows: 5000
columns:
  - {name: age, kind: numeric, bounds: [0, 100]}
  - {name: ill, kind: boolean}
rows: 50
"""
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


def release(workspace: Workspace, period: str) -> Path:
    """The stages of a release in their order, as the flow runs them; returns the bundle."""
    from tasks.allocate import allocate_budget, upcoming_release_id
    from tasks.estimate import estimate_moments
    from tasks.project import choose_projection
    from tasks.publish import DATA, needs_approval, publish_bundle
    from tasks.sample import decode_rows, sample_rows
    from tasks.score import score_release

    with workspace.scratch() as scratch:
        run = prepare_run(workspace, request={"period": period}, flow_run_id="run", scratch=scratch, now=NOW)
        release_id = upcoming_release_id(run)
        datasets = ReleaseDatasets.of(run.plan)
        lineage = LineageRun(
            workspace_log=workspace.lineage_path,
            name=run.spec.name,
            release_id=release_id,
            datasets=datasets,
            clock=lambda: NOW,
            period=period,
            flow_run_id=run.flow_run_id,
        )
        staging = Staging(workspace.bundle(run.spec.name, release_id))
        with lineage.flow() as whole, closing(run.ledger()) as ledger:
            told = Told(run, release_id, datasets, whole)
            with lineage.stage("validate"):
                run.fetch()
            with lineage.stage("allocate") as stage:
                grant = allocate_budget.fn(run, release_id)
                told.reserved(stage)
            with lineage.stage("project") as stage, told.spends(stage):
                projection = choose_projection.fn(run, grant)
                told.placed(stage, projection)
            with lineage.stage("estimate") as stage, told.spends(stage):
                moments, projection = estimate_moments.fn(run, projection, grant)
                told.placed(stage, projection)
            with lineage.stage("sample") as stage:
                sample_rows.fn(run, moments, projection, grant)
                told.fitted(stage)
            with lineage.stage("decode") as stage:
                staging.start()
                summary = decode_rows.fn(run, moments, projection, grant, staging.folder / DATA)
                told.drawn(stage, staging.folder / DATA, summary.rows)
            with lineage.stage("check") as stage:
                utility = utility_of(run.encoding, moments, projection, summary)
                checks = metric_checks(utility["metrics"], run.spec.checks)
                outcome = Outcome(summary.rows, moments, projection, utility, checks)
                told.checked(stage, outcome)
            if run.plan.check_events:
                with lineage.stage("score") as stage, told.spends(stage):
                    outcome = score_release.fn(run, grant, outcome, staging.folder / DATA)
            lines = list(lineage.lines)
            with lineage.stage("seal" if needs_approval(run, grant) else "publish") as stage:
                bundle = publish_bundle.fn(run, grant, outcome, staging, lines, NOW)
                told.sealed(stage, bundle.folder)
            assert ledger.state().releases[release_id].status == bundle.status
    return bundle.folder
