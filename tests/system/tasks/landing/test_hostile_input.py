"""Attacks that once worked: one record, one spelling or one rolled-back file must not break the promise."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tasks.builders import opened, request
from support.tasks.staged import invented_rows, land_rows, release, run_of

import tasks.draw_once
import tasks.project
from dpcore.errors import CheckFailedError, LandingError, LedgerError, StageFailedError
from dpcore.measure import Released, exact_gram
from dpcore.measurements.projection import Projection
from tasks.ledger.cited_heads import require_complete_ledger
from tasks.ledger.opening import writable_ledger
from tasks.ledger.store import Ledger
from tasks.lineage.events import append_line, events_of
from tasks.project import choose_projection
from tasks.release.context import ReleaseRun
from tasks.release.stage_values import Grant
from tasks.spec import load_spec
from tasks.validate import require_structure
from tasks.workspace.folders import Workspace

PERSON_SPEC = """
name: visits
source: {path: landing/*}
privacy:
  population: people
  unit: {person: id, rows: RULE}
  epsilon: 1.0
  lifetime: {epsilon: 2.0}
expected_rows: 100
columns:
  - {name: age, kind: numeric, bounds: [0, 100]}
  - {name: ill, kind: boolean}
model: {projection: {kind: none}, generator: gaussian, radius: 1, accept_noise: true}
"""


def visits(root: Path, spec: str) -> Workspace:
    workspace = Workspace(root)
    workspace.create()
    workspace.spec_path.write_text(spec)
    return workspace


def prepared(workspace: Workspace) -> ReleaseRun:
    return run_of(workspace, workspace.vault)


def squared_lengths(run: ReleaseRun) -> float:
    """Trace of the exact Gram, in units of the largest that one privacy unit may add."""
    grant = Grant("visits-2026-02-1", {"projection": "0", "sampling": "0"}, {})
    plan, encoding = run.planned.plan, run.planned.encoding
    layout = plan.event.layout
    gram = exact_gram(run.readings.chunks(plan.schema), encoding, layout, choose_projection.fn(run, grant))
    blocks = gram._sum.blocks
    return float(sum(block[i, i] for block in blocks for i in range(layout.dimension)) / (4**16 * layout.squared_norm))


@pytest.mark.parametrize("rule", ["weight", "at-most 1"])
@pytest.mark.parametrize(
    "ids", [["7"] * 9, ["7", " 7", "7 "] * 3, [" 7 "] * 9], ids=["same", "spaces", "all with spaces"]
)
def test_one_person_adds_at_most_one_unit_however_the_identifier_is_spelt(
    tmp_path: Path, rule: str, ids: list[str]
) -> None:
    workspace = visits(tmp_path, PERSON_SPEC.replace("RULE", rule))
    rows = "".join(f"{key},100,true\n" for key in ids)
    (workspace.landing / "a.csv").write_text(f"id,age,ill\n{rows}")
    assert squared_lengths(prepared(workspace)) <= 1


def test_a_person_column_of_two_types_is_refused(tmp_path: Path) -> None:
    workspace = visits(tmp_path, PERSON_SPEC.replace("RULE", "weight"))
    for name, kind in (("a", pa.int64()), ("b", pa.float64())):
        table = pa.table({"id": pa.array([4012888888881881], type=kind), "age": [50.0], "ill": [True]})
        pq.write_table(table, workspace.landing / f"{name}.parquet")
    with pytest.raises(LandingError) as refusal:
        require_structure(prepared(workspace))
    assert refusal.value.rule == "person-type"


@pytest.mark.parametrize("kind", [pa.float64(), pa.binary(), pa.bool_()], ids=str)
def test_an_identifier_that_is_neither_text_nor_whole_is_refused(tmp_path: Path, kind: pa.DataType) -> None:
    workspace = visits(tmp_path, PERSON_SPEC.replace("RULE", "weight"))
    value = {"double": 1.5, "binary": b"\xff", "bool": True}[str(kind)]
    table = pa.table({"id": pa.array([value], type=kind), "age": [50.0], "ill": [True]})
    pq.write_table(table, workspace.landing / "a.parquet")
    with pytest.raises(LandingError) as refusal:
        require_structure(prepared(workspace))
    assert refusal.value.rule == "person-type"


def test_a_wrong_type_in_a_later_file_is_refused(tmp_path: Path) -> None:
    workspace = visits(tmp_path, PERSON_SPEC.replace("RULE", "weight"))
    good = pa.table({"id": ["a"], "age": [50.0], "ill": [True]})
    pq.write_table(good, workspace.landing / "a.parquet")
    pq.write_table(good.set_column(1, "age", pa.array([[1.0]])), workspace.landing / "b.parquet")
    with pytest.raises(LandingError) as refusal:
        require_structure(prepared(workspace))
    assert refusal.value.rule == "column-type"


@pytest.mark.parametrize("cell", ['"true', 'x"y,"true', '"', '""true'], ids=["open", "after text", "lone", "twice"])
def test_a_quote_cannot_make_one_record_swallow_others(tmp_path: Path, cell: str) -> None:
    spec = PERSON_SPEC.replace("  unit: {person: id, rows: RULE}\n", "").replace("path: landing/*", "path: landing/*")
    workspace = visits(tmp_path, spec.replace("landing/*}", "landing/*, drop: [id]}"))
    lines = [f"{i},50,true" for i in range(1000)]
    lines[10] = f"10,50,{cell}"
    (workspace.landing / "a.csv").write_text("id,age,ill\n" + "\n".join(lines) + "\n")
    run = prepared(workspace)
    with pytest.raises(LandingError) as refusal:
        require_structure(run)
    assert refusal.value.rule == "file-unreadable"


def test_text_that_is_no_text_is_an_unknown_category_and_stops_nothing(tmp_path: Path) -> None:
    spec = PERSON_SPEC.replace("  unit: {person: id, rows: RULE}\n", "").replace(
        "{name: ill, kind: boolean}", "{name: ill, kind: categorical, categories: [a, b]}"
    )
    workspace = visits(tmp_path, spec)
    raw = pa.array([b"a", b"\xff\xfe", b"b"], type=pa.binary())
    broken = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    pq.write_table(pa.table({"age": [1.0, 2.0, 3.0], "ill": broken}), workspace.landing / "a.parquet")
    run = prepared(workspace)
    require_structure(run)
    assert 0 < squared_lengths(run) <= 3


def test_a_rolled_back_spend_is_missed_although_nothing_was_published(workspace: Workspace) -> None:
    before = workspace.root / "before.db"
    shutil.copy(workspace.ledger_path, before)
    land_rows(workspace.root, "2026-03")
    release(workspace, "2026-03")
    shutil.rmtree(workspace.bundle("small", "small-2026-03-1"))
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger:
        entry = next(e for e in ledger.entries() if e.kind == "spend" and "03" in e.release_id)
    facet = {"ledgerEntry": entry.seq, "ledgerHash": entry.hash}
    append_line(workspace.lineage_path, json.dumps({"run": {"facets": {"dp_spend": facet}}}))
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger:
        require_complete_ledger(workspace, ledger.entries())
    shutil.copy(before, workspace.ledger_path)
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger, pytest.raises(LedgerError) as refusal:
        require_complete_ledger(workspace, ledger.entries())
    assert refusal.value.rule == "ledger-incomplete"


def test_a_torn_line_of_lineage_costs_that_line_only(tmp_path: Path) -> None:
    log = tmp_path / "lineage.ndjson"
    append_line(log, '{"a": 1}')
    with log.open("a") as file:
        file.write('{"torn": ')
    append_line(log, '{"b": 2}')
    assert events_of(log) == [{"a": 1}, {"b": 2}]


def test_an_abandoned_reservation_of_another_plan_is_given_back(tmp_path: Path) -> None:
    from support.tasks.builders import BASIS, POPULATION, cap

    with opened(tmp_path / "ledger.db") as ledger:
        ledger.ensure_cap(POPULATION, cap("0.1"), BASIS)
        first = ledger.reserve(request("2026-01"))
        ledger.give_back_abandoned(request("2026-01"))
        assert ledger.reserve(request("2026-01")).release_id == first.release_id  # the same plan takes it up
        edited = replace(request("2026-01"), spec_digest="e" * 64)
        ledger.give_back_abandoned(edited)
        assert ledger.reserve(edited).release_id != first.release_id
        ledger.give_back_abandoned(request("2026-02"))
        other = ledger.reserve(request("2026-02"))
        assert [r.status for r in ledger.state().releases.values()] == ["void", "void", "reserved"]
        assert other.release_id == "visits-2026-02-1"


def test_the_budget_is_counted_for_one_person_column() -> None:
    from dpcore.records.schema import PrivacyUnit

    assert str(PrivacyUnit(person="id")) != str(PrivacyUnit(person="row_id"))


def test_hidden_and_quarantined_files_are_no_landing_data(tmp_path: Path) -> None:
    workspace = visits(tmp_path, PERSON_SPEC.replace("RULE", "weight").replace("landing/*", "landing/**/*"))
    for name in ("a.csv", ".b.csv", "quarantine/c.csv"):
        (workspace.landing / name).write_text("id,age,ill\n1,50,true\n")
    (workspace.landing / "link.csv").symlink_to(workspace.landing / "a.csv")
    assert np.isclose(squared_lengths(prepared(workspace)), 0.5, atol=0.5)
    assert len(prepared(workspace).planned.arrival.landing.files) == 1


# ---------------------------------------------------------------- releases of several measurements

FRAMED = """
name: visits
source: {path: landing/*}
privacy: {population: people, epsilon: 1.0, lifetime: {epsilon: 4.0}}
expected_rows: 3000
columns:
  - {name: age, kind: numeric, bounds: [0, 100]}
  - {name: ill, kind: boolean, role: label}
model: {projection: {kind: none}, generator: mixture, radius: auto}
"""
CHECKED = FRAMED.replace("radius: auto", "radius: 1") + "checks: {accuracy: {budget: 0.01, at_least: 1.0}}\n"


def landed(root: Path, spec: str, seed: int = 7) -> Workspace:
    workspace = visits(root, spec)
    (workspace.landing / "a.csv").write_text(invented_rows(seed, 3000))
    return workspace


def ledger_before(workspace: Workspace) -> Path:
    """A copy of the ledger before any release."""
    with closing(writable_ledger(workspace, load_spec(workspace.spec_path))):
        pass
    return Path(shutil.copy(workspace.ledger_path, workspace.root / "before.db"))


def workspace_spends(workspace: Workspace) -> list[str]:
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger:
        return [name for release in ledger.state().releases.values() for name in release.spends]


def crash_at(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def measured(run: ReleaseRun, grant: Grant, wanted: str, projection: Projection) -> Released:
        if wanted == name:
            raise OSError("the machine stopped")
        return tasks.draw_once.measure_or_load(run, grant, wanted, projection)

    monkeypatch.setattr(tasks.project, "measure_or_load", measured)


def test_a_ledger_put_back_to_before_a_crash_among_measurements_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = landed(tmp_path, FRAMED)
    before = ledger_before(workspace)
    crash_at(monkeypatch, "spread")
    with pytest.raises(StageFailedError, match="OSError"):
        release(workspace, "2026-01")
    monkeypatch.undo()
    shutil.copy(before, workspace.ledger_path)
    with pytest.raises(LedgerError) as refusal:
        release(workspace, "2026-01")
    assert refusal.value.rule == "ledger-incomplete"


def test_a_ledger_put_back_to_before_a_failed_check_is_missed(tmp_path: Path) -> None:
    """Or a check could be drawn again until it passes."""
    workspace = landed(tmp_path, CHECKED)
    before = ledger_before(workspace)
    with pytest.raises(CheckFailedError):
        release(workspace, "2026-01")
    flow = events_of(workspace.lineage_path)[-1]
    assert flow["run"]["facets"].keys() >= {"dp_spend_moments", "dp_spend_accuracy"}
    shutil.copy(before, workspace.ledger_path)
    with pytest.raises(LedgerError) as refusal:
        release(workspace, "2026-01")
    assert refusal.value.rule == "ledger-incomplete"


def test_a_release_is_never_measured_of_two_versions_of_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = landed(tmp_path, FRAMED)
    crash_at(monkeypatch, "spread")
    with pytest.raises(StageFailedError, match="OSError"):
        release(workspace, "2026-01")
    monkeypatch.undo()
    good = (workspace.landing / "a.csv").read_text()
    (workspace.landing / "a.csv").write_text(invented_rows(8, 3000))
    with pytest.raises(LandingError) as refusal:
        release(workspace, "2026-01")
    assert refusal.value.rule == "landing-changed"
    assert len(workspace_spends(workspace)) == 2, "nothing more was drawn"
    (workspace.landing / "a.csv").write_text(good)
    assert json.loads((release(workspace, "2026-01") / "record.json").read_text())["rows"] > 0


@pytest.mark.parametrize("text", ["id,age,ill\n\n1,50,true\n2,60,false\n", "id,age,ill\n1,50,true\n2,60,false\n\n"])
def test_an_empty_line_is_nobody(tmp_path: Path, text: str) -> None:
    workspace = visits(tmp_path, PERSON_SPEC.replace("RULE", "weight"))
    (workspace.landing / "a.csv").write_text(text)
    assert 0 < squared_lengths(prepared(workspace)) <= 2
