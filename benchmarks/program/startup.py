"""Response times of commands, and the overhead of orchestration on a small release.

    python -m benchmarks.program.startup [--repeats 5]
    python -m benchmarks.program.startup --release [--repeats 5]
    python -m benchmarks.program.startup --runs [--repeats 5]

The first prints for each command the median wall-clock time, the processor time and the number of
modules it loads; workspaces are the two demos and a mixed table of fifteen columns with a copula.
The second starts its own server on loopback, and alternately releases the digits demo through the flow
and runs the same stages without the orchestrator. Each runs in a fresh process, so that it loads what it
needs; the difference is the overhead. Figures are medians.
The third releases months of the clinic demo with `dprelease run`: the first with an empty cache, the first of
another workspace, the second there, and one more with a server that `--keep-server` left running. It prints
the wall-clock time until the release is published and until the command ends, and processor seconds including
the server's.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.server.embedded import embedded_settings, listen, own_server, protection_of, server_command
from flows.server.keeping import end_kept_server, kept_here
from tasks.workspace.folders import Workspace

COMMANDS = ("--help", "plan --help", "run --help", "mechanisms")
OF_A_WORKSPACE = ("plan", "plan --json", "budget", "history")
COUNT_MODULES = (
    "import atexit, sys; from flows.cli import main; atexit.register(lambda: print(len(sys.modules), file=sys.stderr));"
    "sys.argv = ['dprelease', *sys.argv[1:]]; main()"
)
MIXED = """
name: mixed
source: {path: landing/*.parquet}
privacy: {population: adults, epsilon: 1.0, delta: 1.0e-5, lifetime: {epsilon: 3.0, delta: 1.0e-5}}
expected_rows: 32000
columns:
"""
SERVER_SECONDS = 180.0


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--release", action="store_true", help="what orchestration adds to a release")
    parser.add_argument("--runs", action="store_true", help="first and later releases, from the command to the end")
    parser.add_argument("--part", choices=("flow", "stages"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(PARTS[options.part](Workspace(options.folder))))
        return
    with tempfile.TemporaryDirectory() as folder:
        shown = print_runs if options.runs else print_release if options.release else print_commands
        shown(Path(folder), options.repeats)


# -- commands ----------------------------------------------------------------------


def print_commands(base: Path, repeats: int) -> None:
    """Print a line for each command."""
    asked = {command: command.split() for command in COMMANDS}
    for name, folder in _workspaces(base).items():
        asked |= {f"{command}, {name}": [*command.split(), "-w", str(folder)] for command in OF_A_WORKSPACE}
    print(f"{'command':<44}{'wall s':>8}{'cpu s':>8}{'modules':>9}")
    for name, arguments in asked.items():
        runs = [_time_process([sys.executable, "-m", "flows", *arguments]) for _ in range(repeats)]
        wall, cpu = (statistics.median(figures) for figures in zip(*runs, strict=True))
        counted = _run_process([sys.executable, "-c", COUNT_MODULES, *arguments])
        print(f"{name:<44}{wall:8.2f}{cpu:8.2f}{counted.stderr.splitlines()[-1]:>9}")


def _workspaces(base: Path) -> dict[str, Path]:
    found = {name: _demo(base / name, name) for name in ("clinic", "digits")}
    mixed = _demo(base / "mixed", "none")
    levels = [2, 3, 5, 6, 7, 9, 14, 15, 41]
    lines = [f"  - {{name: c{n}, kind: categorical, categories: {[f'v{i}' for i in range(n)]}}}" for n in levels]
    lines += [f"  - {{name: x{i}, kind: integer, bounds: [0, {10 ** (i + 1)}]}}" for i in range(5)]
    label = "  - {name: y, kind: categorical, categories: ['no', 'yes'], role: label}"
    (mixed / "release.yaml").write_text(MIXED + "\n".join([*lines, label]) + "\nmodel: {generator: copula}\n")
    return found | {"mixed columns, copula": mixed}


def _demo(folder: Path, name: str) -> Path:
    _run_process([sys.executable, "-m", "flows", "init", str(folder), "--demo", name])
    return folder


def _time_process(command: list[str]) -> tuple[float, float]:
    """Run a process and return the wall-clock and processor seconds of it and its children."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    _run_process(command)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _run_process(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})


# -- first and later runs ----------------------------------------------------------

Run = tuple[float, float, float]
"""Seconds until the release is published, until the command has ended, and of the processor."""


def print_runs(base: Path, repeats: int) -> None:
    """Print a line for each kind of start; each repetition runs all of them in turn."""
    rounds = [_round(base / str(number)) for number in range(repeats)]
    print(f"{'clinic, one month':<44}{'published s':>12}{'ended s':>9}{'cpu s':>8}")
    for name in rounds[0]:
        published, ended, cpu = (statistics.median(figures) for figures in zip(*(r[name] for r in rounds), strict=True))
        print(f"{name:<44}{published:12.1f}{ended:9.1f}{cpu:8.1f}")


def _round(base: Path) -> dict[str, Run]:
    cache = base / "cache"
    cache.mkdir(parents=True)
    one, other = _demo(base / "one", "clinic"), _demo(base / "other", "clinic")
    figures = {
        "the account's first run": _timed_run(one, cache, "2026-10"),
        "first run of another workspace": _timed_run(other, cache, "2026-10"),
        "second run": _timed_run(other, cache, "2026-09"),
        "a run that leaves its server": _timed_run(other, cache, "2026-08", "--keep-server"),
    }
    figures["a run beside that server"] = _timed_run(other, cache, "2026-07")
    end_kept_server(Workspace(other))
    return figures


def _timed_run(folder: Path, cache: Path, period: str, *flags: str) -> Run:
    command = [sys.executable, "-m", "flows", "run", "-w", str(folder), "--period", period, *flags]
    before, server_before, start = (
        resource.getrusage(resource.RUSAGE_CHILDREN),
        _kept_seconds(folder),
        time.perf_counter(),
    )
    published = 0.0
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as run:
        for line in run.stderr or ():
            if f"published clinic-visits-{period}" in line:
                published = time.perf_counter() - start
    ended, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode or not published:
        raise SystemExit("the run failed")
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return published, ended, own + _kept_seconds(folder) - server_before


def _kept_seconds(folder: Path) -> float:
    """Return the processor seconds of a kept server, which is not a child process; 0 if there is none."""
    kept = kept_here(Workspace(folder))
    if kept is None:
        return 0.0
    fields = Path(f"/proc/{kept['process']}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- a release ---------------------------------------------------------------------


def print_release(base: Path, repeats: int) -> None:
    """Print the times of a release through the flow, of the same stages alone, and their difference."""
    with _server(base) as server:
        pairs = [
            (_part("flow", base / f"flow-{i}", server), _part("stages", base / f"stages-{i}", server))
            for i in range(repeats)
        ]
    parts = [_parts(flow, alone) for flow, alone in pairs]
    print(f"{'digits, the server being up':<44}{'wall s':>8}{'cpu s':>8}")
    for name in parts[0]:
        wall, cpu = _medians(part[name] for part in parts)
        print(f"{name:<44}{wall:8.2f}{cpu:8.2f}")
    print(f"\n{'stage':<22}{'in the flow':>18}{'alone':>18}")
    for name in pairs[0][0]["stages"]:
        sides = (_medians(figures["stages"][name] for figures in side) for side in zip(*pairs, strict=True))
        print(f"{name:<22}" + "".join(f"{f'{wall:8.2f} ({cpu:.2f})':>18}" for wall, cpu in sides))


def _parts(flow: dict[str, Any], alone: dict[str, Any]) -> dict[str, list[float]]:
    """Return the wall-clock and processor seconds of the parts of a run, and its overhead over the stages alone."""
    inside, without = _sum(flow["stages"].values()), _sum(alone["stages"].values())
    return {
        "process start to flow start": flow["before"],
        "stages, inside the flow": inside,
        "between the stages": _less(flow["body"], inside),
        "flow end to process end": _less(_less(flow["whole"], flow["before"]), flow["body"]),
        "the whole run": flow["whole"],
        "the stages without the orchestrator": without,
        "overhead": _less(flow["whole"], without),
    }


def _less(figures: list[float], others: list[float]) -> list[float]:
    return [a - b for a, b in zip(figures, others, strict=True)]


def _medians(figures: Iterable[list[float]]) -> list[float]:
    return [statistics.median(column) for column in zip(*figures, strict=True)]


def _sum(figures: Any) -> list[float]:
    return [sum(column) for column in zip(*figures, strict=True)]


def _part(part: str, folder: Path, server: dict[str, str]) -> dict[str, Any]:
    _demo(folder, "digits")
    command = [sys.executable, __file__, "--part", part, "--folder", str(folder)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    done = _run_process(command, STARTED=str(start), **server)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures | {"whole": [time.time() - start, cpu]}


@contextmanager
def _server(base: Path) -> Iterator[dict[str, str]]:
    """Start a server with an empty database for the duration of the block, and yield its settings."""
    home = Workspace(base / "server")
    home.create()
    with listen(0) as listener:
        server = own_server(listener)
        environment = {**os.environ, **embedded_settings(home), **protection_of(server)}
        process = subprocess.Popen(server_command(listener), env=environment, pass_fds=[listener.fileno()])
    try:
        limit = time.monotonic() + SERVER_SECONDS
        while not server.answers():
            if process.poll() is not None or time.monotonic() > limit:
                raise SystemExit("the server does not answer")
            time.sleep(0.5)
        yield server.settings()
    finally:
        process.terminate()
        process.wait()


def run_flow(place: Workspace) -> dict[str, Any]:
    """Run `dprelease run` and time each stage and the flow."""
    from flows.cli import main as command
    from flows.server import embedded as server

    figures: dict[str, Any] = {"stages": {}}
    ready = server.quiet_libraries

    def add_clocks() -> None:
        ready()
        from flows import release

        for name, task in _stages().items():
            task.fn = _clocked(task.fn, figures["stages"], name)
        body = _clocked(release._release, figures, "body")

        def begun(*args: Any) -> Any:
            figures["before"] = [time.time() - float(os.environ["STARTED"]), time.process_time()]
            return body(*args)

        release._release = begun

    server.quiet_libraries = add_clocks
    sys.argv = ["dprelease", "run", "-w", str(place.root), "--json"]
    command()
    return figures


def run_stages(place: Workspace) -> dict[str, Any]:
    """Run the same stages in the same order as plain functions, without an orchestrator, and time them."""
    from flows.recipe import release_directly
    from tasks.release.context import RunRequest

    figures: dict[str, Any] = {"stages": {}}
    for name, task in _stages().items():
        task.fn = _clocked(task.fn, figures["stages"], name)
    release_directly(place, RunRequest(), flow_run_id=str(uuid.uuid4()))
    return figures


def _stages() -> dict[str, Any]:
    from prefect import Task

    from flows import recipe

    return {name: value for name, value in vars(recipe).items() if isinstance(value, Task)}


def _clocked(function: Callable[..., Any], figures: dict[str, Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def clocked(*args: Any, **kwargs: Any) -> Any:
        wall, cpu = time.time(), time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            figures[name] = [time.time() - wall, time.process_time() - cpu]

    return clocked


PARTS = {"flow": run_flow, "stages": run_stages}


if __name__ == "__main__":
    main()
