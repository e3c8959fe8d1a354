"""Queries: a database's rows become one private file whose types the specification decides, and nothing leaks."""

from __future__ import annotations

import math
import random
import sqlite3
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tasks.landing.queries import ALL, PLANTED, SPEC, TYPES, refusal, run, specified

from dpcore.errors import LandingError, WorkspaceError
from tasks.landing.datasets import Landing
from tasks.landing.person_rows import person_rows
from tasks.landing.sql import months_days, spool_query
from tasks.landing.sql_cells import column_of, column_types
from tasks.landing.structure import require_sound
from tasks.spec import parse_spec


def clinic(folder: Path, *rows: tuple[Any, ...]) -> Path:
    """A SQLite file whose columns hold whatever is put into them."""
    path = folder / "clinic.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE visits (patient, weight, visits, born, seen, smoker, sex, ward, note)")
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    connection.close()
    return path


def ordinary(patient: Any = 7, seen: str = "2026-11-03 10:00:00") -> tuple[Any, ...]:
    return (patient, 70.5, 3, "1980-02-29", seen, 1, "f", 2, PLANTED)


# ---------------------------------------------------------------- what the file holds


def test_rows_become_a_private_file_that_reads_like_a_landed_one(tmp_path: Path):
    clinic(tmp_path, ordinary(), ordinary(patient=8))
    spec = specified()
    target = spool_query(spec, tmp_path / "rows.parquet", period=None, root=tmp_path, environment={})
    assert target.stat().st_mode & 0o777 == 0o600
    assert PLANTED.encode() not in target.read_bytes(), "dropped columns are not even copied"
    require_sound(Landing((target,), spec, "source.query"))
    assert pq.read_table(target).to_pylist()[0] == {
        "weight": 70.5,
        "visits": 3.0,
        "born": date(1980, 2, 29),
        "seen": datetime(2026, 11, 3, 9, tzinfo=UTC),
        "smoker": True,
        "sex": "f",
        "ward": "2",
        "patient": "7",
    }


ODD_ROWS = {
    "nulls": (None,) * 9,
    "text": ("p", "1.5", " 4 ", "x", "never", "maybe", "unknown", "2.0", None),
    "numbers": (7.0, 1, 2.9, 5, 17.5, 0.0, 3, 1.0, None),
    "bytes": (b"\xff\x00", b"2.5", b"\xff", b"1980-01-01", b"\xff", b"yes", b"\xffm", b"3", None),
    "large": (2**63 - 1, 1e308, 2**62, "9999-12-31", "9999-12-31T23:59:59Z", 2, "f" * 5000, 2**62, None),
}


@pytest.mark.parametrize("first", ODD_ROWS)
@pytest.mark.parametrize("second", ODD_ROWS)
def test_types_never_follow_from_values(tmp_path: Path, first: str, second: str):
    clinic(tmp_path, ODD_ROWS[first], ODD_ROWS[second])
    table = run(specified(), tmp_path)
    assert dict(zip(table.schema.names, table.schema.types, strict=True)) == TYPES
    alone = tmp_path / "alone"
    alone.mkdir()
    clinic(alone, ODD_ROWS[second])
    assert table.slice(1).to_pylist() == run(specified(), alone).to_pylist(), "a cell depends on itself alone"


def test_no_rows_are_a_file_without_rows(tmp_path: Path):
    clinic(tmp_path)
    assert run(specified(), tmp_path).schema.equals(column_types(specified()))


BERLIN = timezone(timedelta(hours=1))
CELLS = [
    ("weight", [1, 2.5, Decimal("3.25"), True, "4.5", b"5", None], [1, 2.5, 3.25, 1, 4.5, 5, None]),
    ("weight", ["x", b"\xff", date(2020, 1, 1), float("nan"), Decimal("sNaN"), 10**400, [1]], [None] * 7),
    ("visits", [2**53 + 1, "3.7", Decimal("NaN")], [2.0**53, 3.7, None]),
    (
        "born",
        [date(1980, 2, 29), datetime(1980, 2, 29, 23), "1980-02-29", b"1980-02-29", 7, "x", None],
        [date(1980, 2, 29)] * 4 + [None] * 3,
    ),
    (
        "seen",  # times without a zone are Berlin's
        [
            datetime(2026, 1, 1, 1),
            datetime(2026, 1, 1, 1, tzinfo=BERLIN),
            datetime(2026, 1, 1, tzinfo=UTC),
            "2026-01-01 01:00",
            "2026-01-01T00:00:00+00:00",
        ],
        [datetime(2026, 1, 1, tzinfo=UTC)] * 5,
    ),
    ("seen", [date(2026, 1, 1)], [datetime(2025, 12, 31, 23, tzinfo=UTC)]),
    ("seen", [datetime(1, 1, 1, tzinfo=BERLIN), 7, "x", None, True], [None] * 5),
    ("smoker", [True, 1, 1.0, "yes", b"T", Decimal(1)], [True] * 6),
    ("smoker", [False, 0, "no", "false"], [False] * 4),
    ("smoker", ["maybe", 2, None, b"\xff"], [None] * 4),
    ("sex", ["f", b"m", 1.0, True, None, b"\xff", "\ud800"], ["f", "m", "1", "true", None, "\ufffd", "?"]),
    ("ward", [1, 2.0, Decimal("3.00"), "1", 2.5, True], ["1", "2", "3", "1", "2.5", "true"]),
    ("patient", [7, 7.0, Decimal("7"), Decimal("7.00"), "7", b"7", Decimal("7E0")], ["7"] * 7),
    ("patient", [2**53, 2**53 + 1, b"\xff\x01", b"\xff\x02"], [str(2**53), str(2**53 + 1), "ff01", "ff02"]),
    ("patient", [Decimal("1.50"), Decimal("1.5"), UUID(int=7), None], ["1.5", "1.5", str(UUID(int=7)), None]),
]


@pytest.mark.parametrize(("name", "values", "expected"), CELLS)
def test_each_value_is_read_by_itself(name: str, values: list[Any], expected: list[Any]):
    spec = specified()
    column = column_of(values, name, spec.schema)
    assert (column.type, column.to_pylist()) == (TYPES[name], expected)
    singly = [column_of([value], name, spec.schema).to_pylist()[0] for value in values]
    assert singly == expected


def test_a_text_that_is_none_does_not_stop_the_others(tmp_path: Path):
    clinic(tmp_path, ordinary())
    broken = ALL.replace("*", "patient, weight, visits, born, seen, smoker, CAST(x'FF6D' AS TEXT) AS sex, ward")
    assert run(specified(sql=broken), tmp_path)["sex"].to_pylist() == ["\ufffdm"]


# ---------------------------------------------------------------- which of a person's rows count

MOST_TWO = SPEC.replace("{{person: patient}}", "{{person: patient, rows: at-most 2}}")
OWN = [ordinary(7, f"2026-11-0{day} 10:00:00") for day in range(1, 7)]
OTHERS = [*(ordinary(patient) for patient in (8, 9, 8)), *(row for row in ODD_ROWS.values() if row[0] != 7)]


def kept_of(folder: Path, *rows: tuple[Any, ...], sql: str = ALL) -> list[dict[str, Any]]:
    """The rows of person 7 that count, as a release counts them."""
    folder.mkdir()
    clinic(folder, *rows)
    spec = parse_spec(MOST_TWO.format(url="sqlite:///clinic.db", sql=sql, rows="table"))
    answer = run(spec, folder)
    assert dict(zip(answer.schema.names, answer.schema.types, strict=True)) == TYPES
    counted = person_rows([[answer["patient"].combine_chunks()]], spec.unit, folder).of(0)
    kept = answer.filter(pa.array(counted)).to_pylist()
    assert len(answer) == len(rows)
    assert not list(folder.glob("*.arrived"))
    return sorted((row for row in kept if row["patient"] == "7"), key=str)


def test_which_rows_of_a_person_count_depends_on_that_persons_rows_alone(tmp_path: Path):
    alone = kept_of(tmp_path / "alone", *OWN)
    assert len(alone) == 2
    dice = random.Random(5)  # noqa: S311  an order, no secret
    for case in range(6):
        rows = dice.sample(OWN + OTHERS[: 2 * case], len(OWN) + len(OTHERS[: 2 * case]))
        ordered = f"{ALL} ORDER BY seen {'DESC' if case % 2 else 'ASC'}" if case < 4 else ALL
        assert kept_of(tmp_path / f"{case}", *rows, sql=ordered) == alone


def test_the_rows_that_count_are_neither_the_smallest_nor_the_largest(tmp_path: Path):
    """Over many persons the kept rows are spread over all ranks as a choice at random would spread them."""
    clinic(tmp_path, *(ordinary(p, f"2026-11-{day:02d} 10:00:00") for p in range(400) for day in range(1, 11)))
    spec = parse_spec(MOST_TWO.format(url="sqlite:///clinic.db", sql=ALL, rows="table"))
    answer = run(spec, tmp_path)
    counted = person_rows([answer["patient"].chunks], spec.unit, tmp_path).of(0)
    days = np.array([seen.day for seen in answer.filter(pa.array(counted))["seen"].to_pylist()])
    assert len(days) == 800
    # two of ten days, without replacement: the mean of 400 means has variance (99/12)/2 * 8/9 / 400
    assert abs(days.mean() - 5.5) < 6 * math.sqrt(99 / 12 / 2 * 8 / 9 / 400)


# ---------------------------------------------------------------- the month of a release


@pytest.mark.parametrize(
    ("period", "days"),
    [
        ("2026-11", (date(2026, 11, 1), date(2026, 12, 1))),
        ("2026-12", (date(2026, 12, 1), date(2027, 1, 1))),
        ("2024-02", (date(2024, 2, 1), date(2024, 3, 1))),
    ],
)
def test_a_month_ends_where_the_next_begins(period: str, days: tuple[date, date]):
    assert months_days(period) == days


@pytest.mark.parametrize(
    "condition", ["seen >= :period_start AND seen < :period_end", "substr(seen, 1, 7) = :period AND ' \\:x' <> ''"]
)
def test_the_period_chooses_the_rows(tmp_path: Path, condition: str):
    days = ["2026-10-31 23:59:59", "2026-11-01 00:00:00", "2026-11-30 23:59:59", "2026-12-01 00:00:00"]
    clinic(tmp_path, *(ordinary(patient=number, seen=seen) for number, seen in enumerate(days)))
    spec = specified(sql=f"{ALL} WHERE {condition}")
    assert spec.source.tells_months_apart
    assert run(spec, tmp_path, period="2026-11")["patient"].to_pylist() == ["1", "2"]
    assert refusal(spec, tmp_path).rule == "period-missing"


# ---------------------------------------------------------------- what is refused

REFUSED = {
    "no-such-table": ({"sql": f'SELECT * FROM "{PLANTED}"'}, "query-failed", "source.query.sql"),
    "no-sql": ({"sql": f"SELECT '{PLANTED}' FROM FROM", "rows": "answer"}, "query-failed", "source.query.sql"),
    "two-statements": ({"sql": f"{ALL}; DELETE FROM visits", "rows": "answer"}, "query-failed", "source.query.sql"),
    "a-file-that-is-not-there": ({"url": f"sqlite:///{PLANTED}.db"}, "database-unreachable", "source.query.url"),
    "another-dialect": ({"url": f"mysql://{PLANTED}/x"}, "query-dialect", "source.query.url"),
    "no-driver": ({"url": f"firebird://{PLANTED}/x", "rows": "answer"}, "database-driver", "source.query.url"),
    "no-server": (
        {"url": f"postgresql://{PLANTED}@127.0.0.1:1/{PLANTED}"},
        "database-unreachable",
        "source.query.url",
    ),
    "no-url": ({"url": f"postgresql://{PLANTED}@host:port/x"}, "query-url", "source.query.url"),
    "unset-variable": ({"url": "env:CLINIC_DB_URL"}, "query-variable", "source.query.url"),
    "column-missing": ({"sql": "SELECT patient FROM visits"}, "column-missing", "columns.weight"),
    "column-undeclared": ({"sql": f'SELECT *, 1 AS "{PLANTED}" FROM visits'}, "column-undeclared", "source.query"),
    "column-repeated": ({"sql": "SELECT *, patient FROM visits"}, "column-repeated", "source.query"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_asked_is_refused_without_its_words(tmp_path: Path, case: str):
    edits, rule, where = REFUSED[case]
    clinic(tmp_path, ordinary())
    error = refusal(specified(**edits), tmp_path)
    assert isinstance(error, LandingError)
    assert (error.rule, error.where) == (rule, where)


def test_a_variable_holds_the_url_and_its_password_shows_nowhere(tmp_path: Path):
    clinic(tmp_path, ordinary())
    spec = specified(url="env:CLINIC_DB_URL")
    assert len(run(spec, tmp_path, CLINIC_DB_URL="sqlite:///clinic.db")) == 1
    for url in (f"postgresql://u:{PLANTED}@127.0.0.1:1/x", f"{PLANTED}", f"nosuch://u:{PLANTED}@h/x"):
        assert refusal(spec, tmp_path, CLINIC_DB_URL=url).where == "source.query.url"


def test_asking_makes_no_database_and_changes_none(tmp_path: Path):
    path = clinic(tmp_path, ordinary())
    before = path.read_bytes()
    run(specified(), tmp_path)
    refusal(specified(sql="WITH x AS (SELECT 1) DELETE FROM visits", rows="answer"), tmp_path)
    refusal(specified(url="sqlite:///other.db"), tmp_path)
    assert path.read_bytes() == before
    assert not (tmp_path / "other.db").exists()


def test_a_vault_without_room_is_refused_in_our_own_words(tmp_path: Path):
    clinic(tmp_path, ordinary())
    with pytest.raises(WorkspaceError) as caught:
        spool_query(specified(), tmp_path / PLANTED / "x", period=None, root=tmp_path, environment={})
    assert caught.value.rule == "vault-full"
    assert caught.value.__context__ is None


def test_an_sqlite_database_is_named_by_its_path_and_cannot_be_written(tmp_path: Path) -> None:
    """Python begins no transaction for a statement that begins with WITH: it would take effect at once."""
    path = tmp_path / "t.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (age real, ill boolean)")
        connection.execute("insert into t values (1, 1)")
    writes = "WITH x AS (SELECT 1) DELETE FROM t RETURNING age, ill"
    for url, rule in ((f"sqlite:///file:{path}?uri=true", "query-url"), (f"sqlite:///{path}", "query-failed")):
        spec = parse_spec(
            "name: t\n"
            f"source: {{query: {{url: '{url}', sql: '{writes}', rows: answer}}}}\n"
            "privacy: {population: p, epsilon: 1, lifetime: {epsilon: 2}}\nexpected_rows: 10\n"
            "columns: [{name: age, kind: numeric, bounds: [0, 1]}, {name: ill, kind: boolean}]\n"
        )
        with pytest.raises(LandingError) as caught:
            spool_query(spec, tmp_path / "out.parquet", period=None, root=tmp_path, environment={})
        assert caught.value.rule == rule
    with sqlite3.connect(path) as connection:
        assert connection.execute("select count(*) from t").fetchone() == (1,)
