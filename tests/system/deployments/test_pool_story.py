"""A team's server: on PostgreSQL, behind a password, with the flows run by a worker of a work pool."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from support import ROOT
from support.deployments.serving import (
    DPRELEASE,
    SPEC,
    ask_again,
    environment,
    last_month,
    make_workspace,
    released,
    until,
)
from support.planted import plant
from support.tasks.ledger.postgres import complete_binaries, running_server
from support.tasks.staged import invented_rows

from flows.server.connection import Server
from tasks.workspace.folders import Workspace

pytestmark = pytest.mark.timeout(900)

PASSWORD = "steward:a password"  # noqa: S105  of a server that lives for this test
POOL = "releases"
PREFECT = str(Path(sys.executable).with_name("prefect"))


@contextmanager
def background(
    command: list[str], log: Path, variables: dict[str, str], cwd: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is gone in the end with everything it started."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=variables, cwd=cwd, start_new_session=True)
    try:
        yield process
    finally:
        family = _family(process)
        for member in family:
            member.kill()
        psutil.wait_procs(family, timeout=10)
        process.wait(10)


def _family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        parent = psutil.Process(process.pid)
    except psutil.NoSuchProcess:
        return []
    return [*parent.children(recursive=True), parent]


@dataclass
class Team:
    """A workspace, the team's server, and what the team's commands are told."""

    workspace: Workspace
    home: Path
    server: Server
    database: str

    def variables(self, **more: str) -> dict[str, str]:
        told = {"PREFECT_API_URL": self.server.api_url, "PREFECT_API_AUTH_STRING": PASSWORD}
        quiet = {"PREFECT_HOME": str(self.home / "prefect"), "DO_NOT_TRACK": "1"}
        return environment(self.home, **(told | quiet | more))

    def call(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.variables(**more),
            cwd=self.workspace.root,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def serve(self, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "flows", "serve", "-w", str(self.workspace.root), "--json", *options]
        return self.call(*command, **more)


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    binaries = complete_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL with its extensions (Debian's package postgresql) is not installed")
    pytest.importorskip("asyncpg")
    base = tmp_path_factory.mktemp("team")
    (base / "home").mkdir()
    spec = SPEC.replace('"* * * * *"', '"0 6 1 * *"')
    with running_server(binaries) as postgres:
        database = postgres.fresh()
        address = f"postgresql+asyncpg://postgres@/{database}?host={postgres.socket}"
        variables = environment(
            base / "home",
            PREFECT_HOME=str(base / "home" / "server"),
            PREFECT_SERVER_DATABASE_CONNECTION_URL=address,
            PREFECT_SERVER_API_AUTH_STRING=PASSWORD,
            PREFECT_SERVER_ANALYTICS_ENABLED="false",
            DO_NOT_TRACK="1",
        )
        port = _free_port()
        command = [PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        server = Server(f"http://127.0.0.1:{port}/api", PASSWORD)
        with background(command, base / "server.log", variables, base):
            until(server.answers, seconds=180, what=lambda: (base / "server.log").read_text()[-3000:])
            workspace = make_workspace(base / "workspace", spec)
            team = Team(workspace, base / "home", server, database)
            yield team


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def deployed(team: Team) -> dict[str, dict[str, Any]]:
    """What is registered, without what the server adds."""
    found = team.server.ask("POST", "/deployments/filter", {})
    keys = ("name", "parameters", "work_pool_name", "tags", "description", "enforce_parameter_schema", "job_variables")
    return {
        d["entrypoint"]: {key: d[key] for key in keys}
        | {"schedules": [(s["schedule"]["cron"], s["schedule"]["timezone"], s["active"]) for s in d["schedules"]]}
        for d in found
    }


def triggers(team: Team) -> list[tuple[Any, ...]]:
    found = team.server.ask("POST", "/automations/filter", {})
    return [
        (a["name"], a["enabled"], a["trigger"]["expect"], a["trigger"]["match"], a["actions"][0]["parameters"])
        for a in found
    ]


def test_a_wrong_password_is_refused_with_what_to_do(team: Team):
    done = team.serve("--pool", POOL, PREFECT_API_AUTH_STRING="steward:wrong")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["rule"]) == (2, "server-unreachable")
    assert "PREFECT_API_AUTH_STRING" in answer["hint"]
    assert "wrong" not in done.stdout + done.stderr


def test_a_server_that_is_not_there_is_refused_within_seconds(team: Team):
    start = time.monotonic()
    done = team.serve(PREFECT_API_URL="http://127.0.0.1:9/api")
    assert (done.returncode, json.loads(done.stdout)["rule"]) == (2, "server-unreachable")
    assert time.monotonic() - start < 60


def test_a_landed_file_is_released_by_the_pool_s_worker(team: Team):
    root, variables, logs = team.workspace.root, team.variables(), team.home
    serve = [sys.executable, "-m", "flows", "serve", "-w", str(root), "--pool", POOL, "--settle", "1"]
    worker = [*DPRELEASE, "worker", "--pool", POOL, "-w", str(root)]
    mark = plant(team.home / "current")
    with (
        background(serve, logs / "pool-serve.log", variables, root) as serving,
        background(worker, logs / "worker.log", variables, team.home / "current"),
    ):
        said = lambda: (logs / "pool-serve.log").read_text() + (logs / "worker.log").read_text()  # noqa: E731
        until(lambda: "registered" in said(), seconds=120, what="registered")
        (root / "landing" / f"small-{last_month()}.csv").write_text(invented_rows())
        release_id = f"small-{last_month()}-1"
        until(
            lambda: released(team.workspace).get(release_id) == "published",
            seconds=240,
            what=lambda: f"{release_id} published\n{said()}",
        )
        refuse_what_is_planted(team, said)
        serving.send_signal(signal.SIGINT)
        assert serving.wait(60) == 0
    assert PASSWORD not in said()
    assert not mark.exists(), "the worker imports nothing from its current folder"
    assert not (team.workspace.prefect_home / "prefect.db").exists(), "the history is the team's, on PostgreSQL"


def refuse_what_is_planted(team: Team, said: Callable[[], str]) -> None:
    """Steps and variables that a member of the team stored on the server are not run by the worker."""
    mark, ask = team.home / "planted", partial(ask_again, team.server)
    stored = next(d for d in ask("POST", "/deployments/filter", {}) if d["entrypoint"] == "flows.nightly.nightly_audit")
    steps = [{"prefect.deployments.steps.run_shell_script": {"script": f"touch {mark}"}}]
    ask("PATCH", f"/deployments/{stored['id']}", {"pull_steps": steps})
    variables = {"command": f"touch {mark}", "env": {"PREFECT__FLOW_ENTRYPOINT": "os.system"}}
    run = ask("POST", f"/deployments/{stored['id']}/create_flow_run", {"job_variables": variables})
    state = until(
        lambda: [s for s in [ask("GET", f"/flow_runs/{run['id']}")["state"]] if s["type"] in ("FAILED", "CRASHED")],
        seconds=120,
        what=lambda: f"a refused run\n{said()}",
    )[0]
    assert (state["name"], mark.exists()) == ("Refused", False)
    assert "pull_steps, job_variables" in state["message"]
    until(lambda: "differs from the registered one" in said(), seconds=30, what=lambda: f"a refusal told\n{said()}")
    ask("PATCH", f"/deployments/{stored['id']}", {"pull_steps": []})


def test_a_pool_for_prefect_s_own_workers_is_refused(team: Team):
    team.server.ask("POST", "/work_pools/", {"name": "stock", "type": "process"})
    done = team.serve("--pool", "stock")
    assert done.returncode != 0
    assert "run whatever steps are stored" in done.stderr


def test_the_history_comes_from_the_team_s_server(team: Team):
    done = team.call(sys.executable, "-m", "flows", "history", "-w", str(team.workspace.root), "--json")
    row = json.loads(done.stdout)["releases"][0]
    assert row["flow_run"]["name"] == row["release_id"]
    assert row["flow_run"]["url"].startswith(team.server.ui_url)


def test_prefect_yaml_registers_the_same_as_the_code(team: Team):
    by_code, fired_by = deployed(team), triggers(team)
    for deployment in team.server.ask("POST", "/deployments/filter", {}):
        team.server.ask("DELETE", f"/deployments/{deployment['id']}")
    for automation in team.server.ask("POST", "/automations/filter", {}):
        team.server.ask("DELETE", f"/automations/{automation['id']}")
    script = (
        'eval "$("$0" -P -m deployments.environment "$1" --pool "$2")"'
        ' && "$3" --no-prompt deploy --all --prefect-file deployments/prefect.yaml'
    )
    command = ["bash", "-c", script, sys.executable, str(team.workspace.root), POOL, PREFECT]
    done = subprocess.run(
        command, cwd=ROOT, env=team.variables(), capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert deployed(team) == by_code
    assert triggers(team) == fired_by


def test_prefect_yaml_names_only_what_the_environment_gives():
    text = (ROOT / "deployments" / "prefect.yaml").read_text()
    assert len(yaml.safe_load(text)["deployments"]) == 3
    assert str(ROOT) not in text
    assert os.environ["HOME"] not in text


def test_another_workspace_cannot_take_over_the_name(team: Team, tmp_path: Path):
    other = make_workspace(tmp_path / "other", SPEC)
    command = [sys.executable, "-m", "flows", "serve", "-w", str(other.root), "--pool", POOL]
    done = team.call(*command)
    assert done.returncode in (2, 3)
    assert "of another workspace" in done.stderr
