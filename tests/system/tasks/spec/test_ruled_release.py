"""Releases under rules: no released row breaks one, whatever the landing data do, and the audit looks at every row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support import ROOT
from support.flows.command_line import call
from support.tasks.audit.evidence import hand_over, republish
from support.tasks.audit.tampering import broken, rewritten
from support.tasks.bundle.documents import assert_valid_documents
from support.tasks.staged import release

from dpcore.errors import CheckFailedError
from tasks.audit import audit_workspace
from tasks.keys.signing import signing_key
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace

ROWS = 4000
RULES: list[Any] = [
    "left >= came",
    {"implies": ["age < 15", "work = 'none'", "NOT married"]},
    {"sum_of": {"total": ["wage", "rent"]}},
    {"not_applicable": {"when": "NOT married", "columns": {"spouse": "nobody"}}},
]
COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "kind": "integer", "bounds": [0, 99]},
    {"name": "married", "kind": "boolean"},
    {"name": "spouse", "kind": "categorical", "categories": ["nobody", "works", "rests"]},
    {"name": "work", "kind": "categorical", "categories": ["none", "full", "part"], "role": "label"},
    {"name": "wage", "kind": "integer", "bounds": [0, 500]},
    {"name": "rent", "kind": "integer", "bounds": [0, 500]},
    {"name": "total", "kind": "integer", "bounds": [0, 1000]},
    {"name": "came", "kind": "date", "bounds": ["2020-01-01", "2020-12-31"]},
    {"name": "left", "kind": "date", "bounds": ["2020-01-01", "2020-12-31"]},
]
MODELS: dict[str, dict[str, Any]] = {
    "copula": {"projection": {"kind": "none"}, "generator": "copula"},
    "copula, independent rows": {"projection": {"kind": "none"}, "generator": "copula", "sampling": "independent"},
    "mixture": {"projection": {"kind": "none"}, "generator": "mixture"},
}


def table() -> pa.Table:
    """Invented people who obey every rule but for some who left before they came."""
    rng = np.random.Generator(np.random.PCG64(5))
    age = rng.integers(0, 100, ROWS)
    married = (age >= 15) & (rng.random(ROWS) < 0.5)
    wage, rent = rng.integers(0, 300, ROWS), rng.integers(0, 200, ROWS)
    came = rng.integers(0, 330, ROWS)
    left = np.where(rng.random(ROWS) < 0.01, 0, came + rng.integers(0, 30, ROWS))
    day = np.datetime64("2020-01-01")
    return pa.table(
        {
            "age": age,
            "married": married,
            "spouse": np.where(married, np.array(["works", "rests"])[rng.integers(0, 2, ROWS)], "nobody"),
            "work": np.where(age < 15, "none", np.array(["none", "full", "part"])[rng.integers(0, 3, ROWS)]),
            "wage": wage,
            "rent": rent,
            "total": wage + rent,
            "came": day + came,
            "left": day + left,
        }
    )


def breaks(rows: pa.Table) -> np.ndarray:
    """Which rows break a rule, by formulas of their own."""
    cells = {name: rows[name].to_numpy(zero_copy_only=False) for name in rows.column_names}
    child = cells["age"] < 15
    found = cells["left"] < cells["came"]
    found |= child & ((cells["work"] != "none") | cells["married"].astype(bool))
    found |= cells["total"] != cells["wage"] + cells["rent"]
    found |= cells["married"].astype(bool) == (cells["spouse"] == "nobody")
    return np.asarray(found)


def workspace_of(folder: Path, model: dict[str, Any], **changes: Any) -> Workspace:
    spec = {
        "name": "small",
        "source": {"path": "landing/*.parquet"},
        "privacy": {"population": "people", "epsilon": 4.0, "delta": 1e-6, "lifetime": {"epsilon": 8.0, "delta": 1e-6}},
        "expected_rows": ROWS,
        "columns": COLUMNS,
        "model": model,
        "rules": RULES,
        "rows": 1500,
    } | changes
    workspace = Workspace(folder)
    workspace.create()
    workspace.spec_path.write_text(yaml.safe_dump(json.loads(json.dumps(spec))))
    pq.write_table(table(), workspace.landing / "rows.parquet")
    return workspace


@pytest.fixture(scope="module", params=MODELS)
def released(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Path]:
    workspace = workspace_of(tmp_path_factory.mktemp("ruled"), MODELS[request.param])
    return workspace, release(workspace, "2026-01")


def test_no_released_row_breaks_a_rule(released: tuple[Workspace, Path]):
    _, bundle = released
    rows = pq.read_table(bundle / "data.parquet")
    assert breaks(table()).any(), "the landing data break one, which decides nothing"
    assert len(rows) == 1500
    assert not breaks(rows).any()


def test_record_and_audit_state_the_rules(released: tuple[Workspace, Path]):
    workspace, bundle = released
    record = json.loads((bundle / "record.json").read_text())
    assert next(rule["rule"] for rule in record["specification"]["rules"]) == "left >= came"
    assert {"name": "table: rules", "ok": True}.items() <= next(
        check for check in record["checks"] if check["name"] == "table: rules"
    ).items()
    checks = audit_workspace(workspace)
    assert [check for check in checks if not check.ok] == []
    assert any(check.name.endswith(": rules") for check in checks)
    assert_valid_documents(bundle)


def test_report_and_codebook_state_the_rules_and_what_they_moved(released: tuple[Workspace, Path]):
    _, bundle = released
    record = json.loads((bundle / "record.json").read_text())
    words = [rule.words for rule in load_spec(released[0].spec_path).schema.rules]
    effect = record["utility"]["rules"]
    assert [rule["rule"] for rule in effect["rules"]] == words
    assert all(0 < rule["broken"] <= effect["broken"] <= 1 for rule in effect["rules"])
    assert {column["name"] for column in effect["shifts"]} == {column["name"] for column in COLUMNS}
    assert json.loads((bundle / "codebook.json").read_text())["rules"] == words
    page = (bundle / "report.html").read_text()
    assert "Every released row obeys these rules" in page
    assert "left &gt;= came" in page


def test_the_plan_lists_the_rules(
    released: tuple[Workspace, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    root = str(released[0].root)
    words = [rule.words for rule in load_spec(released[0].spec_path).schema.rules]
    code, out, _ = call(capsys, monkeypatch, "plan", "-w", root, "--json")
    assert (code, json.loads(out)["rules"]) == (0, words)
    assert "left >= came" in call(capsys, monkeypatch, "plan", "-w", root)[1]


def test_only_the_operator_is_told_that_landing_rows_break_a_rule(released: tuple[Workspace, Path]):
    workspace, bundle = released
    (kept,) = (workspace.landing / "verdicts").iterdir()
    verdicts = [verdict for verdict in json.loads(kept.read_text())["verdicts"] if verdict["rule"] == "rule"]
    assert next((verdict["column"], verdict["ok"]) for verdict in verdicts) == ("left >= came", False)
    assert [verdict["ok"] for verdict in verdicts[1:]] == [True] * (len(RULES) - 1)
    assert all(str(value) not in verdict.get("means", "") for verdict in verdicts for value in range(10))
    assert b"break this rule" not in b"".join(path.read_bytes() for path in bundle.iterdir())


def test_a_row_that_breaks_a_rule_is_found_even_under_a_valid_key(released: tuple[Workspace, Path], tmp_path: Path):
    workspace, bundle = released
    given = hand_over(workspace, tmp_path / "given")
    path = given.bundle(bundle.name) / "data.parquet"
    rows = pq.read_table(path)
    total = rows["total"].to_pylist()
    total[3] += 1 if total[3] < 1000 else -1
    index = rows.column_names.index("total")
    forged = rows.set_column(index, rows.schema.field(index), pa.array(total, rows.schema.field(index).type))
    sink = pa.BufferOutputStream()
    pq.write_table(forged, sink, compression="zstd")
    rewritten(path, sink.getvalue().to_pybytes())
    republish(given, signing_key(workspace.keys))
    found = broken(given.audit())
    assert f"{bundle.name}: rules" in found
    assert "1 of 1500 rows break a rule" in found[f"{bundle.name}: rules"]


def test_without_rules_no_parser_is_imported():
    """It would cost every command some tenths of a second."""
    code = (
        "import sys; from support.tasks.staged import SPEC; from tasks.spec import parse_spec; parse_spec(SPEC); "
        "assert 'sqlglot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": "tests"})


def test_rules_that_the_model_hardly_ever_obeys_fail_with_the_rate_and_publish_nothing(tmp_path: Path):
    """Bounds leave room for such rows, so the plan does not refuse them, but the measured laws do not."""
    workspace = workspace_of(tmp_path, MODELS["mixture"], rules=["wage - rent > 498 AND total < 2"], rows=20)
    with pytest.raises(CheckFailedError, match="the rules hold for too little of the model: the share of draws"):
        release(workspace, "2026-01")
    assert not list(workspace.releases.rglob("data.parquet"))
