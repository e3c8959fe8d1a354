"""Processes that serve answers for: started again when they end by themselves, ended in time with all they started."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from deployments.children import GRACE_SECONDS, QUICK_ENDS, Child, ChildFailedError, end

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); {more}; time.sleep(600)"
WITH_A_CHILD = (
    "import subprocess, sys; subprocess.Popen([sys.executable, '-c', {inner!r}], start_new_session=True); "
    "open({mark!r}, 'w').close()"
)


def child(code: str) -> Child:
    made = Child("test", [sys.executable, "-c", code], dict(os.environ), Path.cwd())
    made.start()
    return made


def wait_for(path: Path) -> None:
    limit = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_a_stubborn_process_and_what_it_started_elsewhere_are_gone_within_the_grace(tmp_path: Path):
    ready, inner_ready = tmp_path / "ready", tmp_path / "inner"
    inner = STUBBORN.format(more=f"open({str(inner_ready)!r}, 'w').close()")
    parent = child(STUBBORN.format(more=WITH_A_CHILD.format(inner=inner, mark=str(ready))))
    wait_for(ready)
    wait_for(inner_ready)
    family = parent.family()
    assert len(family) == 2
    start = time.monotonic()
    end([parent])
    assert GRACE_SECONDS - 1 < time.monotonic() - start < 10
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family)


def test_a_process_that_listens_is_not_kept_waiting():
    polite = child("import time; time.sleep(600)")
    start = time.monotonic()
    end([polite])
    assert time.monotonic() - start < GRACE_SECONDS
    assert polite.has_ended


def test_ending_what_has_ended_does_nothing():
    gone = child("pass")
    assert gone.process is not None
    gone.process.wait(30)
    end([gone, Child("never started", ["false"], {}, Path.cwd())])
    assert gone.is_done


def test_a_process_that_ends_again_and_again_is_given_up():
    weak = child("raise SystemExit(1)")
    for _ in range(QUICK_ENDS - 1):
        assert weak.process is not None
        weak.process.wait(30)
        weak.restart()
    assert weak.process is not None
    weak.process.wait(30)
    with pytest.raises(ChildFailedError, match="code 1"):
        weak.restart()


def test_a_refusal_is_not_repeated():
    refused = child("raise SystemExit(2)")
    assert refused.process is not None
    refused.process.wait(30)
    with pytest.raises(ChildFailedError, match="code 2"):
        refused.restart()
