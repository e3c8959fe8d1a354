"""Queries whose rows do not fit into memory."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support import ROOT
from support.tasks.landing.queries import ALL, PLANTED, TYPES, refusal, run, specified
from support.tasks.ledger.postgres import Server

LARGE = """
import resource, sys
from pathlib import Path
from tasks.landing.sql import spool_query
from tasks.spec import parse_spec

folder, text = Path(sys.argv[1]), sys.stdin.read()
rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) " \\
    "SELECT i AS patient, i * 0.5 AS weight, i % 7 AS visits, NULL AS smoker FROM n"
def ask(count):
    spec = parse_spec(text.replace("SELECT 1", rows.format(count)))
    spool_query(spec, folder / f"{count}.parquet", period=None, root=folder, environment={})
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(-ask(140_000) + ask(700_000))
"""
NARROW = """
name: visits
source: {query: {url: 'sqlite:///clinic.db', sql: 'SELECT 1', rows: answer}}
privacy: {population: people, unit: {person: patient}, epsilon: 1, lifetime: {epsilon: 12}}
expected_rows: 100
columns:
  - {name: weight, kind: numeric, bounds: [0, 200]}
  - {name: visits, kind: integer, bounds: [0, 50]}
  - {name: smoker, kind: boolean}
"""


def test_memory_stays_bounded_whatever_the_number_of_rows(tmp_path: Path):
    sqlite3.connect(tmp_path / "clinic.db").close()
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path)],
        input=NARROW,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) < 60, "MB more for five times the rows; as Python's values they would take 150"
    assert pq.read_metadata(tmp_path / "700000.parquet").num_rows == 700_000


@pytest.fixture
def hospital(server: Server, database: str) -> str:
    """The address of a PostgreSQL database with typed columns, among them what Python cannot hold."""
    server.execute(
        "CREATE TABLE visits (patient numeric, weight numeric(6,2), visits bigint, born date, seen timestamptz,"
        " smoker boolean, sex char(3), ward smallint, note bytea)",
        "INSERT INTO visits VALUES (7, 70.25, 3, '1980-02-29', '2026-11-03 10:00+01', true, 'f', 2, '\\xff'),"
        " (7.0, NULL, NULL, 'infinity', '-infinity', NULL, NULL, NULL, NULL),"
        " (8, 'NaN', 9223372036854775807, '12000-01-01', '12000-01-01', false, 'm', 3, NULL)",
        database=database,
    )
    return server.url(database)


def test_typed_columns_of_postgresql_arrive_whole(tmp_path: Path, hospital: str):
    table = run(specified(url="env:DB"), tmp_path, DB=hospital)
    assert dict(zip(table.schema.names, table.schema.types, strict=True)) == TYPES
    assert table["patient"].to_pylist() == ["7", "7", "8"], "equal in the database, equal here"
    assert table["weight"].to_pylist() == [70.25, None, None]
    assert table["visits"].to_pylist() == [3, None, 2.0**63]
    assert table["born"].to_pylist() == [date(1980, 2, 29), None, None]
    assert table["seen"].to_pylist() == [datetime(2026, 11, 3, 9, tzinfo=UTC), None, None]
    assert table["smoker"].to_pylist() == [True, None, False]
    assert [sex and sex.strip() for sex in table["sex"].to_pylist()] == ["f", None, "m"]
    assert table["ward"].to_pylist() == ["2", None, "3"]


def test_times_without_a_zone_are_in_the_columns_and_parameters_are_dates(tmp_path: Path, hospital: str):
    sql = ALL.replace("*", "patient, weight, visits, born, seen::timestamp AS seen, smoker, sex, ward")
    condition = "WHERE seen::date >= :period_start AND seen < :period_end AND to_char(seen, 'YYYY-MM') = :period"
    spec = specified(url="env:DB", sql=f"{sql} {condition}")
    table = run(spec, tmp_path, period="2026-11", DB=f"{hospital}&options=-c%20timezone%3DEurope/Berlin")
    assert table["seen"].to_pylist() == [datetime(2026, 11, 3, 9, tzinfo=UTC)]


def test_a_query_that_writes_or_may_not_read_is_refused(tmp_path: Path, hospital: str, server: Server, database: str):
    making = "CREATE FUNCTION forget() RETURNS int LANGUAGE sql AS 'DELETE FROM visits; SELECT 1'"
    server.execute(making, database=database)
    spec = specified(url="env:DB", sql=f"SELECT *, forget() AS note2, '{PLANTED}' FROM visits", rows="answer")
    assert refusal(spec, tmp_path, DB=hospital).rule == "query-writes"
    server.execute("CREATE ROLE stranger LOGIN", database=database)
    try:
        assert refusal(specified(url="env:DB"), tmp_path, DB=server.url(database, "stranger")).rule == "query-forbidden"
    finally:
        server.execute("DROP ROLE stranger", database=database)
    assert server.execute("SELECT count(*) FROM visits", database=database)[0][0] == 3


def test_rows_are_streamed_and_the_connection_is_gone_afterwards(
    tmp_path: Path, hospital: str, server: Server, database: str
):
    many = "SELECT patient, weight, visits, born, seen, smoker, sex, ward FROM visits, generate_series(1, 30000)"
    assert len(run(specified(url="env:DB", sql=many, rows="answer"), tmp_path, DB=hospital)) == 90_000
    failing = many.replace("weight,", "1 / (30000 - generate_series) AS weight,")
    assert refusal(specified(url="env:DB", sql=failing, rows="answer"), tmp_path, DB=hospital).rule == "query-failed"
    sessions = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'"
    assert server.execute(sessions)[0][0] == 0
