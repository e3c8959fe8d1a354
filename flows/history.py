"""What an auditor finds in the orchestrator's history: runs that carry names and tags."""

from __future__ import annotations

from uuid import UUID

from prefect.client.orchestration import get_client


def label_run(flow_run_id: str, *, name: str, tags: tuple[str, ...]) -> None:
    """Name a flow run after its release and tag it; public words only."""
    with get_client(sync_client=True) as client:
        client.update_flow_run(UUID(flow_run_id), name=name, tags=list(tags))
