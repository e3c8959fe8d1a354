"""Lineage as OpenLineage events, one JSON line each, in a workspace log and in the bundle.

Landing data are identified by the release id alone: no event has a file name, size, count or
fingerprint. The duration of a pass over the rows would reveal their number, so times are
rounded to the minute and run ids contain no time.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    JobFacet,
    OutputDatasetFacet,
    RunFacet,
    documentation_job,
    error_message_run,
    job_type_job,
    nominal_time_run,
    parent_run,
    processing_engine_run,
    tags_run,
)
from openlineage.client.serde import Serde

from dpcore.errors import CheckFailedError, InterruptedReleaseError, LandingError, RefusedError
from tasks.workspace.build_identity import version_of
from tasks.workspace.clock import MINUTE_FORMAT
from tasks.workspace.files import flush_to_disk
from tasks.workspace.reading import read_text
from tasks.workspace.redaction import LANDING_REFUSED

if TYPE_CHECKING:
    from tasks.lineage.datasets import ReleaseDatasets

PRODUCER = "urn:dprelease"
FLOW, RETRACT = "release", "retract"

DESCRIPTIONS = {
    FLOW: "one differentially private release of one period",
    "validate": "checks the structure of the landing data; reads rows",
    "allocate": "reserves the release's budget in the ledger",
    "project": "chooses the projection: random, computed from public data, or measured with noise",
    "estimate": "measures the noisy moments; after this stage, only checks with a budget read rows",
    "sample": "fits the probability law of the synthetic points to the noisy moments",
    "decode": "draws synthetic points and decodes them into the original columns",
    "check": "compares the synthetic table with the noisy moments",
    "score": "scores models that were trained on the synthetic table, with noise; reads rows",
    "publish": "seals the bundle, records it in the ledger and makes it visible",
    "seal": "seals the bundle, which then awaits a person's approval",
    RETRACT: "withdraws the published bundle; what was spent stays spent",
}


@dataclass(slots=True)
class Stage:
    """A running stage: its inputs and outputs, and the facets that are known so far."""

    name: str
    inputs: list[str]
    outputs: list[str]
    facets: dict[str, RunFacet]
    made: dict[str, dict[str, DatasetFacet]] = field(default_factory=dict)
    """Digest and cost of each output that exists so far."""
    verdicts: dict[str, dict[str, InputDatasetFacet]] = field(default_factory=dict)
    """The results of checks on an input."""
    statistics: dict[str, dict[str, OutputDatasetFacet]] = field(default_factory=dict)
    """The size of an output, for synthetic rows only."""


class LineageRun:
    """The events of one release's run."""

    def __init__(
        self,
        *,
        workspace_log: Path,
        name: str,
        release_id: str,
        datasets: ReleaseDatasets,
        clock: Callable[[], datetime],
        period: str | None = None,
        flow_run_id: str | None = None,
        run_id: str | None = None,
    ) -> None:
        self._log, self._name, self._release_id, self._clock = workspace_log, name, release_id, clock
        self.datasets, self._period, self._flow_run_id = datasets, period, flow_run_id
        self._run_id = run_id or _fresh_id()
        self.lines: list[str] = []

    def flow(self) -> AbstractContextManager[Stage]:
        """The whole release as a run of its own."""
        return self._running(self.new_stage(FLOW), self._run_id)

    def stage(self, name: str) -> AbstractContextManager[Stage]:
        """One stage: START now, COMPLETE or FAIL at its end."""
        return self._running(self.new_stage(name), _fresh_id())

    def new_stage(self, name: str) -> Stage:
        """A stage at its start; inputs and outputs of the flow are added at its end."""
        reads, writes = ((), ()) if name == FLOW else (self.datasets.reads(name), self.datasets.writes(name))
        return Stage(name, list(reads), list(writes), self.facets_of(name))

    @property
    def namespace(self) -> str:
        """The namespace of jobs and datasets."""
        return f"dprelease://{self._name}"

    @contextmanager
    def _running(self, stage: Stage, run_id: str) -> Iterator[Stage]:
        self._emit(RunState.START, run_id, stage)
        try:
            yield stage
        except BaseException as error:
            stage.facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=public_words(error), programmingLanguage="PYTHON"
            )
            self._emit(RunState.FAIL, run_id, stage)
            raise
        self._emit(RunState.COMPLETE, run_id, stage)

    def _emit(self, state: RunState, run_id: str, stage: Stage) -> None:
        line = self.line(state, self._clock().astimezone(UTC).strftime(MINUTE_FORMAT), run_id, stage)
        self.lines.append(line)
        append_line(self._log, line, durable=state is not RunState.START)

    def line(self, state: RunState, at: str, run_id: str, stage: Stage) -> str:
        """The event of a stage as the log holds it."""
        event = RunEvent(
            eventType=state,
            eventTime=at,
            run=Run(runId=run_id, facets=dict(stage.facets)),
            job=Job(self.namespace, f"{self._name}.{stage.name}", facets=_job_facets(stage.name)),
            inputs=[InputDataset(*self._place(n), inputFacets=stage.verdicts.get(n, {})) for n in stage.inputs],
            outputs=[
                OutputDataset(
                    *self._place(n),
                    facets=self.datasets.facets(n, self._place) | stage.made.get(n, {}),
                    outputFacets=stage.statistics.get(n, {}),
                )
                for n in stage.outputs
            ],
            producer=PRODUCER,
        )
        return json.dumps(json.loads(Serde.to_json(event), object_hook=_of_ours), sort_keys=True)

    def _place(self, name: str) -> tuple[str, str]:
        """Namespace and name of a dataset."""
        return self.namespace, f"{self._release_id}/{name}"

    def facets_of(self, job: str) -> dict[str, RunFacet]:
        """The facets of every event of a job: release, period, software and parent flow."""
        facets: dict[str, RunFacet] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version=version_of("dprelease"), name="dprelease"
            ),
            "tags": tags_run.TagsRunFacet(
                tags=[
                    tags_run.TagsRunFacetFields(key=key, value=value, source="dprelease")
                    for key, value in self._labels().items()
                ]
            ),
        }
        facets |= {"nominalTime": _nominal_month(self._period)} if self._period else {}
        if job != FLOW:
            facets["parent"] = parent_run.ParentRunFacet(
                run=parent_run.Run(runId=self._run_id),
                job=parent_run.Job(namespace=self.namespace, name=f"{self._name}.{FLOW}"),
            )
        return facets

    def _labels(self) -> dict[str, str]:
        known = {"period": self._period, "flow_run": self._flow_run_id}
        return {"name": self._name, "release": self._release_id} | {key: value for key, value in known.items() if value}


def _fresh_id() -> str:
    """A random id; OpenLineage's own ids contain the millisecond and so would reveal durations."""
    return str(uuid.uuid4())


def _nominal_month(period: str) -> nominal_time_run.NominalTimeRunFacet:
    """The month of the data, such as 2026-11, from its start to the start of the next month."""
    year, month = (int(part) for part in period.split("-"))
    after = f"{year + month // 12:04d}-{month % 12 + 1:02d}"
    return nominal_time_run.NominalTimeRunFacet(f"{period}-01T00:00:00Z", f"{after}-01T00:00:00Z")


def _of_ours(part: dict[str, Any]) -> dict[str, Any]:
    """A facet with this program as its producer, instead of the OpenLineage library."""
    return part | {"_producer": PRODUCER} if "_producer" in part else part


def _job_facets(job: str) -> dict[str, JobFacet]:
    facet = job_type_job.JobTypeJobFacet(
        processingType="BATCH", integration="PREFECT", jobType="FLOW" if job == FLOW else "TASK"
    )
    words = DESCRIPTIONS.get(job)
    return {"jobType": facet} | ({"documentation": documentation_job.DocumentationJobFacet(words)} if words else {})


def public_words(error: BaseException) -> str:
    """What exported lineage may state about a failure: no text or type of a foreign error, no verdict on raw data.

    Checks concern released values, and all rules but those on the landing data concern public facts,
    so both may be named.
    """
    if isinstance(error, LandingError):
        return LANDING_REFUSED
    if isinstance(error, RefusedError):
        return f"refused by the rule {error.rule}"
    if isinstance(error, CheckFailedError):
        return str(error)
    if isinstance(error, KeyboardInterrupt | InterruptedReleaseError):
        return "interrupted"
    return "an unexpected fault; its type and place were reported to the operator"


def append_line(path: Path, line: str, *, durable: bool = False) -> None:
    """Append one line in a single write, so that lines of concurrent runs do not mix.

    A line that a crash left incomplete is terminated first and remains as an unreadable line.
    A durable line, and all lines before it, survive a power cut.
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
        flush_to_disk(path.parent)


def events_of(path: Path) -> list[dict[str, Any]]:
    """The events of a log without lines that a crash left incomplete."""
    return [event for _, event in numbered_events(path)]


def numbered_events(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of a log with their line numbers, from 1, without lines that a crash left incomplete."""
    lines = read_text(path, errors="replace").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        if (event := parsed(line)) is not None:
            yield number, event


def parsed(line: str | bytes) -> dict[str, Any] | None:
    """The event of a line; None for an incomplete line, and an empty event for JSON that is not an object."""
    try:
        event = json.loads(line)
    except RecursionError:
        return {}
    except ValueError:
        return None
    return event if isinstance(event, dict) else {}


def is_whole(event: dict[str, Any]) -> bool:
    """Whether an event has run, job and datasets with names and facets; events of other programs may lack them."""
    parts = [event.get("run"), event.get("job"), *listed(event, "inputs"), *listed(event, "outputs")]
    if not all(isinstance(part, dict) and isinstance(part.get("facets", {}), dict) for part in parts):
        return False
    if not all(isinstance(facet, dict) for part in parts for facet in part.get("facets", {}).values()):
        return False
    names = [event.get("eventType"), event["run"].get("runId"), *(part.get("name") for part in parts[1:])]
    return all(isinstance(name, str) for name in names)


def listed(part: dict[str, Any], key: str) -> list[Any]:
    """The list under a key of an event or of one of its parts; empty if the value is not a list."""
    found = part.get(key, [])
    return found if isinstance(found, list) else [None]
