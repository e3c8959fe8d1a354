"""What our engine takes for a run of ours, and what a server must ask for before `serve` uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import prefect
import pytest
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.responses import (
    DeploymentResponse,
    OrchestrationResult,
    SetStateStatus,
    StateRejectDetails,
)
from prefect.deployments.runner import RunnerDeployment
from prefect.results import ResultRecord, ResultRecordMetadata
from support.deployments.serving import DPRELEASE, environment, make_workspace
from support.planted import plant

from deployments.definitions import FLOWS, changes, deployments_of
from deployments.serve import require_password
from dpcore.errors import RefusedError, WorkspaceError
from flows.server.connection import Server
from flows.server.isolation import isolate_process
from flows.server.worker_process import SERVED, enter_workspace
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace

TOKEN = "0123456789abcdef0123456789abcdef"  # noqa: S105  an arrival's


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return make_workspace(tmp_path_factory.mktemp("engine") / "workspace")


@pytest.fixture(scope="module")
def registered(workspace: Workspace) -> dict[str, RunnerDeployment]:
    return {str(d.flow_name): d for d in deployments_of(workspace, load_spec(workspace.spec_path))}


def stored(registered: RunnerDeployment, **planted: Any) -> DeploymentResponse:
    facts: dict[str, Any] = {
        "id": uuid4(),
        "flow_id": uuid4(),
        "name": registered.name,
        "entrypoint": registered.entrypoint,
        "parameters": dict(registered.parameters or {}),
        "pull_steps": [],
        "job_variables": {},
    }
    return DeploymentResponse(**(facts | planted))


def run_of(registered: RunnerDeployment, *, job_variables: dict[str, Any] | None = None, **parameters: Any) -> FlowRun:
    arrival = {"arrival": TOKEN} if registered.flow_name == "landing" else {}
    given = {**(registered.parameters or {}), **arrival, **parameters}
    return FlowRun(flow_id=uuid4(), parameters=given, job_variables=job_variables or {})


@pytest.mark.parametrize("flow", FLOWS)
def test_a_run_as_it_was_registered_is_ours(registered: dict[str, RunnerDeployment], flow: str):
    assert changes(stored(registered[flow]), run_of(registered[flow]), registered[flow]) == []


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("entrypoint", "flows/monthly.py:monthly"),
        ("entrypoint", "os.system"),
        ("entrypoint", None),
        ("pull_steps", [{"prefect.deployments.steps.run_shell_script": {"script": "true"}}]),
        ("pull_steps", [{"prefect.deployments.steps.set_working_directory": {"directory": "/"}}]),
        ("parameters", {}),
        ("parameters", {"workspace": "/"}),
        ("job_variables", {"command": "true"}),
        ("storage_document_id", uuid4()),
        ("infrastructure_document_id", uuid4()),
    ],
)
def test_whatever_is_planted_into_a_stored_deployment_is_named(
    registered: dict[str, RunnerDeployment], flow: str, setting: str, value: Any
):
    planted = stored(registered[flow], **{setting: value})
    assert changes(planted, run_of(registered[flow]), registered[flow]) == [setting]


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize(
    "parameters", [{"workspace": "/"}, {"workspace": None}, {"period": "2026-01"}, {"arrival": ""}]
)
def test_other_parameters_of_a_run_are_named(
    registered: dict[str, RunnerDeployment], flow: str, parameters: dict[str, Any]
):
    run = run_of(registered[flow], **parameters)
    assert changes(stored(registered[flow]), run, registered[flow]) == ["parameters"]


@pytest.mark.parametrize("arrival", ["../../etc/passwd", TOKEN + "\n", TOKEN.upper(), ["a"], None, {"$ref": TOKEN}])
def test_an_arrival_that_is_no_token_is_named(registered: dict[str, RunnerDeployment], arrival: Any):
    run = run_of(registered["landing"], arrival=arrival)
    assert changes(stored(registered["landing"]), run, registered["landing"]) == ["parameters"]


def test_variables_of_a_run_are_named(registered: dict[str, RunnerDeployment]):
    run = run_of(registered["monthly"], job_variables={"env": {"PATH": "/tmp"}})  # noqa: S108
    assert changes(stored(registered["monthly"]), run, registered["monthly"]) == ["job_variables"]


def test_a_flow_refuses_a_workspace_that_its_process_was_not_started_for(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    other = make_workspace(tmp_path / "other")
    monkeypatch.setenv(SERVED, os.pathsep.join([str(workspace.root)]))
    # this process outlives its parent's tests
    monkeypatch.setattr("flows.server.worker_process.end_with_parent", lambda: None)
    with enter_workspace(str(workspace.root)):
        pass
    with pytest.raises(WorkspaceError) as refusal, enter_workspace(str(other.root)):
        pass
    assert refusal.value.rule == "workspace-not-served"


@contextmanager
def a_server(status: int, pages: Mapping[str, str] | None = None) -> Iterator[Server]:
    """One that answers with the given pages, and every other request with that status."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            page = (pages or {}).get(self.path)
            self.send_response(200 if page else status)
            self.end_headers()
            self.wfile.write((page or "0").encode())

        do_GET = do_PATCH = do_POST  # noqa: N815

        def log_message(self, *_args: object) -> None:
            """Nothing on the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as http:
        Thread(target=http.serve_forever, daemon=True).start()
        yield Server(f"http://127.0.0.1:{http.server_port}/api", "operator:secret")
        http.shutdown()


class Planted:
    """Whoever unpickles it makes a folder."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._mark),)


def finished_with(ending: StateType, result: Path, mark: Path) -> State[Any]:
    """The state of a run that is over, with a stored result that executes code."""
    record = ResultRecord(result=Planted(mark), metadata=ResultRecordMetadata(storage_key=str(result)))
    result.write_bytes(record.serialize())
    return State(type=ending, data=record.metadata)


@pytest.mark.parametrize("ending", [StateType.COMPLETED, StateType.FAILED])
def test_the_engine_loads_no_result_that_a_state_on_the_server_names(
    workspace: Workspace, registered: dict[str, RunnerDeployment], tmp_path: Path, ending: StateType
):
    deployment, mark = stored(registered["monthly"]), tmp_path / "executed"
    run = run_of(registered["monthly"])
    run.deployment_id, run.state = deployment.id, finished_with(ending, tmp_path / "result", mark)
    rejected = OrchestrationResult(state=run.state, status=SetStateStatus.REJECT, details=StateRejectDetails())
    pages = {
        "/api/admin/version": f'"{prefect.__version__}"',
        f"/api/flow_runs/{run.id}": run.model_dump_json(),
        f"/api/flow_runs/{run.id}/set_state": rejected.model_dump_json(),
        f"/api/deployments/{deployment.id}": deployment.model_dump_json(),
        f"/api/flows/{run.flow_id}": f'{{"id": "{run.flow_id}", "name": "monthly"}}',
    }
    with a_server(404, pages) as server:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "deployments.engine", str(workspace.root)],
            env=environment(tmp_path, **server.settings(), PREFECT__FLOW_RUN_ID=str(run.id)),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert not mark.exists()
    assert "exited with" in done.stderr or "Finished in state" in done.stderr, done.stderr


def test_a_server_that_answers_without_a_password_is_refused_unless_it_is_accepted_by_its_address():
    with a_server(200) as server:
        for accepted in (None, "", "yes", server.ui_url):
            with pytest.raises(RefusedError) as refusal:
                require_password(server, accepted=accepted)
            assert refusal.value.rule == "server-open"
        require_password(server, accepted=server.api_url)
    with a_server(401) as server:
        require_password(server, accepted=None)


def test_serve_refuses_a_configured_server_without_a_password(workspace: Workspace, tmp_path: Path):
    with a_server(200) as server:
        done = subprocess.run(
            [*DPRELEASE, "serve", "-w", str(workspace.root), "--json"],
            env=environment(tmp_path, PREFECT_API_URL=server.api_url),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, json.loads(done.stdout)["rule"]) == (2, "server-open")


def test_a_process_that_is_isolated_keeps_its_files_in_its_own_folder(workspace: Workspace, tmp_path: Path):
    before = (os.getcwd(), tempfile.gettempdir())
    with workspace.scratch() as scratch, isolate_process(workspace, scratch):
        assert tempfile.gettempdir() == str(scratch)
        assert Path.cwd() == workspace.prefect_home
        assert os.environ["PYTHONSAFEPATH"] == "1"
    assert (os.getcwd(), tempfile.gettempdir()) == before


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["worker", "--pool", "pool"]])
def test_commands_that_become_another_program_import_nothing_from_the_current_folder(
    command: list[str], workspace: Workspace, tmp_path: Path
):
    mark = plant(tmp_path / "current")
    nobody = {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    done = subprocess.run(
        [*DPRELEASE, *command, "-w", str(workspace.root)],
        env=environment(tmp_path, **nobody),
        cwd=tmp_path / "current",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert not mark.exists()
    assert (done.returncode, "server-unreachable" in done.stderr) == (2, True), done.stderr
