"""Data from a query, which runs once and streams into a Parquet file of the vault that is read like landed data.

Thus every pass of a release sees the same snapshot, and the database is queried once. The file's types follow
from the specification, never from values: a value that its column cannot hold counts as missing, as in
`cells`. Errors of drivers may quote addresses, statements and values, so they are replaced by our own,
raised outside the handler.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from dpcore.errors import LandingError, RefusedError
from dpcore.records.schema import RowRule
from tasks.landing.months import months_days
from tasks.landing.sorting import BATCH_ROWS, sort_rows, vault_full
from tasks.landing.sql_cells import column_types, spooled_column
from tasks.spec import QuerySpec, ReleaseSpec
from tasks.spec.rowwise import DIALECTS
from tasks.workspace.redaction import ErrorBoundary

WHERE = "source.query"
CONNECT_SECONDS = 10
_BATCH_CELLS, _MOST_ROWS = 1 << 19, 65_536
"""The cells and rows that are fetched together; a cell takes about a hundred bytes as a Python value."""
_GROUP_BATCHES = 8


def spool_query(
    spec: ReleaseSpec, target: Path, *, period: str | None, root: Path, environment: Mapping[str, str]
) -> Path:
    """Run the source's query and write its rows to `target`, a Parquet file that only its owner can read.

    A relative SQLite path begins at `root`; `environment` contains the variable that the URL may name.
    Raises: LandingError if the database cannot be queried, or its columns are not those declared; WorkspaceError if
    there is no space.
    """
    query = spec.source.query
    if query is None:
        raise ValueError("the source has no query")
    parameters = _parameters(query, period)
    address = _query_address(query, environment)
    _require_dialect(query, address)
    try:
        with ErrorBoundary(Exception, refusal=_unreachable):  # drivers have errors of their own
            connection = _engine(address, root).connect()
        with ErrorBoundary(Exception, refusal=_unanswered):
            _run_query(connection, spec, query.sql, parameters, target)
    except RefusedError:
        target.unlink(missing_ok=True)
        raise
    return target


def _run_query(
    connection: sa.Connection, spec: ReleaseSpec, sql: str, parameters: Mapping[str, Any], target: Path
) -> None:
    """Run the query into the file."""
    try:
        with connection:  # nothing is ever committed
            _spool(connection, spec, sql, parameters, target)
        if spec.unit.row_rule is RowRule.AT_MOST:
            _put_in_own_order(target, column_types(spec))
    finally:
        connection.engine.dispose()


def _parameters(query: QuerySpec, period: str | None) -> dict[str, Any]:
    """The values of the parameters that the statement uses."""
    if not query.parameters:
        return {}
    if period is None:
        raise _query_refusal(
            "the query needs a period", "period-missing", "name the month: --period 2026-11", f"{WHERE}.sql"
        )
    start, end = months_days(period)
    values = {"period": period, "period_start": start, "period_end": end}
    return {name: values[name] for name in query.parameters}


def _query_address(query: QuerySpec, environment: Mapping[str, str]) -> str:
    if query.variable is None:
        return query.url
    if not environment.get(query.variable):
        hint = "set it to the database's URL where the release runs, for a service in its unit or container"
        raise _query_refusal(
            f"the environment variable {query.variable} is not set", "query-variable", hint, f"{WHERE}.url"
        )
    return environment[query.variable]


def _require_dialect(query: QuerySpec, address: str) -> None:
    """Refuse a statement that must work row by row if the database may interpret it differently from our parser.

    Raises: LandingError.
    """
    known = True
    with suppress(sa.exc.ArgumentError, ValueError):  # connecting reports this fault
        known = sa.make_url(address).get_backend_name() in DIALECTS
    if query.rows == "table" and not known:
        hint = "declare `source.query.rows: answer` if it is the rows of the answer that are to be protected"
        message = "only statements for PostgreSQL and SQLite can be read: what this answer's rows depend on is unknown"
        raise _query_refusal(message, "query-dialect", hint, f"{WHERE}.url")


def _engine(address: str, root: Path) -> sa.Engine:
    """A read-only engine, if the database supports that."""
    url = sa.make_url(address)
    if url.get_backend_name() == "postgresql":
        url = url.set(drivername="postgresql+psycopg") if "+" not in url.drivername else url
        engine = sa.create_engine(url, poolclass=sa.NullPool, connect_args={"connect_timeout": CONNECT_SECONDS})
        sa.event.listen(engine, "connect", _lenient_dates)
        sa.event.listen(engine, "begin", _read_only)
        return engine
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database.startswith("file:"):
            raise ValueError("a database here is named by its path")
        path = (root / url.database).absolute()
        url = url.set(database=path.as_uri(), query={"mode": "ro", "uri": "true"})  # opening does not create it
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        sa.event.listen(engine, "connect", _lenient_text)
        return engine
    return sa.create_engine(url, poolclass=sa.NullPool)


def _read_only(connection: sa.Connection) -> None:
    connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def _lenient_text(connection: Any, _record: Any) -> None:
    connection.text_factory = lambda raw: raw.decode(
        errors="replace"
    )  # one invalid cell must not prevent reading the others
    connection.execute("PRAGMA query_only = ON")


def _lenient_dates(connection: Any, _record: Any) -> None:
    """Let times that Python cannot represent, such as infinity, count as missing."""
    if not hasattr(connection, "adapters"):  # another driver than psycopg
        return
    from psycopg import DataError
    from psycopg.types import datetime as loaders

    kinds = {"date": loaders.DateLoader, "timestamp": loaders.TimestampLoader, "timestamptz": loaders.TimestamptzLoader}
    for name, base in kinds.items():

        class Lenient(base):  # type: ignore[misc, valid-type]
            def load(self, data: Any) -> Any:
                try:
                    return super().load(data)
                except (DataError, ValueError, OverflowError):
                    return None

        connection.adapters.register_loader(name, Lenient)


def _spool(connection: sa.Connection, spec: ReleaseSpec, sql: str, parameters: Mapping[str, Any], target: Path) -> None:
    kinds = {name: sa.Date() if isinstance(value, date) else sa.String() for name, value in parameters.items()}
    statement = sa.text(sql).bindparams(*(sa.bindparam(name, type_=kind) for name, kind in kinds.items()))
    types = column_types(spec)
    rows = max(1024, min(_MOST_ROWS, _BATCH_CELLS // len(types)))
    streamed = {"stream_results": True, "yield_per": rows}
    result = connection.execute(statement, dict(parameters), execution_options=streamed)
    places = _column_places(list(result.keys()), spec)
    _write_groups(_batches(result.partitions(rows), places, spec, types), target, types)


def _write_groups(batches: Iterator[pa.RecordBatch], target: Path, types: pa.Schema) -> None:
    with _private_writer(target, types) as writer:
        for group in _grouped(batches):
            writer.write_table(group, row_group_size=len(group))


def _put_in_own_order(target: Path, types: pa.Schema) -> None:
    """Sort a file's rows by their own values, so that which of a person's rows come first depends only on these rows.

    A database returns rows in an order that may depend on all rows, and ORDER BY leaves ties open. A digest is
    the first sort key, so that neither small nor large values are preferred; rows with equal values are equivalent.
    """
    kinds = [pa.int64() if pa.types.is_timestamp(kind) else kind for kind in types.types]
    plain = pa.schema([(f"c{place}", kind) for place, kind in enumerate(kinds)])  # the engine ignores a name's case
    order = f"md5(CAST(row({', '.join(plain.names)}) AS VARCHAR)), {', '.join(plain.names)}"
    arrived = target.rename(target.with_name(f"{target.name}.arrived"))
    try:
        with pq.ParquetFile(arrived) as file:
            rows = (_as(batch, plain) for batch in file.iter_batches(batch_size=BATCH_ROWS))
            ordered = sort_rows(rows, plain, order, scratch=target.parent)
            _write_groups((_as(batch, types) for batch in ordered), target, types)
    finally:
        arrived.unlink()


def _as(batch: pa.RecordBatch, types: pa.Schema) -> pa.RecordBatch:
    """The same columns with other names and types."""
    return pa.record_batch([c.cast(kind) for c, kind in zip(batch.columns, types.types, strict=True)], schema=types)


def _batches(
    partitions: Iterator[Sequence[sa.Row[Any]]], places: Mapping[str, int], spec: ReleaseSpec, types: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for rows in partitions:
        columns = list(zip(*rows, strict=True))
        yield pa.record_batch([spooled_column(columns[places[name]], name, spec) for name in types.names], schema=types)


def _grouped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Several batches together, so that a row group is large enough to be read separately."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if len(held) == _GROUP_BATCHES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


@contextmanager
def _private_writer(target: Path, types: pa.Schema) -> Iterator[pq.ParquetWriter]:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file, pq.ParquetWriter(file, types) as writer:
        yield writer


def _column_places(names: Sequence[str], spec: ReleaseSpec) -> dict[str, int]:
    """The position of each needed column in the result.

    Raises: LandingError if one is missing, repeated or undeclared; nothing has been fetched then.
    """
    wanted, dropped = set(column_types(spec).names), set(spec.source.drop)
    if len(set(names)) != len(names):
        raise _query_refusal(
            "two columns of the query have the same name", "column-repeated", "name one of them with AS"
        )
    for name in column_types(spec).names:
        if name not in names:
            hint = "select it, or give the column that holds it this name with AS"
            raise _query_refusal(
                f"the query lacks the declared column {name!r}", "column-missing", hint, f"columns.{name}"
            )
    if set(names) - wanted - dropped:
        hint = "declare every column in `columns`, name it in source.drop, or do not select it"
        raise _query_refusal("the query has a column that is neither declared nor dropped", "column-undeclared", hint)
    return {name: place for place, name in enumerate(names) if name in wanted}


def _query_refusal(message: str, rule: str, hint: str, where: str = WHERE) -> LandingError:
    return LandingError(message, rule=rule, where=where, hint=hint)


def _unreachable(error: Exception) -> RefusedError:
    """The refusal for a failed connection, without any text of the driver's error."""
    if isinstance(error, ImportError | sa.exc.NoSuchModuleError):
        hint = "install the database's driver beside dprelease; PostgreSQL's is in locks/extras.txt"
        return _query_refusal("the driver of this database is not installed", "database-driver", hint, f"{WHERE}.url")
    if isinstance(error, sa.exc.ArgumentError | ValueError):
        hint = "write postgresql://user@host/database or sqlite:///path, there or into the variable that it names"
        return _query_refusal("this is not the URL of a database", "query-url", hint, f"{WHERE}.url")
    hint = "check that the database runs, its address, and that this account may use it; nothing was measured"
    return _query_refusal(
        f"the database cannot be reached ({_kind(error)})", "database-unreachable", hint, f"{WHERE}.url"
    )


def _unanswered(error: Exception) -> RefusedError:
    """The refusal for a failed query, without any text of the driver's error."""
    if isinstance(error, RefusedError):
        return error.with_traceback(None)
    kind = _kind(error)
    if isinstance(error, OSError) and not isinstance(error, TimeoutError | ConnectionError):  # those are the driver's
        return vault_full()
    if kind == "InsufficientPrivilege":
        hint = "let the database's administrator give this account the right to read those tables"
        return _query_refusal(
            "the database does not let this account read what the query asks for", "query-forbidden", hint
        )
    if kind == "ReadOnlySqlTransaction":
        return _query_refusal("the query writes", "query-writes", "write one statement that only reads")
    hint = "try it with the database's own client: its tables, columns and values must allow it; nothing was measured"
    return _query_refusal(f"the database could not answer the query ({kind})", "query-failed", hint, f"{WHERE}.sql")


def _kind(error: Exception) -> str:
    """The type of an error, that of the driver's own error if there is one."""
    return type(getattr(error, "orig", None) or error).__name__
