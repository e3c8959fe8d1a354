"""Lineage as OpenLineage events, one JSON line each, in a workspace log and in the bundle.

Landing data appear by the release id alone: no file name, size, count or fingerprint.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    JobFacet,
    RunFacet,
    column_lineage_dataset,
    job_type_job,
    parent_run,
    schema_dataset,
)
from openlineage.client.generated.base import DatasetFacet
from openlineage.client.serde import Serde
from openlineage.client.uuid import generate_new_uuid

from dpcore.schema import RecordSchema
from tasks.stores.tables import arrow_schema

PRODUCER = "urn:dprelease"
FACET_SCHEMA = "urn:dprelease:facets"


@attrs.define
class DpGuaranteeFacet(RunFacet):
    """What a run promises: unit, neighbours, epsilon, delta, mechanism, proof."""

    unit: str
    neighbours: str
    epsilon: float
    delta: float
    deltaNum: float  # noqa: N815  spelled as OpenLineage spells its fields
    mechanism: str
    proof: str

    @staticmethod
    def _get_schema() -> str:
        return f"{FACET_SCHEMA}:dp_guarantee:1"


@attrs.define
class DpSpendFacet(RunFacet):
    """What a run took from the ledger: the entry, and the balance before and after."""

    ledgerEntry: int  # noqa: N815
    ledgerHash: str  # noqa: N815
    before: dict[str, float]
    after: dict[str, float]

    @staticmethod
    def _get_schema() -> str:
        return f"{FACET_SCHEMA}:dp_spend:1"


@dataclass(slots=True)
class Stage:
    """A stage that is running: what it read, wrote and promised."""

    inputs: list[str]
    outputs: list[str]
    facets: dict[str, RunFacet]


class LineageRun:
    """The events of one release's run."""

    def __init__(
        self, *, workspace_log: Path, name: str, release_id: str, schema: RecordSchema, clock: Callable[[], datetime]
    ) -> None:
        self._log, self._name, self._release_id, self._clock = workspace_log, name, release_id, clock
        self._schema = schema
        self._run_id = str(generate_new_uuid())
        self.lines: list[str] = []

    @contextmanager
    def flow(self) -> Iterator[Stage]:
        """The whole release as a run of its own."""
        with self._running("release", self._run_id, {}) as stage:
            yield stage

    @contextmanager
    def stage(self, name: str, *, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> Iterator[Stage]:
        """One stage: START now, COMPLETE or FAIL at its end."""
        parent = parent_run.ParentRunFacet(
            run=parent_run.Run(runId=self._run_id),
            job=parent_run.Job(namespace=self.namespace, name=f"{self._name}.release"),
        )
        facets: dict[str, RunFacet] = {"parent": parent}
        with self._running(name, str(generate_new_uuid()), facets, list(inputs), list(outputs)) as stage:
            yield stage

    @property
    def namespace(self) -> str:
        """The namespace of jobs and datasets."""
        return f"dprelease://{self._name}"

    @contextmanager
    def _running(
        self,
        job: str,
        run_id: str,
        facets: dict[str, RunFacet],
        inputs: list[str] | None = None,
        outputs: list[str] | None = None,
    ) -> Iterator[Stage]:
        stage = Stage(inputs or [], outputs or [], facets)
        self._emit(RunState.START, job, run_id, stage)
        try:
            yield stage
        except BaseException:
            self._emit(RunState.FAIL, job, run_id, stage)
            raise
        self._emit(RunState.COMPLETE, job, run_id, stage)

    def _emit(self, state: RunState, job: str, run_id: str, stage: Stage) -> None:
        event = RunEvent(
            eventType=state,
            eventTime=self._clock().astimezone(UTC).isoformat().replace("+00:00", "Z"),
            run=Run(runId=run_id, facets=dict(stage.facets)),
            job=Job(namespace=self.namespace, name=f"{self._name}.{job}", facets=_job_facets(job)),
            inputs=[InputDataset(self.namespace, self._dataset(name)) for name in stage.inputs],
            outputs=[
                OutputDataset(self.namespace, self._dataset(name), facets=self._facets(name)) for name in stage.outputs
            ],
            producer=PRODUCER,
        )
        line = json.dumps(json.loads(Serde.to_json(event)), sort_keys=True)
        self.lines.append(line)
        append_line(self._log, line)

    def _dataset(self, name: str) -> str:
        return f"{self._release_id}/{name}"

    def _facets(self, dataset: str) -> dict[str, DatasetFacet]:
        """Schema and column lineage of the tables that have columns."""
        if dataset not in ("synthetic-points", "synthetic-table"):
            return {}
        fields = [
            schema_dataset.SchemaDatasetFacetFields(name=f.name, type=str(f.type)) for f in arrow_schema(self._schema)
        ]
        sources = {
            field.name: column_lineage_dataset.Fields(
                inputFields=[
                    column_lineage_dataset.InputField(
                        namespace=self.namespace, name=self._dataset("landing"), field=str(field.name)
                    )
                ],
                transformationType="MASKED",
                transformationDescription="drawn from differentially private moments",
            )
            for field in fields
        }
        return {
            "schema": schema_dataset.SchemaDatasetFacet(fields=fields),
            "columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet(fields=sources),
        }


def _job_facets(job: str) -> dict[str, JobFacet]:
    kind = "FLOW" if job == "release" else "TASK"
    facet = job_type_job.JobTypeJobFacet(processingType="BATCH", integration="PREFECT", jobType=kind)
    return {"jobType": facet}


def append_line(path: Path, line: str) -> None:
    """Append one line in a single write, so that concurrent runs do not mix theirs.

    A line that a crash tore is closed first; it stays behind as an unreadable one.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, (b"\n" if torn else b"") + line.encode() + b"\n")
    finally:
        os.close(descriptor)


def events_of(path: Path) -> list[dict[str, Any]]:
    """The events of a log; lines that a crash tore are left out."""
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    return [event for line in lines if (event := _parsed(line)) is not None]


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
