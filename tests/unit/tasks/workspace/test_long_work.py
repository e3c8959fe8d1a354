"""What a person sees while a stage works for long."""

from __future__ import annotations

import re
import threading

import pytest

from tasks.workspace.long_work import long_work


def test_long_work_without_steps_is_reported_again_and_again_and_no_more_once_it_ends():
    lines: list[str] = []
    twice = threading.Event()

    def report(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:
            twice.set()

    with long_work("drawing", every=0.001, report=report):
        assert twice.wait(60)
    count = len(lines)
    assert re.fullmatch(r"drawing: still at work after \d+ s", lines[0])
    assert not [thread for thread in threading.enumerate() if thread.name == "drawing"]
    assert len(lines) == count


def test_work_that_fails_is_reported_no_more():
    with pytest.raises(ArithmeticError), long_work("dividing", every=60, report=print):
        raise ArithmeticError
    assert not [thread for thread in threading.enumerate() if thread.name == "dividing"]


def test_short_work_is_not_reported():
    lines: list[str] = []
    with long_work("adding", every=60, report=lines.append):
        pass
    assert not lines
