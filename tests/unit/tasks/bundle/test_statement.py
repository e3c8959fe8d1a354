"""The signed statement: DSSE and in-toto to the letter, over every file, and of no other key."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.bundle.staging import CHECKSUMS
from tasks.bundle.statement import (
    PAYLOAD_TYPE,
    STATEMENT,
    open_envelope,
    pre_authentication,
    predicate_of,
    sign_statement,
)
from tasks.keys.signing import PublicKey, SigningKey, signing_key
from tasks.workspace.folders import Workspace

STATED = {"_type": "https://in-toto.io/Statement/v1", "predicateType": "urn:dprelease:release:1", "subject": []}


@pytest.fixture
def folder(published: Path) -> Path:
    return Workspace(published).bundle("small", "small-2026-01-1")


@pytest.fixture
def envelope(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / STATEMENT).read_text())
    return content


def test_what_is_signed_is_the_example_of_the_dsse_specification():
    assert pre_authentication("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_any_tool_can_verify_it_with_the_public_key_alone(published: Path, envelope: dict[str, Any]):
    """Written with nothing but the two specifications and the PEM file."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    message = b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])
    public = load_pem_public_key((published / "keys" / "signing.pub").read_bytes())
    public.verify(base64.b64decode(envelope["signatures"][0]["sig"]), message)
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    assert json.loads(payload)["_type"] == "https://in-toto.io/Statement/v1"


def test_its_subjects_are_all_files_but_itself_and_the_checksums_which_cover_it(
    published: Path, folder: Path, envelope: dict[str, Any]
):
    key = signing_key(published / "keys").public
    statement, signer = open_envelope(envelope, {key.key_id: key})
    files = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}
    assert signer == key.key_id
    assert {s["name"]: s["digest"]["sha256"] for s in statement["subject"]} == {
        name: digest for name, digest in files.items() if name not in (STATEMENT, CHECKSUMS)
    }
    assert f"{files[STATEMENT]}  {STATEMENT}" in (folder / CHECKSUMS).read_text().splitlines()


def test_it_states_guarantee_ledger_code_and_measurements(published: Path, folder: Path, envelope: dict[str, Any]):
    key = signing_key(published / "keys").public
    statement, _ = open_envelope(envelope, {key.key_id: key})
    record = json.loads((folder / "record.json").read_text())
    said = statement["predicate"]
    assert said == predicate_of(record)
    assert said["guarantee"] == {
        "epsilon": 0.1,
        "delta": 0.0,
        "delta_num": 0.0,
        "unit": "row",
        "neighbours": "replace-one",
    }
    assert said["ledger"] == record["ledger"]
    assert said["mechanisms"] == [{"name": "wishart-difference-trace", "status": "proved"}]
    assert said["measurements"] == {"moments": {"sha256": record["privacy"]["measurements"][0]["digest"]}}


def signed(statement: dict[str, Any]) -> tuple[dict[str, Any], dict[str, PublicKey]]:
    key = SigningKey.fresh()
    return sign_statement(statement, key), {key.public.key_id: key.public}


def _other_payload(envelope: dict[str, Any]) -> None:
    envelope["payload"] = base64.b64encode(b'{"epsilon": 0}').decode()


FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "another payload": _other_payload,
    "another type": lambda e: e.update(payloadType="text/plain"),
    "no signature": lambda e: e.update(signatures=[]),
    "an unknown key": lambda e: e["signatures"][0].update(keyid="f" * 32),
    "an empty signature": lambda e: e["signatures"][0].update(sig=""),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_a_forged_envelope_is_refused(case: str):
    envelope, keys = signed(STATED)
    open_envelope(envelope, keys)
    FORGERIES[case](envelope)
    with pytest.raises(ValueError, match="no key of the ledger"):
        open_envelope(envelope, keys)


@pytest.mark.parametrize("change", [{"_type": "https://in-toto.io/Statement/v0.1"}, {"predicateType": "urn:other"}])
def test_a_well_signed_statement_of_another_kind_is_refused(change: dict[str, str]):
    with pytest.raises(ValueError, match="no statement of a release"):
        open_envelope(*signed(STATED | change))


def test_a_signature_by_one_key_is_not_taken_for_anothers():
    envelope, _ = signed(STATED)
    other = SigningKey.fresh().public
    with pytest.raises(ValueError, match="no key"):
        open_envelope(envelope, {envelope["signatures"][0]["keyid"]: other})
    assert envelope["payloadType"] == PAYLOAD_TYPE
