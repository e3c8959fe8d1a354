"""Runs a list of `dprelease` commands in one process, so that one orchestration server serves them all.

Reads steps as JSON from standard input: `argv`; optionally `crash` (a dotted function
that raises an error with the given `text`), `move` and `write` (file changes before the
command). Writes their exit codes, their outputs and how many orchestration servers were
started by then as JSON to the path given as argument.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest import mock

_servers: list[Any] = []


def _count_servers(event: str, arguments: tuple[Any, ...]) -> None:
    """Whoever starts one, we or Prefect: it is a process of uvicorn's."""
    if event == "subprocess.Popen" and "uvicorn" in arguments[1]:
        _servers.append(arguments[0])


def _crash(target: str, text: str) -> Any:
    module, name = target.rsplit(".", 1)

    def fail(*_args: object, **_kwargs: object) -> None:
        raise ValueError(text)

    return mock.patch.object(importlib.import_module(module), name, fail)


def _prepare(step: dict[str, Any]) -> None:
    for source, target in step.get("copy", []):
        shutil.copy(source, target)
    for path, old, new in step.get("replace", []):
        text = Path(path).read_text()
        assert old in text, f"{old!r} is not in the file"
        Path(path).write_text(text.replace(old, new))


def _run(step: dict[str, Any]) -> dict[str, Any]:
    from flows.cli import main

    _prepare(step)
    out, err = io.StringIO(), io.StringIO()
    crash = _crash(*step["crash"]) if "crash" in step else contextlib.nullcontext()
    code = 0
    with (
        crash,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", ["dprelease", *step["argv"]]),
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return {"name": step["name"], "code": code, "out": out.getvalue(), "err": err.getvalue(), "servers": len(_servers)}


if __name__ == "__main__":
    sys.addaudithook(_count_servers)
    results = [_run(step) for step in json.load(sys.stdin)]
    Path(sys.argv[1]).write_text(json.dumps(results))
