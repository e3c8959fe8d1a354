"""Small landing files, whole, half and bad, and a clock that the test turns; importable by other processes."""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.intake.arrivals import Arrivals
from tasks.spec import ReleaseSpec, load_spec
from tasks.workspace.clock import Clock
from tasks.workspace.folders import Workspace

SPEC = """
name: small
source: {path: 'landing/*', period: 'small-(?P<period>[0-9]{4}-[0-9]{2})'}
privacy: {population: people, epsilon: 1, lifetime: {epsilon: 12}}
expected_rows: 100
columns:
  - {name: age, kind: numeric, bounds: [0, 100]}
  - {name: sex, kind: categorical, categories: [f, m]}
model: {accept_noise: true}
schedule: {on_landing: true}
"""
GOOD = "age,sex\n41,f\n42,m\n"
OTHER = "age,sex\n43,f\n44,m\n"
PLANTED = "planted-secret"


def parquet(**columns: list[Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns or {"age": [41.0, 42.0], "sex": ["f", "m"]}), sink)
    return sink.getvalue()


BAD: dict[str, tuple[str, bytes, str]] = {
    "a column is missing": ("a.csv", b"age\n41\n", "column-missing"),
    "a column is not declared": ("a.csv", f"age,sex,{PLANTED}\n41,f,x\n".encode(), "column-undeclared"),
    "a column has another type": ("a.parquet", parquet(age=[[1.0]], sex=["f"]), "column-type"),
    "a column comes twice": ("a.csv", b"age,sex,sex\n41,f,f\n", "column-repeated"),
    "its name carries no month": ("small-2026-13.csv", GOOD.encode(), "period-malformed"),
}
UNFINISHED: dict[str, tuple[str, bytes, str]] = {
    "nothing": ("a.csv", b"", "file-empty"),
    "nothing of Parquet": ("a.parquet", b"", "file-empty"),
    "half of Parquet": ("a.parquet", parquet()[:-20], "file-unreadable"),
    "a line with a cell too many": ("a.csv", b"age,sex\n41,f\n42,m,x\n", "file-unreadable"),
    "half a header": ("a.csv", b"age,s", "file-unreadable"),
    "another format": ("a.csv.part", GOOD.encode(), "format-unknown"),
}

NO_ROWS: dict[str, tuple[str, bytes]] = {
    "a header alone": ("small-2026-10.csv", b"age,sex\n"),
    "Parquet without rows": (
        "small-2026-10.parquet",
        parquet(age=pa.array([], pa.float64()), sex=pa.array([], pa.string())),
    ),
}
"""Sound, though they may be unfinished."""


@dataclass
class HandClock:
    """Stands still until it is turned; it may be turned back."""

    now: float = 1000.0
    name: str = "hand"

    @property
    def clock(self) -> Clock:
        return Clock(self.name, lambda: self.now)


@dataclass
class Intake:
    """A workspace, its specification and a clock, with ten seconds to settle and sixty of patience."""

    workspace: Workspace
    hand: HandClock

    @property
    def spec(self) -> ReleaseSpec:
        return load_spec(self.workspace.spec_path)

    @property
    def arrivals(self) -> Arrivals:
        """A fresh one each time, as after a restart."""
        return Arrivals(self.workspace, self.hand.clock)

    def put(self, name: str, content: str | bytes = GOOD) -> Path:
        path = self.workspace.landing / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def look(self, *, after: float = 0.0) -> tuple[list[str | None], list[str], bool]:
        """Turn the clock and scan: periods that landed, rules of what was refused, whether something is unsettled."""
        self.hand.now += after
        scan = self.arrivals.scan(self.spec, settle=10, patience=60)
        return [v.period for v in scan.landed], [r.rule for r in scan.refused], scan.unsettled

    @property
    def files(self) -> set[str]:
        return {p.name for p in self.workspace.landing.iterdir() if p.is_file() and not p.name.startswith(".")}

    @property
    def quarantine(self) -> list[Path]:
        return sorted((self.workspace.landing / "quarantine").iterdir())


def make_workspace(root: Path, spec: str = SPEC) -> Workspace:
    workspace = Workspace(root)
    workspace.create()
    workspace.spec_path.write_text(spec)
    return workspace


NOTHING: tuple[list[str | None], list[str], bool] = ([], [], False)
WRITING: tuple[list[str | None], list[str], bool] = ([], [], True)


# ---------------------------------------------------------------- what spawned processes run


def race_to_scan(root: Path, barrier: Any, answers: Any) -> None:
    """Wait for the others, take up whatever there is, and say what."""
    workspace = Workspace(root)
    arrivals, spec = Arrivals(workspace), load_spec(workspace.spec_path)
    barrier.wait(120)
    scan = arrivals.scan(spec, settle=0, patience=0)
    answers.put(([v.token for v in scan.landed], [r.rule for r in scan.refused]))


def race_to_admit(root: Path, name: str, barrier: Any, answers: Any) -> None:
    """Wait for the others, admit the same file, and say as what."""
    workspace = Workspace(root)
    arrivals, spec = Arrivals(workspace), load_spec(workspace.spec_path)
    barrier.wait(120)
    admission = arrivals.admit(workspace.landing / name, spec)
    answers.put((admission.version.token, admission.known))


def scan_and_stall(root: Path, where: str, reached: Any) -> None:
    """Scan, and stay for ever at a function of the intake, until the process is ended."""
    from tasks.intake import arrivals as module

    def stall(*_args: object) -> None:
        reached.set()
        threading.Event().wait()

    setattr(module, where, stall)
    workspace = Workspace(root)
    Arrivals(workspace).scan(load_spec(workspace.spec_path), settle=0, patience=0)
