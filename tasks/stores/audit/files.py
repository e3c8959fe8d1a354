"""Steps over a bundle's files: as published, signed, and saying the same in all of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from tasks.stores.audit.checks import Check, check, require
from tasks.stores.audit.evidence import Evidence
from tasks.stores.bundle import CHECKSUMS, faults, sha256_of
from tasks.stores.deployment import REGISTRY, privacy_parameters, variant_name
from tasks.stores.ledger_state import Entry, ReleaseState
from tasks.stores.reading import open_regular, parse_json, read_text
from tasks.stores.signing import PublicKey
from tasks.stores.spec.loader import PlainLoader
from tasks.stores.statement import STATEMENT, open_envelope, predicate_of


def bundle_check(folder: Path, release: ReleaseState) -> Check:
    """The bundle is there, as published; of a release that was not published there is none."""
    name = f"{release.release_id}: bundle"
    if release.published is None:
        detail = "is there, but was never published" if folder.exists() else f"not published (status {release.status})"
        return Check(name, not folder.exists(), detail)
    digest = release.published.facts["bundle_digest"]
    return check(name, lambda: list(faults(folder, digest)), "is as published")


def statement_check(evidence: Evidence, folder: Path, record: dict[str, Any], sealed: Entry) -> Check:
    """The statement is signed by the key that sealed it, names the files as they are, and says what the record says.

    A bundle that waited for approval was sealed when it began to wait; by then the key may have been another.
    """
    return check(
        f"{record['release_id']}: statement",
        lambda: _statement_faults(evidence, folder, record, sealed),
        f"signs every file and the record's facts (key {sealed.key_id})",
    )


def _statement_faults(evidence: Evidence, folder: Path, record: dict[str, Any], sealed: Entry) -> list[str]:
    envelope = parse_json(read_text(folder / STATEMENT))
    keys = {key_id: PublicKey.from_text(key.public) for key_id, key in evidence.state.keys.items()}
    try:
        statement, signer = open_envelope(envelope, keys)
    except ValueError as error:
        return [str(error)]
    named = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    present = {p.name: sha256_of(p) for p in folder.iterdir() if p.name not in (STATEMENT, CHECKSUMS)}
    return [
        *require(signer == sealed.key_id, "another key signed it than published the release"),
        *require(named == present, "its subjects are not the bundle's files"),
        *require(statement["predicate"] == predicate_of(record), "it states something else than the record"),
    ]


def codebook_check(folder: Path, record: dict[str, Any]) -> Check:
    """The codebook describes the columns of the record's specification, with its warnings."""
    words = "describes the record's columns and repeats its warnings"
    return check(f"{record['release_id']}: codebook", lambda: _codebook_faults(folder, record), words)


def _codebook_faults(folder: Path, record: dict[str, Any]) -> list[str]:
    book = parse_json(read_text(folder / "codebook.json"))
    used = {column["name"]: column["role"] for column in record["utility"]["columns"]}  # a label may serve as a feature
    stated = {c["name"]: c | {"role": used.get(c["name"])} for c in record["specification"]["columns"]}
    found = require([c["name"] for c in book["columns"]] == list(stated), "its columns are not the specification's")
    for column in book["columns"] if not found else ():
        same = all(column.get(key) == stated[column["name"]].get(key) for key in ("kind", "role", "unit"))
        found += require(same and _same_range(column, stated[column["name"]]), f"it misdescribes {column['name']!r}")
    return found + require(book["do_not_trust"] == record["limits"], "its warnings are not the record's")


def _same_range(column: dict[str, Any], stated: dict[str, Any]) -> bool:
    """Whether bounds or categories agree; those of times are spelled in two ways."""
    if "bounds" not in stated:
        return "bounds" not in column and column["categories"] == stated.get("categories", [False, True])
    read = _moment if column["kind"] in ("date", "timestamp") else float
    return [read(bound) for bound in column["bounds"]] == [read(bound) for bound in stated["bounds"]]


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def registry_check(folder: Path, record: dict[str, Any]) -> Check:
    """The registry entry states the record's guarantee."""
    words = "states the record's guarantee"
    return check(f"{record['release_id']}: registry", lambda: _registry_faults(folder, record), words)


def _registry_faults(folder: Path, record: dict[str, Any]) -> list[str]:
    try:
        entry = yaml.load(read_text(folder / REGISTRY), PlainLoader)  # noqa: S506  a safe loader
    except yaml.YAMLError:
        return ["it is no YAML"]
    deployment = entry["deployment"]
    loss = deployment["privacy_loss"]
    person = record["privacy"]["unit"].startswith("person")
    return [
        *require(entry["url_slug"] == record["release_id"], "it speaks of another release"),
        *require(deployment["dp_variant"]["variant_name"] == variant_name(record), "it names another variant"),
        *require(loss["privacy_parameters"] == privacy_parameters(record), "its parameters are not the record's"),
        *require(loss["privacy_unit"].startswith("Person") == person, "its unit is not the record's"),
        *require(
            record["privacy"]["neighbours"] in loss["privacy_unit_details"], "its neighbours are not the record's"
        ),
        *require(deployment["basic"]["publication_date"] == record["created_at"][:10], "its date is not the record's"),
        *require(record["code"]["digest"] in deployment["implementation"]["mechanisms"], "it names another code"),
    ]


def data_check(folder: Path, record: dict[str, Any]) -> Check:
    """The table has the rows and columns that the record says."""
    words = f"{record.get('rows')} rows in the declared columns"
    return check(f"{record['release_id']}: data", lambda: _data_faults(folder, record), words)


def _data_faults(folder: Path, record: dict[str, Any]) -> list[str]:
    import pyarrow.parquet as pq  # here, for an audit that finds nothing published needs no tables

    with open_regular(folder / "data.parquet") as file:
        table = pq.ParquetFile(file)
        rows, columns = table.metadata.num_rows, table.schema_arrow.names
    stated = [column["name"] for column in record["specification"]["columns"]]
    return [
        *require(rows == record["rows"], "its number of rows is not the record's"),
        *require(columns == stated, "its columns are not the record's"),
    ]
