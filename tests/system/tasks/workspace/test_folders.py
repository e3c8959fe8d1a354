"""A workspace that several processes use, of which one is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.processes import FORKS
from support.tasks.builders import hold_the_lock, leave_rows_in_scratch

from tasks.workspace.folders import Workspace


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "workspace")
    workspace.create()
    return workspace


def test_what_a_killed_run_left_is_gone_with_the_next_and_only_that(place: Workspace):
    written = FORKS.Event()
    killed = FORKS.Process(target=leave_rows_in_scratch, args=(place.root, written))
    killed.start()
    assert written.wait(60)
    with place.scratch() as mine:
        assert len(list(place.vault.iterdir())) == 2, "the other one is still at work"
        killed.kill()
        killed.join(60)
        with place.scratch() as next_one:
            assert set(place.vault.iterdir()) == {mine, next_one}
    assert list(place.vault.iterdir()) == []


def test_a_second_process_waits_for_the_first_and_is_let_in_by_its_death(place: Workspace):
    first_in, second_in, never, at_once = (FORKS.Event() for _ in range(4))
    at_once.set()
    first = FORKS.Process(target=hold_the_lock, args=(place.root, "visits", first_in, never))
    second = FORKS.Process(target=hold_the_lock, args=(place.root, "visits", second_in, at_once))
    first.start()
    try:
        assert first_in.wait(60)
        second.start()
        assert not second_in.wait(1), "the second waits"
        with place.exclusive("other"):
            pass  # another name does not
        first.kill()
        assert second_in.wait(60), "the lock goes with its process"
        second.join(60)
        assert second.exitcode == 0
    finally:
        for process in (first, second):
            if process.is_alive():
                process.kill()
                process.join(60)
    with place.exclusive("visits"):
        pass
