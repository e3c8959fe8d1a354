"""A bundle's lineage, made once more: all that its events may choose are run ids and times."""

from __future__ import annotations

import re
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

from openlineage.client.event_v2 import RunState

from tasks.stores.audit.again import Again
from tasks.stores.audit.checks import require
from tasks.stores.audit.evidence import Evidence
from tasks.stores.ledger import utc_now
from tasks.stores.lineage import FLOW, LANDING, MOMENTS, LineageRun, Stage
from tasks.stores.promises import SPEND, promise_facets
from tasks.stores.reading import parse_json
from tasks.stores.rebuild import measured_schema
from tasks.stores.run import PlannedRelease
from tasks.stores.tables import arrow_schema

DATASETS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    FLOW: ((), ()),
    "validate": ((LANDING,), ()),
    "allocate": ((), ("reservation",)),
    "project": ((LANDING,), ("projection",)),
    "estimate": ((LANDING, "projection"), (MOMENTS,)),
    "sample": ((MOMENTS,), ("synthetic-points",)),
    "decode": (("synthetic-points",), ("synthetic-table",)),
    "check": (("synthetic-table", MOMENTS), ("report",)),
    "score": ((LANDING, "synthetic-table"), ("noisy-scores",)),
}
"""What each stage reads and writes; a projection that is not measured reads nothing."""

SIDES = ("inputs", "outputs")

MINUTE = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:00Z")


def event_faults(evidence: Evidence, again: Again) -> list[str]:
    """Where a bundle's lineage tells anything else than the stages of this release."""
    text = again.text("lineage.ndjson")
    events = [parse_json(line) for line in text.splitlines()]
    due = "".join(f"{line}\n" for line in _due_lines(evidence, again, events))
    return require(text == due, "it tells more than the stages of this release")


def _due_lines(evidence: Evidence, again: Again, events: list[dict[str, Any]]) -> list[str]:
    record, planned = again.record, PlannedRelease.of(again.rebuilt.spec)
    lineage = LineageRun(
        workspace_log=Path(),
        name=record["name"],
        release_id=record["release_id"],
        schema=arrow_schema(measured_schema(record)),
        clock=utc_now,
        period=record["period"],
        flow_run_id=record["flow_run_id"],
        run_id=events[0]["run"]["runId"],
    )
    spends = {entry.seq: (name, entry) for name, entry in again.release.spends.items()}

    def due_line(event: dict[str, Any]) -> str:
        job, facets = str(event["job"]["name"]).rpartition(".")[2], event["run"]["facets"]
        inputs, outputs = (list(names) if event[side] else [] for side, names in zip(SIDES, DATASETS[job], strict=True))
        stage = Stage(inputs, outputs, lineage.facets_of(job))
        for name in [name for name in facets if name.startswith(SPEND)]:
            measurement, entry = spends[facets[name]["ledgerEntry"]]
            ending = f"_{measurement}" if name != SPEND else ""
            stage.facets |= promise_facets(planned, evidence.history, measurement, entry, ending)
        run_id, at = str(uuid.UUID(event["run"]["runId"])), event["eventTime"]
        if MINUTE.fullmatch(at) is None:
            raise ValueError("a time is not told to the minute")
        datetime.fromisoformat(at)
        return lineage.line(RunState(event["eventType"]), at, job, run_id, stage)

    return [due_line(event) for event in events]
