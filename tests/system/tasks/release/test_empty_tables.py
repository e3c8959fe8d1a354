"""A readable table without rows is measured like any other, and only the operator is told that it had none."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tasks.staged import PLAIN, SPEC, release, run_of

from dpcore.errors import CheckFailedError
from tasks.audit import audit_workspace, broken
from tasks.boundary import PROGRESS
from tasks.bundle.staging import FILES as BUNDLE_FILES
from tasks.ledger.store import Ledger
from tasks.release.context import ReleaseRun
from tasks.report.raw_comparison import compare_raw
from tasks.validate import validate_landing
from tasks.workspace.folders import Workspace

PERIOD, RELEASE = "2026-01", "small-2026-01-1"
PURE = "privacy: {population: people, epsilon: 0.1, lifetime: {epsilon: 1.2}}"
FILES = "source: {path: landing/*.csv, period: 'small-(?P<period>[0-9]{4}-[0-9]{2})'}"
EMPTY = pa.table({"age": pa.array([], pa.float64()), "ill": pa.array([], pa.bool_())})
NAMED = EMPTY.append_column("who", pa.array([], pa.string()))
ONE = pa.table({"age": [41.0], "ill": [True]})


def parquet(landing: Path) -> None:
    pq.write_table(EMPTY, landing / f"small-{PERIOD}.parquet")


def row_groups(landing: Path) -> None:
    """Row groups that hold nothing."""
    with pq.ParquetWriter(landing / f"small-{PERIOD}.parquet", EMPTY.schema) as writer:
        for _ in range(3):
            writer.write_table(EMPTY)


def folder(landing: Path) -> None:
    place = landing / f"small-{PERIOD}"
    place.mkdir()
    for name in ("a", "b", "c"):
        pq.write_table(EMPTY, place / f"small-{PERIOD}-{name}.parquet")


def query(landing: Path) -> None:
    with sqlite3.connect(landing.parent / "clinic.db") as database:
        database.execute("CREATE TABLE visits (age REAL, ill INTEGER)")


def text(landing: Path) -> None:
    (landing / f"small-{PERIOD}.csv").write_text("age,ill\n")


def named_text(landing: Path) -> None:
    (landing / f"small-{PERIOD}.csv").write_text("age,ill,who\n")


def named_parquet(landing: Path) -> None:
    pq.write_table(NAMED, landing / f"small-{PERIOD}.parquet")


def another_month(landing: Path) -> None:
    """Rows of the months before and after, and a row without a month; the file's name says nothing of its rows."""
    days = ["2025-12-31T23:59:59", "2026-02-01", "never"]
    lines = [f"{10 * number},true,{day},p{number % 2}" for number, day in enumerate(100 * days)]
    (landing / f"small-{PERIOD}.csv").write_text("\n".join(["age,ill,seen,who", *lines, ""]))


ANY_PARQUET = {FILES: FILES.replace("*.csv", "*.parquet")}
OF_MONTH = "source: {path: landing/*.csv, period_column: seen"
TABLES: dict[str, tuple[Callable[[Path], None], dict[str, str]]] = {
    "a CSV header alone": (text, {}),
    "Parquet": (parquet, ANY_PARQUET),
    "Parquet of row groups": (row_groups, ANY_PARQUET),
    "a folder": (folder, {FILES: FILES.replace("landing/*.csv", "landing/*/*.parquet")}),
    "a query": (query, {FILES: "source: {query: {url: 'sqlite:///clinic.db', sql: 'SELECT age, ill FROM visits'}}"}),
    "rows of other months": (another_month, {FILES: f"{OF_MONTH}, drop: [who]}}"}),
    "persons by weight, rows of other months": (
        another_month,
        {FILES: f"{OF_MONTH}}}", "epsilon: 0.1,": "epsilon: 0.1, unit: {person: who, rows: weight},"},
    ),
    "persons, at most 2 rows, rows of other months": (
        another_month,
        {FILES: f"{OF_MONTH}}}", "epsilon: 0.1,": "epsilon: 0.1, unit: {person: who, rows: at-most 2},"},
    ),
    "persons by weight": (named_text, {"epsilon: 0.1,": "epsilon: 0.1, unit: {person: who, rows: weight},"}),
    "persons, at most 2 rows": (
        named_parquet,
        ANY_PARQUET | {"epsilon: 0.1,": "epsilon: 0.1, unit: {person: who, rows: at-most 2},"},
    ),
}


def workspace_of(root: Path, write: Callable[[Path], None], edits: dict[str, str]) -> Workspace:
    content = SPEC
    for old, new in edits.items():
        assert old in content
        content = content.replace(old, new)
    root.mkdir()
    place = Workspace(root)
    place.create()
    place.spec_path.write_text(content)
    write(place.landing)
    return place


@pytest.fixture(params=TABLES)
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    return workspace_of(tmp_path / "w", *TABLES[request.param])


def validated(place: Workspace, scratch: Path) -> ReleaseRun:
    run = run_of(place, scratch, period=PERIOD)
    validate_landing.fn(run, RELEASE)
    return run


def verdicts(place: Workspace) -> list[dict[str, object]]:
    kept: list[dict[str, object]] = json.loads((place.landing / "verdicts" / f"{RELEASE}.json").read_text())["verdicts"]
    return kept


def test_it_passes_validation_and_the_operator_alone_is_told(
    workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    PROGRESS.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.DEBUG):
            validated(workspace, tmp_path)
    finally:
        PROGRESS.removeHandler(caplog.handler)
    assert verdicts(workspace)
    assert all(verdict["ok"] for verdict in verdicts(workspace))
    said = [(record.name, record.levelname) for record in caplog.records if "no rows" in record.getMessage()]
    assert said == [(PROGRESS.name, "WARNING")], "what Prefect hears too is information"


def test_it_is_measured_and_charged_like_any_other(workspace: Workspace):
    """Whether its noisy count then passes the check is the noise's decision."""
    with suppress(CheckFailedError):
        release(workspace, PERIOD)
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger:
        found = ledger.state().releases[RELEASE]
    assert list(found.spends) == ["moments"]
    assert found.spent.epsilon == Fraction(1, 10)
    assert broken(audit_workspace(workspace)) == []
    outside = [workspace.lineage_path, *(workspace.bundle("small", RELEASE) / name for name in BUNDLE_FILES)]
    assert not any(b"no rows" in path.read_bytes() for path in outside if path.exists())


MODELS = {
    "a copula, a label": "{generator: copula}",
    "a shared covariance": "{generator: lda}",
    "components by their share": "{projection: {kind: private-pca, dimension: {share: 0.9}}}",
    "a frame that is bought": "{radius: auto, projection: {kind: none}}",
}


@pytest.mark.parametrize("model", MODELS)
def test_any_model_is_fitted_to_it_or_the_noisy_count_leaves_nothing_to_draw(tmp_path: Path, model: str):
    """Some counts come out above 1: then everything that divides by it, or by its square root, has a number."""
    edits = ANY_PARQUET | {
        "kind: boolean}": "kind: boolean, role: label}",
        PLAIN: f"model: {MODELS[model]}\n",
        "\nrows: 50": "",
    }
    place = workspace_of(tmp_path / "w", parquet, edits | {"epsilon: 1.2": "epsilon: 12"})
    ended, hints = [], set[str]()
    for month in range(1, 5):
        try:
            release(place, f"2026-{month:02}")
            ended.append("published")
        except CheckFailedError as failed:
            ended.append(str(failed))
            hints.add(failed.hint)
        (place.landing / f"small-2026-{month:02}.parquet").rename(place.landing / f"small-2026-{month + 1:02}.parquet")
    assert set(ended) <= {"published", "the noisy count is below 1, so there is nothing to draw rows from"}
    assert not any("`checks`" in hint for hint in hints), "no check is to blame"
    assert broken(audit_workspace(place)) == []


def test_it_is_read_and_judged_as_often_and_by_the_same_rules_as_one_row(tmp_path: Path):
    def one(landing: Path) -> None:
        pq.write_table(ONE, landing / f"small-{PERIOD}.parquet")

    told, rules = [], []
    for name, write in (("none", parquet), ("one", one)):
        place = workspace_of(tmp_path / name, write, ANY_PARQUET)
        scratch = tmp_path / f"{name}-scratch"
        scratch.mkdir()
        run = validated(place, scratch)
        told.append(sorted(run.readings.purposes))
        rules.append([(verdict["column"], verdict["rule"]) for verdict in verdicts(place)])
    assert told[0] == told[1]
    assert rules[0] == rules[1]


def test_a_comparison_with_no_rows_says_so_in_the_vault(published: Path, tmp_path: Path):
    place = Workspace(published)
    record = json.loads((place.bundle("small", RELEASE) / "record.json").read_text())
    nothing = tmp_path / f"small-{PERIOD}.csv"
    nothing.write_text("age,ill\n")
    notice = "The landing data have no rows: the raw figures on this page are meaningless."
    assert notice in compare_raw(place, record, str(nothing)).read_text()
    rows = tmp_path / "rows" / nothing.name
    rows.parent.mkdir()
    rows.write_text("age,ill\n41,true\n")
    assert notice not in compare_raw(place, record, str(rows)).read_text()
