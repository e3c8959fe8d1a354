"""The sections about running a release: source, schedule, runner, ledger, lineage."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StrictBool, field_validator, model_validator

from tasks.stores.spec.cron import valid_cron
from tasks.stores.spec.refusals import refuse, shown
from tasks.stores.spec.values import FilledText, Section, TimezoneName

_LEDGER = re.compile(r"(sqlite|postgresql)(\+[a-z0-9]+)?://\S*")
_ADDRESS = re.compile(r"[a-z]+://\S+")
_ENDPOINT = re.compile(r"https?://[!-~]+")


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

    delimiter: OneCharacter = ","
    encoding: Annotated[str, AfterValidator(_text_encoding)] = "utf-8"
    decimal: Literal[".", ","] = "."
    quote: OneCharacter = '"'

    @model_validator(mode="after")
    def _marks_differ(self) -> Self:
        if len({self.delimiter, self.decimal, self.quote}) < 3:
            hint = 'with a decimal comma use for example `delimiter: ";"`'
            refuse("csv-marks", "delimiter, decimal and quote must be three different characters", hint)
        return self


class SourceSpec(Section):
    """Where the data land and which of their columns are left out."""

    path: FilledText
    period: str | None = None
    drop: tuple[FilledText, ...] = ()
    csv: CsvSpec = Field(default_factory=CsvSpec)

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
        for index, name in enumerate(names):
            if name in names[:index]:
                refuse("drop-duplicate", f"the column {shown(name)} is dropped twice", "remove one of them", index)
        return names


class ScheduleSpec(Section):
    """When releases happen by themselves; without `cron` and `on_landing`, never."""

    cron: Annotated[str, AfterValidator(valid_cron)] | None = None
    timezone: TimezoneName = "UTC"
    on_landing: StrictBool = False


def _is_address(text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        refuse("dask-address", "this is not the address of a Dask scheduler", "write for example tcp://host:8786")
    return text


class RunnerSpec(Section):
    """Where the streaming pass runs: on threads, or on a Dask cluster."""

    dask: Annotated[str, AfterValidator(_is_address)]


def ledger_url(text: str) -> str:
    """The URL of a ledger database; never quoted, for it may hold a password."""
    if not _LEDGER.fullmatch(text):
        hint = "write postgresql://user@host/database or sqlite:///path, or leave the key out"
        refuse("ledger-url", "this is not the URL of an SQLite or PostgreSQL database", hint)
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

    url: Annotated[str, AfterValidator(_endpoint_url)]
