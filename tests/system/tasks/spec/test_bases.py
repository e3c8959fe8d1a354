"""A population whose specification changes: whole releases, charged and audited."""

from __future__ import annotations

import json
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import numpy as np
from support.tasks.staged import release

from dpcore.accounting import population_balance
from tasks.audit import audit_workspace
from tasks.ledger.store import Ledger
from tasks.spec import parse_spec
from tasks.spec.plan import basis_of
from tasks.workspace.folders import Workspace

SPEC = """
name: small
source: {{path: landing/*.csv, period: 'small-(?P<period>[0-9]{{4}}-[0-9]{{2}})'}}
privacy: {{population: people, unit: {unit}, epsilon: 0.5, lifetime: {{epsilon: 1.2}}}}
expected_rows: 5000
columns: [{{name: age, kind: numeric, bounds: [0, 100]}}, {{name: ill, kind: boolean}}]
rows: 50
model: {{projection: {{kind: ron}}, radius: 1}}
"""
UNITS = {"2026-01": "{person: who}", "2026-02": "{person: who, rows: at-most 2}"}


def test_a_changed_rule_about_rows_is_released_charged_and_audited(tmp_path: Path):
    workspace = Workspace(tmp_path / "w")
    workspace.create()
    dice = np.random.Generator(np.random.PCG64(7))
    for period, unit in UNITS.items():
        workspace.spec_path.write_text(SPEC.format(unit=unit))
        rows = zip(dice.uniform(0, 100, 5000), dice.random(5000) < 0.3, range(5000), strict=True)
        lines = "".join(f"{age:.2f},{str(ill).lower()},{who // 2}\n" for age, ill, who in rows)
        (workspace.landing / f"small-{period}.csv").write_text(f"age,ill,who\n{lines}")
        record = json.loads((release(workspace, period) / "record.json").read_text())
        stated = {"unit": record["privacy"]["unit"], "neighbours": record["privacy"]["neighbours"]}
        assert stated == basis_of(parse_spec(SPEC.format(unit=unit)))
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger:
        total = ledger.state().spent("people")
    assert population_balance(total, delta=Fraction(0)).epsilon == 1
    assert [check.detail for check in audit_workspace(workspace) if check.outcome == "broken"] == []
