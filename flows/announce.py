"""The event that announces landed data of a month: it names the dataset and an opaque token, but no files.

One process at a time announces a month, and marks it when the server has accepted the event. An attempt
without an answer is repeated with the same id, so that the server recognises a duplicate. A server that
crashes between an event and the run that it triggers forgets the event, and a server without the trigger
ignores it. Therefore an announcement that no run has handled is repeated later with another id. Handling
an announcement twice has no effect.

The number of landed files is private. All files that land before the event is sent are one announcement.
Files that land later wait while the first announcement is being handled, and then are one announcement too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from flows.server.connection import Server
from tasks.intake.arrivals import Arrivals
from tasks.intake.file_registry import Announcement
from tasks.spec import ReleaseSpec
from tasks.workspace.clock import to_the_minute

EVENT = "dprelease.month.landed"
FLOW = "landing"
LONGEST_SECONDS = 6 * 3600.0
"""The longest interval between repeated announcements of a month whose runs fail; intervals grow up to it."""
AGAIN_SECONDS = 300.0
"""Seconds before an announcement that no run has handled is repeated."""
ANSWER_SECONDS = 10.0


def resource_of(spec: ReleaseSpec) -> str:
    """The resource that a dataset's landing events are about."""
    return f"dprelease.dataset.{spec.name}"


def event_of(spec: ReleaseSpec, arrival: Announcement, at: datetime) -> dict[str, Any]:
    """The event in the form that a Prefect server accepts; its id identifies the announcement, not the attempt."""
    before = arrival.announced_at.isoformat() if arrival.announced_at else "never"
    return {
        "id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{EVENT} {arrival.token} announced before: {before}")),
        "occurred": to_the_minute(at).isoformat(),
        "event": EVENT,
        "resource": {"prefect.resource.id": resource_of(spec), "prefect.resource.name": spec.name},
        "payload": {"arrival": arrival.token},
    }


def announce(server: Server, spec: ReleaseSpec, arrival: Announcement, at: datetime) -> None:
    """Send one event.

    Raises: ServerUnreachableError.
    """
    server.ask("POST", "/events", [event_of(spec, arrival, at)], seconds=ANSWER_SECONDS)


def announce_due(
    server: Server,
    arrivals: Arrivals,
    spec: ReleaseSpec,
    *,
    ready: Callable[[Announcement], bool] = lambda _: True,
    at_once: bool = False,
) -> None:
    """Send the pending announcements that are ready, oldest first: new ones, and old ones that no run has handled.

    Unless `at_once` is set, a new announcement of a month waits while an earlier one may still be handled.
    Raises: ServerUnreachableError; the remaining announcements stay pending.
    """
    again = spec.schedule.on_landing
    with arrivals.announcing():
        pending, now = arrivals.pending(), datetime.now(UTC)
        sent = [arrival for arrival in pending if arrival.announced_at]
        alive = under_way(server) if sent and again else set()
        busy = {a.period for a in sent if again and (a.token in alive or _age(a, now) < AGAIN_SECONDS)}
        for arrival in pending:
            waits = arrival.token in alive or (arrival.announced_at is None and arrival.period in busy and not at_once)
            if not waits and is_due(arrival, now, again=again) and ready(arrival):
                announce(server, spec, arrival, datetime.now(UTC))
                arrivals.mark_announced(arrival, datetime.now(UTC))


def is_due(arrival: Announcement, now: datetime, *, again: bool) -> bool:
    """Whether to announce now; an announcement is repeated only if `again` is set."""
    if arrival.announced_at is None:
        return True
    wait = min(AGAIN_SECONDS * 2 ** max(arrival.announcements - 1, 0), LONGEST_SECONDS)
    return again and not _age(arrival, now) < wait


def _age(sent: Announcement, now: datetime) -> float:
    """The seconds since an announcement; infinite if the clock was set back, so that it is announced again."""
    age = (now - sent.announced_at).total_seconds() if sent.announced_at else -1.0
    return age if age >= 0 else float("inf")


def under_way(server: Server) -> set[str]:
    """The tokens of arrivals that a current or scheduled run handles."""
    alive = {"type": {"any_": ["SCHEDULED", "PENDING", "RUNNING"]}}
    asked = {"flows": {"name": {"any_": [FLOW]}}, "flow_runs": {"state": alive}, "limit": 200}
    runs = server.ask("POST", "/flow_runs/filter", asked, seconds=ANSWER_SECONDS)
    return {str(run.get("parameters", {}).get("arrival")) for run in runs}
