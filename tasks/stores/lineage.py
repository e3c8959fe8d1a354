"""Lineage as OpenLineage events, one JSON line each, in a workspace log and in the bundle.

Landing data appear by the release id alone: no file name, size, count or fingerprint.
How long a pass over the rows takes tells how many there are: times are told to the
minute, and run ids carry no time.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    JobFacet,
    RunFacet,
    column_lineage_dataset,
    documentation_job,
    error_message_run,
    job_type_job,
    nominal_time_run,
    parent_run,
    processing_engine_run,
    schema_dataset,
    tags_run,
)
from openlineage.client.generated.base import DatasetFacet
from openlineage.client.serde import Serde

from dpcore.errors import CheckFailedError, InterruptedReleaseError, LandingError, RefusedError
from tasks.stores.clock import MINUTE_FORMAT
from tasks.stores.reading import read_text
from tasks.stores.redaction import LANDING_REFUSED

PRODUCER = "urn:dprelease"
FACET_SCHEMA = "urn:dprelease:facets"
FLOW, LANDING, MOMENTS = "release", "landing", "noisy-moments"
TABLES = ("synthetic-table", "sealed-bundle", "bundle")
"""The datasets that have the specification's columns."""

DESCRIPTIONS = {
    FLOW: "one differentially private release of one period",
    "validate": "checks the structure of the landing data; reads rows",
    "allocate": "reserves the release's budget in the ledger",
    "project": "chooses the projection: random, of public data, or measured with noise",
    "estimate": "measures noisy moments; after it only checks that are paid for read rows",
    "sample": "fits the law of synthetic points to the noisy moments",
    "decode": "draws synthetic points and turns them into the original columns",
    "check": "compares the synthetic table with the noisy moments",
    "score": "tests models of the synthetic table with noise; reads rows",
    "publish": "seals the bundle, enters it in the ledger and reveals it",
    "seal": "seals the bundle, which waits for a person's approval",
}


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
        self,
        *,
        workspace_log: Path,
        name: str,
        release_id: str,
        schema: pa.Schema,
        clock: Callable[[], datetime],
        period: str | None = None,
        flow_run_id: str | None = None,
        run_id: str | None = None,
    ) -> None:
        self._log, self._name, self._release_id, self._clock = workspace_log, name, release_id, clock
        self._schema, self._period, self._flow_run_id = schema, period, flow_run_id
        self._run_id = run_id or _fresh_id()
        self.lines: list[str] = []

    @contextmanager
    def flow(self) -> Iterator[Stage]:
        """The whole release as a run of its own."""
        with self._running(FLOW, self._run_id, self.facets_of(FLOW)) as stage:
            yield stage

    @contextmanager
    def stage(self, name: str, *, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> Iterator[Stage]:
        """One stage: START now, COMPLETE or FAIL at its end."""
        with self._running(name, _fresh_id(), self.facets_of(name), list(inputs), list(outputs)) as stage:
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
        except BaseException as error:
            stage.facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=public_words(error), programmingLanguage="PYTHON"
            )
            self._emit(RunState.FAIL, job, run_id, stage)
            raise
        self._emit(RunState.COMPLETE, job, run_id, stage)

    def _emit(self, state: RunState, job: str, run_id: str, stage: Stage) -> None:
        line = self.line(state, self._clock().astimezone(UTC).strftime(MINUTE_FORMAT), job, run_id, stage)
        self.lines.append(line)
        append_line(self._log, line, durable=state is not RunState.START)

    def line(self, state: RunState, at: str, job: str, run_id: str, stage: Stage) -> str:
        """The event of a stage as the log holds it."""
        event = RunEvent(
            eventType=state,
            eventTime=at,
            run=Run(runId=run_id, facets=dict(stage.facets)),
            job=Job(namespace=self.namespace, name=f"{self._name}.{job}", facets=_job_facets(job)),
            inputs=[InputDataset(self.namespace, self._dataset(name)) for name in stage.inputs],
            outputs=[
                OutputDataset(self.namespace, self._dataset(name), facets=self._facets(name)) for name in stage.outputs
            ],
            producer=PRODUCER,
        )
        return json.dumps(json.loads(Serde.to_json(event)), sort_keys=True)

    def _dataset(self, name: str) -> str:
        return f"{self._release_id}/{name}"

    def facets_of(self, job: str) -> dict[str, RunFacet]:
        """What every event of a job tells: which release it is, of which period, made by what, and in which flow."""
        version = importlib.metadata.version("dprelease")
        facets: dict[str, RunFacet] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(version=version, name="dprelease"),
            "tags": tags_run.TagsRunFacet(tags=[_tag(key, value) for key, value in self._labels().items()]),
        }
        facets |= {"nominalTime": _month(self._period)} if self._period else {}
        return facets if job == FLOW else facets | {"parent": self._parent()}

    def _parent(self) -> RunFacet:
        return parent_run.ParentRunFacet(
            run=parent_run.Run(runId=self._run_id),
            job=parent_run.Job(namespace=self.namespace, name=f"{self._name}.{FLOW}"),
        )

    def _labels(self) -> dict[str, str]:
        labels = {"name": self._name, "release": self._release_id}
        known = {"period": self._period, "flow_run": self._flow_run_id}
        return labels | {key: value for key, value in known.items() if value}

    def _facets(self, dataset: str) -> dict[str, DatasetFacet]:
        """Schema and column lineage of the moments and of the tables."""
        if dataset == MOMENTS:
            return _described([(MOMENTS, "matrix")], {MOMENTS: self._measured(*self._columns())})
        if dataset in TABLES:
            fields = [(str(field.name), str(field.type)) for field in self._schema]
            drawn = self._field(MOMENTS, MOMENTS, "INDIRECT", "every column is drawn from the noisy moments of all")
            return _described(fields, {name: self._measured(name) for name, _ in fields}, [drawn])
        return {}

    def _columns(self) -> list[str]:
        return [str(name) for name in self._schema.names]

    def _measured(self, *columns: str) -> column_lineage_dataset.Fields:
        """A field that tells of landing columns what their noisy moments tell."""
        words = "drawn from differentially private moments"
        sources = [self._field(LANDING, name, "DIRECT", words, subtype="AGGREGATION") for name in columns]
        return column_lineage_dataset.Fields(
            inputFields=sources, transformationType="MASKED", transformationDescription=words
        )

    def _field(
        self, dataset: str, field: str, kind: str, words: str, *, subtype: str | None = None
    ) -> column_lineage_dataset.InputField:
        way = column_lineage_dataset.Transformation(type=kind, subtype=subtype, description=words, masking=True)
        return column_lineage_dataset.InputField(
            namespace=self.namespace, name=self._dataset(dataset), field=field, transformations=[way]
        )


def _fresh_id() -> str:
    """A random id: those of OpenLineage's own making hold the millisecond, and so tell durations."""
    return str(uuid.uuid4())


def _tag(key: str, value: str) -> tags_run.TagsRunFacetFields:
    return tags_run.TagsRunFacetFields(key=key, value=value, source="dprelease")


def _month(period: str) -> nominal_time_run.NominalTimeRunFacet:
    """The data's month, such as 2026-11, from its first moment to that of the next."""
    year, month = (int(part) for part in period.split("-"))
    after = f"{year + month // 12:04d}-{month % 12 + 1:02d}"
    return nominal_time_run.NominalTimeRunFacet(f"{period}-01T00:00:00Z", f"{after}-01T00:00:00Z")


def _described(
    fields: list[tuple[str, str]],
    sources: dict[str, column_lineage_dataset.Fields],
    everywhere: list[column_lineage_dataset.InputField] | None = None,
) -> dict[str, DatasetFacet]:
    shapes = [schema_dataset.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in fields]
    return {
        "schema": schema_dataset.SchemaDatasetFacet(fields=shapes),
        "columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet(fields=sources, dataset=everywhere or []),
    }


def _job_facets(job: str) -> dict[str, JobFacet]:
    kind = "FLOW" if job == FLOW else "TASK"
    facet = job_type_job.JobTypeJobFacet(processingType="BATCH", integration="PREFECT", jobType=kind)
    words = DESCRIPTIONS.get(job)
    return {"jobType": facet} | ({"documentation": documentation_job.DocumentationJobFacet(words)} if words else {})


def public_words(error: BaseException) -> str:
    """What exported lineage may say of a failure: no text or type of a foreign error, no verdict on raw data.

    The checks are on released values, and rules other than those on the landing data are
    about public things; both may be named.
    """
    if isinstance(error, LandingError):
        return LANDING_REFUSED
    if isinstance(error, RefusedError):
        return f"refused by the rule {error.rule}"
    if isinstance(error, CheckFailedError):
        return str(error)
    if isinstance(error, KeyboardInterrupt | InterruptedReleaseError):
        return "interrupted"
    return "an unexpected fault; the operator was told its kind and place"


def append_line(path: Path, line: str, *, durable: bool = False) -> None:
    """Append one line in a single write, so that concurrent runs do not mix theirs.

    A line that a crash tore is closed first; it stays behind as an unreadable one.
    A durable line, and all before it, outlive a loss of power.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, (b"\n" if torn else b"") + line.encode() + b"\n")
        if durable or size == 0:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if size == 0:
        flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Bring a folder's entries to disk: a file that is new in it, or has a new name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def events_of(path: Path) -> list[dict[str, Any]]:
    """The events of a log; lines that a crash tore are left out."""
    return [event for _, event in numbered_events(path)]


def numbered_events(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of a log with the number of their line, the first being 1; lines that a crash tore are left out."""
    lines = read_text(path, errors="replace").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        if (event := parsed(line)) is not None:
            yield number, event


def parsed(line: str | bytes) -> dict[str, Any] | None:
    """The event of a line; None for what a crash tore, and an empty event for JSON that is none."""
    try:
        event = json.loads(line)
    except RecursionError:
        return {}
    except ValueError:
        return None
    return event if isinstance(event, dict) else {}


def is_whole(event: dict[str, Any]) -> bool:
    """Whether an event has run, job and datasets with names and facets; what others wrote into a log may not."""
    parts = [event.get("run"), event.get("job"), *listed(event, "inputs"), *listed(event, "outputs")]
    if not all(isinstance(part, dict) and isinstance(part.get("facets", {}), dict) for part in parts):
        return False
    if not all(isinstance(facet, dict) for part in parts for facet in part.get("facets", {}).values()):
        return False
    names = [event.get("eventType"), event["run"].get("runId"), *(part.get("name") for part in parts[1:])]
    return all(isinstance(name, str) for name in names)


def listed(part: dict[str, Any], key: str) -> list[Any]:
    """The list under a key of an event or of a part of it; a list of nothing usable for what is no list."""
    found = part.get(key, [])
    return found if isinstance(found, list) else [None]
