"""Specifications of every shape with invented rows; importable by spawned processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from dpcore.auditing.attacks import Finding
from dpcore.records.schema import Cells, Column, NominalColumn
from tasks.landing.cells import table_of
from tasks.spec import ReleaseSpec, parse_spec
from tasks.workspace.folders import Workspace

ROWS = 2000


def text_of(
    *columns: str, epsilon: str = "20", lifetime: str = "epsilon: 100", rows: str = "40", more: str = ""
) -> str:
    """A specification with one plain column, and those given."""
    lines = "\n".join(f"  - {{{column}}}" for column in ("name: plain, kind: numeric, bounds: [0, 1]", *columns))
    privacy = f"{{population: people, epsilon: {epsilon}, lifetime: {{{lifetime}}}}}"
    head = f"name: odd\nsource: {{path: landing/rows.parquet}}\nprivacy: {privacy}\nexpected_rows: {ROWS}\n"
    return f"{head}columns:\n{lines}\nrows: {rows}\n{more}\n"


def categories(*escaped: str) -> str:
    """A categorical column; its categories in YAML's double quotes."""
    quoted = ", ".join(f'"{word}"' for word in escaped)
    return f"name: c, kind: categorical, categories: [{quoted}]"


def workspace_of(root: Path, text: str) -> tuple[Workspace, ReleaseSpec]:
    """A workspace with invented landing data."""
    workspace, spec = Workspace(root), parse_spec(text)
    workspace.create()
    workspace.spec_path.write_text(text, encoding="utf-8")
    pq.write_table(table_of(invented_cells(spec), spec.schema), root / "landing" / "rows.parquet")
    return workspace, spec


def passed(event: Any) -> dict[str, Any]:
    """The audit of a build that passes: it takes seconds, and none of it depends on these specifications."""
    attack = Finding(event.mechanism, event.neighbours.value, 2.0, 0.0, 1.0, 10).as_json()
    return {"code_digest": "c" * 64, "attack": attack, "noise": None, "holds": True}


def invented_cells(spec: ReleaseSpec) -> Cells:
    dice = np.random.Generator(np.random.PCG64(7))
    return {column.name: _invented(column, dice) for column in spec.schema.columns}


def _invented(column: Column, dice: np.random.Generator) -> np.ndarray:
    if isinstance(column, NominalColumn):
        return dice.integers(0, len(column.levels), ROWS)
    values = column.lower + dice.random(ROWS) * (column.upper - column.lower)
    return np.clip(np.floor(values) if column.is_whole else values, column.lower, column.upper)
