"""Processes that serve answers for: started again when they end by themselves, ended in time with all they started."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.flows.events import wait_for

from deployments.supervision import QUICK_ENDS, Child, ChildFailedError, end

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, lambda *_: open({asked!r}, 'a').close()); "
    "{more}; [time.sleep(600) for _ in range(9)]"
)
WITH_A_CHILD = (
    "import subprocess, sys; subprocess.Popen([sys.executable, '-c', {inner!r}], start_new_session=True); "
    "open({mark!r}, 'w').close()"
)


def child(code: str) -> Child:
    made = Child("test", [sys.executable, "-c", code], dict(os.environ), Path.cwd())
    made.start()
    return made


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_a_stubborn_process_and_what_it_started_elsewhere_are_asked_and_killed_after_the_grace(tmp_path: Path):
    ready, inner_ready, asked, inner_asked = (tmp_path / name for name in ("ready", "inner", "asked", "inner_asked"))
    inner = STUBBORN.format(asked=str(inner_asked), more=f"open({str(inner_ready)!r}, 'w').close()")
    more = WITH_A_CHILD.format(inner=inner, mark=str(ready))
    parent = child(STUBBORN.format(asked=str(asked), more=more))
    wait_for(lambda: ready.exists() and inner_ready.exists(), "both have started")
    family = parent.family()
    assert len(family) == 2
    start = time.monotonic()
    end([parent], grace=2.0)
    assert time.monotonic() - start >= 2.0
    assert asked.exists()
    assert inner_asked.exists()
    wait_for(lambda: not any(is_alive(process) for process in family), "both are gone")


def test_a_process_that_listens_may_tidy_up_and_is_not_killed(tmp_path: Path):
    ready, tidied = tmp_path / "ready", tmp_path / "tidied"
    tidy = f"signal.signal(signal.SIGTERM, lambda *_: sys.exit(open({str(tidied)!r}, 'w').close()))"
    polite = child(f"import signal, sys, time; {tidy}; open({str(ready)!r}, 'w').close(); time.sleep(600)")
    wait_for(ready.exists, "it has started")
    end([polite], grace=60.0)
    assert polite.has_ended
    assert tidied.exists()


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
