"""The software bill of materials of a release, as a CycloneDX document made from its record."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import quote

from dpcore.errors import RefusedError


def bill_of_materials(record: dict[str, Any]) -> dict[str, Any]:
    """A CycloneDX 1.6 document of what was installed where a release was made; the same for the same record.

    Raises: RefusedError for a record of a version that did not list what was installed.
    """
    if "code" not in record:
        raise RefusedError(
            "the record does not say what was installed",
            rule="sbom-absent",
            where="RELEASE",
            hint="records have it since version 2; `software` in the record names the main libraries",
        )
    code = record["code"]
    identity = uuid.uuid5(uuid.NAMESPACE_OID, f"{record['release_id']} {code['digest']} {code['dependencies_digest']}")
    program = _component("application", f"dprelease=={code['version']}")
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": identity.urn,
        "version": 1,
        "metadata": {
            "timestamp": record["created_at"],
            "lifecycles": [{"phase": "operations"}],
            "component": {**program, "properties": [_sha256("code", code["digest"])]},
            "properties": [_sha256("dependencies", code["dependencies_digest"])],
        },
        "components": [
            {"type": "platform", "bom-ref": "python", "name": "Python", "version": code["python"]},
            *(_component("library", line) for line in code["dependencies"] if not line.startswith("dprelease==")),
        ],
    }


def _component(kind: str, line: str) -> dict[str, Any]:
    """A component from `name==version`, with its digest if the line has one.

    The digest is a property and not one of `hashes`, which scanners compare with those of downloaded files.
    """
    pinned, _, digest = line.partition(" sha256:")
    name, _, version = pinned.partition("==")
    purl = f"pkg:pypi/{name}@{quote(version, safe='')}"
    component: dict[str, Any] = {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if digest:
        component["properties"] = [_sha256("content", digest)]
    return component


def _sha256(of: str, digest: str) -> dict[str, str]:
    return {"name": f"dprelease:{of}:sha256", "value": digest}
