"""`plan --what-if` as a steward calls it: the changed plan beside the present one, and nothing written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from support.flows.command_line import call
from support.flows.pure_rows import SPECIFICATION

from flows.cli import plans
from tasks.ledger.opening import writable_ledger
from tasks.spec import load_spec
from tasks.spec.plan import basis_of, cap_of
from tasks.workspace.folders import Workspace

REFUSED = 2


@pytest.fixture
def place(tmp_path: Path) -> Path:
    root = tmp_path / "w"
    Workspace(root).create()
    (root / "release.yaml").write_text(SPECIFICATION)
    return root


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: Path) -> Any:
    return lambda *argv: call(capsys, monkeypatch, "plan", "-w", str(place), *argv)


def what_if(run: Any, *changes: str) -> dict[str, Any]:
    code, out, err = run(*(part for change in changes for part in ("--what-if", change)), "--json")
    assert code == 0, out + err
    content: dict[str, Any] = json.loads(out)
    return content


def files_of(place: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in place.rglob("*") if path.is_file()}


def test_the_changed_plan_is_that_of_the_edited_file(run: Any, place: Path) -> None:
    changed = what_if(run, "privacy.epsilon=0.5", "columns.age.bounds=[0, 100]")["what_if"]
    assert changed["changes"] == {"privacy.epsilon": 0.5, "columns.age.bounds": [0, 100]}
    text = SPECIFICATION.replace("epsilon: 1.0", "epsilon: 0.5", 1).replace("[0, 110]", "[0, 100]")
    (place / "release.yaml").write_text(text)
    code, out, _ = run("--json")
    assert code == 0
    assert changed["plan"] == json.loads(out)


def test_the_present_plan_stays_what_it_is_and_nothing_is_written(run: Any, place: Path) -> None:
    _, out, _ = run("--json")
    before = files_of(place)
    content = what_if(run, "columns.ward=drop")
    assert {key: value for key, value in content.items() if key != "what_if"} == json.loads(out)
    assert files_of(place) == before


def test_people_see_what_gets_better_and_what_the_planner_chooses_anew(run: Any) -> None:
    code, out, _ = run("--what-if", "columns.age.bounds=[0, 55]", "--what-if", "model.projection.kind=none")
    assert code == 0
    shown = [line.split() for line in out.splitlines()]
    assert next(line for line in shown if line[:2] == ["age", "mean"])[-3] in ("better", "worse")
    assert "  - projection none instead of ron" in out
    assert "what if columns.age.bounds = [0, 55] and model.projection.kind = none" in out


def test_fewer_releases_are_left_at_a_larger_epsilon(run: Any) -> None:
    code, out, _ = run("--what-if", "privacy.epsilon=4")
    assert code == 0
    lines = {line[:16].strip(): line for line in out.splitlines()}
    assert lines["releases left"].split()[2:] == ["12", "3", "worse"]
    assert lines["epsilon"].split()[1:] == ["1", "4", "protects", "less"]


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(run: Any, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    from rich.console import Console

    monkeypatch.setattr(plans, "console", lambda: Console(highlight=False, width=width))
    code, out, _ = run("--what-if", "model.generator=mixture", "--what-if", "model.projection=")
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= width


def test_a_change_that_a_run_would_refuse_says_so(run: Any) -> None:
    code, out, _ = run("--what-if", "expected_rows=30")
    assert code == 0
    assert "with the change: A run is refused" in " ".join(out.split())


@pytest.mark.parametrize(
    ("change", "rule", "where"),
    [
        ("privacy.epsilo=1", "unknown-key", "privacy.epsilo"),
        ("columns.aeg=drop", "unknown-column", "columns.aeg"),
        ("columns.age.bounds=[9, 1]", "bounds-order", "columns.age.bounds"),
        ("model.mechanism=gaussian", "mechanism-needs-delta", "privacy.delta"),
        ("model.mechanism=nonesuch", "mechanism-unknown", "model.mechanism"),
    ],
)
def test_a_change_that_cannot_be_planned_is_refused(run: Any, change: str, rule: str, where: str) -> None:
    code, out, _ = run("--what-if", change, "--json")
    refusal = json.loads(out)
    assert code == REFUSED
    assert (refusal["rule"], refusal["where"]) == (rule, f"{where} (with --what-if)")
    assert refusal["hint"]


def test_costs_that_do_not_add_to_the_ledgers_are_refused(run: Any, place: Path) -> None:
    spec = load_spec(place / "release.yaml")
    writable_ledger(Workspace(place.resolve()), spec).ensure_cap(spec.privacy.population, cap_of(spec), basis_of(spec))
    code, out, _ = run("--what-if", "privacy.unit.person=patient_id", "--json")
    assert code == REFUSED
    assert json.loads(out)["where"].endswith("(with --what-if)")
