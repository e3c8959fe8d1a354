"""The event that says something landed for a month: of which dataset, and an opaque token; nothing of the files.

A month is announced by one process at a time and marked when the server took its event; an attempt
whose answer was not heard is repeated by the same id, which the server knows then. A server that dies
between an event and what it triggers forgets it, and one that does not know the trigger yet does not
act on it: so what nobody handled is announced again later, by another id. Handling it twice does nothing.

How many files land is private. All that land until the event is sent are one announcement, whatever
their number; those that land later wait, while somebody is to handle the first, and are one announcement then.
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
"""What fails again and again is announced again and again, with gaps that grow up to this one."""
AGAIN_SECONDS = 300.0
"""How long somebody has to handle what was announced."""
ANSWER_SECONDS = 10.0


def resource_of(spec: ReleaseSpec) -> str:
    """The resource that a dataset's landing events are about."""
    return f"dprelease.dataset.{spec.name}"


def event_of(spec: ReleaseSpec, arrival: Announcement, at: datetime) -> dict[str, Any]:
    """The event, as a Prefect server takes it; its id is that of the announcement, not of the attempt."""
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
    """Announce what is pending and ready, oldest first: never announced, or long ago and not handled.

    Unless it is to be `at_once`, what is new for a month waits while its earlier event may still be handled.
    Raises: ServerUnreachableError; the rest stays pending.
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
    """Whether to announce now; a second time only if somebody is to handle it."""
    if arrival.announced_at is None:
        return True
    wait = min(AGAIN_SECONDS * 2 ** max(arrival.announcements - 1, 0), LONGEST_SECONDS)
    return again and not _age(arrival, now) < wait


def _age(sent: Announcement, now: datetime) -> float:
    """The seconds since an announcement; endless by a clock that was set back, which must not silence it."""
    age = (now - sent.announced_at).total_seconds() if sent.announced_at else -1.0
    return age if age >= 0 else float("inf")


def under_way(server: Server) -> set[str]:
    """The tokens of arrivals that a run deals with now, or is about to."""
    alive = {"type": {"any_": ["SCHEDULED", "PENDING", "RUNNING"]}}
    asked = {"flows": {"name": {"any_": [FLOW]}}, "flow_runs": {"state": alive}, "limit": 200}
    runs = server.ask("POST", "/flow_runs/filter", asked, seconds=ANSWER_SECONDS)
    return {str(run.get("parameters", {}).get("arrival")) for run in runs}
