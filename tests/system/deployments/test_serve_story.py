"""One story of a served workspace: schedule and landing, corrupt files, kills in the middle, and the end."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from support.deployments.serving import (
    DPRELEASE,
    Served,
    ask_again,
    environment,
    last_month,
    make_workspace,
    released,
    serving,
    state,
    until,
)
from support.planted import plant
from support.tasks.staged import invented_rows

from flows.server.connection import ServerUnreachableError
from tasks.audit import audit_workspace
from tasks.intake.settling import settle_seconds
from tasks.workspace.folders import Workspace

if TYPE_CHECKING:
    from support.browser import Browser, Visit

pytestmark = pytest.mark.timeout(900)
pytest_plugins = ["support.browser"]

DUE = last_month()
MONTHS = [last_month(before=number) for number in range(1, 6)]
PLANTED = "planted-column-7781"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return make_workspace(tmp_path_factory.mktemp("served") / "workspace")


@pytest.fixture(scope="module")
def served(workspace: Workspace) -> Iterator[Served]:
    base = workspace.root.parent
    (base / "home").mkdir()
    (base / "tmp").mkdir()
    (base / "tmp" / "runner_storage").touch()  # Prefect's own name there, taken by somebody else
    plant(base / "current")
    own = {"TMPDIR": str(base / "tmp"), "XDG_CACHE_HOME": str(base / "home" / ".cache")}  # a new account's first start
    with serving(workspace, base / "home", folder=base / "current", **own) as running:
        yield running


def land(served: Served, period: str, seed: int = 7, part: str = "") -> None:
    """Write a file beside and rename it into landing/, as a careful sender does."""
    draft = served.workspace.root / f"draft-{period}"
    draft.write_text(invented_rows(seed))
    draft.rename(served.workspace.landing / f"small-{period}{part}.csv")


def is_published(served: Served, period: str) -> bool:
    return "published" in [r.status for r in state(served.workspace).of_period("small", period)]


def published(served: Served, period: str, seconds: float) -> None:
    until(
        lambda: is_published(served, period),
        seconds=seconds,
        what=lambda: f"{period} published; it is {released(served.workspace)}\n{served.said()}",
    )


def land_and_reserve(served: Served, period: str) -> None:
    """Land a month, and wait until its release is under way.

    The event that announces it must be in the server's database: a server that is killed loses the others.
    """
    before = len(landing_events(served))
    land(served, period)
    until(lambda: len(landing_events(served)) > before, seconds=120, what=lambda: f"announced\n{served.said()}")
    release_id = f"small-{period}-1"
    until(lambda: release_id in released(served.workspace), seconds=120, what=lambda: f"reserved\n{served.said()}")


def landing_events(served: Served) -> list[dict[str, Any]]:
    asked = {"filter": {"event": {"name": ["dprelease.month.landed"]}}, "limit": 50}
    events: list[dict[str, Any]] = ask_again(served.server, "POST", "/events/filter", asked)["events"]
    return events


def test_the_deployments_are_registered_with_the_specification_s_schedule(served: Served):
    found = served.server.ask("POST", "/deployments/filter", {})
    assert {(d["name"], d["entrypoint"]) for d in found} == {
        ("small", "flows.monthly.monthly"),
        ("small", "flows.landing.landing"),
        ("small", "flows.nightly.nightly_audit"),
    }
    schedules = {d["entrypoint"]: [s["schedule"] for s in d["schedules"]] for d in found}
    monthly = schedules["flows.monthly.monthly"][0]
    assert (monthly["cron"], monthly["timezone"]) == ("* * * * *", "Europe/Berlin")
    assert schedules["flows.landing.landing"] == []
    assert len(served.server.ask("POST", "/automations/filter", {})) == 1


def test_every_process_of_the_workspace_finds_how_long_files_settle(served: Served):
    assert served.options[-2:] == ("--settle", "1")
    assert settle_seconds(served.workspace) == 1.0


def test_the_secret_is_the_owner_s_alone_and_on_no_command_line(served: Served):
    file = served.workspace.prefect_home / "operator.password"
    assert file.stat().st_mode & 0o777 == 0o600
    assert served.server.auth == file.read_text().strip()
    lines = [word for process in served.family() for word in process.cmdline()]
    assert not any(
        served.server.auth in text for text in [*lines, served.said(), (served.home / "serve.out").read_text()]
    )


def test_strangers_are_told_nothing_and_change_nothing(served: Served):
    stranger = replace(served.server, auth=None)
    identity = served.server.ask("POST", "/deployments/filter", {})[0]["id"]
    asked = [("POST", "/deployments/filter", {}), ("POST", "/flow_runs/filter", {}), ("GET", "/admin/version", None)]
    asked += [("PATCH", f"/deployments/{identity}", {"pull_steps": steps_that_leave(Path("nowhere"))})]
    asked += [("POST", f"/deployments/{identity}/create_flow_run", {})]
    for method, path, content in asked:
        with pytest.raises(ServerUnreachableError, match="status 401"):
            stranger.ask(method, path, content)
    for guess in ("operator:", ":", "operator:operator", served.server.auth[:-1]):
        with pytest.raises(ServerUnreachableError, match="status 401"):
            replace(served.server, auth=guess).ask("POST", "/flows/count", {})


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to act as another account")
def test_another_account_cannot_read_the_secret(served: Served):
    targets = [served.workspace.prefect_home / "operator.password", served.workspace.prefect_home / "serving.json"]
    targets += [Path(f"/proc/{process.pid}/environ") for process in served.family()]
    for folder in served.workspace.prefect_home.parents[:-1]:
        if folder.stat().st_uid == 0 and folder.is_relative_to(served.workspace.root.parent):
            folder.chmod(0o755)  # what pytest keeps to itself anyway is opened: only our own modes count
    for target in targets:
        done = subprocess.run(["cat", str(target)], user="nobody", capture_output=True, check=False)
        assert done.returncode != 0, target


def test_a_page_of_another_origin_cannot_use_the_server(served: Served, browser: Browser):
    before = served.started_by_somebody()
    with hostile_page(served) as address, browser.visit(address, allowed=("http://127.0.0.1",)) as visit:
        visit.page.wait_for_function("document.title != ''", timeout=60_000)
        outcome = visit.page.title()
    assert outcome == "failed failed failed failed"
    assert served.started_by_somebody() == before


@contextmanager
def hostile_page(served: Served) -> Iterator[str]:
    """A page on another port that plants steps and starts a run, by every kind of request a browser sends unasked."""
    identity = served.server.ask("POST", "/deployments/filter", {})[0]["id"]
    script = """
    const api = "API", json = {"Content-Type": "application/json"};
    const asked = [["/deployments/filter", "POST", json], ["/deployments/ID", "PATCH", json],
                   ["/deployments/ID/create_flow_run", "POST", json], ["/flows/count", "POST", {}]];
    Promise.all(asked.map(([path, method, headers]) =>
      fetch(api + path, {method, headers, body: '{"pull_steps": []}', credentials: "include"})
        .then(answer => "answered-" + answer.status, () => "failed")
    )).then(outcomes => document.title = outcomes.join(" "));
    """
    script = script.replace("API", served.server.api_url).replace("ID", identity)
    content = f"<!doctype html><title></title><script>{script}</script>".encode()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_args: object) -> None:
            """Nothing on the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def steps_that_leave(mark: Path) -> list[dict[str, Any]]:
    """A pull step that runs a command."""
    return [{"prefect.deployments.steps.run_shell_script": {"script": f"touch {mark}"}}]


def ended(served: Served, run_id: str) -> dict[str, Any]:
    """The state in which a run ended."""
    final = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
    state: dict[str, Any] = until(
        lambda: next(
            (s for s in [ask_again(served.server, "GET", f"/flow_runs/{run_id}")["state"]] if s["type"] in final), None
        ),
        seconds=120,
        what=lambda: f"the end of a run\n{served.said()}",
    )
    return state


@pytest.mark.parametrize(
    ("planted", "setting"),
    [
        ({"pull_steps": steps_that_leave(Path("MARK"))}, "pull_steps"),
        ({"entrypoint": "os.system"}, "entrypoint"),
        ({"parameters": {"workspace": "/"}}, "parameters"),
        ({"job_variables": {"env": {"PYTHONSTARTUP": "MARK"}}}, "job_variables"),
    ],
)
def test_what_is_planted_into_a_stored_deployment_is_refused(served: Served, planted: dict[str, Any], setting: str):
    """By somebody who has the secret: the owner's other programs, or whoever got hold of the file."""
    mark = served.home / "planted"
    audit = next(
        d
        for d in ask_again(served.server, "POST", "/deployments/filter", {})
        if d["entrypoint"] == "flows.nightly.nightly_audit"
    )
    change = json.loads(json.dumps(planted).replace("MARK", str(mark)))
    ask_again(served.server, "PATCH", f"/deployments/{audit['id']}", change)
    try:
        taken = ask_again(served.server, "GET", f"/deployments/{audit['id']}")
        assert taken[setting] == change[setting], "the server took what was planted"
        run = ask_again(served.server, "POST", f"/deployments/{audit['id']}/create_flow_run", {})
        state = ended(served, run["id"])
    finally:
        before = {name: audit[name] for name in change}
        ask_again(served.server, "PATCH", f"/deployments/{audit['id']}", before)
    assert (state["type"], state["name"]) == ("FAILED", "Refused")
    assert setting in state["message"]
    refusal = f"differs from the registered one: {setting}"
    until(lambda: refusal in served.said(), seconds=30, what=lambda: f"{refusal}\n{served.said()}")
    assert not mark.exists()


def test_a_landed_file_leads_to_a_published_release_within_two_minutes(served: Served):
    for part in ("-a", "-b", "-c"):
        land(served, MONTHS[0], part=part)
    published(served, MONTHS[0], 120)


def test_the_month_that_the_schedule_releases_may_land_too(served: Served):
    land(served, DUE)  # the schedule fires every minute, and found nothing to release
    published(served, DUE, 180)


def test_a_corrupt_file_is_quarantined_and_does_not_block_the_next(served: Served):
    landing = served.workspace.landing
    (landing / f"small-{MONTHS[1]}.csv").write_text(f"age,{PLANTED}\n1,2\n")
    land(served, MONTHS[2])
    verdicts = until(
        lambda: list((landing / "quarantine").glob("*.verdict.json")),
        seconds=60,
        what=lambda: f"a verdict\n{served.said()}",
    )
    assert json.loads(verdicts[0].read_text())["rule"] in ("column-missing", "column-undeclared")
    assert not (landing / f"small-{MONTHS[1]}.csv").exists()
    published(served, MONTHS[2], 120)


def test_the_server_is_not_told_which_rule_a_quarantined_file_broke(served: Served):
    """Nothing of it in events, logs, names and artifacts, which are all in its database, nor in lineage."""
    (verdict,) = (served.workspace.landing / "quarantine").glob("*.verdict.json")
    database = served.workspace.prefect_home / "prefect.db"
    told = b"".join(path.read_bytes() for path in database.parent.glob(f"{database.name}*"))
    told += served.workspace.lineage_path.read_bytes()
    assert f"small-{MONTHS[2]}-1".encode() in told
    for secret in (json.loads(verdict.read_text())["rule"], PLANTED, "quarantine"):
        assert secret.encode() not in told


def test_a_server_killed_in_the_middle_loses_and_doubles_nothing(served: Served):
    land_and_reserve(served, MONTHS[3])
    server = served.child("prefect_server")
    server.kill()
    psutil.wait_procs([server], timeout=10)
    published(served, MONTHS[3], 300)
    restarted = "the server ended and is restarted"
    until(lambda: restarted in served.said(), seconds=60, what=lambda: f"{restarted}\n{served.said()}")


def test_a_serve_killed_with_everything_goes_on_where_it_was(served: Served):
    land_and_reserve(served, MONTHS[4])
    served.kill()
    served.start()
    published(served, MONTHS[4], 240)
    crashed = served.runs(state={"type": {"any_": ["CRASHED"]}})
    assert crashed, "the run that was killed shows as crashed"


def test_the_schedule_fires_and_both_for_the_same_month_publish_once(served: Served):
    begun = {"type": {"any_": ["RUNNING", "COMPLETED", "FAILED"]}}
    until(
        lambda: [run for run in served.runs(tags={"all_": ["small"]}, state=begun) if run["auto_scheduled"]],
        seconds=180,
        what=lambda: f"a firing of the schedule\n{served.said()}",
    )
    assert Counter(r.reservation.period for r in state(served.workspace).releases.values())[DUE] == 1


def test_each_month_was_released_and_drawn_once(served: Served):
    releases = state(served.workspace).releases.values()
    assert Counter(r.reservation.period for r in releases) == Counter([DUE, *MONTHS[0:1], *MONTHS[2:5]])
    assert all(r.status == "published" and len(r.spends) == 1 for r in releases)


def test_registering_again_changes_nothing(served: Served):
    assert len(served.server.ask("POST", "/deployments/filter", {})) == 3
    assert len(served.server.ask("POST", "/automations/filter", {})) == 1


def test_the_events_say_nothing_of_the_files(served: Served):
    events = landing_events(served)
    assert {tuple(event["payload"]) for event in events} == {("arrival",)}
    assert "small-" not in json.dumps(events)
    ids = Counter(event["payload"]["arrival"] for event in events)
    assert set(ids.values()) == {1}
    assert len(ids) == len([DUE, *MONTHS[0:1], *MONTHS[2:5]]), "one event for a month, however many files"


def test_every_run_of_a_release_is_named_for_its_month(served: Served):
    done = {"type": {"any_": ["COMPLETED"]}}  # one that is killed before it begins keeps the name that Prefect gave it
    names = [run["name"] for run in served.runs(state=done) if {"request", "arrival"} & run["parameters"].keys()]
    assert names
    for name in names:
        assert re.match(r"small(-| landed: )\d{4}-\d{2}", name), name


def first_lines(served: Served) -> list[str]:
    """What the log of each triggered run that came to its end begins with."""
    runs = [run for run in served.runs(state={"type": {"any_": ["COMPLETED"]}}) if "arrival" in run["parameters"]]
    asked = [{"logs": {"flow_run_id": {"any_": [run["id"]]}}, "sort": "TIMESTAMP_ASC", "limit": 1} for run in runs]
    lines = [log["message"] for look in asked for log in served.server.ask("POST", "/logs/filter", look)]
    return lines if len(lines) == len(runs) else []


def test_a_triggered_run_has_its_month_s_name_in_its_first_line(served: Served):
    lines = until(lambda: first_lines(served), seconds=60, what="the runs' first lines")
    assert [line for line in lines if not re.search(r"run 'small landed: \d{4}-\d{2}'", line)] == []


def log_in(visit: Visit, served: Served) -> None:
    """As an operator does: the pages ask for the line in the workspace's file."""
    field = visit.page.locator("input[type=password]").first
    field.wait_for(timeout=60_000)
    visit.picture(served.home / "login.png")
    field.fill(served.server.auth)
    field.press("Enter")
    visit.page.wait_for_url(lambda address: "login" not in address, timeout=60_000)


def test_the_server_s_pages_show_the_run_with_its_artifacts(served: Served, browser: Browser):
    release_id = f"small-{DUE}-1"
    run = next(run for run in served.runs(name={"any_": [release_id]}) if run["state_type"] == "COMPLETED")
    assert {"small", DUE, release_id} <= set(run["tags"])
    assert sum(tag.startswith("ledger-entry:") for tag in run["tags"]) == 3, "reserve, spend and publish"
    asked = {"artifacts": {"flow_run_id": {"any_": [run["id"]]}}}
    kept = {a["key"] for a in served.server.ask("POST", "/artifacts/filter", asked) if a["key"]}
    assert {"small-release-card", "small-allocation"} <= kept
    here = (served.server.ui_url, "data:", "blob:")
    with browser.visit(f"{served.server.ui_url}/login", allowed=here, width=1400) as visit:
        log_in(visit, served)
        visit.page.goto(served.server.run_url(run["id"]))
        visit.page.get_by_text(release_id).first.wait_for(timeout=60_000)
        visit.page.get_by_role("tab", name="Artifacts").or_(visit.page.get_by_text("Artifacts")).last.click()
        for key in kept:  # a server that is slow for a moment goes without some of them
            visit.page.get_by_text(key, exact=False).first.wait_for(timeout=60_000)
        visit.picture(served.home / "run.png")
        visit.page.get_by_text("small-release-card").first.click()
        visit.page.get_by_text("ledger", exact=False).first.wait_for(timeout=60_000)
        visit.picture(served.home / "card.png")
        own = [address for address in visit.outside if "prefect" not in address]
    assert own == [], "what the pages of Prefect ask of its makers was not sent"


def test_a_second_serve_of_the_workspace_is_refused(served: Served):
    home = served.home
    command = [*DPRELEASE, "serve", "-w", str(served.workspace.root), "--port", "0", "--json"]
    done = subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, json.loads(done.stdout)["rule"]) == (2, "already-served")


def test_a_run_by_hand_uses_the_server_that_is_there(served: Served):
    command = [*DPRELEASE, "run", "-w", str(served.workspace.root), "--period", DUE, "--json"]
    done = subprocess.run(
        command, env=environment(served.home), capture_output=True, text=True, timeout=120, check=False
    )
    assert json.loads(done.stdout)["status"] == "already-published", done.stderr
    names = [run["name"] for run in served.runs()]
    assert f"small-{DUE}-1 (again)" in names


def test_the_audit_holds_with_the_flow_runs_of_the_server(served: Served):
    command = [*DPRELEASE, "audit", "-w", str(served.workspace.root), "--json"]
    done = subprocess.run(
        command, env=environment(served.home), capture_output=True, text=True, timeout=120, check=False
    )
    report = json.loads(done.stdout)
    assert report["ok"], [check for check in report["checks"] if not check["ok"]]
    assert "flow runs" in {check["name"] for check in report["checks"]}


def test_ctrl_c_ends_every_child_within_ten_seconds_in_the_middle_of_a_release_too(served: Served):
    assert len(served.family()) >= 3
    land_and_reserve(served, last_month(before=6))
    assert served.interrupt() < 10
    assert not (served.workspace.prefect_home / "serving.json").exists()
    assert not (served.workspace.prefect_home / "settle").exists()
    assert "Traceback" not in served.said()
    assert "Warning" not in served.said()


def test_months_missed_while_nothing_served_are_caught_up_once_and_in_order(served: Served, workspace: Workspace):
    interrupted = last_month(before=6)  # unless it was done before the last child ended
    missed = sorted([MONTHS[1], last_month(before=7)] + [interrupted] * (not is_published(served, interrupted)))
    for month in missed:
        land(served, month)
    text = workspace.spec_path.read_text()
    monthly = text.replace('"* * * * *"', '"0 6 1 * *"').replace("on_landing: true", "on_landing: false")
    workspace.spec_path.write_text(monthly)
    _registered_earlier(workspace, months=8)
    served.start()
    for month in missed:
        published(served, month, 240)
    releases = [r for month in missed for r in state(workspace).of_period("small", month)]
    order = sorted(releases, key=lambda r: r.published.seq if r.published else 0)
    assert [r.reservation.period for r in order] == missed
    assert served.first_up is not None
    since = {"after_": served.first_up.isoformat()}  # a first start that crosses a full minute has a firing to catch up
    caught_up = {"tags": {"all_": ["catch-up"]}, "expected_start_time": since}
    done = {"state": {"type": {"any_": ["COMPLETED"]}}}
    until(lambda: served.runs(**caught_up, **done), seconds=120, what="the run that caught up ends")
    served.interrupt()
    served.start()  # nothing is owed any more
    found = served.runs(**caught_up)
    assert [(run["name"], run["state_type"]) for run in found] == [(f"small due: {', '.join(missed)}", "COMPLETED")]
    served.interrupt()


def _registered_earlier(workspace: Workspace, *, months: int) -> None:
    """As if the schedule had been registered so many months ago, at the end of that month."""
    with closing(sqlite3.connect(workspace.prefect_home / "prefect.db")) as database:
        (changed,) = database.execute("select count(*) from deployment").fetchone()
        moment = "datetime('now', 'start of month', ?, '-1 day')"  # no month is too short for it
        database.execute(f"update deployment set created = {moment}", (f"-{months - 1} months",))
        database.commit()
    assert changed == 3


def test_nothing_is_left_in_the_vault_and_the_audit_holds_offline(served: Served, workspace: Workspace):
    assert [path.name for path in workspace.vault.iterdir() if not path.name.startswith(".")] == []
    assert [check for check in audit_workspace(workspace) if not check.ok] == []


def test_nothing_came_from_the_current_folder_and_nothing_went_to_the_shared_temporary_one(served: Served):
    base = served.workspace.root.parent
    assert not (base / "executed").exists()
    assert [path.name for path in (base / "tmp").iterdir()] == ["runner_storage"]


def test_the_landing_folder_keeps_its_files_to_its_owner(workspace: Workspace):
    assert Path(workspace.landing).stat().st_mode & 0o077 == 0
