"""A specification whose statement is judged row by row, and how it is refused."""

from __future__ import annotations

import json

import pytest

from dpcore.errors import SpecError
from tasks.spec import ReleaseSpec, parse_spec

SPEC = """
name: visits
source:
  query:
    url: sqlite:///clinic.db
    {rows}
    sql: {sql}
privacy: {{population: people, unit: {unit}, epsilon: 1, lifetime: {{epsilon: 12}}}}
expected_rows: 100
columns:
  - {{name: weight, kind: numeric, bounds: [0, 200]}}
  - {{name: height, kind: numeric, bounds: [0, 200]}}
"""


def specified(sql: str, *, rows: str = "", unit: str = "row") -> ReleaseSpec:
    quoted = json.dumps(sql)
    spec = parse_spec(SPEC.format(sql=quoted, rows=f"rows: {rows}" if rows else "", unit=unit))
    assert spec.source.query.sql == sql
    return spec


def refusal(sql: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        specified(sql)
    assert caught.value.where == "source.query.sql"
    assert "rows: answer" in caught.value.hint
    return caught.value
