"""Checks of a bundle's files: they are as published, and signed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.audit.checks import Check, check, require
from tasks.audit.evidence import Evidence
from tasks.bundle.staging import CHECKSUMS, faults, render_json, sha256_of
from tasks.bundle.statement import STATEMENT, build_statement, envelope_of, open_envelope, predicate_of
from tasks.keys.signing import PublicKey
from tasks.ledger.entries.bodies import Publication
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.marks import mark_text, retraction_words
from tasks.ledger.releases import ReleaseState
from tasks.workspace.folders import mark_beside
from tasks.workspace.reading import parse_json, read_text


def bundle_check(folder: Path, release: ReleaseState) -> Check:
    """The bundle of a published release exists and is unchanged; an unpublished release has none.

    That of a retracted release may have been deleted.
    """
    name = f"{release.release_id}: bundle"
    if release.retraction is not None and not folder.exists():
        return Check(name, True, "is not there: the release was retracted, and its bundle may be deleted")
    if release.published is None:
        detail = "is there, but was never published" if folder.exists() else f"not published (status {release.status})"
        return Check(name, not folder.exists(), detail)
    digest = release.published.parse(Publication).bundle_digest
    return check(name, lambda: list(faults(folder, digest)), "is as published")


def retraction_check(evidence: Evidence, folder: Path, release: ReleaseState) -> Check | None:
    """The mark beside a bundle and the ledger tell of the same retraction; None if neither tells of one.

    In the workspace a retracted bundle needs its mark. Auditors may have been given the bundle alone.
    """
    entry, mark = release.retraction, mark_beside(folder)
    if entry is None and not mark.exists():
        return None
    told = "" if entry is None else retraction_words(entry)
    unmarked = not mark.exists() and folder.exists()
    return check(
        f"{release.release_id}: retraction",
        lambda: _mark_faults(release, mark, needed=unmarked and evidence.log is not None),
        f"{told}; its bundle came without a mark" if unmarked else told,
    )


def _mark_faults(release: ReleaseState, mark: Path, *, needed: bool) -> list[str]:
    entry = release.retraction
    if entry is None:
        return [f"{mark.name} says that it was retracted, but the ledger has no such entry"]
    if not mark.exists():
        words = "its bundle has no mark: the next run writes it, or the same `dprelease retract` again"
        return require(not needed, f"{retraction_words(entry)}; but {words}")
    return require(
        read_text(mark) == mark_text(entry), f"{mark.name} is not the mark that ledger entry {entry.seq} gives"
    )


def statement_check(evidence: Evidence, folder: Path, record: dict[str, Any], sealed: Entry) -> Check:
    """The key that sealed the bundle signed the statement, which names its files and repeats the record's facts.

    A bundle that waited for approval was sealed before the wait, possibly with another key than at publication.
    """
    return check(
        f"{record['release_id']}: statement",
        lambda: _statement_faults(evidence, folder, record, sealed),
        f"signs every file and the record's facts (key {sealed.key_id})",
    )


def _statement_faults(evidence: Evidence, folder: Path, record: dict[str, Any], sealed: Entry) -> list[str]:
    text = read_text(folder / STATEMENT)
    envelope = parse_json(text)
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
        *require(_is_bare(text, envelope, build_statement(record, present)), "it holds more than a statement"),
    ]


def _is_bare(text: str, envelope: dict[str, Any], due: dict[str, Any]) -> bool:
    """Whether a file contains only this statement and one signature, in the form in which statements are written."""
    (signature,) = envelope["signatures"]
    return text == render_json(envelope_of(due, {key: signature[key] for key in ("keyid", "sig")}))
