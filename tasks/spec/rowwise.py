"""Whether each row of a query's answer is a function of one row of one table.

Only then does a change of one row of the table change one row of the answer, which is what the sensitivities bound
(GUARANTEE.md, S4). DuckDB's parser reads the statement, and everything that is not listed here is refused: what a
later version of it may add, and what it cannot read. Names are taken at their word: nobody can see through a view, a
virtual table, a generated column, a type or cast of somebody's own, or a function that somebody put in place of the
database's own.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from tasks.spec.refusals import refuse, shown

PARAMETER = re.compile(r"(?<![:\w\\]):(\w+)(?!:)")
"""A parameter of a statement, as SQLAlchemy reads it."""
_ESCAPED_COLON = re.compile(r"\\(:[\w$]*)(?![:\w$])")  # likewise

DIALECTS = ("postgresql", "sqlite")
"""The databases whose statements are read here as they read them themselves."""

_HINT = (
    "select columns and expressions of one table or view, row by row; or declare `rows: answer`, "
    "and the guarantee is about the rows of the answer alone"
)

_SEVERAL_ROWS = "may make a row of the answer depend on more than one row of a table"
_READ_DIFFERENTLY = "is read in different ways by different databases, so what its rows depend on cannot be determined"
_OWN_SCHEMAS = ("", "pg_catalog")
_SETTINGS: dict[str, Any] = {"threads": 1, "autoinstall_known_extensions": False, "autoload_known_extensions": False}

_EXPRESSIONS = {"BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION"}
_EXPRESSIONS |= {"OPERATOR", "PARAMETER", "STAR", "TYPE"}
_OPERATORS = {"OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_COALESCE"}
_OPERATORS |= {"COMPARE_IN", "COMPARE_NOT_IN"}
_PARTS = {"SELECT_NODE", "BASE_TABLE", "ORDER_MODIFIER", "ORDER_DEFAULT", "ASCENDING", "DESCENDING"}

_SIGNS = "+ - * / % ^ || & | << >> ->> ~ ~~ !~~ ~~* !~~* ~~~ like_escape not_like_escape ilike_escape not_ilike_escape"
_FUNCTIONS = """
    abs ascii btrim ceil ceiling char_length character_length chr concat date date_part date_trunc datetime exp floor
    greatest hex if ifnull iif initcap instr least left length ln log log10 lower lpad ltrim make_date mod now nullif
    octet_length overlay position pow power replace reverse right round row rpad rtrim sign split_part sqrt strftime
    strpos substr substring time timezone to_char to_date to_number to_timestamp translate trim trunc typeof unicode
    unixepoch upper
"""
_SCALAR = frozenset(f"{_SIGNS} {_FUNCTIONS}".split())
"""Functions of one row's values in SQLite and PostgreSQL; neither knows an aggregate by one of these names."""

_TYPE_NAMES = """
    bigint bool boolean bpchar char date decimal double float float4 float8 int int2 int4 int8 integer interval numeric
    real smallint text time timestamp timestamptz timetz varchar
"""
_TYPES = frozenset(_TYPE_NAMES.split()) | {"time with time zone", "timestamp with time zone"}
"""Types of single values, as the parser names them; others may be lists, or have casts of somebody's own."""

_CATALOGUE = re.compile(r"pg_|sqlite_|pragma_|information_schema$|dbstat$", re.IGNORECASE)
"""Names of schemas and tables in which databases describe themselves: their rows are about all rows of other tables."""

_PLACES = frozenset({"cmax", "cmin", "ctid", "oid", "rowid", "_rowid_", "xmax", "xmin"})
"""Names that databases answer with a row's place among the others, or with the transaction that wrote it."""

_CONSTRUCTS = {
    "DISTINCT_MODIFIER": "DISTINCT",
    "EMPTY": "a SELECT without a table",
    "EXPRESSION_LIST": "a list of VALUES",
    "JOIN": "a join",
    "LIMIT_MODIFIER": "LIMIT, OFFSET or FETCH",
    "SET_OPERATION_NODE": "UNION, INTERSECT or EXCEPT",
    "SUBQUERY": "a subquery",
    "TABLE_FUNCTION": "a function in place of a table",
    "WINDOW": "a window function",
}
_CLAUSES = {
    "at_clause": "a version of the table",
    "columns": "a choice of columns by a pattern",
    "filter": "FILTER",
    "group_expressions": "GROUP BY",
    "group_sets": "GROUP BY",  # the set () has no expression
    "having": "HAVING",
    "map": "WITH",  # of the common table expressions
    "qualify": "QUALIFY",
    "sample": "a sample",
}


def require_rowwise(sql: str) -> None:
    """Refuse a statement unless each row of its answer is a function of one row of one table."""
    _refuse_ambiguous(sql)
    text = _ESCAPED_COLON.sub(r"\1", PARAMETER.sub(r"$\1", sql))
    _refuse_if("\\" in text, "a backslash", text, text.find("\\"), why=_READ_DIFFERENTLY)
    for part in _parts(_parsed(text)):
        _refuse_part(part, text)


def _refuse_ambiguous(sql: str) -> None:
    """Refuse characters and comments that one database reads in another way than the next."""
    odd = next((place for place, letter in enumerate(sql) if not (letter.isprintable() or letter in "\n\t")), -1)
    _refuse_if(odd >= 0, "a character that cannot be printed", sql, odd, why=_READ_DIFFERENTLY)
    for mark, name in (
        ("$", "a dollar sign"),
        ("`", "a backquote"),
        ("[", "a square bracket"),
        ("]", "a square bracket"),
    ):
        _refuse_if(mark in sql, name, sql, sql.find(mark), why=_READ_DIFFERENTLY)
    nested = re.search(r"/\*(?:(?!\*/).)*?(/\*)", sql, re.DOTALL)
    inner = nested.start(1) if nested else -1
    _refuse_if(inner >= 0, "a comment inside a comment", sql, inner, why=_READ_DIFFERENTLY)


def _parsed(text: str) -> dict[str, Any]:
    """The syntax tree of a text that is one SELECT."""
    tree = _tree(text)
    if tree["error"] or len(tree["statements"]) != 1:
        place = _place_of({"query_location": int(tree.get("position", 0))}, text)
        where = _position(text, len(text) if place is None else place)
        message = f"the statement cannot be read as one SELECT{where}: what its rows depend on cannot be determined"
        refuse("query-unreadable", message, _HINT, "sql")
    statement: dict[str, Any] = tree["statements"][0]
    return statement


@functools.lru_cache(maxsize=8)
def _tree(text: str) -> dict[str, Any]:
    """What DuckDB's parser makes of a text; nothing is run, and no table is looked up."""
    import duckdb

    asked = "SELECT json_serialize_sql(?::VARCHAR, skip_null := false, skip_empty := false, skip_default := false)"
    with closing(duckdb.connect(":memory:", config=_SETTINGS)) as connection:
        try:
            answer = connection.execute(asked, [text]).fetchone()
            tree: dict[str, Any] = json.loads(answer[0]) if answer else {"error": True}
        except (duckdb.Error, RecursionError):  # nested too deeply
            tree = {"error": True}
    return tree


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """All mappings of a syntax tree, outer ones first, but for plain columns to order by: they change no row."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict) and "null_order" in part and len(part["expression"].get("column_names", "")) == 1:
            continue
        if isinstance(part, dict):
            yield part
        children = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        waiting.extend(reversed(list(children)))


def _refuse_part(part: dict[str, Any], text: str) -> None:
    """Refuse one part of a syntax tree unless it is known to look at one row."""
    place = _place_of(part, text)
    kind = str(part.get("class", part.get("type", "")))
    known = _EXPRESSIONS if "class" in part else _PARTS
    _refuse_if(bool(kind) and kind not in known, _CONSTRUCTS.get(kind, "a construct"), text, place)
    for key, clause in _CLAUSES.items():
        _refuse_if(bool(part.get(key)), clause, text, place)
    handling = part.get("aggregate_handling", "STANDARD_HANDLING")  # another one is GROUP BY ALL
    _refuse_if(handling != "STANDARD_HANDLING", "GROUP BY", text, place)
    if kind == "FUNCTION":
        name = str(part["function_name"]).removesuffix("_star")
        _refuse_if(not _is_scalar(part), f"the function {shown(name)}", text, place)
    elif kind == "COLUMN_REF":
        _refuse_column(part["column_names"], text, place)
    elif kind == "OPERATOR":
        _refuse_if(part["type"] not in _OPERATORS, "an operator", text, place)
    elif kind == "TYPE":
        _refuse_if(not _is_of_single_values(part, text, place), f"the type {shown(part['type_name'])}", text, place)
    elif kind == "BASE_TABLE":
        names = (part["schema_name"], part["table_name"])
        _refuse_if(any(map(_CATALOGUE.match, names)), "a table of the database about itself", text, place)


def _is_scalar(call: dict[str, Any]) -> bool:
    """Whether a call is of one of the database's own functions that look at one row."""
    name, own = str(call["function_name"]), call["schema"] in _OWN_SCHEMAS and not call["catalog"]
    aggregating = call["distinct"] or call["order_bys"]["orders"]
    return own and name.isascii() and name.lower() in _SCALAR and not aggregating


def _is_of_single_values(kind: dict[str, Any], text: str, place: int | None) -> bool:
    """Whether a type is one of the database's own for single values, with nothing but numbers in its brackets."""
    own = kind["schema"] in _OWN_SCHEMAS and not kind["catalog"]
    quoted = place is not None and text[place] == '"'  # in PostgreSQL "integer" may be somebody's own
    numbers = all(child.get("literal", {}).get("kind") == "INTEGER" for child in kind["children"])
    return own and not quoted and numbers and str(kind["type_name"]).lower() in _TYPES


def _refuse_column(names: list[str], text: str, place: int | None) -> None:
    """Refuse names that may stand for more than a value of the row.

    In PostgreSQL `visits.count` is the aggregate count(visits) where the table has no such column.
    """
    _refuse_if(len(names) > 1, "a name with a dot, which one table does not need,", text, place)
    _refuse_if(names[-1].casefold() in _PLACES, f"the name {shown(names[-1])}", text, place)


def _refuse_if(broken: bool, what: str, text: str, place: int | None, *, why: str = _SEVERAL_ROWS) -> None:
    """Refuse the statement for what stands at a place of it, or where the words of its name stand."""
    if not broken:
        return
    if place is None and (found := re.search("|".join(re.findall("[A-Z]{2,}", what)) or "^", text, re.IGNORECASE)):
        place = found.start()
    refuse("query-rows", f"{what}{_position(text, place or 0)} {why}", _HINT, "sql")


def _place_of(part: dict[str, Any], text: str) -> int | None:
    """Where a part of the syntax tree begins in the text; the parser counts bytes."""
    raw, at = text.encode(), part.get("query_location")
    return len(raw[:at].decode(errors="ignore")) if isinstance(at, int) and at < len(raw) else None


def _position(text: str, place: int) -> str:
    """A place in a text, for people."""
    line, column = text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)
    return f" (line {line}, column {column} of the statement)"
