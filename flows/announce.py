"""The event that says a file landed: for which dataset, and an opaque token; nothing of the file.

A version is announced by one process at a time and marked when the server took its event; an attempt
whose answer was not heard is repeated by the same id, which the server knows then. A server that dies
between an event and what it triggers forgets it, and one that does not know the trigger yet does not
act on it: so what nobody handled is announced again later, by another id. Handling it twice does nothing.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from flows.connection import Server
from tasks.stores.arrivals import Arrivals
from tasks.stores.spec import ReleaseSpec
from tasks.stores.versions import FileVersion

EVENT = "dprelease.file.landed"
FLOW = "landing"
LONGEST_SECONDS = 6 * 3600.0
"""What fails again and again is announced again and again, with gaps that grow up to this one."""
AGAIN_SECONDS = 300.0
"""How long somebody has to handle what was announced."""
ANSWER_SECONDS = 10.0


def resource_of(spec: ReleaseSpec) -> str:
    """The resource that a dataset's landing events are about."""
    return f"dprelease.dataset.{spec.name}"


def event_of(spec: ReleaseSpec, version: FileVersion, at: datetime) -> dict[str, Any]:
    """The event of a version, as a Prefect server takes it; its id is that of the announcement, not of the attempt."""
    before = version.announced_at.isoformat() if version.announced_at else "never"
    return {
        "id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{EVENT} {version.token} announced before: {before}")),
        "occurred": at.isoformat(),
        "event": EVENT,
        "resource": {"prefect.resource.id": resource_of(spec), "prefect.resource.name": spec.name},
        "payload": {"arrival": version.token},
    }


def announce(server: Server, spec: ReleaseSpec, version: FileVersion, at: datetime) -> None:
    """Send one version's event.

    Raises: ServerUnreachableError.
    """
    server.ask("POST", "/events", [event_of(spec, version, at)], seconds=ANSWER_SECONDS)


def announce_due(server: Server, arrivals: Arrivals, spec: ReleaseSpec, *, only: str | None = None) -> None:
    """Announce what is pending, oldest first, or the one of that token: never announced, or long ago and not handled.

    Raises: ServerUnreachableError; the rest stays pending.
    """
    with arrivals.announcing():
        pending = [version for version in arrivals.pending() if only in (None, version.token)]
        due = [v for v in pending if is_due(v, datetime.now(UTC), again=spec.schedule.on_landing)]
        alive = under_way(server) if any(version.announced_at for version in due) else set()
        for version in due:
            if version.token not in alive:
                announce(server, spec, version, datetime.now(UTC))
                arrivals.mark_announced(version.token, datetime.now(UTC))


def is_due(version: FileVersion, now: datetime, *, again: bool) -> bool:
    """Whether a version is to be announced now; a second time only if somebody is to handle it."""
    if version.announced_at is None:
        return True
    age = (now - version.announced_at).total_seconds()
    wait = min(AGAIN_SECONDS * 2 ** max(version.announcements - 1, 0), LONGEST_SECONDS)
    return again and not 0 <= age < wait  # a clock that was set back must not silence it


def under_way(server: Server) -> set[str]:
    """The tokens of arrivals that a run deals with now, or is about to."""
    alive = {"type": {"any_": ["SCHEDULED", "PENDING", "RUNNING"]}}
    asked = {"flows": {"name": {"any_": [FLOW]}}, "flow_runs": {"state": alive}, "limit": 200}
    runs = server.ask("POST", "/flow_runs/filter", asked, seconds=ANSWER_SECONDS)
    return {str(run.get("parameters", {}).get("arrival")) for run in runs}
