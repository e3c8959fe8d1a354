"""Runs a list of `dprelease` commands in one process, so that one orchestration server serves them all.

Reads steps as JSON from standard input: `argv`; optionally `crash` (a dotted function
that raises an error with the given `text`), `move` and `write` (file changes before the
command). Writes their exit codes, their outputs, how many orchestration servers were
started by then, and what the last one answers to strangers as JSON to the path given as argument.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from unittest import mock

import flows.server.embedded

_servers: list[Any] = []


def _count_servers(event: str, arguments: tuple[Any, ...]) -> None:
    """Whoever starts one, we or Prefect, which would start uvicorn; one of ours that waits is not started yet."""
    words = set(arguments[1]) if event == "subprocess.Popen" else set()
    if {"flows.server.prefect_server", "uvicorn"} & words and "--wait" not in words:
        _servers.append(arguments[0])


def _count_start(process: Any) -> None:
    _servers.append(process)
    flows.server.embedded.start_waiting(process)


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
        mock.patch("flows.server.embedded.EmbeddedServer.start", lambda server: _count_start(server._process)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", ["dprelease", *step["argv"]]),
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    if code == 0 and "run" in step["argv"]:
        _load_libraries()
    result = {"name": step["name"], "code": code, "out": out.getvalue(), "err": err.getvalue()}
    return result | {"servers": len(_servers), "strangers": _answer_to_strangers()}


def _load_libraries() -> None:
    """After the first release, load what its helper loaded: else every later one starts a helper that loads it anew."""
    from expectations.quiet import quietly
    from tasks.workspace.helper_process import MODULES

    with quietly():
        for module in MODULES:
            importlib.import_module(module)


def _answer_to_strangers() -> dict[str, int]:
    """The status that somebody without the secret gets for reading, changing and deleting flow runs."""
    if not _servers:
        return {}
    from prefect.settings import PREFECT_API_URL

    asked = {"POST /flow_runs/filter": b"{}", "DELETE /flow_runs/00000000-0000-0000-0000-000000000000": None}
    return {what: _status(str(PREFECT_API_URL.value()), what, body) for what, body in asked.items()}


def _status(url: str, what: str, body: bytes | None) -> int:
    method, path = what.split()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + path, body, headers, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


if __name__ == "__main__":
    sys.addaudithook(_count_servers)
    results = [_run(step) for step in json.load(sys.stdin)]
    Path(sys.argv[1]).write_text(json.dumps(results))
