"""Releases of invented tables through the whole flow, optionally on a cluster that loses a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from benchmarks.program.invented import Size, make_table, specification
from benchmarks.program.processes import Peak, tree

LASTING = {"basis", "cost", "delta", "delta_num", "epsilon", "event", "measurement", "measurements", "name", "period",
           "spec_digest", "stated"}  # fmt: skip
"""Keys of a ledger entry that are the same in every run of a release."""
RESERVED = "reserved epsilon"
"""The message that a run prints before it measures."""


def workspace_of(folder: Path, size: Size, runner: str | None) -> Path:
    """Create a workspace with the table in its landing folder."""
    place = Path(tempfile.mkdtemp(dir=folder)) / "workspace"
    subprocess.run(dprelease("init", str(place), "--demo", "none"), check=True, stdout=subprocess.DEVNULL)
    (place / "release.yaml").write_text(yaml.safe_dump(specification(size, runner), sort_keys=False))
    make_table(folder / size.name, size)
    os.link(folder / size.name, place / "landing" / "table.parquet")
    return place


def dprelease(*words: str) -> list[str]:
    """Run a `dprelease` command."""
    return [str(Path(sys.executable).with_name("dprelease")), *words]


@dataclass(frozen=True)
class FlowRun:
    """A release through the flow."""

    seconds: float
    """Seconds of the whole command, including start and stop of the orchestration server."""
    megabytes: int
    said: list[tuple[float, str]]
    """The messages of the run with their times, in seconds since the command began."""
    ledger: list[str]
    killed: bool


def flow_run(folder: Path, size: Size, *, runner: str | None = None, kill: bool = False) -> FlowRun:
    """Release the table; with `kill`, one of the cluster's workers is killed while the rows are summed."""
    place = workspace_of(folder, size, runner)
    start, said, killed = time.perf_counter(), [], False
    command = dprelease("run", "-w", str(place), "--period", "2026-01", "--json")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        peak = Peak(child.pid)
        assert child.stderr is not None  # noqa: S101  as asked for above
        for line in child.stderr:
            said.append((time.perf_counter() - start, line.strip()))
            if kill and RESERVED in line:  # the rows are summed next
                time.sleep(1.5)
                killed = _kill_a_worker(child.pid)
        child.wait()
        seconds, megabytes = time.perf_counter() - start, peak.end()
    if child.returncode:
        raise SystemExit("the release failed: " + " / ".join(line for _, line in said))
    subprocess.run(dprelease("audit", "-w", str(place)), check=True, stdout=subprocess.DEVNULL)
    return FlowRun(seconds, megabytes, said, _ledger(place), killed)


def _kill_a_worker(pid: int) -> bool:
    """Kill one worker of the cluster that a release started."""
    workers = [process for process in tree(psutil.Process(pid))[1:] if is_worker(process)]
    if workers:
        os.kill(workers[0].pid, signal.SIGKILL)
    return bool(workers)


def is_worker(process: psutil.Process) -> bool:
    """Return whether a process is a worker of a local cluster."""
    try:
        return any("spawn_main" in word for word in process.cmdline())
    except psutil.Error:
        return False


def _ledger(place: Path) -> list[str]:
    """Return the ledger entries of a release without the fields that depend on randomness or the clock."""
    from tasks.ledger.opening import readable_ledger
    from tasks.workspace.folders import Workspace

    entries = readable_ledger(Workspace(place)).entries()
    bodies = [{key: value for key, value in json.loads(entry.body).items() if key in LASTING} for entry in entries]
    return [
        f"{entry.kind} {entry.release_id} {json.dumps(body, sort_keys=True)}"
        for entry, body in zip(entries, bodies, strict=True)
    ]
