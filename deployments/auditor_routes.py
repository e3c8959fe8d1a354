"""The requests that the auditor's proxy forwards: the read-only routes of Prefect 3.8.8, by method and path template.

All other requests are refused. Some read-only routes of Prefect are omitted:

- `/deployments/get_scheduled_flow_runs`, `/work_pools/{name}/get_scheduled_flow_runs` and
  `/work_queues/{id}/get_runs` record the time of the poll, and `/csrf-token` stores a token;
- `/block_*`, `/variables`, `/work_pools/*`, `/flow_runs/{id}/input*`, `/admin/settings` and `/admin/storage` may
  show credentials and connection strings;
- `/collections/views/{view}` makes the server fetch from the internet;
- `/ui/schemas/validate` and `/templates/validate` make the server evaluate input of the caller;
- `/events/out` and `/logs/out` are WebSockets, which its pages do not use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

PAGES = {"dashboard", "runs", "flow-runs", "flows", "deployments", "artifacts", "events", "automations"} | {
    "concurrency-limits", "work-pools", "work-queues", "blocks", "variables", "settings"
}  # fmt: skip
"""The first segments of page addresses. All pages are the index document, whose script shows the page."""

READS = """
GET /
GET /ui-settings
GET /assets/{file}
GET /ico/{file}
GET /decorative_iso-pixel-grid_dark.svg
GET /decorative_iso-pixel-grid_light.svg
GET /marketing-banner-bg-dark.svg
GET /marketing-banner-bg-light.svg
GET /api/health
GET /api/ready
GET /api/version
GET /api/admin/version
GET /api/flows/{id}
GET /api/flows/name/{name}
GET /api/flow_runs/{id}
GET /api/flow_runs/{id}/graph
GET /api/flow_runs/{id}/graph-v2?since
GET /api/flow_runs/{id}/logs/download
GET /api/flow_run_states/?flow_run_id
GET /api/flow_run_states/{id}
GET /api/task_runs/{id}
GET /api/task_run_states/?task_run_id
GET /api/task_run_states/{id}
GET /api/ui/task_runs/{id}
GET /api/deployments/{id}
GET /api/deployments/{id}/schedules
GET /api/deployments/name/{flow_name}/{deployment_name}
GET /api/artifacts/{id}
GET /api/artifacts/{key}/latest
GET /api/events/filter/next?page-token
GET /api/automations/{id}
GET /api/automations/related-to/{resource_id}
GET /api/saved_searches/{id}
GET /api/concurrency_limits/{id}
GET /api/concurrency_limits/tag/{tag}
GET /api/work_queues/{id}
GET /api/work_queues/{id}/status
GET /api/work_queues/name/{name}
POST /api/flows/count
POST /api/flows/filter
POST /api/flows/paginate
POST /api/flow_runs/count
POST /api/flow_runs/filter
POST /api/flow_runs/history
POST /api/flow_runs/lateness
POST /api/flow_runs/paginate
POST /api/task_runs/count
POST /api/task_runs/filter
POST /api/task_runs/history
POST /api/task_runs/paginate
POST /api/deployments/count
POST /api/deployments/filter
POST /api/deployments/paginate
POST /api/logs/filter
POST /api/artifacts/count
POST /api/artifacts/filter
POST /api/artifacts/latest/count
POST /api/artifacts/latest/filter
POST /api/events/filter
POST /api/events/count-by/{countable}
POST /api/automations/count
POST /api/automations/filter
POST /api/saved_searches/filter
POST /api/concurrency_limits/filter
POST /api/v2/concurrency_limits/filter
POST /api/work_queues/filter
POST /api/work_queues/{id}/concurrency_status
POST /api/ui/flows/count-deployments
POST /api/ui/flows/next-runs
POST /api/ui/flow_runs/count-task-runs
POST /api/ui/flow_runs/history
POST /api/ui/task_runs/count
POST /api/ui/task_runs/dashboard/counts
"""
"""The routes, each with the only query parameter that is forwarded."""

WITHHELD: dict[str, Any] = {
    "GET /api/admin/settings": {"PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": False},
    "POST /api/block_documents/count": 0,
    "POST /api/block_documents/filter": [],
    "POST /api/block_types/filter": [],
    "POST /api/variables/count": 0,
    "POST /api/variables/filter": [],
    "POST /api/work_pools/filter": [],
}
"""Answers that the proxy gives without asking the server; without an answer, a page would show an error."""

UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
UNSAFE = re.compile(r"[/\\%?#\x00-\x1f\x7f]")
"""Characters that a decoded segment must not contain: two programs might read such a path differently."""


@dataclass(frozen=True, slots=True)
class Route:
    """One kind of request that is forwarded."""

    method: str
    template: str
    query: str
    """The only query parameter that is forwarded."""

    def matches(self, method: str, segments: list[str]) -> bool:
        """Whether a request, given by its method and decoded path segments, is of this kind."""
        expected = self.template.split("/")[1:]
        return (
            method == self.method
            and len(expected) == len(segments)
            and all(_fits(*pair) for pair in zip(expected, segments, strict=True))
        )


def _fits(expected: str, segment: str) -> bool:
    if expected == "{id}":
        return UUID.fullmatch(segment) is not None
    return segment != "" if expected.startswith("{") else segment == expected


def _route(line: str) -> Route:
    method, _, rest = line.partition(" ")
    template, _, query = rest.partition("?")
    return Route(method, template, query)


ROUTES = tuple(_route(line) for line in READS.splitlines() if line)


def find_route(method: str, raw_path: str) -> tuple[Route, str] | None:
    """Find the route of a request and the path to ask the server for; None if the request is refused.

    The returned path is rebuilt from the segments that were compared, so that the server cannot read it differently
    from this function.
    """
    segments = [unquote(segment, errors="replace") for segment in raw_path.removeprefix("/").split("/")]
    unsafe = any(UNSAFE.search(segment) or segment in (".", "..") for segment in segments)
    if unsafe or not raw_path.startswith("/"):
        return None
    if segments[0] in PAGES and segments[-1]:
        segments = [""]
    path = "/" + "/".join(quote(segment, safe="") for segment in segments)
    return next(((route, path) for route in ROUTES if route.matches(method, segments)), None)
