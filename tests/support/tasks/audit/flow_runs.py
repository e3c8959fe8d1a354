"""Flow runs as the orchestrator tells them."""

from __future__ import annotations

from typing import Any


def run_of(name: str, *entries: int, state: str = "COMPLETED", **changes: Any) -> dict[str, Any]:
    release_id = name.partition(" ")[0]
    tags = [release_id, *(f"ledger-entry:{seq}" for seq in entries)]
    return {"name": name, "tags": tags, "state": state, "start": "2025-12-31T00:00:00"} | changes
