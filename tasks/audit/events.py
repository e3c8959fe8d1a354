"""A bundle's lineage computed again: only run ids and times may differ."""

from __future__ import annotations

import re
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

from openlineage.client.event_v2 import RunState

from dpcore.mechanisms.names import PROJECTION
from tasks.audit.checks import require
from tasks.audit.evidence import Evidence
from tasks.audit.recomputed import RecomputedBundle
from tasks.bundle.staging import checksums_in
from tasks.ledger.store import utc_now
from tasks.lineage.datasets import FIGURES, FILES, FRAME, LAW, RESERVATION, ReleaseDatasets
from tasks.lineage.events import LineageRun, Stage
from tasks.lineage.facets import SPEND
from tasks.release.spend_facets import Account, assertions, digest_of, figures_digest, row_count
from tasks.spec.plan import PlannedRelease
from tasks.workspace.reading import parse_json

MINUTE = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:00Z")


def event_faults(evidence: Evidence, bundle: RecomputedBundle) -> list[str]:
    """Where a bundle's lineage contains anything but the stages of this release."""
    text = bundle.text("lineage.ndjson")
    events = [parse_json(line) for line in text.splitlines()]
    due = "".join(f"{line}\n" for line in _due_lines(evidence, bundle, events))
    return require(text == due, "it contains more than the stages of this release")


def _due_lines(evidence: Evidence, bundle: RecomputedBundle, events: list[dict[str, Any]]) -> list[str]:
    record, spec = bundle.record, bundle.rebuilt.spec
    lineage = LineageRun(
        workspace_log=Path(),
        name=record["name"],
        release_id=record["release_id"],
        datasets=ReleaseDatasets.of(PlannedRelease.of(spec).plan, output=spec.model.output),
        clock=utc_now,
        period=record["period"],
        flow_run_id=record["flow_run_id"],
        run_id=events[0]["run"]["runId"],
    )
    account = Account.of(evidence.state, evidence.entries, record["release_id"])

    def due_line(event: dict[str, Any]) -> str:
        stage = lineage.new_stage(str(event["job"]["name"]).rpartition(".")[2])
        state = RunState(event["eventType"])
        if state is RunState.COMPLETE:
            _complete(stage, evidence, bundle, account, lineage.datasets)
        run_id, at = str(uuid.UUID(event["run"]["runId"])), event["eventTime"]
        if MINUTE.fullmatch(at) is None:
            raise ValueError("a time is not rounded to the minute")
        datetime.fromisoformat(at)
        return lineage.line(state, at, run_id, stage)

    return [due_line(event) for event in events]


def _complete(
    stage: Stage, evidence: Evidence, bundle: RecomputedBundle, account: Account, datasets: ReleaseDatasets
) -> None:
    """Add what the last event of a stage states: its spends, and the digest and cost of its outputs."""
    record, measured = bundle.record, datasets.made_in(stage.name)
    stage.facets |= {f"{SPEND}_{name}": account.spend(name, evidence.history) for name in measured}
    stage.made |= account.measured(datasets, measured)
    for name in [name for name in stage.outputs if name not in stage.made]:
        stage.made[name] = (
            account.reserved() if name == RESERVATION else account.made(datasets, name, _dataset_digest(bundle, name))
        )
    for table in [name for name in datasets.tables if name in stage.outputs]:
        stage.statistics[table] = row_count(record["rows"])
    if FIGURES in stage.outputs:
        stage.verdicts |= dict.fromkeys(datasets.tables, assertions(_free_checks(bundle)))


def _dataset_digest(bundle: RecomputedBundle, name: str) -> str | None:
    """The digest of a dataset, computed from the bundle's documents."""
    if name == LAW:
        return None
    if name in (FRAME, PROJECTION):
        return digest_of(bundle.model[name])
    if name == FIGURES:
        return figures_digest(bundle.record["utility"], _free_checks(bundle))
    return checksums_in(bundle.folder)[FILES[name]]


def _free_checks(bundle: RecomputedBundle) -> list[dict[str, Any]]:
    """The record's checks without those that have a budget, which come last."""
    checks: list[dict[str, Any]] = bundle.record["checks"]
    return checks[: len(checks) - len(bundle.record["utility"].get("scores", []))]
