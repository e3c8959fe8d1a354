"""Numbers of rows that belong to other months, planted: nothing but a file in the vault holds them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.flows import canaries
from support.flows.storybook import drive

from tasks.workspace.folders import Workspace

OTHERS, MONTH, UNDATED = 10_306_174, 3_000, 57
"""Rows of other months, of the month, and of none: so many that chance does not produce the number."""
NEEDLES = canaries.of_numbers(
    others=OTHERS, elsewhere=OTHERS + UNDATED, dated=OTHERS + MONTH, all=OTHERS + MONTH + UNDATED
)
SPEC = """
name: visits
source: {path: landing/*.parquet, period_column: seen}
privacy: {population: patients, unit: {person: who, rows: weight}, epsilon: 1, lifetime: {epsilon: 5}}
expected_rows: 2000
columns:
  - {name: age, kind: numeric, bounds: [0, 100]}
  - {name: smoker, kind: boolean}
"""


def part(rows: int, day: date | None) -> pa.Table:
    """Rows of one day; they take next to no room in a file."""
    dice = np.random.default_rng(rows)
    return pa.table(
        {
            "age": pa.array(dice.uniform(0, 100, rows) if day == date(2026, 9, 9) else np.full(rows, 41.0)),
            "smoker": pa.array(np.arange(rows) % 2 == 0),
            "seen": pa.array([day], pa.date32()).take(pa.array(np.zeros(rows, np.int64))),
            "who": pa.array(np.arange(rows) % 2000).cast(pa.string()) if rows == MONTH else pa.repeat("7", rows),
        }
    )


def land(path: Path) -> None:
    month = part(MONTH, date(2026, 9, 9))
    with pq.ParquetWriter(path, month.schema, compression="zstd") as writer:
        left = OTHERS
        while left:
            rows = min(left, 1_000_000)
            writer.write_table(part(rows, date(2026, 10, 1)))
            left -= rows
        writer.write_table(month)
        writer.write_table(part(UNDATED, None))


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Any]]]:
    """A month released, asked for again, looked at, and another one that fails; not to be changed."""
    base = tmp_path_factory.mktemp("months")
    place = Workspace(base / "workspace")
    place.create()
    place.spec_path.write_text(SPEC)
    land(place.landing / "visits.parquet")
    where = ["-w", str(place.root), "--json"]
    text = f"could not take {OTHERS} rows of {OTHERS + MONTH}"
    steps = [
        {"name": "publish", "argv": ["run", "--period", "2026-09", *where]},
        {"name": "again", "argv": ["run", "--period", "2026-09", *where]},
        {"name": "crash", "argv": ["run", "--period", "2026-08", *where], "crash": ["tasks.draw_once.gram_sum", text]},
        {"name": "compare", "argv": ["check", "visits-2026-09-1", "--raw", *where]},
        {"name": "show", "argv": ["show", "visits-2026-09-1", *where]},
        {"name": "lineage", "argv": ["lineage", "visits-2026-09-1", *where]},
        {"name": "history", "argv": ["history", *where]},
        {"name": "site", "argv": ["site", *where]},
        {"name": "audit", "argv": ["audit", *where]},
    ]
    return base, drive(base, steps)


def test_the_commands_end_as_they_should(story: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    assert {name: step["code"] for name, step in story[1].items()} == {
        **dict.fromkeys(story[1], 0),
        "crash": 3,
    }


def test_the_vault_holds_the_numbers(story: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    vault = story[0] / "workspace" / "vault"
    kept = json.loads((vault / "months" / "visits-2026-09-1.json").read_text())
    assert kept["rows"] == {"month": MONTH, "other_months": OTHERS, "no_month": UNDATED}
    found = canaries.found_below(vault, needles=NEEDLES)
    assert set(found) == {"months/visits-2026-09-1.json", "months/visits-2026-08-1.json"}, "the comparison has none"


def test_nothing_else_holds_them(story: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    """No verdict, record, report, page, lineage, ledger, log or table of the orchestrator, and nothing printed."""
    base, steps = story
    data = base / "workspace" / "landing" / "visits.parquet"
    skip = (data, base / "workspace" / "vault")
    assert canaries.found_below(base, skip=skip, needles=NEEDLES) == {}
    printed = "".join(step["out"] + step["err"] for step in steps.values())
    assert "landing data were read" in printed
    assert canaries.found_in(printed.encode(), NEEDLES) == set()


@pytest.mark.parametrize("name", ["ledger.db", "prefect/prefect.db"])
def test_no_database_holds_them_as_numbers(story: tuple[Path, dict[str, dict[str, Any]]], name: str) -> None:
    with closing(sqlite3.connect(story[0] / "workspace" / name)) as database:
        content = "\n".join(database.iterdump()).encode()
    assert b"visits-2026-09-1" in content
    assert canaries.found_in(content, NEEDLES) == set()


def test_the_search_finds_them_in_every_spelling() -> None:
    for text in (f"{OTHERS}", f"{OTHERS:,}", f"{float(OTHERS)}", json.dumps({"rows": OTHERS}), f"{OTHERS:.6e}"):
        assert canaries.found_in(f"a line with {text} rows".encode(), NEEDLES) == {"others"}
        assert canaries.found_in(f"a line with {text} rows".encode("utf-16"), NEEDLES) == {"others"}
