"""Unit tests start no process and open no port: whoever does so fails here, and belongs to tests/system."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

FORBIDDEN = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "socket.bind"}
_watching = False


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    lists_fonts = event == "subprocess.Popen" and arguments[0] == "fc-list"  # matplotlib does, once for an account
    if _watching and event in FORBIDDEN and not lists_fonts:
        raise AssertionError(f"a unit test does without {event}")


sys.addaudithook(_refuse)


def _no_sleep(_seconds: float) -> NoReturn:
    raise AssertionError("a unit test does not sleep")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    global _watching
    monkeypatch.setattr(time, "sleep", _no_sleep)
    _watching = True
    yield
    _watching = False
