"""What a person sees while the first stage is waited for."""

from __future__ import annotations

import io
import logging
import re
import threading

import pytest
from rich.console import Console

from flows.cli import progress


class Heard(io.StringIO):
    """A file that tells when so many lines of waiting were written."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = threading.Event()

    def write(self, text: str) -> int:
        size = super().write(text)
        if self.getvalue().count("still waiting") >= 2:
            self.twice.set()
        return size


def test_a_wait_for_the_first_stage_is_told_again_and_again_and_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Heard()
    monkeypatch.setattr(progress, "stderr", lambda: Console(file=file, width=100))
    monkeypatch.setattr(progress, "STILL_SECONDS", 0.001)
    with progress.show_progress("starting the server"):
        assert file.twice.wait(60)
        (waiting,) = (thread for thread in threading.enumerate() if thread.name == progress.WAITING)
        logging.getLogger("dprelease.progress").info("validated")
        waiting.join(60)
        assert not waiting.is_alive()
    lines = file.getvalue().splitlines()
    assert re.fullmatch(r"starting the server: still waiting, \d+ s", lines[1])
    assert any(line.endswith("validated") for line in lines)
