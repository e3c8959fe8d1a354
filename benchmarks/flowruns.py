"""Releases of invented tables through the whole flow, also on a cluster that loses a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil
import yaml

from benchmarks.invented import Size, make_table, specification
from benchmarks.processes import Peak, tree

LASTING = {"basis", "cost", "delta", "delta_num", "epsilon", "event", "measurement", "measurements", "name", "period",
           "spec_digest", "stated"}  # fmt: skip
"""What of a ledger's entry is the same in every run of a release."""


def workspace_of(folder: Path, size: Size, runner: str | None) -> Path:
    """A fresh workspace in which the table has landed."""
    place = Path(tempfile.mkdtemp(dir=folder)) / "workspace"
    subprocess.run(dprelease("init", str(place)), check=True, stdout=subprocess.DEVNULL)
    (place / "release.yaml").write_text(yaml.safe_dump(specification(size, runner), sort_keys=False))
    for file in (place / "landing").glob("*.*"):
        file.unlink()
    make_table(folder / size.name, size)
    os.link(folder / size.name, place / "landing" / "table.parquet")
    return place


def dprelease(*words: str) -> list[str]:
    """A command of the product."""
    return [str(Path(sys.executable).with_name("dprelease")), *words]


@dataclass(frozen=True)
class FlowRun:
    """A release through the flow."""

    seconds: float
    """Of the whole command, the orchestration server's start and end with it."""
    megabytes: int
    stages: dict[str, float]
    ledger: list[str]
    killed: bool


def flow_run(folder: Path, size: Size, *, runner: str | None = None, kill: bool = False) -> FlowRun:
    """Release the table; with `kill`, one of the cluster's workers is lost while it sums up the rows."""
    place = workspace_of(folder, size, runner)
    start = time.perf_counter()
    command = dprelease("run", "-w", str(place), "--period", "2026-01", "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        peak, killer = Peak(child.pid), _Killer(child.pid, place) if kill else None
        _, said = child.communicate()
        seconds, megabytes = time.perf_counter() - start, peak.end()
        killed = killer.end() if killer else False
    if child.returncode:
        raise SystemExit(f"the release failed: {said}")
    subprocess.run(dprelease("audit", "-w", str(place)), check=True, stdout=subprocess.DEVNULL)
    return FlowRun(seconds, megabytes, _stages(place), _ledger(place), killed)


class _Killer:
    """Kills one worker of the cluster that a release started, once the budget is reserved and rows are summed up."""

    def __init__(self, pid: int, place: Path) -> None:
        self._process, self._place, self._killed = psutil.Process(pid), place, False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._killed and not self._over.wait(0.1):
            if "estimate" in _begun(self._place):
                time.sleep(1.0)
                workers = [p for p in tree(self._process)[1:] if is_worker(p)]
                if workers:
                    os.kill(workers[0].pid, signal.SIGKILL)
                    self._killed = True

    def end(self) -> bool:
        """Whether a worker was killed."""
        self._over.set()
        self._thread.join()
        return self._killed


def is_worker(process: psutil.Process) -> bool:
    """Whether a process is one of a local cluster's workers."""
    try:
        return any("spawn_main" in word for word in process.cmdline())
    except psutil.Error:
        return False


def _events(place: Path) -> Iterator[tuple[str, str, float]]:
    """Type, stage and time of every lineage event."""
    log = place / "lineage.ndjson"
    for line in log.read_text().splitlines() if log.exists() else ():
        event = json.loads(line)
        stage = event["job"]["name"].rpartition(".")[2]
        yield event["eventType"], stage, datetime.fromisoformat(event["eventTime"]).timestamp()


def _begun(place: Path) -> set[str]:
    try:
        return {stage for kind, stage, _ in _events(place) if kind == "START"}
    except (ValueError, KeyError):  # a line that is being written
        return set()


def _stages(place: Path) -> dict[str, float]:
    """Seconds of every stage, from the lineage log."""
    begun: dict[str, float] = {}
    taken: dict[str, float] = {}
    for kind, stage, moment in _events(place):
        if kind == "START":
            begun[stage] = moment
        elif stage in begun:
            taken[stage] = moment - begun[stage]
    return taken


def _ledger(place: Path) -> list[str]:
    """What the ledger says of a release, entry by entry, but for what chance and the clock decide."""
    from tasks.stores.ledgers import readable_ledger
    from tasks.stores.spec import load_spec
    from tasks.stores.workspace import Workspace

    entries = readable_ledger(Workspace(place), load_spec(place / "release.yaml")).entries()
    bodies = [{key: value for key, value in json.loads(entry.body).items() if key in LASTING} for entry in entries]
    return [
        f"{entry.kind} {entry.release_id} {json.dumps(body, sort_keys=True)}"
        for entry, body in zip(entries, bodies, strict=True)
    ]
