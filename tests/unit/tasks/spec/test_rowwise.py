"""Statements: accepted are those each of whose answer's rows is a function of one row of one table, and no others."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError
from support.tasks.spec.statements import refusal, specified

from tasks.landing.sql import spool_query
from tasks.spec.rowwise import require_rowwise

# ---------------------------------------------------------------- an attack

EVERY_ROW_AT_ONCE = """SELECT CASE WHEN (SELECT max(weight) FROM visits) > 150 THEN 200 ELSE 0 END AS weight, height
FROM visits"""


def gram_of(folder: Path, sql: str, *rows: tuple[float, float]) -> np.ndarray:
    """The Gram matrix of an answer: records of the unit ball by the public bounds, with s = 1/2."""
    folder.mkdir()
    with sqlite3.connect(folder / "clinic.db") as connection:
        connection.execute("CREATE TABLE visits (weight, height)")
        connection.executemany("INSERT INTO visits VALUES (?, ?)", rows)
    connection.close()
    spec = specified(sql, rows="answer")
    answer = pq.read_table(spool_query(spec, folder / "rows.parquet", period=None, root=folder, environment={}))
    points = np.column_stack([answer["weight"].to_numpy(), answer["height"].to_numpy()]) / 100 - 1
    records = np.column_stack([np.full(len(points), 0.5), points / np.sqrt(2)])
    return records.T @ records


def test_a_subquery_over_all_rows_moves_the_gram_beyond_every_bound_and_is_refused(tmp_path: Path):
    others = [(70.0, 170.0)] * 2000
    bound = 2 * (1 + 1 / 4)  # nuclear norm, replace-one, GUARANTEE.md S1
    moved = {}
    for name, sql in (("attack", EVERY_ROW_AT_ONCE), ("row by row", "SELECT weight, height FROM visits")):
        light = gram_of(tmp_path / f"{name} 1", sql, *others, (100.0, 170.0))
        heavy = gram_of(tmp_path / f"{name} 2", sql, *others, (199.0, 170.0))
        moved[name] = np.linalg.norm(heavy - light, "nuc")
    assert moved["attack"] > 1000 * bound
    assert moved["row by row"] <= bound
    assert refusal(EVERY_ROW_AT_ONCE).rule == "query-rows"
    specified("SELECT weight, height FROM visits")


HIDDEN_IN_A_TYPE = """SELECT pid, CAST(age AS INTEGER[/* ]) - (SELECT avg(age) FROM t) AS age, w
FROM t -- */]) AS age, w FROM t"""


def test_a_subquery_that_only_sqlite_sees_moves_other_rows_and_is_refused():
    """SQLite reads brackets as a name, where the parser sees a type with a comment in it."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (pid, age, w)")
        connection.executemany("INSERT INTO t VALUES (?, ?, 1)", [(1, 40), (2, 60)])
        before = dict(row[:2] for row in connection.execute(HIDDEN_IN_A_TYPE))
        connection.execute("UPDATE t SET age = 20 WHERE pid = 1")
        after = dict(row[:2] for row in connection.execute(HIDDEN_IN_A_TYPE))
    assert (before[2], after[2]) == (60 - (40 + 60) / 2, 60 - (20 + 60) / 2), "the row of somebody else moved"
    error = refusal(HIDDEN_IN_A_TYPE)
    assert error.rule == "query-rows"
    assert "a square bracket (line 1, column 32 of the statement)" in str(error)


# ---------------------------------------------------------------- what is refused and what is accepted

REFUSED = {
    "aggregate": "SELECT ^count(*) FROM t",
    "aggregate-in-capitals": "SELECT ^SUM (a) FROM t",
    "aggregate-quoted": 'SELECT ^"avg"(a) FROM t',
    "aggregate-after-a-comment": "SELECT ^max/* row by row */(a) FROM t",
    "aggregate-on-its-own-line": "SELECT a,\n  b,\n  ^min\n(a) FROM t",
    "aggregate-of-several-values": "SELECT ^max(a, b) FROM t",
    "aggregate-inside": "SELECT abs(1 + coalesce(^total(a), 0)) FROM t",
    "aggregate-of-a-schema": "SELECT ^pg_catalog.sum(a) FROM t",
    "aggregate-with-a-filter": "SELECT ^count(*) FILTER (WHERE a > 1) FROM t",
    "aggregate-within-a-group": "SELECT ^percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM t",
    "aggregate-after-an-umlaut": "SELECT 'äöü' AS b, ^count(*) FROM t",
    "aggregate-after-a-string-with-a-comment": "SELECT '/*' AS b, ^count(*), '*/' AS c FROM t",
    "aggregate-by-a-dot": "SELECT ^t.count FROM t",
    "aggregate-by-a-dot-of-the-row": "SELECT ^(t).count FROM t",
    "aggregate-by-a-method": "SELECT ^a.sum() FROM t",
    "window": "SELECT ^sum(a) OVER () FROM t",
    "window-lag": "SELECT ^lag(a) OVER (ORDER BY b) FROM t",
    "window-named": "SELECT ^row_number() OVER w FROM t WINDOW w AS (ORDER BY a)",
    "group-by": "SELECT a FROM t ^GROUP BY a",
    "group-by-all": "SELECT a FROM t ^group by all",
    "group-by-nothing": "SELECT 1 AS a FROM t ^GROUP BY ()",
    "grouping-sets-of-nothing": "SELECT 1 AS a FROM t ^GROUP BY GROUPING SETS (())",
    "grouping-sets": "SELECT a FROM t ^GROUP BY GROUPING SETS ((a), ())",
    "having": "SELECT a FROM t ^HAVING true",
    "qualify": "SELECT a FROM t ^QUALIFY true",
    "distinct": "SELECT ^DISTINCT a FROM t",
    "distinct-on": "SELECT ^distinct on (a) a, b FROM t",
    "distinct-argument": "SELECT ^lower(DISTINCT a) FROM t",
    "limit": "SELECT a FROM t ^LIMIT 5",
    "limit-all": "SELECT a FROM t ^limit all",
    "offset": "SELECT a FROM t ^OFFSET 2",
    "fetch": "SELECT a FROM t ^FETCH FIRST 5 ROWS ONLY",
    "join": "SELECT a FROM t ^JOIN u ON true",
    "join-natural": "SELECT a FROM t ^NATURAL JOIN u",
    "join-left": "SELECT a FROM t ^LEFT JOIN u USING (a)",
    "join-comma": "SELECT a ^FROM t, u",
    "join-itself": "SELECT a ^FROM t AS x, t AS y",
    "join-lateral": "SELECT a FROM t ^CROSS JOIN LATERAL (SELECT 1) AS u",
    "subquery-selected": "SELECT a, ^(SELECT 1) FROM t",
    "subquery-in-a-function": "SELECT abs(^(SELECT 1)) FROM t",
    "subquery-in-a-case": "SELECT CASE WHEN ^EXISTS (SELECT 1) THEN 1 END FROM t",
    "subquery-in": "SELECT a FROM t WHERE a IN ^(SELECT 1)",
    "subquery-any": "SELECT a FROM t WHERE ^a = ANY (SELECT 1)",
    "subquery-array": "SELECT ^ARRAY(SELECT a FROM t) FROM t",
    "subquery-order": "SELECT a FROM t ORDER BY ^(SELECT 1)",
    "subquery-from": "SELECT a FROM ^(SELECT * FROM t) AS u",
    "subquery-nested": "SELECT a FROM ^((SELECT a FROM t)) AS u",
    "in-a-table": "SELECT a FROM t WHERE a IN ^u",
    "with": "^WITH u AS (SELECT * FROM t) SELECT a FROM u",
    "with-recursive": "^with recursive u AS (SELECT 1 AS a) SELECT a FROM t",
    "union": "SELECT a FROM t ^UNION SELECT a FROM t",
    "union-all": "SELECT a FROM t ^union all SELECT a FROM t",
    "intersect": "SELECT a FROM t ^INTERSECT SELECT a FROM t",
    "except": "SELECT a FROM t ^EXCEPT SELECT 1",
    "values": "SELECT a FROM ^(VALUES (1)) AS v(a)",
    "no-table": "^SELECT 1 AS a",
    "sample": "SELECT a FROM ^t TABLESAMPLE BERNOULLI (10)",
    "table-function": "SELECT a FROM ^generate_series(1, 3)",
    "set-returning": "SELECT ^unnest(a) FROM t",
    "set-returning-series": "SELECT a, ^generate_series(1, 3) FROM t",
    "set-returning-matches": "SELECT ^regexp_matches(a, 'x') FROM t",
    "random": "SELECT a FROM t ORDER BY ^random()",
    "sequence": "SELECT ^nextval('s') FROM t",
    "somebodys-function": "SELECT ^all_of_them(a) FROM t",
    "somebodys-lower": "SELECT ^mine.lower(a) FROM t",
    "somebodys-type": "SELECT a::^mine.number FROM t",
    "type-of-somebodys-own": "SELECT a::^mytype FROM t",
    "type-quoted": 'SELECT CAST(a AS ^"integer") FROM t',
    "type-of-a-list": "SELECT a::INTEGER^[] FROM t",
    "type-enumerated": "SELECT a::^ENUM('a') FROM t",
    "type-of-a-map": "SELECT a::^MAP(INTEGER, INTEGER) FROM t",
    "type-of-a-record": "SELECT CAST(a AS ^STRUCT(b INTEGER)) FROM t",
    "type-with-a-text": "SELECT a::^numeric('x') FROM t",
    "type-before-a-text": "SELECT ^mytype 'x' FROM t",
    "brackets-with-a-comment-in-a-record": "SELECT CAST(a AS STRUCT(b INTEGER^[/* ] */])) FROM t",
    "brackets-with-a-comment-before-a-text": "SELECT INTEGER^[/* ] */] 'x' FROM t",
    "bracket-that-closes": "SELECT a FROM t -- ^]",
    "catalogue": "SELECT reltuples AS a FROM ^pg_class",
    "catalogue-quoted": 'SELECT reltuples AS a FROM ^"pg_class"',
    "catalogue-of-a-schema": "SELECT a FROM ^PG_Catalog.x",
    "catalogue-of-the-standard": "SELECT a FROM ^Information_Schema.tables",
    "catalogue-statistics": "SELECT n_live_tup AS a FROM ^pg_stat_user_tables",
    "catalogue-values": "SELECT n_distinct AS a FROM ^pg_stats",
    "catalogue-as-a-text": "SELECT name AS a FROM ^'sqlite_master'",
    "catalogue-sequence": "SELECT seq AS a FROM ^SQLite_Sequence",
    "catalogue-of-main": "SELECT stat AS a FROM ^main.sqlite_stat1",
    "catalogue-pragma": "SELECT cid AS a FROM ^pragma_table_info",
    "catalogue-pages": "SELECT ncell AS a FROM ^DBstat",
    "place-in-the-table": "SELECT ^rowid FROM t",
    "place-in-the-order": "SELECT a FROM t ORDER BY ^t.rowid",
    "place-computed": "SELECT a FROM t ORDER BY a + ^rowid",
    "aggregate-in-the-order": "SELECT a FROM t ORDER BY ^count(*)",
    "place-quoted": 'SELECT ^"CTID" FROM t',
    "pattern-of-columns": "SELECT ^COLUMNS('a') FROM t",
    "pivot": "SELECT a FROM t PIVOT (^sum(a) FOR b IN (1))",
    "backslash": "SELECT a FROM t WHERE b = 'x^\\'' OR a IN (SELECT 1) --'",
    "backslash-in-an-e-string": "SELECT E'^\\'', count(*), ' FROM t",
    "dollar-quotes": "SELECT ^$$ ' $$, count(*), $$ ' $$ FROM t",
    "backquotes": "SELECT ^`a`, count(*) FROM t",
    "comment-in-a-comment": "SELECT a /* ^/* */ , count(*) /* */ FROM t",
    "hard-space": "SELECT a^\N{NO-BREAK SPACE}FROM t",
    "no-width": "SELECT cou^\N{ZERO WIDTH SPACE}nt(a) FROM t",
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_statement_that_may_look_at_several_rows_is_refused_with_its_place(case: str):
    before, _, after = REFUSED[case].partition("^")
    error = refusal(before + after)
    line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
    assert error.rule == "query-rows"
    assert f"(line {line}, column {column} of the statement)" in str(error)
    assert specified(before + after, rows="answer").protects == "row of the query's answer"


UNREADABLE = {
    "for-update": "SELECT a FROM t FOR UPDATE",
    "into": "SELECT a INTO u FROM t",
    "top": "SELECT TOP 5 a FROM t",
    "two-statements": "SELECT a FROM t; SELECT b FROM t",
    "writes-afterwards": "SELECT a FROM t; DELETE FROM t",
    "no-sql": "SELECT a FROM FROM",
    "open-comment": "SELECT a FROM t /* LIMIT 5",
    "open-string": "SELECT a FROM t WHERE b = 'x",
    "nested-too-deeply": f"SELECT {'NOT ' * 5000}a FROM t",
    "a-long-sum": f"SELECT {'+'.join('a' * 5000)} FROM t",
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_statement_that_cannot_be_read_is_refused(case: str):
    error = refusal(UNREADABLE[case])
    assert error.rule == "query-unreadable"
    assert "line 1" in str(error)


ACCEPTED = {
    "all": "SELECT * FROM t",
    "all-of-it": "SELECT t.*, a + 1 AS c FROM t",
    "some": 'select a, b AS "größe" from "t" as "x y"',
    "closed": "SELECT a FROM t;",
    "of-a-schema": "SELECT a FROM main.t",
    "constants": "SELECT a, 1 AS c, 'count(*)' AS d, NULL AS e, x'FF' AS f FROM t",
    "arithmetic": "SELECT -a * (b + 2) / 3 % 4 AS c, a || 'x' AS d, a & b AS e FROM t",
    "cases": "SELECT CASE WHEN a > 1 THEN b WHEN a IS NULL THEN 0 ELSE a END AS c, CASE a WHEN 1 THEN 2 END FROM t",
    "casts": "SELECT CAST(a AS TEXT) AS c, CAST(b AS numeric(6, 2)) AS d FROM t",
    "more-casts": "SELECT CAST(a AS Integer) AS c, CAST(b AS REAL) AS d, CAST(a AS varchar(3)) AS e FROM t",
    "names-like-a-catalogue's": "SELECT a AS pg_class, b AS rank FROM t AS sqlite_x",
    "defaults": "SELECT COALESCE(a, b, 0) AS c, NULLIF(a, 1) AS d, IFNULL(a, 2) AS e, IIF(a > 1, a, b) AS f FROM t",
    "functions": "SELECT ABS(a) AS c, round(b, 1) AS d, LOWER(TRIM(a)) AS e, substr(a, 1, 2) AS f, length(a) FROM t",
    "dates": "SELECT date(a) AS c, strftime('%Y', a) AS d FROM t",
    "conditions": "SELECT a FROM t WHERE a BETWEEN 1 AND 3 AND b NOT IN (1, 2) OR a LIKE '1%' AND NOT b IS NULL",
    "tuples": "SELECT a FROM t WHERE (a, b) IN ((1, 2), (3, 4))",
    "comments": "-- LIMIT 5\nSELECT a /* DISTINCT */, b -- GROUP BY a\nFROM t",
    "ordered": "SELECT a, b FROM t ORDER BY b DESC, lower(a) COLLATE nocase, 1",
    "ordered-by-place": "SELECT a, b FROM t ORDER BY rowid DESC, a",
    "collated": "SELECT a COLLATE nocase AS c FROM t",
    "patterns": "SELECT a GLOB '1*' AS c, b LIKE 'x!%' ESCAPE '!' AS d FROM t",
    "colons": "SELECT '12:30' AS c, ' \\:x' AS d FROM t",
    "unused-window": "SELECT a FROM t WINDOW w AS (ORDER BY a)",
    "words": 'SELECT a AS "count(*)", b AS "limit" FROM t',
}
ROWS = [(1, 2), (1, 2), (2, 1), (3, None), (None, 4), (3, 4), ("12", "x"), (10, 1.5)]


def answer(connection: sqlite3.Connection, sql: str, rows: list[tuple[Any, ...]]) -> Counter[Any]:
    connection.execute("DELETE FROM t")
    connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    return Counter(connection.execute(sql).fetchall())


def is_rowwise(connection: sqlite3.Connection, sql: str) -> bool:
    """Whether the answer over all rows is the union of the answers over each of them."""
    alone = sum((answer(connection, sql, [row]) for row in ROWS), Counter())
    return answer(connection, sql, ROWS) == alone


@pytest.fixture(scope="module")
def clinic() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a, b)")
    connection.execute("CREATE TABLE u (a, c)")
    connection.executemany("INSERT INTO u VALUES (?, ?)", ROWS)
    return connection


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_is_accepted_is_row_by_row_in_sqlite(case: str, clinic: sqlite3.Connection):
    spec = specified(ACCEPTED[case])
    assert spec.protects == "row"
    assert is_rowwise(clinic, ACCEPTED[case].replace("\\:", ":"))


ALSO_REFUSED = {
    "offset-as-sqlite-has-it": "SELECT a FROM t LIMIT 100 OFFSET 2",
    "in-a-table-of-its-own": "SELECT a FROM t WHERE (b, a) IN t",
    "join-itself-by-name": "SELECT x.a FROM t AS x, t AS y",
    "subquery-over-all": "SELECT a, (SELECT max(b) FROM t) AS c FROM t",
    "exists-over-all": "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM t AS x WHERE x.b = t.a)",
    "cte-over-all": "WITH m AS (SELECT avg(a) AS c FROM t) SELECT a - c AS a FROM t, m",
}
ALIKE_IN_SQLITE = ["aggregate", "aggregate-in-capitals", "aggregate-quoted", "aggregate-after-a-comment", "distinct"]
ALIKE_IN_SQLITE += ["window", "window-lag", "group-by", "limit", "union"]


@pytest.mark.parametrize("case", [*ALIKE_IN_SQLITE, *ALSO_REFUSED])
def test_the_comparison_sees_statements_that_look_at_several_rows(case: str, clinic: sqlite3.Connection):
    sql = ALSO_REFUSED.get(case) or REFUSED[case].replace("^", "")
    assert not is_rowwise(clinic, sql)
    assert refusal(sql).rule == "query-rows"


WORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "IN",
    "AS",
    "OR",
    "NOT",
    "EXISTS",
    "DISTINCT",
    "ORDER BY",
    "CASE WHEN a THEN",
    "END",
]
MARKS = [*"abtu*,()'\"\n ;[]+-=.1", "--", "/*", "*/", "E'", "x'", "::text", "->>", "lower(", "COALESCE("]
SEVERAL_ROWS = ["count(*)", "max(a)", "max(a) OVER ()", "(SELECT max(b) FROM t)", "GROUP BY a", "LIMIT 1", ", t AS x"]
PIECES = st.sampled_from([*WORDS, *MARKS, *SEVERAL_ROWS, "AND a IN t", "JOIN u", "UNION ALL", "VALUES (1)"])


@pytest.fixture(scope="module")
def one_engine() -> Iterator[None]:
    """Thousands of statements are parsed by one connection: to open one takes longer than to parse."""
    kept = duckdb.connect(":memory:")

    class Borrowed:
        def execute(self, *asked: Any) -> Any:
            return kept.execute(*asked)

        def close(self) -> None:
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb, "connect", lambda *_, **__: Borrowed())
        yield
    kept.close()


@pytest.mark.usefixtures("one_engine")
@given(st.lists(PIECES, max_size=9), st.lists(PIECES, max_size=6))
@example(["a", ", ", "'", "--", "'", ",", "max(a)"], [])
@example(["a", "/*", "'", "*/", ",", "count(*)", "/*", "'", "*/"], [])
@example(["a"], ["WHERE", "(", "a", ",", "b", ")", "IN", "t"])
@example(["[", "a", "]", ",", "count(*)"], [])
def test_no_spelling_is_accepted_that_looks_at_several_rows(selected: list[str], ending: list[str]):
    sql = f"SELECT {' '.join(selected) or 'a'} FROM t {' '.join(ending)}"
    try:
        require_rowwise(sql)
    except PydanticCustomError:
        return
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a, b)")
    connection.execute("CREATE TABLE u (a, c)")
    try:
        held = is_rowwise(connection, sql)
    except (sqlite3.Error, sqlite3.Warning):
        return  # the run is refused
    finally:
        connection.close()
    assert held
