"""The list of the auditor's door against the routes of the installed Prefect: a new version needs new decisions."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from support.deployments.doorway import METHODS
from support.deployments.serving import environment

from deployments.auditor_routes import ROUTES, find_route

LISTED = {(route.method, route.template) for route in ROUTES}
SOME_ID = "0a1b2c3d-0000-4000-8000-0123456789ab"
FILES = {route for route in LISTED if not route[1].startswith("/api/")} - {("GET", "/ui-settings")}
READING = ("/filter", "/count", "/paginate", "/history", "_status", "/next-runs", "/lateness")
REFUSED_READS = """
GET /api/admin/settings
GET /api/admin/storage
GET /api/block_capabilities/
GET /api/block_documents/{id}
GET /api/block_schemas/checksum/{checksum}
GET /api/block_schemas/{id}
GET /api/block_types/slug/{slug}
GET /api/block_types/slug/{slug}/block_documents
GET /api/block_types/slug/{slug}/block_documents/name/{block_document_name}
GET /api/block_types/{id}
GET /api/collections/views/{view}
GET /api/csrf-token
GET /api/deployments/{id}/work_queue_check
GET /api/docs
GET /api/docs/oauth2-redirect
GET /api/flow_runs/{id}/input/{key}
GET /api/hello
GET /api/openapi.json
GET /api/redoc
GET /api/v2/concurrency_limits/{id_or_name}
GET /api/variables/name/{name}
GET /api/variables/{id}
GET /api/work_pools/{name}
GET /api/work_pools/{work_pool_name}/queues/{name}
GET /docs
GET /docs/oauth2-redirect
GET /openapi.json
GET /redoc
POST /api/block_documents/count
POST /api/block_documents/filter
POST /api/block_schemas/filter
POST /api/block_types/filter
POST /api/flow_runs/{id}/input/filter
POST /api/task_workers/filter
POST /api/variables/count
POST /api/variables/filter
POST /api/work_pools/count
POST /api/work_pools/filter
POST /api/work_pools/{name}/concurrency_status
POST /api/work_pools/{work_pool_name}/queues/filter
POST /api/work_pools/{work_pool_name}/workers/filter
"""
WALK = """
import json
from prefect.server.api.server import create_app

def walk(router, prefix=""):
    for route in router.routes:
        path = prefix + getattr(route, "path", "")
        inner = getattr(route, "original_router", getattr(route, "app", None))
        if hasattr(inner, "routes"):
            yield from walk(inner, path)
        else:
            yield from ([method, path] for method in getattr(route, "methods", None) or ["*"])  # sockets, mounts

app = create_app()
api = next(route.app for route in app.routes if route.path == "/api")
documented = [[m.upper(), "/api" + path] for path, methods in api.openapi()["paths"].items() for m in methods]
print(json.dumps([list(walk(app)), documented]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """Every route of the installed Prefect, as method and path template."""
    home = tmp_path_factory.mktemp("routes")
    command = [sys.executable, "-W", "ignore", "-c", WALK]
    done = subprocess.run(command, env=environment(home), capture_output=True, text=True, check=True, timeout=120)
    walked, documented = json.loads(done.stdout.splitlines()[-1])
    routes = {(method, re.sub(r":\w+}", "}", path)) for method, path in walked}
    assert routes >= {(method, path) for method, path in documented}, "the walk misses routes"
    return routes


def test_every_listed_route_is_one_of_the_installed_prefect(installed: set[tuple[str, str]]):
    assert not LISTED - FILES - installed


def test_every_other_route_of_the_installed_prefect_is_refused(installed: set[tuple[str, str]]):
    for _, template in installed:
        for method in METHODS:
            found = find_route(method, template.replace("{id}", SOME_ID))
            assert ((method, template) in LISTED) == (found is not None), (method, template)
            assert found is None or found[0].template == template


def test_each_reading_route_that_is_refused_was_decided_about(installed: set[tuple[str, str]]):
    reads = {(m, path) for m, path in installed if m == "GET" or (m == "POST" and path.endswith(READING))}
    assert sorted(f"{m} {path}" for m, path in reads - LISTED) == REFUSED_READS.split("\n")[1:-1]
