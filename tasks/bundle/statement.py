"""The signed statement of a bundle: an in-toto Statement in a DSSE envelope.

in-toto Statement v1: https://github.com/in-toto/attestation/tree/main/spec/v1
DSSE v1.0.2: https://github.com/secure-systems-lab/dsse/blob/master/protocol.md

Its subjects are all files of the bundle but itself and the checksums, which cover it.
Any tool that reads DSSE can verify it with the workspace's public key.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from tasks.keys.signing import PublicKey, Signer
from tasks.ledger.entries.fields import canonical

STATEMENT = "statement.intoto.json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:dprelease:release:1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"


def build_statement(record: dict[str, Any], digests: Mapping[str, str]) -> dict[str, Any]:
    """The statement that these files, by their SHA-256, are the release of this record."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digests[name]}} for name in sorted(digests)],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate_of(record),
    }


def predicate_of(record: dict[str, Any]) -> dict[str, Any]:
    """What is stated about the release: a function of its record."""
    privacy = record["privacy"]
    mechanisms = sorted({(m["mechanism"], m["status"]) for m in privacy["measurements"]})
    guarantee = ("epsilon", "delta", "delta_num", "unit", "neighbours")
    return {
        "release_id": record["release_id"],
        "population": privacy["population"],
        "created_at": record["created_at"],
        "flow_run_id": record["flow_run_id"],
        "guarantee": {name: privacy[name] for name in guarantee},
        "ledger": record["ledger"],
        "code": {name: record["code"][name] for name in ("version", "digest", "python", "dependencies_digest")},
        "spec_digest": record["spec_digest"],
        "mechanisms": [{"name": name, "status": status} for name, status in mechanisms],
        "measurements": {m["name"]: {"sha256": m["digest"]} for m in privacy["measurements"]},
    }


def pre_authentication(payload_type: str, payload: bytes) -> bytes:
    """DSSE's PAE: what is signed, so that neither type nor payload can be taken for the other."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign_statement(statement: dict[str, Any], key: Signer) -> dict[str, Any]:
    """The statement in its envelope."""
    message = pre_authentication(PAYLOAD_TYPE, canonical(statement).encode())
    return envelope_of(statement, {"keyid": key.public.key_id, "sig": key.sign(message)})


def envelope_of(statement: dict[str, Any], signature: dict[str, str]) -> dict[str, Any]:
    """The one envelope of a statement and its signature."""
    payload = base64.b64encode(canonical(statement).encode()).decode()
    return {"payload": payload, "payloadType": PAYLOAD_TYPE, "signatures": [signature]}


def open_envelope(envelope: dict[str, Any], keys: Mapping[str, PublicKey]) -> tuple[dict[str, Any], str]:
    """The statement in an envelope, and the fingerprint of the key that signed it.

    Raises: ValueError if none of these keys signed it, or it is no statement of a release.
    """
    payload = base64.b64decode(envelope["payload"], validate=True)
    message = pre_authentication(envelope["payloadType"], payload)
    signers = [
        signature["keyid"]
        for signature in envelope["signatures"]
        if signature["keyid"] in keys and keys[signature["keyid"]].verifies(signature["sig"], message)
    ]
    if not signers:
        raise ValueError("its signature is of no key of the ledger")
    if envelope["payloadType"] != PAYLOAD_TYPE:
        raise ValueError("its payload is of another type")
    statement: dict[str, Any] = json.loads(payload)
    if (statement["_type"], statement["predicateType"]) != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise ValueError("it is no statement of a release")
    return statement, str(signers[0])
