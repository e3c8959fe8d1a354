"""Releases of single months out of files that hold several: what is measured, what is kept, and what nobody learns."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.tasks.staged import SPEC, release

from tasks.audit import audit_workspace, broken
from tasks.boundary import PROGRESS
from tasks.report.raw_comparison import compare_raw
from tasks.workspace.folders import Workspace

FILES = "source: {path: landing/*.csv, period: 'small-(?P<period>[0-9]{4}-[0-9]{2})'}"
NAMELESS = "source: {path: landing/*.csv, period_column: seen}"
JANUARY, FEBRUARY = "small-2026-01-1", "small-2026-02-1"
UNITS = {
    "rows": (NAMELESS.replace("}", ", drop: [who]}"), "epsilon: 0.1,"),
    "weighted persons": (NAMELESS, "epsilon: 0.1, unit: {person: who, rows: weight},"),
    "persons with two rows": (NAMELESS, "epsilon: 0.1, unit: {person: who, rows: at-most 2},"),
}
DECLARED = (
    "\n  - {name: seen, kind: timestamp, bounds: [2020-01-01, 2030-01-01], timezone: Pacific/Kiritimati}\nrows: 50"
)


def specified(unit: str = "rows") -> str:
    source, epsilon = UNITS[unit]
    return SPEC.replace(FILES, source).replace("epsilon: 0.1,", epsilon)


def lines(seed: int, count: int, day: str, *, age: str = "") -> list[str]:
    """Invented people who were seen on a day."""
    dice = np.random.default_rng(seed)
    rows = zip(dice.uniform(0, 100, count), dice.random(count) < 0.3, dice.integers(0, count, count), strict=True)
    return [f"{age or f'{years:.2f}'},{str(bool(ill)).lower()},{day},p{who}" for years, ill, who in rows]


JANUARYS = lines(1, 5000, "2026-01-31T23:59:59.999999")
FEBRUARYS = lines(2, 4000, "2026-02-01")
HOSTILE = [
    *lines(3, 700, "2026-02-01", age="1e300"),
    *lines(4, 300, "2025-12-31T23:59:59Z", age="-inf"),
    *[f",,{day}," for day in ("", "never", "2026-01", "2026-13-01")],
]


def workspace_of(root: Path, text: str, *landed: list[str]) -> Workspace:
    place = Workspace(root)
    root.mkdir()
    place.create()
    place.spec_path.write_text(text)
    for number, rows in enumerate(landed):
        (place.landing / f"{number}.csv").write_text("\n".join(["age,ill,seen,who", *rows, ""]))
    return place


def shuffled(*parts: list[str]) -> list[str]:
    """Rows of all parts in any order that keeps that of each part."""
    rows = [row for part in parts for row in part]
    order = np.argsort(np.random.default_rng(9).permutation(len(rows)))
    waiting = [iter(part) for part in parts]
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[order]
    return [next(waiting[number]) for number in owner]


@pytest.mark.parametrize("unit", UNITS)
def test_each_month_of_a_file_is_released_by_itself(tmp_path: Path, unit: str) -> None:
    much = specified(unit).replace("epsilon: 0.1", "epsilon: 2").replace("epsilon: 1.2", "epsilon: 4")
    place = workspace_of(tmp_path / "w", much, shuffled(JANUARYS, FEBRUARYS))
    for period, rows in (("2026-02", FEBRUARYS), ("2026-01", JANUARYS)):
        bundle = release(place, period)
        record = json.loads((bundle / "record.json").read_text())
        persons = [row.rpartition(",")[2] for row in rows]
        counted = {
            "rows": len(rows),
            "weighted persons": len(set(persons)),
            "persons with two rows": sum(min(2, persons.count(person)) for person in set(persons)),
        }
        noisy = record["utility"]["metrics"]["noisy_rows"]
        assert abs(noisy - counted[unit]) < 500, "many deviations of the noise; both months together are farther off"
        assert record["specification"]["period_column"] == "seen"
        assert pq.read_schema(bundle / "data.parquet").names == ["age", "ill"]
    assert broken(audit_workspace(place)) == []


def test_a_declared_column_is_released_within_its_bounds(tmp_path: Path) -> None:
    """In the islands that are 14 hours ahead, the last day of January in UTC is a day of February."""
    text = specified().replace("\nrows: 50", DECLARED)
    place = workspace_of(tmp_path / "w", text, [row.replace("999999", "999999Z") for row in JANUARYS], FEBRUARYS)
    bundle = release(place, "2026-02")
    assert kept(place, FEBRUARY)["rows"] == {"month": 9000, "other_months": 0, "no_month": 0}
    table = pq.read_table(bundle / "data.parquet")
    assert table.schema.names == ["age", "ill", "seen"]
    assert broken(audit_workspace(place)) == []


def kept(place: Workspace, release_id: str) -> dict[str, object]:
    content: dict[str, object] = json.loads((place.vault / "months" / f"{release_id}.json").read_text())
    return content


def test_the_vault_alone_keeps_how_many_rows_belong_elsewhere(tmp_path: Path) -> None:
    place = workspace_of(tmp_path / "w", specified(), JANUARYS, FEBRUARYS, HOSTILE)
    release(place, "2026-01")
    path = place.vault / "months" / f"{JANUARY}.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    rows = {"month": 5000, "other_months": 5000, "no_month": 4}
    assert kept(place, JANUARY) == {"release_id": JANUARY, "period": "2026-01", "rows": rows}
    assert [entry.name for entry in place.vault.iterdir()] == ["months"], "scratch is gone"


def test_without_a_period_column_the_vault_keeps_nothing(published: Path) -> None:
    assert not (published / "vault" / "months").exists()


@pytest.mark.parametrize("unit", UNITS)
def test_nobody_is_told_anything_about_rows_of_other_months(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, unit: str
) -> None:
    """The same messages and verdicts with none of them and with many that break every rule about cells."""
    said, verdicts = [], []
    PROGRESS.addHandler(caplog.handler)
    try:
        for name, others in (("none", []), ("many", HOSTILE)):
            place = workspace_of(tmp_path / name, specified(unit), shuffled(JANUARYS, others))
            caplog.clear()
            with caplog.at_level(logging.DEBUG):
                release(place, "2026-01")
            told = [entry for entry in caplog.records if not entry.name.startswith("matplotlib")]  # of released plots
            lines = [(entry.name, entry.levelname, entry.getMessage()) for entry in told]
            # whoever draws first with a build audits it
            said.append([line for line in lines if not line[2].startswith("auditing this build's")])
            verdicts.append((place.landing / "verdicts" / f"{JANUARY}.json").read_text())
            assert kept(place, JANUARY)["rows"] == {
                "month": 5000,
                "other_months": 1000 * bool(others),
                "no_month": 4 * bool(others),
            }
    finally:
        PROGRESS.removeHandler(caplog.handler)
    assert said[0] == said[1]
    assert any("for fingerprint, moments, months" in message for _, _, message in said[0])
    assert verdicts[0] == verdicts[1]
    assert all(verdict["ok"] for verdict in json.loads(verdicts[0])["verdicts"])


def test_rows_of_the_month_that_break_a_rule_are_told(tmp_path: Path) -> None:
    """What the test above relies on: the same rows are reported in their own month."""
    place = workspace_of(tmp_path / "w", specified(), FEBRUARYS, HOSTILE)
    release(place, "2026-02")
    found = json.loads((place.landing / "verdicts" / f"{FEBRUARY}.json").read_text())["verdicts"]
    assert ("age", "in-bounds") in [(verdict["column"], verdict["rule"]) for verdict in found if not verdict["ok"]]


def test_the_private_comparison_is_with_the_rows_of_the_month(tmp_path: Path) -> None:
    place = workspace_of(tmp_path / "w", specified(), shuffled(JANUARYS, HOSTILE))
    record = json.loads((release(place, "2026-01") / "record.json").read_text())
    pages = []
    for name, rows in (("alone", JANUARYS), ("among others", shuffled(FEBRUARYS, JANUARYS, HOSTILE))):
        given = tmp_path / f"{name}.csv"
        given.write_text("\n".join(["age,ill,seen,who", *rows, ""]))
        pages.append(compare_raw(place, record, str(given)).read_text())
    assert pages[0] == pages[1]
    ages = [float(row.partition(",")[0]) for row in JANUARYS]
    assert f"{np.mean(ages):.4g}" in pages[0]
