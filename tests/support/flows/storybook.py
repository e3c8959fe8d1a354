"""A story of releases: the specification, the data, and the commands in their order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from support import ROOT
from support.flows import canaries
from support.planted import plant
from support.processes import blas_settings

DRIVER = Path(__file__).with_name("cli_driver.py")
"""Runs commands in one process, with one server."""

SPEC = r"""
name: visits
source:
  path: landing/*.parquet
  period: "(?P<period>\\d{4}-\\d{2})"
  drop: [name]
privacy:
  population: patients
  epsilon: 1.0
  lifetime: {epsilon: 5.0}
expected_rows: 3000
columns:
  - {name: weight, kind: numeric, bounds: [0, 1000]}
  - {name: code, kind: integer, bounds: [0, 1000000000000000], missing: category}
  - {name: seen, kind: timestamp, bounds: [2026-01-01, 2027-01-01]}
  - {name: born, kind: date, bounds: [1920-01-01, 2026-01-01], missing: {impute: 1980-01-01}}
  - {name: smoker, kind: boolean}
  - {name: city, kind: categorical, categories: [north, south, other], other: other}
  - {name: outcome, kind: categorical, categories: [no, yes], role: label}
model: {projection: {kind: ron}, radius: 1}
checks: {min_rows: 100, mean_gap: 0.2}
"""


def visits(rows: int, seed: int, *, planted: bool = False) -> pa.Table:
    """Invented rows; one of them carries the canaries."""
    rng = np.random.Generator(np.random.PCG64(seed))
    start = datetime(2026, 1, 1, tzinfo=UTC)
    outcome = rng.random(rows) < 0.3
    columns: dict[str, list[Any]] = {
        "weight": list(np.clip(rng.normal(400, 120, rows) + 100 * outcome, 0, 1000)),
        "code": [None if rng.random() < 0.05 else int(v) for v in rng.integers(0, 10**15, rows)],
        "seen": [start + timedelta(seconds=int(v)) for v in rng.integers(0, 360 * 86400, rows)],
        "born": [(datetime(1930, 1, 1) + timedelta(days=int(v))).date() for v in rng.integers(0, 30000, rows)],
        "smoker": list(rng.random(rows) < 0.25),
        "city": list(rng.choice(["north", "south", "other"], rows, p=[0.6, 0.3, 0.1])),
        "outcome": ["yes" if v else "no" for v in outcome],
        "name": [f"person {i}" for i in range(rows)],
    }
    if planted:
        plant = {"weight": canaries.NUMBER, "code": canaries.WHOLE, "seen": canaries.MOMENT}
        for name, value in {**plant, "city": canaries.CATEGORY, "name": canaries.NAME}.items():
            columns[name][17] = value
    kinds = {"seen": pa.timestamp("us", tz="UTC"), "born": pa.date32(), "code": pa.int64()}
    return pa.table({name: pa.array(values, type=kinds.get(name)) for name, values in columns.items()})


@dataclass(frozen=True)
class Story:
    """What happened: the folder, and each step's exit code and output."""

    base: Path
    steps: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, base: Path) -> Story:
        return cls(base, {step["name"]: step for step in json.loads((base / "steps.json").read_text())})

    @property
    def workspace(self) -> Path:
        return self.base / "workspace"

    def code(self, name: str) -> int:
        return int(self.steps[name]["code"])

    def json(self, name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.steps[name]["out"])
        return content


def tell_story(base: Path) -> None:
    """Run every step through the real command line and server, in a current folder full of planted modules."""
    for name in ("home", "tmp", "workspace"):
        (base / name).mkdir()
    plant(base / "current")
    _drive(base, [{"name": "init", "argv": ["init", str(base / "workspace"), "--demo", "none"]}], "init.json")
    (base / "workspace" / "release.yaml").write_text(SPEC)
    write_inputs(base)
    _drive(base, steps_of(base), "steps.json")


def _drive(base: Path, steps: list[dict[str, Any]], name: str) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "XDG_CACHE_HOME")} | blas_settings()
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(base / name)],
        input=json.dumps(steps),
        text=True,
        capture_output=True,
        env={"HOME": str(base / "home"), "TMPDIR": str(base / "tmp"), **kept},
        cwd=base / "current",
        timeout=280,
        check=False,
    )
    (base / f"{name}.terminal").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, done.stderr[-3000:]


def drive(base: Path, steps: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Commands through the real command line, flow and server; their results by name."""
    for name in ("home", "tmp"):
        (base / name).mkdir()
    kept = {name: os.environ[name] for name in ("PATH", "XDG_CACHE_HOME")} | blas_settings()
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(base / "steps.json")],
        input=json.dumps(steps),
        text=True,
        capture_output=True,
        env={"HOME": str(base / "home"), "TMPDIR": str(base / "tmp"), **kept},
        cwd=ROOT,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {step["name"]: step for step in json.loads((base / "steps.json").read_text())}


def write_inputs(base: Path) -> None:
    """The workspace's landing data, and bad files beside it."""
    landing = base / "workspace" / "landing"
    bad = base / "inputs"
    bad.mkdir()
    for month in ("03", "04", "05", "06", "07", "08"):
        pq.write_table(visits(3000, int(month), planted=True), landing / f"v-{canaries.FILE}-2026-{month}.parquet")
    good = visits(3000, 99, planted=True)
    pq.write_table(visits(3100, 98, planted=True), bad / "changed.parquet")
    whole = (landing / f"v-{canaries.FILE}-2026-03.parquet").read_bytes()
    (bad / "empty.parquet").write_bytes(b"")
    (bad / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    pq.write_table(good, bad / "damaged.parquet", write_page_checksum=True)
    damaged = bytearray((bad / "damaged.parquet").read_bytes())
    damaged[2000:2100] = bytes(100)
    (bad / "damaged.parquet").write_bytes(bytes(damaged))
    pq.write_table(good.drop_columns(["weight"]), bad / "missing-column.parquet")
    pq.write_table(good.append_column("extra", pa.array([1] * 3000)), bad / "undeclared.parquet")
    wrong = good.set_column(0, "weight", pa.array([str(v) for v in good["weight"].to_pylist()]))
    pq.write_table(wrong, bad / "wrong-type.parquet")
    (bad / "ragged.csv").write_text(f"weight,code\n1,2,{canaries.CATEGORY}\n3\n")


CRASHES = {
    "validate": "tasks.validate.cell_verdicts",
    "allocate": "tasks.allocate.reserve_request",
    "project": "tasks.project._projection",
    "decode": "tasks.decode.write_rows",
    "check": "tasks.check.utility_of",
    "publish": "tasks.publish.build_record",
}
"""What fails, with a raw value in its words, in each stage besides the two around the draw."""


def steps_of(base: Path) -> list[dict[str, Any]]:
    """The story, step by step."""
    place, inputs = base / "workspace", base / "inputs"
    spec, landing = str(place / "release.yaml"), place / "landing"

    def step(name: str, *argv: str, **extra: Any) -> dict[str, Any]:
        return {"name": name, "argv": [*argv, "-w", str(place), "--json"], **extra}

    def crash(stage: str) -> dict[str, Any]:
        return step(f"crash in {stage}", "run", "--period", "2026-04", crash=[CRASHES[stage], text])

    march = str(landing / f"v-{canaries.FILE}-2026-03.parquet")
    text = f"could not convert {canaries.NUMBER!r} of {canaries.NAME} in {canaries.FILE}"
    refusals = [
        step(f"refuse {path.name}", "run", "--period", "2026-11", "--input", str(path))
        for path in sorted(inputs.iterdir())
        if path.name != "changed.parquet"
    ]
    return [
        step("plan", "plan"),
        step("budget before", "budget"),
        step("refuse missing", "run", "--period", "2026-11", "--input", str(inputs / "nowhere.parquet")),
        *refusals,
        step("budget after refusals", "budget"),
        step("publish", "run", "--period", "2026-03"),
        step("again", "run", "--period", "2026-03"),
        step("again with other data", "run", "--period", "2026-03", copy=[[str(inputs / "changed.parquet"), march]]),
        step("budget after one", "budget"),
        *(crash(stage) for stage in ("validate", "allocate", "project")),
        step("crash before the draw", "run", "--period", "2026-04", crash=["tasks.draw_once.gram_sum", text]),
        step("budget after the void", "budget"),
        step("crash after the draw", "run", "--period", "2026-04", crash=["tasks.sample.rows_wanted", text]),
        *(crash(stage) for stage in ("decode", "check", "publish")),
        step("budget after the crash", "budget"),
        step("history after the crash", "history"),
        step("resume", "run", "--period", "2026-04"),
        step("budget after resuming", "budget"),
        step("check fails", "run", "--period", "2026-05", replace=[[spec, "mean_gap: 0.2", "mean_gap: 0.0000001"]]),
        step("relaxed", "run", "--period", "2026-05", replace=[[spec, "mean_gap: 0.0000001", "mean_gap: 0.2"]]),
        step(
            "supersede", "run", "--period", "2026-03", "--supersedes", "visits-2026-03-1", "--reason", "corrected rows"
        ),
        step("supersede without reason", "run", "--period", "2026-03", "--supersedes", "visits-2026-03-2"),
        step("latest without period", "run"),
        step("cap used up", "run", "--period", "2026-07"),
        step("history while refused", "history", "--status", "refused"),
        step("cap edited", "run", "--period", "2026-07", replace=[[spec, "{epsilon: 5.0}", "{epsilon: 6.0}"]]),
        step("cap raised", "budget", "raise", "--reason", "the board agreed"),
        step(
            "awaits", "run", "--period", "2026-07", replace=[[spec, "name: visits", "approve: required\nname: visits"]]
        ),
        step("awaits still", "run", "--period", "2026-07"),
        step("history while awaiting", "history", "--status", "awaiting-approval"),
        step("show while awaiting", "show", "visits-2026-07-1"),
        step("approve without reason", "approve", "visits-2026-07-1", "--reason", " "),
        step("approve another", "approve", "visits-2026-03-2", "--reason", "fine"),
        step("approve", "approve", "visits-2026-07-1", "--who", "the data board", "--reason", "the report is fine"),
        step("after raising", "run", "--period", "2026-07", replace=[[spec, "\napprove: required", ""]]),
        step("audit", "audit"),
        step("budget", "budget"),
        step("history", "history"),
        step("show", "show", "visits-2026-03-2"),
        step("show all", "show", "visits-2026-03-1", "--all"),
    ]
