"""A specification of a query, its rows, and how it is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore.errors import RefusedError
from tasks.landing.sql import spool_query
from tasks.spec import ReleaseSpec, parse_spec

PLANTED = "planted-7781"
SPEC = """
name: visits
source:
  drop: [note]
  query:
    url: {url}
    rows: {rows}
    sql: |
      {sql}
privacy: {{population: people, unit: {{person: patient}}, epsilon: 1, lifetime: {{epsilon: 12}}}}
expected_rows: 100
columns:
  - {{name: weight, kind: numeric, bounds: [0, 200]}}
  - {{name: visits, kind: integer, bounds: [0, 50]}}
  - {{name: born, kind: date, bounds: [1900-01-01, 2030-01-01]}}
  - {{name: seen, kind: timestamp, bounds: [2020-01-01, 2030-01-01], timezone: Europe/Berlin}}
  - {{name: smoker, kind: boolean}}
  - {{name: sex, kind: categorical, categories: [f, m, x], other: x}}
  - {{name: ward, kind: categorical, categories: [1, 2, 3]}}
"""
ALL = "SELECT * FROM visits"
TYPES = {
    "weight": pa.float64(),
    "visits": pa.float64(),
    "born": pa.date32(),
    "seen": pa.timestamp("us", tz="UTC"),
    "smoker": pa.bool_(),
    "sex": pa.string(),
    "ward": pa.string(),
    "patient": pa.string(),
}


def specified(url: str = "sqlite:///clinic.db", sql: str = ALL, rows: str = "table") -> ReleaseSpec:
    return parse_spec(SPEC.format(url=url, sql=sql, rows=rows))


def run(spec: ReleaseSpec, folder: Path, *, period: str | None = None, **environment: str) -> pa.Table:
    target = folder / f"spool-{os.urandom(4).hex()}.parquet"
    assert spool_query(spec, target, period=period, root=folder, environment=environment) == target
    return pq.read_table(target)


def refusal(spec: ReleaseSpec, folder: Path, *, period: str | None = None, **environment: str) -> RefusedError:
    target = folder / "refused.parquet"
    with pytest.raises(RefusedError) as caught:
        spool_query(spec, target, period=period, root=folder, environment=environment)
    assert not target.exists()
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert caught.value.hint
    assert PLANTED not in f"{caught.value!r} {caught.value.as_json()}"
    return caught.value
