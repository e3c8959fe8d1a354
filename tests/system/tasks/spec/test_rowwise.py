"""Row-by-row statements, run by a PostgreSQL server."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support.tasks.ledger.postgres import Server
from support.tasks.spec.statements import refusal, specified

POSTGRESQL = {
    "kinds": "SELECT a::smallint AS e, a::bigint AS f, a::float8 AS g, b::double precision AS h, b::real AS i FROM t",
    "kinds-of-times": "SELECT c::date AS e, c::time AS f, c::timestamp AS g, c::timestamptz AS h FROM t",
    "long-kinds": "SELECT c::timestamp with time zone AS e, d::character varying(2) AS f, a::int4::bool AS g FROM t",
    "casts": "SELECT a::text AS c, b::numeric(6, 2) AS d, a::int::text AS e FROM t",
    "times": "SELECT date_trunc('month', c) AS d, extract(year FROM c) AS e, c AT TIME ZONE 'UTC' AS f FROM t",
    "more-times": "SELECT to_char(c, 'YYYY-MM') AS d, c + interval '1 day' AS e, c < date '2026-01-01' AS f FROM t",
    "texts": "SELECT substring(d FROM 1 FOR 2) AS e, trim(both ' ' from d) AS f, position('a' in d) AS g FROM t",
    "more-texts": "SELECT d ILIKE 'x%' AS e, left(d, 1) AS f, concat(d, a) AS g, split_part(d, '-', 1) AS h FROM t",
    "truths": "SELECT a > 1 IS TRUE AS e, a IS DISTINCT FROM b AS f, greatest(a, b) AS g, pg_catalog.lower(d) FROM t",
    "json": "SELECT j->>'k' AS e FROM t",
    "brackets": "(SELECT a FROM t)",
    "schema": 'SELECT a FROM "public"."t" AS x WHERE a IS NOT NULL ORDER BY a DESC NULLS LAST',
}


@pytest.mark.parametrize("case", POSTGRESQL)
def test_what_is_accepted_is_row_by_row_in_postgresql(case: str, server: Server, database: str):
    sql = POSTGRESQL[case]
    assert specified(sql).protects == "row"
    made = "CREATE TABLE t (a int, b numeric, c timestamptz, d text, j jsonb)"
    rows = [
        "(1, 2, '2026-01-31 23:00+00', 'xy-z', '{\"k\": 1}')",
        "(2, 1, NULL, ' a', NULL)",
        "(NULL, NULL, NULL, NULL, NULL)",
    ]
    server.execute(made, database=database)

    def asked(*inserted: str) -> Counter[Any]:
        filled = ["DELETE FROM t", *(f"INSERT INTO t VALUES {row}" for row in inserted)]
        return Counter(map(str, server.execute(*filled, sql.replace("%", "%%"), database=database)))

    assert asked(*rows, rows[0]) == asked(rows[0]) + asked(rows[0]) + asked(rows[1]) + asked(rows[2])


def test_postgresql_reads_a_dot_as_an_aggregate(server: Server, database: str):
    """Why names with a dot are refused, though they look like columns."""
    server.execute("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1), (2)", database=database)
    assert server.execute("SELECT t.count FROM t", database=database) == [(2,)]
    assert refusal("SELECT t.count FROM t").rule == "query-rows"
