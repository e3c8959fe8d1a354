"""A read-only proxy for Prefect's pages: `python -P -m deployments.auditor_door WORKSPACE DESCRIPTOR`.

An auditor who logs in here sees the flow runs on Prefect's server and can change nothing: only the routes of
`auditor_routes` reach the server, with the server's own credentials, which the auditor never sees. The proxy listens
on loopback and accepts only requests of its own pages.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import secrets
import socket
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from deployments.auditor_routes import WITHHELD, Route, find_route
from flows.server.connection import Server, known_server
from flows.server.embedded import LOOPBACK
from tasks.workspace.files import private_file
from tasks.workspace.folders import Workspace

USER = "auditor"
PASSWORD_FILE = "auditor.password"  # noqa: S105  a file name
"""The file in the workspace's Prefect home that holds the password while `dprelease serve` runs."""
BODY_BYTES = 64 * 1024
"""The largest filter that is forwarded; those of Prefect's pages have a few hundred bytes."""
ANSWER_SECONDS = 60.0
PASSED_ON = ("content-type", "content-disposition")
"""Headers of the server's answers that are forwarded: no cookies, no addresses, no permissions for other origins."""
PAGE_TOKEN = "page-token"  # noqa: S105  a parameter's name
SHOWN_EVENTS = ("prefect.flow-run.", "prefect.task-run.", "dprelease.")
"""Events whose payload the auditor sees; the payload of other events may be secret."""
OWN_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self' data:; "
        "worker-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Door:
    """The ASGI application: it checks a request and forwards or refuses it."""

    def __init__(self, server: Server, password: str, port: int, client: httpx.AsyncClient) -> None:
        self._server_url = server.ui_url
        self._server_login = _basic(server.auth) if server.auth else None
        self._login = _basic(f"{USER}:{password}").encode()
        self._hosts = {f"{name}:{port}" for name in (LOOPBACK, "localhost")}
        self._client = client
        self._key = secrets.token_bytes(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        response = await self._reply(Request(scope, receive))
        for name, value in OWN_HEADERS.items():
            response.headers[name] = value
        await response(scope, receive, send)

    async def _reply(self, request: Request) -> Response:
        host = request.headers.get("host", "")
        origin = f"http://{host}"
        if host not in self._hosts or request.headers.get("origin", origin) != origin:
            return _refusal(403, "this port answers only requests of its own pages")  # DNS rebinding, or another site
        if not secrets.compare_digest(request.headers.get("authorization", "").encode(), self._login):
            refusal = _refusal(401, f"log in as {USER}; the operator knows the password")
            refusal.headers["WWW-Authenticate"] = 'Basic realm="Flow runs, read only", charset="UTF-8"'
            return refusal
        method = "GET" if request.method == "HEAD" else request.method  # the body of the answer is then omitted
        path = request.scope["raw_path"].decode("latin-1")
        if f"{method} {path}" in WITHHELD:
            return JSONResponse(WITHHELD[f"{method} {path}"])
        found = find_route(method, path)
        query = self._query_of(request, found[0]) if found else None
        if found is None or query is None:
            # Prefect's pages take a 403 for a broken connection, and show this text beside any other status
            return _refusal(403 if method == "GET" else 405, "Auditors can read flow runs but cannot change anything.")
        try:
            body = await _read_body(request, found[0]) if method == "POST" else b""
        except (ValueError, RecursionError, ClientDisconnect):
            return _refusal(400, "the request body is not a JSON object, or is too large")
        return await self._pass_on(found[0], found[1], query, body, origin)

    def _query_of(self, request: Request, route: Route) -> dict[str, str] | None:
        """The query parameter to forward; None for a page of events that this proxy did not offer."""
        value = request.query_params.get(route.query)
        if value is None or not route.query:
            return {}
        if route.query == PAGE_TOKEN:
            value, _, seal = value.partition(".")
            if not secrets.compare_digest(seal.encode(), self._seal(value).encode()):
                return None
        return {route.query: value}

    def _seal(self, token: str) -> str:
        """Authenticate a page token: it contains a filter, and a forged one could search what `_read_body` forbids."""
        return hmac.digest(self._key, token.encode(), "sha256").hex()

    async def _pass_on(self, route: Route, path: str, query: dict[str, str], body: bytes, origin: str) -> Response:
        """Send the checked parts of the request to the server."""
        headers = {"Content-Type": "application/json"} if body else {}
        if self._server_login:
            headers["Authorization"] = self._server_login
        try:
            answer = await self._client.request(
                route.method, self._server_url + path, params=query, content=body, headers=headers
            )
            if answer.is_redirect or answer.status_code == 401:  # the operator must solve this, not the auditor
                return _refusal(502, "the orchestration server rejects the password of this port")
            if answer.is_success and route.template == "/ui-settings":
                return JSONResponse(_own_settings(answer.json(), origin))
            if answer.is_success and route.template.startswith("/api/events/filter"):
                return JSONResponse(self._own_events(answer.json(), origin))
        except (httpx.HTTPError, ValueError):
            return _refusal(502, "the orchestration server does not answer")
        kept = {name: answer.headers[name] for name in PASSED_ON if name in answer.headers}
        return Response(answer.content, answer.status_code, kept)

    def _own_events(self, page: dict[str, Any], origin: str) -> dict[str, Any]:
        """Let the link to the next page lead through this proxy, and withhold payloads other than those of runs.

        When a variable or a work pool changes, Prefect writes its old and new values into the event's payload.
        """
        events = [e if e["event"].startswith(SHOWN_EVENTS) else {**e, "payload": {}} for e in page["events"]]
        token = httpx.URL(page["next_page"] or "").params.get(PAGE_TOKEN)
        address = f"{origin}/api/events/filter/next?{PAGE_TOKEN}={quote(token)}.{self._seal(token)}" if token else None
        return {**page, "events": events, "next_page": address}


def _own_settings(settings: dict[str, Any], origin: str) -> dict[str, Any]:
    """Let the pages use this proxy, at which the browser has already logged in."""
    one_ui = {"default_ui": "v1", "available_uis": ["v1"], "v2_base_url": None}
    return {**settings, "api_url": f"{origin}/api", "auth": None, "csrf_enabled": False, **one_ui}


def _basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def _refusal(status: int, reason: str) -> Response:
    return JSONResponse({"detail": reason}, status, {"Allow": "GET, HEAD"} if status == 405 else None)


async def _read_body(request: Request, route: Route) -> bytes:
    """Return the request's JSON object without a search in the text of events.

    That search covers what `_own_events` withholds and could reveal it letter by letter.
    Raises: ValueError if the body is too large or not a JSON object, RecursionError if it is nested too deeply.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES:
            raise ValueError("too large")
    content = json.loads(body or b"{}")
    if not isinstance(content, dict):
        raise ValueError("no object")
    if route.template.startswith("/api/events/") and isinstance(content.get("filter"), dict):
        content["filter"].pop("text", None)
    return json.dumps(content).encode()


def new_password(workspace: Workspace) -> AbstractContextManager[Path]:
    """A new random password for the auditor in a file that only the workspace's owner can read, for the block only."""
    return private_file(workspace.prefect_home / PASSWORD_FILE, f"{secrets.token_urlsafe(32)}\n")


async def open_door(workspace: Workspace, listener: socket.socket) -> None:
    """Answer requests on a socket until the process ends."""
    server = known_server(workspace)
    if server is None:
        raise SystemExit(2)
    password = (workspace.prefect_home / PASSWORD_FILE).read_text().strip()
    async with httpx.AsyncClient(timeout=ANSWER_SECONDS, trust_env=not server.is_beside) as client:
        door = Door(server, password, listener.getsockname()[1], client)
        config = uvicorn.Config(door, http="h11", ws="none", lifespan="off", log_level="critical", server_header=False)
        await uvicorn.Server(config).serve(sockets=[listener])


def main() -> None:
    """Serve the proxy on an inherited socket; the server's login comes from the environment or the workspace."""
    workspace, descriptor = sys.argv[1:]
    asyncio.run(open_door(Workspace(Path(workspace)), socket.socket(fileno=int(descriptor))))


if __name__ == "__main__":
    main()
