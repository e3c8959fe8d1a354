"""A server that a run leaves for the next: who uses it, when it ends, and what a killed one leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import ROOT

from flows.server.connection import PASSWORD, SERVING, is_served, known_server
from flows.server.keeping import (
    USERS,
    _beginning_of,
    await_idleness,
    end_kept_server,
    in_use,
    kept_facts,
    kept_here,
    retire_stale_server,
)
from tasks.workspace.folders import Workspace

PATIENCE_SECONDS = 120.0


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    place = Workspace(tmp_path / "workspace")
    place.create()
    return place


def until(condition, what: str) -> None:
    limit = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < limit, what
        time.sleep(0.02)


# -- who uses it -------------------------------------------------------------------


def test_it_is_idle_once_the_last_of_two_users_has_gone(place: Workspace) -> None:
    ended = threading.Event()

    def wait() -> None:
        os.close(await_idleness(place, 0.0))
        ended.set()

    with in_use(place):
        with in_use(place):
            threading.Thread(target=wait, daemon=True).start()
        assert not ended.wait(0.2)
    assert ended.wait(PATIENCE_SECONDS)


def test_it_waits_so_long_after_its_last_use(place: Workspace) -> None:
    with in_use(place):
        pass
    os.utime(place.prefect_home / USERS, (time.time() - 1000, time.time() - 1000))
    os.close(await_idleness(place, 999.0))
    with in_use(place):
        pass
    last_use = (place.prefect_home / USERS).stat().st_mtime  # a file system's clock may lie a tick behind
    os.close(await_idleness(place, 0.3))
    assert time.time() - last_use >= 0.3


def test_a_run_that_comes_while_it_ends_waits_for_its_end(place: Workspace) -> None:
    with in_use(place):
        pass
    held, entered = await_idleness(place, 0.0), threading.Event()

    def come() -> None:
        with in_use(place):
            entered.set()

    threading.Thread(target=come, daemon=True).start()
    assert not entered.wait(0.2)
    os.close(held)
    assert entered.wait(PATIENCE_SECONDS)


# -- one that cannot be used -------------------------------------------------------

HOLDER = """
import json, sys, time
from pathlib import Path
from flows.server.connection import Server, announce_server, serving_alone
from flows.server.keeping import kept_facts
from tasks.workspace.folders import Workspace
changes = json.loads(sys.argv[2])
place = Workspace(Path(sys.argv[1]))
server, facts = Server("http://127.0.0.1:9/api", "x:y"), kept_facts() | changes
with serving_alone(place) as alone, announce_server(place, server, kept=facts):
    print(alone, flush=True)
    time.sleep(600)
"""


@contextmanager
def holder(place: Workspace, **changes: object) -> Iterator[subprocess.Popen[str]]:
    """A process in the place of a kept server; it does not answer."""
    command = [sys.executable, "-c", HOLDER, str(place.root), json.dumps(changes)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "True\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("changes", [{}, {"build": "another"}, {"prefect": "0.1"}], ids=["deaf", "build", "version"])
def test_one_that_does_not_answer_or_is_of_another_program_is_ended_by_its_id(
    place: Workspace, changes: dict[str, str]
) -> None:
    with holder(place, **changes) as process:
        retire_stale_server(place)
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGTERM
        assert not is_served(place)


def test_one_that_a_run_uses_is_not_ended(place: Workspace) -> None:
    with holder(place, build="another") as process:
        with in_use(place):
            retire_stale_server(place)
            assert process.poll() is None
        assert end_kept_server(place)


@pytest.mark.parametrize("began", [None, "1"])
def test_a_process_that_only_has_the_same_id_is_not_ended(
    place: Workspace, began: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id of a process that is gone may be somebody else's by now."""
    monkeypatch.setattr("flows.server.keeping.END_SECONDS", 0.1)
    with holder(place, began=began) as process:
        assert not end_kept_server(place)
        assert process.poll() is None


def test_files_that_a_killed_one_left_name_no_server(place: Workspace) -> None:
    with holder(place) as process:
        assert kept_here(place) is not None
        process.kill()
        process.wait()
    assert (place.prefect_home / SERVING).exists()
    assert known_server(place, {}) is None
    assert kept_here(place) is None


def test_a_process_is_known_by_its_beginning() -> None:
    assert _beginning_of(os.getpid()) == _beginning_of(os.getpid()) == kept_facts()["began"]
    assert _beginning_of(1) != _beginning_of(os.getpid())
    assert _beginning_of(2**30) is None


# -- a real one --------------------------------------------------------------------

USE = """
import os, sys
from pathlib import Path
from flows.server.keeping import KeptServer, in_use
from flows.server.embedded import use_server
from tasks.workspace.folders import Workspace
place = Workspace(Path(sys.argv[1]))
with in_use(place):
    if not use_server(place):
        server = KeptServer(place, float(sys.argv[2]))
        server.start(); server.use()
    from prefect.client.orchestration import get_client
    assert get_client(sync_client=True).hello().status_code == 200
    print("used", flush=True)
    sys.stdin.readline()
"""


def use(place: Workspace, idle: float) -> subprocess.Popen[str]:
    """A process that uses the workspace's server, and starts one if there is none, until it is told to go."""
    command = [sys.executable, "-P", "-c", USE, str(place.root), str(idle)]
    planted = {**os.environ, "LANDING_PASSWORD": "planted-secret", "PREFECT_HOME": "", "PREFECT_API_URL": ""}
    return subprocess.Popen(
        command, cwd=ROOT, env=planted, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def go(process: subprocess.Popen[str]) -> None:
    process.communicate("\n", timeout=PATIENCE_SECONDS)
    assert process.returncode == 0


@pytest.mark.slow  # starts two servers
def test_runs_share_one_server_which_ends_when_idle_and_may_be_killed(place: Workspace) -> None:
    first, second = use(place, 600.0), use(place, 600.0)
    assert [process.stdout.readline() for process in (first, second)] == ["used\n"] * 2
    server = known_server(place, {})
    announced = json.loads((place.prefect_home / SERVING).read_text())
    pid = announced["pid"]
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    secret = (place.prefect_home / PASSWORD).read_text().strip()
    assert (place.prefect_home / PASSWORD).stat().st_mode & 0o777 == 0o600
    assert secret not in json.dumps(announced)
    assert secret.encode() not in command
    assert b"planted-secret" not in environment, "what outlives a run has its server's secret, and no other"
    assert not server.is_open()
    assert Path(f"/proc/{pid}/cwd").readlink() == place.prefect_home
    go(first)
    go(second)
    assert server.answers(), "it outlives those who used it"
    third = use(place, 600.0)
    assert third.stdout.readline() == "used\n"
    assert json.loads((place.prefect_home / SERVING).read_text()) == announced, "the next run uses the same"
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_served(place), "a killed server holds no place")
    go(third)

    fourth = use(place, 0.0)
    assert fourth.stdout.readline() == "used\n"
    again = json.loads((place.prefect_home / SERVING).read_text())
    assert again["pid"] != pid
    assert (place.prefect_home / PASSWORD).read_text().strip() != secret, "a secret per start"
    go(fourth)
    until(lambda: not is_served(place), "an idle server ends")
    until(lambda: not Path(f"/proc/{again['pid']}").exists(), "its process ends")
    assert not (place.prefect_home / SERVING).exists()
    assert not (place.prefect_home / PASSWORD).exists()
