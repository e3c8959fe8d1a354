"""The sections about running a release: source, schedule, runner, ledger, lineage, approval."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    StrictBool,
    StringConstraints,
    field_validator,
    model_validator,
)

from tasks.spec.cron import valid_cron
from tasks.spec.refusals import refuse, shown, suggestion
from tasks.spec.rowwise import PARAMETER, require_rowwise
from tasks.spec.values import ColumnName, FilledText, PositiveWhole, Section, TimezoneName, first_repeated

_LEDGER = re.compile(r"(sqlite|postgresql)(\+[a-z0-9]+)?://\S*")
_ADDRESS = re.compile(r"[a-z]+://\S+")
_DATABASE = re.compile(r"[a-z][a-z0-9_]*(\+[a-z0-9_]+)?://\S*")
_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
_PASSWORD = re.compile(r"[^:]*://[^:/@]*:[^@]*@")  # as SQLAlchemy reads it
_SECRET_OPTION = re.compile(
    r"\b(?!passfile\b|sslkey\b)\w*(pass|pwd|secret|token|key|credential|odbc_connect)\w*\s*=", re.IGNORECASE
)
"""An option that holds a secret itself; passfile and sslkey name files that do."""
_SELECT = re.compile(r"(\s|\(|--[^\n]*\n|/\*.*?\*/)*(select|with)\b", re.IGNORECASE | re.DOTALL)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_ENDPOINT = re.compile(r"https?://[!-~]+")

PARAMETERS = ("period", "period_start", "period_end")
"""What a query may ask for: the month as 2026-11, its first day, and the first day after it."""


def _one_character(text: str) -> str:
    if len(text) != 1 or text in "\r\n\0":
        refuse("one-character", f"this must be one character, got {shown(text)}", 'write for example ";" or "\\t"')
    return text


def _text_encoding(name: str) -> str:
    try:
        "".encode(name)
    except (LookupError, ValueError):
        refuse("encoding", f"{shown(name)} is not a text encoding", "use a name that Python knows, such as utf-8")
    return name


OneCharacter = Annotated[str, AfterValidator(_one_character)]


class CsvSpec(Section):
    """The dialect of CSV files."""

    delimiter: OneCharacter = Field(default=",", description="The character between two cells.")
    encoding: Annotated[str, AfterValidator(_text_encoding)] = Field(
        default="utf-8", description="The text encoding, by a name that Python knows."
    )
    decimal: Literal[".", ","] = Field(default=".", description="The decimal mark.")
    quote: OneCharacter = Field(default='"', description="The character around cells that hold a delimiter.")

    @model_validator(mode="after")
    def _marks_differ(self) -> Self:
        if len({self.delimiter, self.decimal, self.quote}) < 3:
            hint = 'with a decimal comma use for example `delimiter: ";"`'
            refuse("csv-marks", "delimiter, decimal and quote must be three different characters", hint)
        return self


def _database_url(text: str) -> str:
    """The address of a database, or the variable that holds it; never quoted, for it may hold a password."""
    if _VARIABLE.fullmatch(text):
        return text
    if not _DATABASE.fullmatch(text):
        hint = "write postgresql://user@host/database, sqlite:///path, or env:NAME for a variable that holds such a URL"
        refuse("query-url", "this is not the URL of a database", hint)
    if holds_password(text):
        hint = "put the URL into an environment variable of the release's process and write `url: env:NAME`"
        refuse("query-password", "the URL holds a password, which does not belong into this file", hint)
    return text


def holds_password(url: str) -> bool:
    """Whether the URL of a database holds a password, after its user or as an option, however it is spelt."""
    plain = unquote(url)
    return bool(_PASSWORD.match(plain) or _SECRET_OPTION.search(plain))


def _select(sql: str) -> str:
    """A statement that only reads, with no parameters but ours."""
    if not _SELECT.match(sql):
        refuse(
            "query-select", "the statement does not begin with SELECT or WITH", "write one statement that only reads"
        )
    for name in PARAMETER.findall(sql):
        if name not in PARAMETERS:
            hint = f"use :{', :'.join(PARAMETERS)}; write a colon that begins no parameter as \\:"
            refuse("query-parameter", f"there is no parameter :{shown(name)[1:-1]}", hint)
    return sql


RowsOf = Literal["table", "answer"]
"""Of what the guarantee's rows are: of the table or view that the query reads row by row, or of its answer alone."""


class QueryFacts(Section):
    """What a record says of a query: whose rows its guarantee is about, and which statement gave them."""

    rows: RowsOf
    sql_sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    """Over the statement as release.yaml has it, white space included."""


class QuerySpec(Section):
    """A query whose rows are the data of a release."""

    url: Annotated[str, AfterValidator(_database_url)] = Field(
        repr=False,
        description="The address of a PostgreSQL or SQLite database, or `env:NAME` for an environment variable that "
        "holds it. A password in the address is refused.",
    )
    sql: Annotated[FilledText, AfterValidator(_select)] = Field(
        repr=False,
        description="One statement that only reads. `:period`, `:period_start` and `:period_end` stand for the month.",
    )
    rows: RowsOf = Field(
        default="table",
        description="Whose rows the guarantee is about: the table's, for a statement that is row by row, or the "
        "answer's, for any other.",
    )

    @model_validator(mode="after")
    def _rows_are_the_tables(self) -> Self:
        if self.rows == "table":
            require_rowwise(self.sql)
        return self

    @property
    def variable(self) -> str | None:
        """The environment variable that holds the URL; None where the URL is written here."""
        match = _VARIABLE.fullmatch(self.url)
        return match[1] if match else None

    @property
    def parameters(self) -> frozenset[str]:
        """Which of `PARAMETERS` the statement uses."""
        return frozenset(PARAMETER.findall(self.sql))

    @property
    def facts(self) -> QueryFacts:
        """What is public of the query."""
        return QueryFacts(rows=self.rows, sql_sha256=hashlib.sha256(self.sql.encode()).hexdigest())


def _without_credentials(path: str) -> str:
    """A path or URL; one with credentials is never quoted."""
    here = without_file_scheme(path)
    scheme, mark, rest = here.partition("://")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    with_credentials = at and not (scheme in ("abfs", "abfss") and not {":", "%"} & set(user))
    plain = _SCHEME.fullmatch(scheme) and "::" not in here and not (scheme in ("http", "https") and "?" in rest)
    if mark and (with_credentials or not plain or scheme in ("file", "local")):
        hint = "write scheme://place/path; credentials belong into the settings of the store's client"
        refuse("path-url", "this is not a plain URL of a store", hint)
    return here


def without_file_scheme(path: str) -> str:
    """The path that a file URL of this machine stands for; anything else as it is."""
    return unquote(path.removeprefix("file://")) if path.startswith("file:///") else path


class SourceSpec(Section):
    """Where the data come from and which of their columns are left out: files that land, or a query."""

    # Empty if the data come from a query.
    path: Annotated[FilledText, AfterValidator(_without_credentials)] = Field(
        default="",
        description="A file, folder, partitioned folder or pattern, relative to the workspace, of Parquet or CSV "
        "files, or the URL of a store, such as `s3://...`. Either this or `query` is needed.",
    )
    query: QuerySpec | None = Field(
        default=None, description="The data are the answer of a database, instead of files."
    )
    period: str | None = Field(
        default=None,
        description="A regular expression with the group `period`, which finds the data's month in a file name.",
    )
    period_column: ColumnName | None = Field(
        default=None,
        description="The column whose date says which month a record belongs to; other months' records count for "
        "nothing. It is a declared column of kind date or timestamp, or an undeclared one, which is never released.",
    )
    drop: tuple[FilledText, ...] = Field(
        default=(), description="Columns of the data that are left out. Undeclared columns are refused, not ignored."
    )
    csv: CsvSpec = Field(default_factory=CsvSpec, description="The dialect of CSV files.")

    @field_validator("period")
    @classmethod
    def _period_is_a_pattern(cls, pattern: str | None) -> str | None:
        hint = r"write for example 'visits-(?P<period>\d{4}-\d{2})', in single quotes"
        if pattern is None:
            return None
        try:
            groups = re.compile(pattern).groupindex
        except (re.error, OverflowError, RecursionError) as error:
            refuse("period-pattern", f"the pattern does not compile: {error}", hint)
        if "period" not in groups:
            refuse("period-group", "the pattern has no group named `period`", hint)
        return pattern

    @field_validator("drop")
    @classmethod
    def _drop_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        index = first_repeated(names)
        if index is not None:
            refuse("drop-duplicate", f"the column {shown(names[index])} is dropped twice", "remove one of them", index)
        return names

    @model_validator(mode="after")
    def _files_or_a_query(self) -> Self:
        if not self.path and self.query is None:
            hint = "write `path: landing/*.parquet`, or `query: {url: env:NAME, sql: SELECT ...}`"
            refuse("missing-key", "the source has neither `path` nor `query`", hint, "path")
        for key in ("path", "period", "csv") if self.query else ():
            if key in self.model_fields_set and getattr(self, key) is not None:
                refuse(
                    "query-or-files",
                    f"the key `{key}` is about files, and the data come from a query",
                    "remove it",
                    key,
                )
        return self

    @property
    def is_elsewhere(self) -> bool:
        """Whether the data come from a database or a store: no file of them lands here."""
        return self.query is not None or "://" in self.path

    @property
    def tells_months_apart(self) -> bool:
        """Whether the data of one month can be had without those of others."""
        return bool(self.period or self.period_column or (self.query and self.query.parameters))


class ScheduleSpec(Section):
    """When releases happen by themselves; without `cron` and `on_landing`, never."""

    cron: Annotated[str, AfterValidator(valid_cron)] | None = Field(
        default=None, description="A cron expression; the last complete month is released at these times."
    )
    timezone: TimezoneName = Field(default="UTC", description="The IANA time zone of `cron` and of the nightly audit.")
    on_landing: StrictBool = Field(
        default=False, description="Whether a month is released as soon as its file is complete in `landing/`."
    )


def _is_address(text: str) -> str:
    if text != "local" and not _ADDRESS.fullmatch(text):
        hint = "write for example tls://host:8786, or `local` for one process per core on this machine"
        refuse("dask-address", "this is not the address of a Dask scheduler", hint)
    return text


class RunnerSpec(Section):
    """Where the streaming pass runs: on threads, or on a Dask cluster."""

    dask: Annotated[str, AfterValidator(_is_address)] = Field(
        description="The address of a Dask scheduler, such as `tls://host:8786`, or `local` for one process per core."
    )


def ledger_url(text: str) -> str:
    """The URL of a ledger database; never quoted, for it may hold a password."""
    if not _LEDGER.fullmatch(text):
        hint = "write postgresql://user@host/database or sqlite:///path, or leave the key out"
        refuse("ledger-url", "this is not the URL of an SQLite or PostgreSQL database", hint)
    if holds_password(text):
        hint = "put the password into ~/.pgpass, or into the variable PGPASSWORD or PGPASSFILE of the process"
        refuse("ledger-password", "the URL holds a password, which does not belong into this file", hint)
    return text


def _endpoint_url(text: str) -> str:
    """The URL of an OpenLineage endpoint; never quoted, for somebody may have put a password in it."""
    if not (_ENDPOINT.fullmatch(text) and _names_a_host(text)):
        hint = "write for example https://marquez.example.org:5000; a token goes into keys/lineage.token"
        refuse("lineage-url", "this is not a plain http or https URL of a host", hint)
    return text.rstrip("/")


def _names_a_host(url: str) -> bool:
    """Whether a URL has a host and a possible port, and neither user, query nor fragment."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and not ("@" in parts.netloc or parts.query or parts.fragment)
    except ValueError:
        return False


class LineageSpec(Section):
    """Where lineage events are sent, besides the workspace's log."""

    url: Annotated[str, AfterValidator(_endpoint_url)] = Field(
        description="The address of an OpenLineage endpoint. A bearer token belongs in `keys/lineage.token`."
    )


PLAIN = ("none", "required")


class ApproversSpec(Section):
    """Names or fingerprints of enrolled keys, and how many of them must approve."""

    by: tuple[FilledText, ...] = Field(description="Names or fingerprints of keys with the role `approve`.")
    at_least: PositiveWhole = Field(default=1, description="How many of them must approve.")

    @model_validator(mode="after")
    def _enough_are_named(self) -> Self:
        if len(set(self.by)) < len(self.by):
            refuse("approver-twice", "an approver is named twice", "name each once", "by")
        if self.at_least > len(self.by):
            message = f"{self.at_least} approvals are asked for, and {len(self.by)} approvers are named"
            refuse("approvers-too-few", message, "name more approvers, or ask for fewer approvals", "at_least")
        return self


def _approval_rule(value: Any) -> str | ApproversSpec:
    if isinstance(value, dict | ApproversSpec):
        return ApproversSpec.model_validate(value)
    if value not in PLAIN:
        refuse("unknown-value", f"{shown(value)} is not one of {', '.join(PLAIN)}", suggestion(value, PLAIN))
    return str(value)


def _as_json(rule: str | ApproversSpec) -> str | dict[str, Any]:
    return rule if isinstance(rule, str) else {"by": list(rule.by), "at_least": rule.at_least}


ApprovalRule = Annotated[str | ApproversSpec, PlainValidator(_approval_rule), PlainSerializer(_as_json)]
"""`none`, `required` (anybody who holds a key with the role approve), or who."""
