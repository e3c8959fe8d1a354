"""The auditor's door: whoever has its password sees the flow runs, and changes nothing, whatever is tried."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.deployments.doorway import AUTH, METHODS, SECRET, Doorway, auditor_door, basic, doorway
from support.deployments.serving import ask_again, make_workspace, serving, until

from deployments.auditor_door import BODY_BYTES, PASSWORD_FILE, USER, new_password
from deployments.auditor_routes import ROUTES, WITHHELD
from flows.server.connection import Server
from tasks.workspace.folders import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from support.browser import Browser

pytest_plugins = ["support.browser"]

LISTED = {(route.method, route.template) for route in ROUTES}


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doorway]:
    with doorway(tmp_path_factory.mktemp("door")) as made:
        yield made


# ---------------------------------------------------------------- the login


@pytest.mark.parametrize(
    "login", [None, "", "Basic", "Basic !", "Bearer x", basic(AUTH), basic(f"{USER}:"), basic(f"{USER}:wrong")]
)
@pytest.mark.parametrize("path", ["/", "/api/version", "/api/variables/filter", "/nowhere", "/assets/x.js"])
def test_without_the_password_nothing_is_answered(door: Doorway, path: str, login: str | None):
    answer = door.ask("GET", path, Authorization=login or "")
    assert (answer.status, "www-authenticate" in answer.headers) == (401, True)


def test_another_user_s_name_does_not_go_with_the_password(door: Doorway):
    assert door.ask("GET", "/", Authorization=basic(f"steward:{door.password}")).status == 401


def test_with_the_password_the_pages_and_the_history_are_there(door: Doorway):
    assert b"<title>Prefect Server</title>" in door.ask("GET", "/runs").body
    runs = json.loads(door.ask("POST", "/api/flow_runs/filter", {"sort": "NAME_ASC"}).body)
    assert [run["name"] for run in runs] == ["small-2026-10-1", "small-2026-11-1"]
    logs = json.loads(door.ask("POST", "/api/logs/filter", {}).body)
    assert [line["message"] for line in logs] == ["reserved epsilon 1"]
    assert door.ask("HEAD", "/runs").status == 200


def test_the_password_is_new_each_time_private_and_gone_in_the_end(tmp_path: Path):
    workspace = Workspace(tmp_path)
    workspace.create()
    left = workspace.prefect_home / PASSWORD_FILE
    left.write_text("of a killed serve, readable to all")
    left.chmod(0o644)
    seen = set()
    for _ in range(2):
        with new_password(workspace) as path:
            assert path.stat().st_mode & 0o777 == 0o600
            seen.add(path.read_text())
        assert not path.exists()
    assert len(seen) == 2
    assert min(map(len, seen)) > 40


# ---------------------------------------------------------------- a hostile auditor


def test_no_route_with_any_method_changes_the_server_or_shows_a_secret(door: Doorway):
    cancel = {"state": {"type": "CANCELLED"}, "force": True, "name": "taken-over", "flow_id": door.ids["flows.id"]}
    query = f"?include_secrets=true&flow_run_id={door.ids['flow_runs.id']}&task_run_id={door.ids['task_runs.id']}"
    before = door.rows()
    documented = {f"/api{path}" for path in door.server.ask("GET", "/openapi.json")["paths"]}
    for template in documented | {path for _, path in LISTED}:
        for method in METHODS:
            known = "GET" if method == "HEAD" else method
            passed = (known, template) in LISTED or f"{known} {template}" in WITHHELD
            for content in (cancel, {}) if passed and method == "POST" else (cancel,):
                answer = door.ask(method, door.concrete(template) + query, content)
                assert (answer.status not in (403, 405)) == passed, (method, template, answer)
                assert answer.status < 500, (method, template, answer)
                shown = f"{answer.headers} {answer.body!r}"
                assert not [word for word in (SECRET, AUTH, basic(AUTH), door.password) if word in shown], template
    assert {name for name, rows in door.rows().items() if rows != before[name]} == set()


RUN = "/api/flow_runs/{id}"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{RUN}/set_state/"),
        ("POST", f"{RUN}%2Fset_state"),
        ("POST", f"{RUN}%252Fset_state"),
        ("POST", f"{RUN}/set%5fstate"),
        ("POST", f"{RUN}/../{{id}}/set_state"),
        ("POST", "/api/flow_runs/filter/../{id}/set_state"),
        ("POST", "/api/flow_runs/filter/%2e%2e/{id}/set_state"),
        ("POST", "/api/flow_runs/filter%2f..%2f{id}%2fset_state"),
        ("POST", "/api/flow_runs/filter;/../{id}/set_state"),
        ("POST", "/api//flow_runs/{id}/set_state"),
        ("POST", "//api/flow_runs/{id}/set_state"),
        ("POST", "/API/flow_runs/{id}/set_state"),
        ("POST", "/runs/../api/flow_runs/{id}/set_state"),
        ("POST", "/runs/%2e%2e/api/flow_runs/{id}/set_state"),
        ("POST", "/api/flow_runs/filter?/../{id}/set_state#"),
        ("POST", "/api/flow_runs/filter%3f/../{id}/set_state"),
        ("POST", "/api/flow_runs/filter%00"),
        ("POST", "/api/flow_runs/filter/"),
        ("POST", "/api/flow_runs/"),
        ("POST", "/api/flow_runs"),
        ("DELETE", RUN),
        ("DELETE", f"{RUN}?method=GET"),
        ("PATCH", RUN),
        ("GET", "/api/admin/settings/"),
        ("GET", "/api/admin//settings"),
        ("GET", "/assets/..%2fapi%2fadmin%2fsettings"),
        ("GET", "/assets/../api/admin/settings"),
        ("GET", "/ico/..%5capi"),
        ("GET", "/api/flows/name/..%2f..%2fadmin%2fsettings"),
        ("GET", "/api/flows/name/.."),
        ("GET", "/api/artifacts/../latest"),
        ("GET", "/api/flow_runs/{id}%0d%0aX: y"),
    ],
)
def test_no_path_gets_around_the_list(door: Doorway, method: str, path: str):
    before = door.rows()
    address = path.replace("{id}", door.ids["flow_runs.id"])
    content = {"state": {"type": "CANCELLED"}, "force": True}
    answer = door.ask(method, re.sub(r"\s", "%20", address), content if method == "POST" else None)
    if path.startswith("/api/flow_runs/filter?"):
        assert answer.status == 200  # what follows the question mark is no path, and does not reach the server
    else:
        assert answer.status == (403 if method == "GET" else 405)
    assert door.rows() == before


@pytest.mark.parametrize("name", ["X_HTTP_Method_Override", "X_HTTP_Method", "X_Method_Override"])
def test_no_header_changes_the_method(door: Doorway, name: str):
    before = door.rows()
    assert door.ask("GET", f"/api/flow_runs/{door.ids['flow_runs.id']}", **{name: "DELETE"}).status == 200
    assert door.rows() == before


@pytest.mark.parametrize("query", ["include_secrets=true", "x=1&flow_run_id=a", "since=x"])
def test_only_the_listed_query_parameter_reaches_the_server(door: Doorway, query: str):
    path = f"/api/flow_runs/{door.ids['finished.id']}"
    assert door.ask("GET", f"{path}?{query}").body == door.ask("GET", path).body


@pytest.mark.parametrize(
    "lines",
    [
        ["GET http://127.0.0.1:{port}/api/version HTTP/1.1", "Host: 127.0.0.1:{port}"],
        ["GET http://example.invalid/ HTTP/1.1", "Host: 127.0.0.1:{port}"],
        ["OPTIONS * HTTP/1.1", "Host: 127.0.0.1:{port}"],
        ["CONNECT example.invalid:80 HTTP/1.1", "Host: 127.0.0.1:{port}"],
        ["TRACE / HTTP/1.1", "Host: 127.0.0.1:{port}"],
        ["GET ?x HTTP/1.1", "Host: 127.0.0.1:{port}"],
        ["GET / HTTP/1.1", "Host: 127.0.0.1:{port}", "Host: 127.0.0.1:{port}"],
        ["GET / HTTP/1.1"],
        ["GET / HTTP/1.0"],
        ["POST /api/flows/count HTTP/1.1", "Host: 127.0.0.1:{port}", "Content-Length: 2", "Content-Length: 20"],
        ["POST /api/flows/count HTTP/1.1", "Host: 127.0.0.1:{port}", "Transfer-Encoding: x, chunked"],
    ],
    ids=lambda lines: lines[0],
)
def test_requests_of_unusual_form_are_refused(door: Doorway, lines: list[str]):
    status = door.send(*(line.format(port=door.port) for line in lines))
    assert re.match(rb"HTTP/1.1 (400|403|405|501) ", status), status


def test_a_body_with_two_lengths_is_one_request(door: Doorway):
    """A second request hidden in the first one's body would be answered too, or reach the server."""
    before = door.rows()
    hidden = f"DELETE /api/flow_runs/{door.ids['flow_runs.id']} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    head = ["POST /api/flows/count HTTP/1.1", f"Host: 127.0.0.1:{door.port}"]
    lengths = ["Transfer-Encoding: chunked", "Content-Length: 4"]
    door.send(*head, *lengths, body=b"2\r\n{}\r\n0\r\n\r\n" + hidden)
    assert door.rows() == before


def test_web_sockets_are_not_opened(door: Doorway):
    for path in ("/api/events/out", "/api/events/in", "/api/logs/out"):
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13"}
        assert door.ask("GET", path, Sec_WebSocket_Key="MDEyMzQ1Njc4OWFiY2RlZg==", **upgrade).status == 403


@pytest.mark.parametrize(
    "body",
    [b" " * BODY_BYTES + b"{}", b"[" * 60_000, b"[]", b"1", b"{", b"\xff", b'{"a": ' * 9_000 + b"1" + b"}" * 9_000],
)
def test_a_body_that_is_too_large_or_no_object_is_refused(door: Doorway, body: bytes):
    assert door.ask("POST", "/api/flows/count", body).status == 400
    assert door.ask("POST", "/api/flows/count", b" " * (BODY_BYTES - 2) + b"{}").status == 200


@pytest.mark.parametrize("path", ["/api/events/filter", "/api/%65vents/filter"])
def test_secrets_in_events_are_withheld_and_cannot_be_searched_for(door: Doorway, path: str):
    name, text = {"event": {"name": ["prefect.variable.created"]}}, {"text": {"query": SECRET[:4]}}
    said = door.server.ask("POST", "/events/filter", {"filter": name})["events"]
    assert [event["payload"]["value"] for event in said] == [SECRET], "Prefect writes it there"
    shown = json.loads(door.ask("POST", path, {"filter": name}).body)
    assert [event["payload"] for event in shown["events"]] == [{}]
    wrong = {"text": {"query": "zzzz"}}
    totals = [json.loads(door.ask("POST", path, {"filter": name | more}).body)["total"] for more in (text, wrong)]
    assert totals == [1, 1], "a right guess looks like a wrong one"
    twice = f'{{"filter": {{}}, "filter": {json.dumps(name | wrong)}}}'.encode()
    assert json.loads(door.ask("POST", path, twice).body)["total"] == 1
    counted = door.ask("POST", "/api/events/count-by/event", {"filter": name | wrong})
    assert [found["count"] for found in json.loads(counted.body)] == [1]


def test_a_page_of_events_that_the_door_did_not_offer_is_refused(door: Doorway):
    """A token of Prefect is no more than a filter in base64: a forged one could search in the withheld text."""
    offered = door.server.ask("POST", "/events/filter", {})["next_page"].partition("page-token=")[2]
    for token in (offered, f"{offered}.", f"{offered}.{'0' * 64}", "", "."):
        assert door.ask("GET", f"/api/events/filter/next?page-token={token}").status == 403


# ---------------------------------------------------------------- other sites in the auditor's browser


@pytest.mark.parametrize(
    "host", ["example.invalid", "127.0.0.1", "localhost:1", "127.0.0.1.example.invalid:{port}", ""]
)
def test_a_name_that_was_rebound_to_loopback_is_refused(door: Doorway, host: str):
    assert door.ask("GET", "/api/version", Host=host.format(port=door.port)).status == 403


def test_localhost_is_as_good_as_its_number(door: Doorway):
    answer = door.ask("GET", "/ui-settings", Host=f"localhost:{door.port}")
    assert json.loads(answer.body)["api_url"] == f"http://localhost:{door.port}/api", "the same origin"


@pytest.mark.parametrize(
    "origin", ["http://example.invalid", "null", "http://localhost:{port}", "https://127.0.0.1:{port}"]
)
def test_requests_of_other_sites_are_refused(door: Doorway, origin: str):
    answer = door.ask("POST", "/api/flows/count", {}, Origin=origin.format(port=door.port))
    assert answer.status == 403


def test_answers_open_nothing_to_other_sites_and_set_no_cookies(door: Doorway):
    for method, path in (("GET", "/"), ("GET", "/api/version"), ("POST", "/api/flows/count"), ("DELETE", "/x")):
        headers = door.ask(method, path, Origin=f"http://127.0.0.1:{door.port}").headers
        assert not [name for name in headers if name.startswith("access-control") or name in ("set-cookie", "server")]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"


# ---------------------------------------------------------------- addresses of the server


def test_the_pages_are_led_to_the_door_and_ask_for_no_password_of_their_own(door: Doorway):
    settings = json.loads(door.ask("GET", "/ui-settings").body)
    assert settings["api_url"] == f"http://127.0.0.1:{door.port}/api"
    assert (settings["auth"], settings["csrf_enabled"]) == (None, False)


def test_the_next_page_of_events_is_behind_the_door_too(door: Doorway):
    first = json.loads(door.ask("POST", "/api/events/filter", {}).body)
    origin, path = first["next_page"].split("/api/")
    assert origin == f"http://127.0.0.1:{door.port}"
    second = json.loads(door.ask("GET", f"/api/{path}").body)
    assert len(first["events"]) + len(second["events"]) == first["total"]
    assert second["next_page"] is None


@pytest.mark.parametrize("auth", ["steward:wrong", None])
def test_a_server_that_refuses_the_door_is_not_the_auditor_s_matter(door: Doorway, tmp_path: Path, auth: str | None):
    """A 401 of the server would make the browser ask the auditor for the server's password."""
    workspace = Workspace(tmp_path)
    workspace.create()
    with auditor_door(workspace, Server(door.server.api_url, auth)) as (port, password):
        outside = Doorway(door.server, door.database, port, password)
        assert outside.ask("POST", "/api/flows/count", {}).status == 502


def test_a_server_that_is_down_is_said_to_be(door: Doorway, tmp_path: Path):
    workspace = Workspace(tmp_path)
    workspace.create()
    with auditor_door(workspace, Server("http://127.0.0.1:9/api")) as (port, password):
        answer = Doorway(door.server, door.database, port, password).ask("GET", "/")
    assert answer.status == 502
    assert b"does not answer" in answer.body


# ---------------------------------------------------------------- in the browser, and beside `serve`


def test_the_pages_show_the_history_and_their_buttons_change_nothing(door: Doorway, browser: Browser, tmp_path: Path):
    here, before = f"http://127.0.0.1:{door.port}", door.rows()
    login = {"username": USER, "password": door.password}
    run = f"{here}/runs/flow-run/{door.ids['flow_runs.id']}"
    with browser.visit(run, allowed=(here, "data:", "blob:"), width=1400, login=login) as visit:
        page = visit.page
        _await_history(page)
        page.get_by_text("Artifacts", exact=True).last.click()
        page.get_by_text("release-card").first.wait_for(timeout=30_000)
        assert not page.get_by_text("Something went wrong").count(), "no page asks for what is refused"
        visit.picture(tmp_path / "run.png")
        page.get_by_text("Cancel", exact=True).first.click()
        page.get_by_text("Confirm", exact=True).last.click()
        page.get_by_text("cannot change anything").first.wait_for(timeout=30_000)
        visit.picture(tmp_path / "cancel.png")
        page.reload()
        _await_history(page)
        _delete_run(page)
        page.get_by_text("cannot change anything").first.wait_for(timeout=30_000)
        visit.picture(tmp_path / "delete.png")
        assert not page.get_by_text("Something went wrong").count()
        assert visit.outside == []
    assert door.rows() == before


def _await_history(page: Page) -> None:
    """Wait until the page of the run has loaded what it shows."""
    for shown in ("small-2026-11-1", "Running", "reserved epsilon 1"):
        page.get_by_text(shown).first.wait_for(timeout=60_000)


def _delete_run(page: Page) -> None:
    """Choose Delete in the run's menu and confirm it; a menu that the page draws anew takes no click, so ask again."""
    from playwright.sync_api import TimeoutError as LateError

    confirm = page.locator(".p-modal__footer").get_by_text("Delete", exact=True)
    for _ in range(10):
        page.keyboard.press("Escape")  # closes a menu that is still open
        page.locator("[class*=icon-button-menu] button").last.click()
        with suppress(LateError):
            page.get_by_text("Delete", exact=True).first.click(timeout=3_000)
            confirm.wait_for(timeout=3_000)
            break
    confirm.click()


@pytest.mark.timeout(600)
def test_serve_opens_the_door_to_a_configured_server_and_says_how_to_log_in(door: Doorway, tmp_path: Path):
    workspace = make_workspace(tmp_path / "workspace")
    options = ("--auditor-port", "0", "--settle", "1")
    with serving(workspace, tmp_path, *options, **door.server.settings()) as served:
        auditor = json.loads((tmp_path / "serve.out").read_text())["auditor"]
        path = Path(auditor["password_file"])
        assert (auditor["user"], path) == (USER, workspace.prefect_home / PASSWORD_FILE)
        opened = Doorway(door.server, door.database, int(auditor["url"].rpartition(":")[2]), path.read_text().strip())
        asked = {"flows": {"name": {"any_": ["monthly"]}}}
        found = until(lambda: _asked(opened, "/api/deployments/filter", asked), seconds=60, what="the door answers")
        assert [deployment["name"] for deployment in found] == ["small"]
        assert opened.ask("DELETE", f"/api/deployments/{found[0]['id']}").status == 405
        words = [word for process in served.family() for word in process.cmdline()]
        assert not [word for word in words if opened.password in word or AUTH in word], "on no command line"
        assert opened.password not in served.said() + (tmp_path / "serve.out").read_text()
        served.child("auditor_door").kill()
        until(lambda: "the auditor's door ended and is restarted" in served.said(), seconds=30, what=served.said)
        until(lambda: _asked(opened, "/api/deployments/filter", asked), seconds=60, what="the door answers again")
        served.interrupt()
        assert not path.exists()


def _asked(door: Doorway, path: str, content: Any) -> Any:
    try:
        return json.loads(door.ask("POST", path, content).body)
    except ConnectionError:
        return None


def test_the_comparison_of_the_server_s_rows_notices_a_change(door: Doorway):
    before = door.rows()
    ask_again(door.server, "POST", "/flows/", {"name": "another"})
    assert "flow" in {name for name, rows in door.rows().items() if rows != before[name]}
