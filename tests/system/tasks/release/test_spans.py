"""Releases under a span: months that leave the window no longer count, for persons and for rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from support.tasks.site.sited import written
from support.tasks.staged import SPEC, invented_rows, release

from dpcore.errors import BudgetExceededError, LedgerError
from tasks.audit import audit_workspace, broken
from tasks.workspace.folders import Workspace

AFTERWARDS = datetime(2026, 3, 20, tzinfo=UTC)
MONTHS = [f"2025-{month:02}" for month in (10, 11, 12)] + [f"2026-{month:02}" for month in (1, 2)]
MONTH, BUDGET = "period: 'small-(?P<period>[0-9]{4}-[0-9]{2})'", "epsilon: 0.1, lifetime: {epsilon: 1.2}"
SPANNING = SPEC.replace(MONTH, "period_column: seen").replace(
    BUDGET, "unit: {person: who, span: 2}, epsilon: 0.1, lifetime: {epsilon: 0.2}"
)


def dated(month: str, seed: int) -> str:
    """Invented people who are seen in a month, a third of them in every month."""
    head, *rows = invented_rows(seed, 1500).splitlines()
    tagged = (f"{row},{month}-15,p{number if number % 3 else f'{month}-{number}'}" for number, row in enumerate(rows))
    return "\n".join([f"{head},seen,who", *tagged, ""])


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Five months under a span of two, released out of order."""
    place = Workspace(tmp_path_factory.mktemp("spans") / "w")
    place.create()
    place.spec_path.write_text(SPANNING)
    for number, month in enumerate(MONTHS):
        (place.landing / f"{number}.csv").write_text(dated(month, number))
    for month in (MONTHS[1], MONTHS[0], *MONTHS[2:]):
        release(place, month)
    return place


def record(place: Workspace, month: str) -> dict[str, object]:
    return json.loads((place.releases / "small" / f"small-{month}-1" / "record.json").read_text())


def test_every_month_is_released_although_the_cap_holds_two(year: Workspace) -> None:
    assert broken(audit_workspace(year)) == []
    budget = record(year, MONTHS[-1])["budget"]
    assert (budget["span"], budget["kind"], budget["releases_left"]) == (2, "pure", None)
    assert budget["after"]["epsilon"] == pytest.approx(0.2)
    assert budget["odometer"]["epsilon"] == pytest.approx(0.5)


def test_texts_and_pages_speak_of_windows(year: Workspace, tmp_path: Path) -> None:
    privacy = record(year, MONTHS[-1])["privacy"]
    (composition,) = [words for words in privacy["guarantee"] if words.startswith("The costs of releases add up")]
    assert "any 2 consecutive months" in composition
    assert "month of seen" in composition
    assert "for every window of 2 months" in composition
    entry = yaml.safe_load((year.releases / "small" / f"small-{MONTHS[-1]}-1" / "registry.yaml").read_text())
    details = entry["deployment"]["deployment_model"]["release_type_details"]
    assert "Refreshment timeframe: 2 months." in details
    assert "the sum so far is epsilon 0.5" in details
    written(year, tmp_path / "site", now=AFTERWARDS)
    start = " ".join((tmp_path / "site" / "index.html").read_text().split())
    assert "within 2 months in a row" in start
    assert "one fits <b>every month</b>" in start or "one a month" in start


def test_a_second_release_within_the_window_is_refused(year: Workspace) -> None:
    with pytest.raises(BudgetExceededError, match="within 2 consecutive months"):
        release(year, MONTHS[-1], supersedes=f"small-{MONTHS[-1]}-1", reason="again")


@pytest.mark.parametrize("span", ["all", "3"])
def test_another_span_over_the_same_population_is_refused(year: Workspace, span: str) -> None:
    year.spec_path.write_text(SPANNING.replace("span: 2", f"span: {span}"))
    try:
        with pytest.raises(LedgerError) as caught:
            release(year, "2026-03")
        assert (caught.value.rule, caught.value.where) == ("cap-differs", "privacy.unit.span")
    finally:
        year.spec_path.write_text(SPANNING)
