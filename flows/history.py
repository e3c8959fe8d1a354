"""What an auditor finds in the orchestrator's history: names, tags, and how far a run came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.client.orchestration import get_client

from tasks.stores.lineage import LineageRun, Stage


def label_run(flow_run_id: str, *, name: str, tags: tuple[str, ...]) -> None:
    """Name a flow run after its release and tag it; public words only."""
    with get_client(sync_client=True) as client:
        client.update_flow_run(UUID(flow_run_id), name=name, tags=list(tags))


class Journal:
    """Tells the lineage and the orchestrator of every stage as it begins and ends."""

    def __init__(self, lineage: LineageRun, stages: Sequence[str]) -> None:
        self._lineage, self._stages, self._done = lineage, stages, 0
        self._progress = cast(UUID, create_progress_artifact(0.0, description="stages of the release"))

    @contextmanager
    def stage(self, name: str, *, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> Iterator[Stage]:
        """One stage; its end moves the progress bar."""
        with self._lineage.stage(name, inputs=inputs, outputs=outputs) as stage:
            yield stage
        self._done += 1
        update_progress_artifact(self._progress, 100 * self._done / len(self._stages), description=f"after {name}")
