"""What commands load before they answer, and how many orchestration servers a run starts.

Figures of the clock are in benchmarks/program/startup.py; here is what they come from.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import ROOT

from dpcore.errors import StageFailedError
from flows.cli import app
from flows.server.keeping import end_kept_server
from tasks.workspace.folders import Workspace
from tasks.workspace.helper_process import in_helper, start_helper

ORCHESTRATION = {"prefect", "fastapi", "uvicorn", "httpx"}
DATA = {"pandas", "pyarrow", "great_expectations", "sklearn"}
NUMERICS = {"scipy", "opendp", "flint", "randomgen"}
DRAWING = {"matplotlib", "PIL", "jinja2"}
SLOW = ORCHESTRATION | DATA | NUMERICS | DRAWING
SENDING = {"requests", "openlineage"}

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
        timeout=280,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def loaded_by(*command: str) -> set[str]:
    """The libraries that a command loads."""
    code = "sys.argv = ['dprelease', *sys.argv[1:]]; from flows.cli import main; main()"
    return {name.partition(".")[0] for name in loaded_after(code, *command)}


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("startup") / "clinic"
    command = [sys.executable, "-m", "flows", "init", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return folder


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


NOT_LOADED = {
    "init NEW --demo none": SLOW | SENDING | {"sqlalchemy", "cryptography"},
    "init NEW --demo clinic": ORCHESTRATION | NUMERICS | DRAWING | SENDING | {"great_expectations", "sklearn"},
    "init NEW --demo digits": ORCHESTRATION | DRAWING | SENDING | {"great_expectations", "opendp"},
    "audit": ORCHESTRATION | {"great_expectations", "sklearn", "opendp"},
    "site --out NEW": ORCHESTRATION | {"great_expectations", "sklearn", "opendp"},
    "mechanisms": SLOW | SENDING | {"sqlalchemy", "yaml", "cryptography"},
}
"""What a command must do without, on a workspace where nothing was released yet; questions are above."""


@pytest.mark.parametrize("command", NOT_LOADED)
def test_a_command_loads_nothing_that_only_others_need(clinic: Path, tmp_path: Path, command: str) -> None:
    words = [str(tmp_path / "new") if word == "NEW" else word for word in command.split()]
    place = [] if words[0] in ("init", "mechanisms") else ["-w", str(clinic)]
    assert not loaded_by(*words, *place) & NOT_LOADED[command]


# -- the helper of a run -----------------------------------------------------------

HELPER_LOADS = {"great_expectations", "pandas", "matplotlib", "PIL"}


@pytest.mark.slow  # starts a server
def test_a_release_beside_a_server_leaves_validation_and_drawing_to_its_helper(clinic: Path) -> None:
    try:
        alone = loaded_by("run", "-w", str(clinic), "--period", "2026-09", "--keep-server")
        beside = loaded_by("run", "-w", str(clinic), "--period", "2026-10")
    finally:
        end_kept_server(Workspace(clinic))
    assert alone >= HELPER_LOADS, "the server has the second core"
    assert {"prefect", "pyarrow"} <= beside
    assert not beside & HELPER_LOADS
    assert not (alone | beside) & {"sklearn", "uvicorn", "boto3", "botocore", "dask"}
    reports = list(clinic.glob("releases/*/*/report.html"))
    assert ["<svg" in report.read_text() for report in reports] == [True, True]


def test_calls_are_made_in_the_helper_while_there_is_one() -> None:
    assert in_helper(os.getpid) == os.getpid()
    with start_helper():
        other = in_helper(os.getpid)
        assert in_helper(os.getpid) == other != os.getpid()
        assert in_helper(divmod, 7, 2) == (3, 1)
        assert in_helper(int, "11", base=2) == 3
    assert in_helper(os.getpid) == os.getpid()
    assert is_gone(other)


def test_an_error_leaves_the_helper_without_its_text() -> None:
    with start_helper():
        with pytest.raises(StageFailedError, match="ValueError") as caught:
            in_helper(int, "planted secret")
        assert "planted" not in str(caught.value)
        assert caught.value.__context__ is caught.value.__cause__ is None
        assert in_helper(int, "2") == 2, "the next call is answered"


def test_a_helper_that_was_killed_answers_no_call_with_the_result_of_another() -> None:
    with start_helper():
        os.kill(in_helper(os.getpid), signal.SIGKILL)
        for _ in range(2):
            with pytest.raises((EOFError, OSError)):
                in_helper(os.getpid)


def test_an_interrupted_call_leaves_no_answer_for_the_next() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with start_helper():
            with pytest.raises(KeyboardInterrupt):
                in_helper(os.kill, os.getpid(), signal.SIGUSR1)
            with pytest.raises(OSError, match="closed"):
                in_helper(os.getpid)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["terminated", "killed"])
def test_a_helper_ends_with_the_process_that_started_it(number: signal.Signals) -> None:
    code = (
        "import os, time; from tasks.workspace.helper_process import start_helper, in_helper\n"
        "with start_helper(): print(in_helper(os.getpid), flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        helper = int(parent.stdout.readline())
        parent.send_signal(number)
    limit = time.monotonic() + 60
    while not is_gone(helper):
        assert time.monotonic() < limit, "the helper is still there"
        time.sleep(0.05)


def is_gone(process: int) -> bool:
    """Whether it has ended; who ought to take note of that may not have done so yet."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True).stdout
    return not state or state.startswith("Z")


def test_arrow_does_without_pandas_until_somebody_asks_for_a_frame() -> None:
    code = (
        "from tasks.landing.cells import forgo_pandas; forgo_pandas(); import pyarrow as pa, numpy as np\n"
        "table = pa.table({'a': pa.array(np.arange(3.0), mask=np.arange(3) < 1), 'b': ['x', None, 'y']})\n"
        "assert table.column('a').take([2]).to_pylist() == [2.0]; assert 'pandas' not in sys.modules\n"
    )
    assert not {"pandas"} & loaded_after(code)
    assert "pandas" in loaded_after(code + "assert list(table.to_pandas()['a'].isna()) == [True, False, False]")


# -- servers -----------------------------------------------------------------------


@pytest.mark.parametrize("where", ["environment", "profile", "nowhere"])
def test_a_configured_server_is_found_and_prefect_is_loaded_only_to_read_its_own_files(
    tmp_path: Path, where: str
) -> None:
    """A server starts before Prefect is loaded, so that both load at the same time."""
    code = (
        "import os; from flows.server.embedded import is_configured; os.chdir(os.environ['PREFECT_HOME']);"
        f"assert is_configured() is {where != 'nowhere'}"
    )
    address = "http://127.0.0.1:9/api"
    if where == "profile":
        (tmp_path / "profiles.toml").write_text(f'active = "x"\n[profiles.x]\nPREFECT_API_URL = "{address}"\n')
    named = {"environment": {"PREFECT_API_URL": address}, "nowhere": {"PREFECT_API_URL": ""}}.get(where, {})
    loaded = loaded_after(code, PREFECT_HOME=str(tmp_path), **named)
    assert ("prefect.settings" in loaded) is (where == "profile")
    assert "prefect.server.api.server" not in loaded


@pytest.mark.slow  # starts a server; the story of releases counts them
def test_an_embedded_server_is_used_by_prefect_and_not_known_to_commands_as_configured(tmp_path: Path) -> None:
    """It serves this process alone: another command, or a child, must not take it for the user's."""
    code = (
        "import os; from pathlib import Path;"
        "from flows.server.embedded import EmbeddedServer, is_configured, use_server;"
        "from tasks.workspace.folders import Workspace; place = Workspace(Path(sys.argv[1])); place.create();"
        "use_server(place); assert not is_configured(); server = EmbeddedServer(place); server.start(); server.use();"
        "from prefect.client.orchestration import get_client;"
        "assert get_client(sync_client=True).hello().status_code == 200;"
        "assert is_configured(); assert 'PREFECT_API_URL' not in os.environ"
    )
    assert "prefect.server.api.server" not in loaded_after(code, str(tmp_path / "workspace"), PREFECT_HOME="")


def test_a_refused_release_starts_no_server(tmp_path: Path) -> None:
    """Whatever is wrong with the columns is said at once; a server has loaded by then, and opened no database."""
    folder = tmp_path / "workspace"
    command = [sys.executable, "-m", "flows"]
    subprocess.run([*command, "init", str(folder), "--demo", "none"], cwd=ROOT, check=True, capture_output=True)
    (folder / "release.yaml").write_text(MIXED)
    table = pa.table({"age": ["old"], "gain": [1], "planted-secret": [1]})
    pq.write_table(table, folder / "landing" / "a.parquet")
    done = subprocess.run([*command, "run", "-w", str(folder), "--json"], cwd=ROOT, capture_output=True, text=True)
    refusal = json.loads(done.stdout)
    assert done.returncode == 2
    assert refusal["rule"] == "column-missing"
    assert refusal["where"].split(", ") == ["columns.work", "columns.income", "columns", "columns.age"]
    assert "planted-secret" not in done.stdout + done.stderr
    assert not list((folder / "prefect").glob("*.db*"))
    assert not list((folder / "vault").glob("run-*"))


def test_validation_loads_without_what_no_suite_uses() -> None:
    loaded = loaded_after("from expectations.quiet import quietly\nwith quietly(): pass")
    assert "great_expectations" in loaded
    assert not loaded & {"altair", "scipy.stats", "boto3", "botocore", "mistune"}


def test_what_validation_left_out_loads_when_somebody_asks_for_it() -> None:
    code = (
        "from expectations.quiet import quietly\nwith quietly(): pass\n"
        "from great_expectations.expectations.core import expect_column_kl_divergence_to_be_less_than as user\n"
        "assert user.stats.norm.cdf(0) == 0.5; import scipy.stats; assert scipy.stats.norm is user.stats.norm\n"
        "import botocore.client"
    )
    assert {"scipy.stats", "botocore.client"} <= loaded_after(code)


def test_exact_noise_loads_neither_estimators_nor_tables() -> None:
    code = "from dpcore.noise.sources import SystemNoise; assert len(SystemNoise().discrete_laplace(3.0, 5)) == 5"
    loaded = loaded_after(code)
    assert "opendp.measurements" in loaded
    assert not loaded & {"sklearn", "pandas", "scipy", "polars"}
