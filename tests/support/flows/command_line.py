"""`dprelease` called in the test's own process."""

from __future__ import annotations

import sys

import pytest

from flows.cli import main


def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *argv: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    monkeypatch.setattr(sys, "argv", ["dprelease", *argv])
    code = 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    out, err = capsys.readouterr()
    return code, out, err
