"""A year of scheduled releases with growing data, against a budget that allows ten of the twelve."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import IMPORTS
from support.deployments.serving import SPEC, environment, make_workspace, state

from tasks.ledger.entries.bodies import Refusal
from tasks.workspace.folders import Workspace

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow,  # tests/system/tasks/site/test_site.py tells the same year by the stages alone
]

YEAR = SPEC.replace("lifetime: {epsilon: 1.2}", "lifetime: {epsilon: 1.0}").replace('"* * * * *"', '"0 6 1 * *"')
MONTHS = [f"2025-{month:02d}" for month in range(1, 13)]


class Year:
    """The workspace after twelve months, and how each of them ended."""

    def __init__(self, base: Path) -> None:
        self.home = base / "home"
        self.home.mkdir()
        self.workspace: Workspace = make_workspace(base / "workspace", YEAR)
        outcomes = base / "outcomes.json"
        command = [
            sys.executable,
            "-m",
            "support.deployments.months_driver",
            str(self.workspace.root),
            "12",
            str(outcomes),
        ]
        done = subprocess.run(
            command,
            env=environment(self.home, PYTHONPATH=IMPORTS),
            capture_output=True,
            text=True,
            timeout=560,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        self.outcomes: list[str] = json.loads(outcomes.read_text())
        self.terminal = done.stdout + done.stderr

    def ask(self, *arguments: str) -> dict[str, Any]:
        """A command's JSON."""
        command = [sys.executable, "-m", "flows", *arguments, "-w", str(self.workspace.root), "--json"]
        done = subprocess.run(
            command, env=environment(self.home), capture_output=True, text=True, timeout=120, check=False
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer | {"exit_code": done.returncode}


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Year:
    return Year(tmp_path_factory.mktemp("year"))


def test_ten_months_are_published_and_two_are_refused_for_the_budget(year: Year):
    assert year.outcomes[:10] == ["released"] * 10
    for month, outcome in zip(MONTHS[10:], year.outcomes[10:], strict=True):
        assert f"not released: {month};" in outcome
    releases = state(year.workspace).releases
    assert {r.reservation.period: r.status for r in releases.values()} == dict.fromkeys(MONTHS[:10], "published")


def test_the_history_tells_all_twelve_with_the_reason_of_the_refusals(year: Year):
    rows = {row["period"]: row for row in year.ask("history")["releases"]}
    assert [rows[month]["status"] for month in MONTHS] == ["published"] * 10 + ["refused"] * 2
    for month in MONTHS[10:]:
        assert "does not allow this release" in rows[month]["reason"]
        assert rows[month]["published_at"] is None


def test_the_budget_is_used_up_exactly(year: Year):
    balance = year.ask("budget")
    assert balance["remaining"]["epsilon"] == 0
    assert balance["releases_left"] == 0


def test_the_audit_holds(year: Year):
    report = year.ask("audit")
    assert report["exit_code"] == 0, [check for check in report["checks"] if not check["ok"]]
    assert report["ok"] is True


def test_the_orchestrator_s_history_has_a_named_run_for_every_month(year: Year):
    rows = {row["period"]: row for row in year.ask("history")["releases"]}
    for month in MONTHS[:10]:
        assert rows[month]["flow_run"]["state"] == "COMPLETED"
        assert rows[month]["flow_run"]["name"] == f"small-{month}-1"
    for month in MONTHS[10:]:
        assert rows[month]["flow_run"]["state"] == "FAILED"


def test_the_site_shows_the_burn_down_and_the_refusals(year: Year):
    answer = year.ask("site")
    page = (Path(answer["site"]) / "index.html").read_text()
    assert answer["ok"] is True
    assert page.count("refused") >= 2
    for month in MONTHS:
        assert month in page
    assert "does not allow this release" in page


def test_refused_months_are_not_tried_again_behind_the_steward_s_back(year: Year):
    refusals = state(year.workspace).refusals.values()
    assert [entry.parse(Refusal).period for entry in refusals] == MONTHS[10:]


def test_no_row_count_or_file_name_is_told_anywhere(year: Year):
    for folder in ("releases", "site"):
        for path in (year.workspace.root / folder).rglob("*"):
            if path.is_file() and path.suffix in (".html", ".json", ".ndjson", ".yaml"):
                assert "small-2025-01.csv" not in path.read_text(), path
