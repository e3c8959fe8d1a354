"""What commands load before they answer, and how many orchestration servers a run starts.

Figures of the clock are in benchmarks/startup.py; here is what they come from.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from storybook import ROOT

from flows.cli import app

ORCHESTRATION = {"prefect", "fastapi", "uvicorn", "httpx"}
DATA = {"pandas", "pyarrow", "great_expectations", "sklearn"}
NUMERICS = {"scipy", "opendp", "flint", "randomgen"}
DRAWING = {"matplotlib", "PIL", "jinja2"}
SLOW = ORCHESTRATION | DATA | NUMERICS | DRAWING

COMMANDS = sorted(
    {group.name for group in app.registered_groups} | {command.name for command in app.registered_commands}
)

MIXED = """
name: mixed
source: {path: landing/*.parquet}
privacy: {population: adults, epsilon: 1.0, delta: 1.0e-5, lifetime: {epsilon: 3.0, delta: 1.0e-5}}
expected_rows: 32000
columns:
  - {name: age, kind: integer, bounds: [17, 90]}
  - {name: gain, kind: integer, bounds: [0, 99999]}
  - {name: work, kind: categorical, categories: [private, public, own, none]}
  - {name: income, kind: categorical, categories: [low, high], role: label}
model: {generator: copula}
"""


def loaded_after(code: str, *arguments: str, **environment: str) -> set[str]:
    """The modules that a process holds when it ends."""
    ending = (
        "import atexit, json, sys\n"
        "atexit.register(lambda: print(json.dumps(sorted(map(str, sys.modules))), file=sys.stderr))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", ending + code, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def loaded_by(*command: str) -> set[str]:
    """The libraries that a command loads."""
    code = "sys.argv = ['dprelease', *sys.argv[1:]]; from flows.cli import main; main()"
    return {name.partition(".")[0] for name in loaded_after(code, *command)}


@pytest.fixture(scope="module", params=["clinic", "digits", "mixed"])
def workspace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("startup") / request.param
    demo = "none" if request.param == "mixed" else request.param
    command = [sys.executable, "-m", "flows", "init", str(folder), "--demo", demo]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    if request.param == "mixed":
        (folder / "release.yaml").write_text(MIXED)
    return folder


def test_help_loads_no_library_beyond_the_command_line() -> None:
    loaded = loaded_by("--help")
    assert "typer" in loaded
    assert not loaded & (SLOW | {"numpy", "sqlalchemy", "pydantic", "yaml", "cryptography"})


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_does_not_load_what_the_command_needs(command: str) -> None:
    assert not loaded_by(command, "--help") & (SLOW | {"numpy", "sqlalchemy", "yaml", "cryptography"})


@pytest.mark.parametrize("command", ["plan", "budget", "history"])
def test_questions_about_a_workspace_load_no_slow_library(workspace: Path, command: str) -> None:
    loaded = loaded_by(command, "-w", str(workspace), "--json")
    assert {"numpy", "sqlalchemy"} <= loaded
    assert not loaded & SLOW


def test_a_plan_loads_what_draws_only_to_draw(workspace: Path) -> None:
    plain = loaded_by("plan", "-w", str(workspace))
    drawn = loaded_by("plan", "-w", str(workspace), "--plot", str(workspace / "plan.svg"))
    assert "matplotlib" in drawn - plain


def test_the_registry_is_shown_without_a_slow_library() -> None:
    assert not loaded_by("mechanisms") & (SLOW | {"sqlalchemy"})


# -- servers -----------------------------------------------------------------------


def test_where_a_server_is_configured_none_is_started_and_none_of_its_code_is_loaded(tmp_path: Path) -> None:
    code = "from flows.server import start_embedded_server; assert start_embedded_server(None) is None"
    configured = {"PREFECT_API_URL": "http://127.0.0.1:9/api", "PREFECT_HOME": str(tmp_path)}
    loaded = loaded_after(code, **configured)
    assert "prefect.settings" in loaded
    assert "prefect.server.api.server" not in loaded


@pytest.mark.slow  # starts a server; the story of releases counts them
def test_an_embedded_server_is_used_by_prefect_and_not_known_to_commands_as_configured(tmp_path: Path) -> None:
    """It serves this process alone: another command, or a child, must not take it for the user's."""
    code = (
        "import os; from pathlib import Path; from flows.server import start_embedded_server, use_server;"
        "from tasks.stores.workspace import Workspace; place = Workspace(Path(sys.argv[1])); place.create();"
        "use_server(place); server = start_embedded_server(place); server.use();"
        "from prefect.client.orchestration import get_client;"
        "assert get_client(sync_client=True).hello().status_code == 200;"
        "assert start_embedded_server(place) is None; assert 'PREFECT_API_URL' not in os.environ"
    )
    assert "prefect.server.api.server" not in loaded_after(code, str(tmp_path / "workspace"), PREFECT_HOME="")
