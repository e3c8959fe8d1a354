"""The page of formats is current: it names every kind, field and file, and its vectors are true."""

from __future__ import annotations

import json
import re

import pytest
from support import ROOT
from support.independent_verifier import BODIES as VERIFIED

from tasks.bundle.staging import CHECKSUMS, FILES
from tasks.bundle.statement import PAYLOAD_TYPE, PREDICATE_TYPE, STATEMENT_TYPE
from tasks.keys.decision import CONTEXT
from tasks.keys.signing import PublicKey
from tasks.ledger.entries.bodies import TOGETHER
from tasks.ledger.entries.contents import BODIES, LATER_FIELDS
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.fields import canonical

PAGE = (ROOT / "deployments" / "guides" / "formats.md").read_text()


def row_of(first: str) -> list[str]:
    """The cells of the row that begins with a word."""
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in row.strip("|").split("|")]


def names_in(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


@pytest.mark.parametrize("kind", BODIES)
def test_every_kind_is_on_the_page_with_exactly_its_fields(kind: str):
    _, always, later, _ = row_of(f"`{kind}`")
    assert names_in(always) == set(BODIES[kind])
    assert names_in(later) == set(LATER_FIELDS.get(kind, {}))
    joined = {frozenset(names_in(group)) for group in re.split(r", (?:and )?", later) if "+" in group}
    assert joined == set(TOGETHER.get(kind, ()))


@pytest.mark.parametrize("kind", BODIES)
def test_the_independent_verifier_reads_the_same_fields(kind: str):
    always, *groups = (frozenset(group.split()) for group in VERIFIED[kind].split("|"))
    assert always == BODIES[kind].keys()
    assert frozenset().union(*groups) == LATER_FIELDS.get(kind, {}).keys()
    assert {group for group in groups if len(group) > 1} == set(TOGETHER.get(kind, ()))
    assert VERIFIED.keys() == BODIES.keys()


def test_every_field_of_an_entry_and_every_file_of_a_bundle_is_on_the_page():
    for name in [*Entry.__dataclass_fields__, *FILES, CHECKSUMS]:
        assert f"`{name}`" in PAGE
    for text in (PAYLOAD_TYPE, PREDICATE_TYPE, STATEMENT_TYPE, CONTEXT.decode().strip()):
        assert f"`{text}`" in PAGE


def test_the_vectors_are_true():
    (text,) = re.findall(r"```json\n(.*)\n```", PAGE)
    assert canonical(json.loads(text)) == text
    names = ("seq", "at", "kind", "population", "release_id", "body", "previous")
    public, key_id, digest, signature = (
        row_of(name)[1].strip("`") for name in ("public key", "key id", "hash", "signature")
    )
    entry = Entry(**dict(zip(names, json.loads(text), strict=True)), hash=digest, key_id=key_id, signature=signature)
    assert entry.expected_hash() == digest
    assert PublicKey.from_text(public).key_id == key_id
    assert PublicKey.from_text(public).verifies(signature, digest.encode())
