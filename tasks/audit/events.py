"""A bundle's lineage, made once more: all that its events may choose are run ids and times."""

from __future__ import annotations

import re
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

from openlineage.client.event_v2 import RunState

from dpcore.mechanisms.names import PROJECTION
from tasks.audit.again import Again
from tasks.audit.checks import require
from tasks.audit.evidence import Evidence
from tasks.bundle.staging import checksums_in
from tasks.ledger.store import utc_now
from tasks.lineage.datasets import FIGURES, FILES, FRAME, LAW, RESERVATION, ReleaseDatasets
from tasks.lineage.events import LineageRun, Stage
from tasks.lineage.facets import SPEND
from tasks.release.spend_facets import Account, assertions, digest_of, figures_digest, row_count
from tasks.spec.plan import PlannedRelease
from tasks.workspace.reading import parse_json

MINUTE = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:00Z")


def event_faults(evidence: Evidence, again: Again) -> list[str]:
    """Where a bundle's lineage tells anything else than the stages of this release."""
    text = again.text("lineage.ndjson")
    events = [parse_json(line) for line in text.splitlines()]
    due = "".join(f"{line}\n" for line in _due_lines(evidence, again, events))
    return require(text == due, "it contains more than the stages of this release")


def _due_lines(evidence: Evidence, again: Again, events: list[dict[str, Any]]) -> list[str]:
    record, spec = again.record, again.rebuilt.spec
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
            _complete(stage, evidence, again, account, lineage.datasets)
        run_id, at = str(uuid.UUID(event["run"]["runId"])), event["eventTime"]
        if MINUTE.fullmatch(at) is None:
            raise ValueError("a time is not rounded to the minute")
        datetime.fromisoformat(at)
        return lineage.line(state, at, run_id, stage)

    return [due_line(event) for event in events]


def _complete(stage: Stage, evidence: Evidence, again: Again, account: Account, datasets: ReleaseDatasets) -> None:
    """What is told of a stage at its end: its spends, and digest and cost of what it wrote."""
    record, measured = again.record, datasets.made_in(stage.name)
    stage.facets |= {f"{SPEND}_{name}": account.spend(name, evidence.history) for name in measured}
    stage.made |= account.measured(datasets, measured)
    for name in [name for name in stage.outputs if name not in stage.made]:
        stage.made[name] = (
            account.reserved() if name == RESERVATION else account.made(datasets, name, _dataset_digest(again, name))
        )
    for table in [name for name in datasets.tables if name in stage.outputs]:
        stage.statistics[table] = row_count(record["rows"])
    if FIGURES in stage.outputs:
        stage.verdicts |= dict.fromkeys(datasets.tables, assertions(_free_checks(again)))


def _dataset_digest(again: Again, name: str) -> str | None:
    """The digest of a dataset, from the bundle's own documents."""
    if name == LAW:
        return None
    if name in (FRAME, PROJECTION):
        return digest_of(again.model[name])
    if name == FIGURES:
        return figures_digest(again.record["utility"], _free_checks(again))
    return checksums_in(again.folder)[FILES[name]]


def _free_checks(again: Again) -> list[dict[str, Any]]:
    """The record's checks without those that were bought, which come last."""
    checks: list[dict[str, Any]] = again.record["checks"]
    return checks[: len(checks) - len(again.record["utility"].get("scores", []))]
