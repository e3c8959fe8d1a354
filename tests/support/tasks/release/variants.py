"""Specifications of every variant of a release, and a table that fits them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

ROWS = 8000
COLUMNS: list[dict[str, Any]] = [
    {"name": "a", "kind": "numeric", "bounds": [-10, 10]},
    {"name": "b", "kind": "numeric", "bounds": [-10, 10]},
    {"name": "c", "kind": "integer", "bounds": [0, 20]},
    {"name": "d", "kind": "categorical", "categories": ["x", "y", "z"], "missing": "category"},
    {"name": "e", "kind": "boolean"},
]


def table() -> pa.Table:
    """Rows with one strong direction: a and b move together."""
    rng = np.random.Generator(np.random.PCG64(5))
    common = rng.normal(0, 4, ROWS)
    return pa.table(
        {
            "id": pa.array(np.arange(ROWS) // 2),
            "a": np.clip(common + rng.normal(0, 0.5, ROWS), -10, 10),
            "b": np.clip(common + rng.normal(0, 0.5, ROWS), -10, 10),
            "c": rng.integers(0, 21, ROWS),
            "d": pa.array([None if v == 3 else "xyz"[v] for v in rng.integers(0, 4, ROWS)]),
            "e": common > 0,
        }
    )


def specification(**changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "name": "odd",
        "source": {"path": "landing/*.parquet", "drop": ["id"]},
        "privacy": {"population": "people", "epsilon": 1.0, "lifetime": {"epsilon": 3.0}},
        "expected_rows": ROWS,
        "columns": COLUMNS,
    }
    for path, value in changes.items():
        *parents, key = path.split("__")
        place = spec
        for parent in parents:
            place = place.setdefault(parent, {})
        place[key] = value
    return spec


def with_role(name: str, role: str) -> list[dict[str, Any]]:
    return [column | ({"role": role} if column["name"] == name else {}) for column in COLUMNS]


ZCDP = {"privacy__delta": 0.000001, "privacy__lifetime": {"epsilon": 3.0, "delta": 0.000001}}
